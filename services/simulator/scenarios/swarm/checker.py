"""A program that owns an admission check: it lets every reservation pass, some only at a second try."""

import asyncio
from contextlib import aclosing
from random import Random
from typing import Final

from services.simulator.scenarios.swarm.load import CHECK
from services.simulator.scenarios.system import System
from shared.bus.follow import read
from shared.bus.headers import TYPE
from shared.bus.port import BusError, CaughtUp
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.checks import CheckState
from shared.testing.world.memory_bus import MemoryBus

DELAY_SECONDS: Final = (0.1, 6.0)
RETRY_SECONDS: Final = 3.0


async def check_reservations(system: System) -> None:
    """Answer every reservation that asks for the check, until cancelled."""
    random = Random(f"checker/{system.world.seed}")
    bus = MemoryBus(system.server, instance="checker")
    await bus.start()
    tasks: set[asyncio.Task[None]] = set()
    async with aclosing(bus.watch(Admission.stream)) as items:
        async for item in items:
            if isinstance(item, CaughtUp) or item.headers.get(TYPE) != Admission.type:
                continue
            admission = read(item, Admission)
            if admission is None or admission.state != "reserved" or CHECK not in admission.checks:
                continue
            task = asyncio.create_task(_answer(system, bus, admission, random))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


async def _answer(system: System, bus: MemoryBus, admission: Admission, random: Random) -> None:
    await asyncio.sleep(random.uniform(*DELAY_SECONDS))
    again = random.random() < 1 / 5
    answer = CheckState.answer(
        admission,
        CHECK,
        "Retry" if again else "Ready",
        "not yet" if again else "it is fine",
        now=system.world.now(),
        requeue_after_seconds=RETRY_SECONDS if again else None,
    )
    while True:
        try:
            await bus.publish(answer)
        except BusError:
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return
