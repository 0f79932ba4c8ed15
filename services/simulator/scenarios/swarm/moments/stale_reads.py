"""One of three servers is cut off, and answers with what it had until it knows that others lead.

The worst moment is when a patcher beside it has a decision in its hands:

1. A patcher has written that a job is admitted. Its machine stops for some seconds before the job is
   started, and with it the server that led the decisions.
2. The other servers elect. A user deactivates the job, and another patcher carries out its eviction.
3. The machine goes on. The patcher asks that server whether its decision is the last one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from random import Random
from typing import Final

from services.simulator.scenarios.swarm.features import FAULT_SECONDS
from services.simulator.scenarios.swarm.moments.admissions import follow_admissions
from services.simulator.scenarios.system import System
from shared.bus.streams import view_of
from shared.contracts.kube.bodies import Metadata
from shared.contracts.subjects import Stream
from shared.testing.world.connection import Deposed

LED: Final = (Stream.ADMISSIONS, Stream.WORKLOADS, Stream.OUTCOMES, Stream.OBSERVED, Stream.CHECKS)
SUCCEEDED_SECONDS: Final = (2.5, 4.5)
"""After which others lead what a server led that is cut off."""

DEPOSED_SECONDS: Final = (7.0, 10.0)
"""After which such a server knows that it leads nothing any more."""

STOPPED_SECONDS: Final = (6.0, 7.0)
"""How long a machine stops: until others have carried the eviction out."""

Activate = Callable[..., Awaitable[None]]


class StaleReads:
    """Cuts a server off now and then, with the processes that are connected to it."""

    def __init__(self, system: System, replicas: Mapping[str, int], activate: Activate) -> None:
        """`activate`: what users call to deactivate a workload."""
        self._system = system
        self._world = system.world
        self._server = system.server
        self._replicas = replicas
        self._activate = activate
        self._random = Random(f"stale/{system.world.seed}")
        self._admitted: asyncio.Queue[Metadata] = asyncio.Queue()

    async def cut_off_a_server(self) -> None:
        """Cut a server off at any time. Some processes connect to it later."""
        random = self._random
        replicas = self._replicas.items()
        processes = [f"{name}-{number + 1}" for name, count in replicas for number in range(count)]
        there = [name for name in processes if random.random() < 1 / 3]
        names = (*LED, *map(view_of, LED))
        led = [name for name in names if random.random() < 2 / 3]
        await self._cut_off(there, led, random.choice((0.0, 0.0, random.uniform(0.0, 3.0))))

    def start(self) -> None:
        """Begin to follow the Workloads."""
        follow_admissions(
            self._system, lambda workload: self._admitted.put_nowait(workload["metadata"])
        )

    async def evict_what_is_admitted(self) -> None:
        """Cut a server off right after an admission is written, with some of the patchers."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FAULT_SECONDS - asyncio.get_running_loop().time()):
                while True:
                    metadata = await self._admitted.get()
                    if not self._server.deposed and self._random.random() < 1 / 2:
                        await self._evict(metadata)

    async def _evict(self, metadata: Metadata) -> None:
        random, count = self._random, self._replicas["patcher"]
        patchers = [f"patcher-{number + 1}" for number in range(count)]
        there = random.sample(patchers, count - 1)
        for name in there:
            self._world.pause(name, seconds=random.uniform(*STOPPED_SECONDS))
        await self._cut_off(there, LED, 0.0)
        await asyncio.sleep(SUCCEEDED_SECONDS[0])
        await self._activate(metadata, active=False)

    async def _cut_off(self, there: Iterable[str], led: Iterable[str], later: float) -> None:
        server, led = self._server, list(led)
        if server.deposed or any(server.stream(name).election for name in led):
            return
        self._world.note(f"cut off: {', '.join(there)} and a server that led {', '.join(led)}")
        deposed = Deposed(server, led)
        for name in led:
            server.elect(name, seconds=self._random.uniform(*SUCCEEDED_SECONDS))
        await asyncio.sleep(later)
        server.deposed.update(dict.fromkeys(there, deposed))
        self._world.later(self._random.uniform(*DEPOSED_SECONDS), self._join, deposed)

    def _join(self, deposed: Deposed) -> None:
        if deposed in self._server.deposed.values():
            self._world.note("the server that was cut off joins the others")
            self._server.deposed.clear()
