"""Moves all streams from one server to another, with sequences and durable consumers: `sluice bus migrate`.

A server that asked for no users keeps its streams in another account than one that does. Each stream goes as
a snapshot: its messages have the same sequences afterwards, and its durables stand where they stood.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from nats.aio.client import Client

from shared.bus.admin.snapshots import load_stream, save_stream
from shared.bus.nats.jetstream_api import call
from shared.bus.nats.stream_drift import stream_info
from shared.bus.port import UnavailableError
from shared.bus.streams import VIEW_SUFFIX, epoch_of, load

DURABLES_SECONDS: Final = 30.0
"""Three servers agree on the consumers of a stream that was restored after they agreed on the stream."""

PATIENCE_SECONDS: Final = 60.0
"""Servers that elect a leader do not answer meanwhile."""

T = TypeVar("T")
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


async def plan(source: Client, target: Client) -> list[Step]:
    """What `migrate` would do. Changes nothing. Raises a `BusError` where a server does not answer."""
    names = sorted(load().configs(), key=lambda name: not name.endswith(VIEW_SUFFIX))
    return [await _step(name, source, target) for name in names]


async def migrate(source: Client, target: Client, folder: Path) -> AsyncIterator[Step]:
    """Move what is not moved yet; yield each step when it is done. `folder` takes the snapshots.

    Views come before their logs, as in `snapshots.restore`. It moves nothing if a step of the plan is
    refused. May be repeated: what is at the target stays there.
    Raises `BackupError` and `BusError`.
    """
    steps = await plan(source, target)
    if any(step.action == "refused" for step in steps):
        for step in steps:
            yield step
        return
    moved = []
    for step in steps:
        if step.action != "move":
            yield step
            continue
        await save_stream(source, step.stream, folder / step.stream)
        if await _info(target, step.stream) is not None:  # The plan has seen that it is empty.
            await call(target, f"STREAM.DELETE.{step.stream}")
        await load_stream(target, folder / step.stream)
        moved.append(step.stream)
        yield await _verified(step, source, target)
    for name in moved:
        now = await _step(name, source, target)
        if now.action == "refused":
            yield now


async def _step(name: str, source: Client, target: Client) -> Step:
    here, there = await _info(source, name), await _info(target, name)
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


async def _verified(step: Step, source: Client, target: Client) -> Step:
    """The step as done; refused if a durable consumer does not stand where it stood."""
    there = await _info(target, step.stream)
    if there is None or int(there["state"]["last_seq"]) < step.last:
        return replace(step, action="refused", detail="not all of it arrived")
    wanted = await _durables(source, step.stream)
    until = asyncio.get_running_loop().time() + DURABLES_SECONDS
    while (found := await _durables(target, step.stream)) != wanted:
        if asyncio.get_running_loop().time() > until:
            break
        await asyncio.sleep(0.1)
    if wanted != found:
        return replace(step, action="refused", detail=f"durables {wanted} became {found}")
    return replace(step, action="moved", detail=f"{len(found)} durables" if found else "")


async def _durables(nc: Client, stream: str) -> dict[str, int]:
    """Each durable consumer of a stream, and up to where it has acknowledged."""
    found: dict[str, int] = {}
    seen = 0
    while True:
        page = await _asked(partial(call, nc, f"CONSUMER.LIST.{stream}", {"offset": seen}))
        consumers = page.get("consumers") or []
        seen += len(consumers)
        for one in consumers:
            if one["config"].get("durable_name"):
                found[one["name"]] = int(one["ack_floor"]["stream_seq"])
        if not consumers or seen >= int(page["total"]):
            return found


async def _info(nc: Client, name: str) -> Json | None:
    return await _asked(partial(stream_info, nc, name))


async def _asked(question: Callable[[], Awaitable[T]]) -> T:
    """The answer to a question that changes nothing: it is asked again while no server answers."""
    until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        try:
            return await question()
        except UnavailableError:
            if asyncio.get_running_loop().time() > until:
                raise
            await asyncio.sleep(0.5)
