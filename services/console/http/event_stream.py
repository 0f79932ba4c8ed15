"""Server-sent events: a snapshot first, then changes, as far as one user may see them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Final, Literal

from services.console.access.authorizer import Visibility
from services.console.query_service import QueryService
from services.console.rows import row_text
from services.console.status_error import StatusError
from services.console.view import View, ViewChange
from shared.contracts.refs import QueueRef, WorkloadRef

HEARTBEAT_SECONDS: Final = 15.0
"""Time between two heartbeats. At each, the user's rights are checked again."""

SETTLE_SECONDS: Final = 1.0
"""How long changes are collected, so that a page gets at most one event a second."""

SNAPSHOT_ROWS: Final = 250
"""Workloads in one event. More of them follow in further events, so that a page shows the first ones at
once, and fifty that open together do not each hold all of them as one text."""

ROWS_MAX: Final = 20_000
"""Workloads that a page is told at most. It says how many more there are."""


async def events(
    queries: QueryService, token: str | None, namespace: str | None
) -> AsyncGenerator[str]:
    """Events as text, without end.

    Ends with an `end` event when the user may see nothing any more. Raises `StatusError` before the
    first event.
    """
    user = await queries.authenticate(token)
    visibility = await queries.authorizer.visibility(user, namespace)
    version = queries.view.version
    for event in _snapshot(queries, visibility):
        yield event
    del event  # It may be long, and this stream lives as long as a page is open.
    loop = asyncio.get_running_loop()
    asked = loop.time()
    while True:
        if loop.time() - asked >= HEARTBEAT_SECONDS:
            try:
                user = await queries.authenticate(token)
                now = await queries.authorizer.visibility(user, namespace)
            except StatusError as refusal:
                yield _event("end", version, json.dumps(refusal.status()))
                return
            if _shows_other(visibility, now, queries):
                version = queries.view.version
                for event in _snapshot(queries, now):
                    yield event
                del event
            visibility, asked = now, loop.time()
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await queries.view.wait_for_change(version)
        except TimeoutError:
            yield ": beat\n\n"
            continue
        await asyncio.sleep(SETTLE_SECONDS)
        changes, version_now = queries.view.changes_since(version), queries.view.version
        if changes is None:
            for event in _snapshot(queries, visibility):
                yield event
            del event
        elif change := _change(queries, visibility, changes):
            yield _event("change", version_now, change)
        version = version_now


def _shows_other(was: Visibility, now: Visibility, queries: QueryService) -> bool:
    """Whether two visibilities differ for any namespace that has queues."""
    namespaces = {ident[1] for ident in queries.view.queues()}
    return any(was.shows(name) != now.shows(name) for name in sorted(namespaces | {""}))


def _snapshot(queries: QueryService, visibility: Visibility) -> Iterator[str]:
    """A `snapshot` with the queues and the first workloads, then `rows` with the others."""
    view, version = queries.view, queries.view.version
    queues = _texts(view, "queue", (i for i in view.queues() if visibility.shows(i[1])))
    found = queries.in_order(visibility.is_visible)
    name, omitted = "snapshot", max(0, len(found) - ROWS_MAX)
    for first in range(0, max(1, min(len(found), ROWS_MAX)), SNAPSHOT_ROWS):
        last = min(first + SNAPSHOT_ROWS, ROWS_MAX)
        workloads = _texts(view, "workload", found[first:last])
        more = json.dumps(last < min(len(found), ROWS_MAX))
        data = f'"queues":[{queues}],"workloads":[{workloads}],"omitted":{omitted},"more":{more}'
        yield _event(name, version, f'{{"version":{version},{data}}}')
        name, queues = "rows", ""


def _texts(
    view: View, what: Literal["workload", "queue"], idents: Iterable[WorkloadRef | QueueRef]
) -> str:
    rows = (row_text(view, what, ident) for ident in idents)
    return ",".join(row for row in rows if row is not None)


def _change(queries: QueryService, visibility: Visibility, changes: list[ViewChange]) -> str:
    """Rows that are new or different, and the names of objects that are gone; empty: none to tell."""
    rows: dict[str, list[str]] = {"queue": [], "workload": []}
    gone: list[dict[str, str]] = []
    for change in changes:
        cluster, namespace, name = change.ident
        if not visibility.shows(namespace):
            continue
        row = row_text(queries.view, change.what, change.ident)
        if row is None:
            where = {"cluster": cluster, "namespace": namespace, "name": name}
            gone.append({"what": change.what, **where})
        else:
            rows[change.what].append(row)
    if not (rows["queue"] or rows["workload"] or gone):
        return ""
    queues, workloads = ",".join(rows["queue"]), ",".join(rows["workload"])
    return f'{{"queues":[{queues}],"workloads":[{workloads}],"gone":{json.dumps(gone)}}}'


def _event(name: str, version: int, data: str) -> str:
    return f"id: {version}\nevent: {name}\ndata: {data}\n\n"
