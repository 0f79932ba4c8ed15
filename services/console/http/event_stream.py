"""What happens, as server-sent events: everything at first, then what changed, for one user's eyes."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Final

from services.console.access.rights import Eyes
from services.console.documents import Snapshot
from services.console.query_service import Desk
from services.console.refusals import Refusal
from services.console.rows import queue_row, workload_row
from services.console.view import Change

__all__ = ["events"]

BEAT_SECONDS: Final = 15.0
"""Between two signs of life, at which it is asked again what the user may see."""

SETTLE_SECONDS: Final = 0.25
"""How long to wait for what belongs together: a page need not be told ten times a second."""


async def events(desk: Desk, token: str | None, namespace: str | None) -> AsyncGenerator[str]:
    """Events for ever, as text.

    It ends with an `end` event when the user may see it no more. Raises `Refusal` before the first.
    """
    user = await desk.user(token)
    eyes = await desk.rights.eyes(user, namespace)
    version = desk.view.version
    yield _event("snapshot", version, _snapshot(desk, eyes))
    loop = asyncio.get_running_loop()
    asked = loop.time()
    while True:
        if loop.time() - asked >= BEAT_SECONDS:
            try:
                user = await desk.user(token)
                now = await desk.rights.eyes(user, namespace)
            except Refusal as refusal:
                yield _event("end", version, refusal.status())
                return
            if _differ(eyes, now, desk):
                version = desk.view.version
                yield _event("snapshot", version, _snapshot(desk, now))
            eyes, asked = now, loop.time()
        try:
            async with asyncio.timeout(BEAT_SECONDS):
                await desk.view.wait(version)
        except TimeoutError:
            yield ": beat\n\n"
            continue
        await asyncio.sleep(SETTLE_SECONDS)
        changes, version_now = desk.view.since(version), desk.view.version
        if changes is None:
            yield _event("snapshot", version_now, _snapshot(desk, eyes))
        elif told := _told(desk, eyes, changes):
            yield _event("change", version_now, told)
        version = version_now


def _differ(was: Eyes, now: Eyes, desk: Desk) -> bool:
    """Whether somebody sees something else of what there is."""
    namespaces = {ident[1] for ident in desk.view.queues()}
    return any(was.seen(name) != now.seen(name) for name in sorted(namespaces | {""}))


def _snapshot(desk: Desk, eyes: Eyes) -> dict[str, Any]:
    workloads = desk.rows(eyes.sees)
    return Snapshot(
        version=desk.view.version,
        queues=desk.queue_rows(eyes),
        workloads=workloads.items,
        omitted=workloads.omitted,
    ).wire()


def _told(desk: Desk, eyes: Eyes, changes: list[Change]) -> dict[str, Any]:
    """The rows that are new or different, and the names of those that are gone."""
    queues: list[dict[str, Any]] = []
    workloads: list[dict[str, Any]] = []
    gone: list[dict[str, str]] = []
    for change in changes:
        cluster, namespace, name = change.ident
        if not eyes.seen(namespace):
            continue
        row = (queue_row if change.what == "queue" else workload_row)(desk.view, change.ident)
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
