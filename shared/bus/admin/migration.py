"""Moves all streams from one server to another, with sequences and durable consumers: `sluice bus migrate`.

A server that asked for no users keeps its streams in another account than one that does. Each stream goes as
a snapshot: its messages have the same sequences afterwards, and its durables stand where they stood.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from nats.aio.client import Client

from shared.bus.admin.election_retry import ElectionRetry
from shared.bus.admin.snapshots import load_stream, save_stream
from shared.bus.nats.stream_drift import stream_info
from shared.bus.streams import VIEW_SUFFIX, epoch_of, load

DURABLES_SECONDS: Final = 30.0
"""Three servers agree on the consumers of a stream that was restored after they agreed on the stream."""

Json = dict[str, Any]
Action = Literal["move", "moved", "absent", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is to be done, or was done, about one stream."""

    stream: str
    action: Action
    messages: int = 0
    last: int = 0
    """Last sequence at the source."""

    detail: str = ""

    def __str__(self) -> str:
        sizes = f", {self.messages} messages up to {self.last}" if self.action != "absent" else ""
        return f"{self.stream}: {self.action}{sizes}" + (f" ({self.detail})" if self.detail else "")


async def plan(source: Client, target: Client, *, retry: ElectionRetry | None = None) -> list[Step]:
    """What `migrate` would do. Changes nothing. Raises a `BusError` where a server does not answer."""
    retry = retry or ElectionRetry()
    names = sorted(load().configs(), key=lambda name: not name.endswith(VIEW_SUFFIX))
    return [await _step(name, source, target, retry) for name in names]


async def migrate(
    source: Client, target: Client, folder: Path, *, retry: ElectionRetry | None = None
) -> AsyncIterator[Step]:
    """Move what is not moved yet; yield each step when it is done. `folder` takes the snapshots.

    Views come before their logs, as in `snapshots.restore`. It moves nothing if a step of the plan is
    refused. May be repeated: what is at the target stays there.
    Raises `BackupError` and `BusError`.
    """
    retry = retry or ElectionRetry()
    steps = await plan(source, target, retry=retry)
    if any(step.action == "refused" for step in steps):
        for step in steps:
            yield step
        return
    moved = [step.stream for step in steps if step.action == "move"]
    await _make_room(target, moved, retry)
    for step in steps:
        if step.action != "move":
            yield step
            continue
        await save_stream(source, step.stream, folder / step.stream, retry)
        await load_stream(target, folder / step.stream, retry)
        yield await _verified(step, source, target, retry)
    for name in moved:
        now = await _step(name, source, target, retry)
        if now.action == "refused":
            yield now


async def _make_room(target: Client, names: list[str], retry: ElectionRetry) -> None:
    """Delete what the plan has seen to be empty, all of it before the first stream comes.

    A view that finds an empty log beside it follows it from its first message, and has everything twice
    once the log is there.
    """
    for name in names:
        if await _info(target, name, retry) is not None:
            await retry.delete(target, name)


async def _step(name: str, source: Client, target: Client, retry: ElectionRetry) -> Step:
    here, there = await _info(source, name, retry), await _info(target, name, retry)
    if here is None:
        return Step(stream=name, action="absent", detail="the source has none")
    state = here["state"]
    last = int(state["last_seq"])
    step = Step(stream=name, action="move", messages=int(state["messages"]), last=last)
    if there is None:
        return step
    known = int(there["state"]["last_seq"])
    same = epoch_of(here["config"]) == epoch_of(there["config"])
    if known == 0 and (last or not same) and not int(there["state"].get("consumer_count", 0)):
        return replace(step, detail="in the place of an empty one")
    if not same:
        return replace(step, action="refused", detail="the target has another stream of this name")
    if known < last and not name.endswith(VIEW_SUFFIX):
        detail = (
            f"the target ends at {known}: stop the services, delete it there, and run this again"
        )
        return replace(step, action="refused", detail=detail)
    return replace(step, action="moved")


async def _verified(step: Step, source: Client, target: Client, retry: ElectionRetry) -> Step:
    """The step as done; refused if a durable consumer does not stand where it stood."""
    there = await _info(target, step.stream, retry)
    if there is None or int(there["state"]["last_seq"]) < step.last:
        return replace(step, action="refused", detail="not all of it arrived")
    wanted = await _durables(source, step.stream, retry)
    until = asyncio.get_running_loop().time() + DURABLES_SECONDS
    while (found := await _durables(target, step.stream, retry)) != wanted:
        if asyncio.get_running_loop().time() > until:
            break
        await asyncio.sleep(0.1)
    if wanted != found:
        return replace(step, action="refused", detail=f"durables {wanted} became {found}")
    return replace(step, action="moved", detail=f"{len(found)} durables" if found else "")


async def _durables(nc: Client, stream: str, retry: ElectionRetry) -> dict[str, int]:
    """Each durable consumer of a stream, and up to where it has acknowledged."""
    found: dict[str, int] = {}
    seen = 0
    while True:
        page = await retry.call(nc, f"CONSUMER.LIST.{stream}", {"offset": seen})
        consumers = page.get("consumers") or []
        seen += len(consumers)
        for one in consumers:
            if one["config"].get("durable_name"):
                found[one["name"]] = int(one["ack_floor"]["stream_seq"])
        if not consumers or seen >= int(page["total"]):
            return found


async def _info(nc: Client, name: str, retry: ElectionRetry) -> Json | None:
    return await retry.ask(partial(stream_info, nc, name))
