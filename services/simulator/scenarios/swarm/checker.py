"""A program that owns an admission check: it lets every reservation pass, some only at a second try.

It may change its mind about what runs already, which evicts it.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal, cast

from services.simulator.scenarios.swarm.load import CHECK, CHECK_CONTROLLER
from services.simulator.scenarios.system import System
from shared.bus.follow import follow
from shared.bus.port import BusError, Entry
from shared.contracts.controllers import ANSWERED_BY, CheckService
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.checks import CheckState
from shared.contracts.refs import WorkloadRef
from shared.testing.world.memory_bus import MemoryBus

SERVICE: Final = "dispatcher"
"""In whose place it answers."""

DELAY_SECONDS: Final = (0.1, 6.0)
RETRY_SECONDS: Final = 3.0
LATER_SECONDS: Final = 15.0
"""When what was evicted may queue again: until then others get its quota."""

MIND_SECONDS: Final = (0.4, 5.0)
"""When it changes its mind, after an admission."""


@dataclass(slots=True)
class _Turn:
    """What it says of one workload: of its latest decision only, one answer after the other."""

    latest: Admission | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


async def check_reservations(system: System, *, changes_its_mind: bool) -> None:
    """Answer every reservation that asks for the check, until cancelled."""
    random = Random(f"checker/{system.world.seed}")
    bus = MemoryBus(system.server, instance="checker", dialect=system.newest)
    await bus.start()
    tasks: set[asyncio.Task[None]] = set()
    turns: defaultdict[WorkloadRef, _Turn] = defaultdict(_Turn)

    def on_admission(admission: Admission, _entry: Entry) -> None:
        if CHECK not in admission.checks:
            return
        turn = turns[admission.ref]
        turn.latest = admission
        if admission.state == "reserved":
            answering = _answer(system, bus, turn, random)
        elif admission.state == "admitted" and changes_its_mind and random.random() < 2 / 3:
            answering = _withdraw(system, bus, turn, random)
        else:
            return
        task = asyncio.create_task(answering)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async with _known_to_quota():
        await follow(bus, {Admission: on_admission})


@asynccontextmanager
async def _known_to_quota() -> AsyncIterator[None]:
    """Let the checker answer on the bus, as only our own services may."""
    answered_by = cast("dict[str, CheckService]", ANSWERED_BY)
    answered_by[CHECK_CONTROLLER] = SERVICE
    try:
        yield
    finally:
        answered_by.pop(CHECK_CONTROLLER, None)


async def _answer(system: System, bus: MemoryBus, turn: _Turn, random: Random) -> None:
    admission = turn.latest
    await asyncio.sleep(random.uniform(*DELAY_SECONDS))
    if random.random() < 1 / 5:
        await _publish(system, bus, turn, admission, "Retry")
    else:
        await _publish(system, bus, turn, admission, "Ready")


async def _withdraw(system: System, bus: MemoryBus, turn: _Turn, random: Random) -> None:
    admission = turn.latest
    await asyncio.sleep(random.uniform(*MIND_SECONDS))
    if not system.world.calm:
        await _publish(system, bus, turn, admission, "Retry", retry_seconds=LATER_SECONDS)


async def _publish(
    system: System,
    bus: MemoryBus,
    turn: _Turn,
    admission: Admission | None,
    state: Literal["Ready", "Retry"],
    *,
    retry_seconds: float = RETRY_SECONDS,
) -> None:
    assert admission is not None
    answer = CheckState.answer(
        admission,
        CHECK,
        state,
        "it is fine" if state == "Ready" else "not yet",
        service=SERVICE,
        now=system.world.now(),
        requeue_after_seconds=retry_seconds if state == "Retry" else None,
    )
    async with turn.lock:
        while admission is turn.latest:
            try:
                await bus.publish(answer)
            except BusError:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return
