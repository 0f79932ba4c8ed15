"""Server-sent events: a snapshot first, then changes, as far as one user may see them."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Final

from services.console.access.authorizer import Visibility
from services.console.documents import Snapshot
from services.console.query_service import QueryService
from services.console.rows import queue_row, workload_row
from services.console.status_error import StatusError
from services.console.view import ViewChange

HEARTBEAT_SECONDS: Final = 15.0
"""Time between two heartbeats. At each, the user's rights are checked again."""

SETTLE_SECONDS: Final = 0.25
"""How long changes are collected, so that a page gets at most four events a second."""


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
    yield _event("snapshot", version, _snapshot(queries, visibility))
    loop = asyncio.get_running_loop()
    asked = loop.time()
    while True:
        if loop.time() - asked >= HEARTBEAT_SECONDS:
            try:
                user = await queries.authenticate(token)
                now = await queries.authorizer.visibility(user, namespace)
            except StatusError as refusal:
                yield _event("end", version, refusal.status())
                return
            if _shows_other(visibility, now, queries):
                version = queries.view.version
                yield _event("snapshot", version, _snapshot(queries, now))
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
            yield _event("snapshot", version_now, _snapshot(queries, visibility))
        elif told := _change(queries, visibility, changes):
            yield _event("change", version_now, told)
        version = version_now


def _shows_other(was: Visibility, now: Visibility, queries: QueryService) -> bool:
    """Whether two visibilities differ for any namespace that has queues."""
    namespaces = {ident[1] for ident in queries.view.queues()}
    return any(was.shows(name) != now.shows(name) for name in sorted(namespaces | {""}))


def _snapshot(queries: QueryService, visibility: Visibility) -> dict[str, Any]:
    workloads = queries.rows(visibility.is_visible)
    return Snapshot(
        version=queries.view.version,
        queues=queries.queue_rows(visibility),
        workloads=workloads.items,
        omitted=workloads.omitted,
    ).wire()


def _change(
    queries: QueryService, visibility: Visibility, changes: list[ViewChange]
) -> dict[str, Any]:
    """Rows that are new or different, and the names of objects that are gone."""
    queues: list[dict[str, Any]] = []
    workloads: list[dict[str, Any]] = []
    gone: list[dict[str, str]] = []
    for change in changes:
        cluster, namespace, name = change.ident
        if not visibility.shows(namespace):
            continue
        row = (queue_row if change.what == "queue" else workload_row)(queries.view, change.ident)
        if row is None:
            where = {"cluster": cluster, "namespace": namespace, "name": name}
            gone.append({"what": change.what, **where})
        else:
            (queues if change.what == "queue" else workloads).append(row.wire())
    if not (queues or workloads or gone):
        return {}
    return {"queues": queues, "workloads": workloads, "gone": gone}


def _event(name: str, version: int, data: dict[str, Any]) -> str:
    return f"id: {version}\nevent: {name}\ndata: {json.dumps(data)}\n\n"
