"""The worst moment to be deposed for a watcher: the first message about a job is on its way.

1. A watcher has seen a new job, and its message is on its way: the network holds it, or nobody leads the log.
2. The watcher loses its lease. The job is deleted.
3. The next term, of it or of another watcher, reads the log and lists the cluster. The message arrives.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from services.simulator.scenarios.swarm import load
from services.simulator.scenarios.system import CLUSTER, System
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Metadata
from shared.contracts.subjects import Stream

LEASE: Final = f"watcher-{CLUSTER}"
ANOTHER_SECONDS: Final = 2.5
"""How long somebody else has the lease."""

ON_ITS_WAY_SECONDS: Final = (9.0, 12.0)
"""How long messages are on their way: until the next term has listed the cluster."""

BEFORE_SECONDS: Final = 1.0
"""At the begin of an election what arrives is stored."""

FIRST_NUMBER: Final = 1_000
"""Of the jobs, whose names are those of a burst."""


class LateObservations:
    """Creates a job at such a moment, and deletes it."""

    def __init__(self, system: System, delete: Callable[[Metadata], Awaitable[None]]) -> None:
        """`delete`: what users call to delete a Job."""
        self._system = system
        self._delete = delete
        self._random = Random(f"observations/{system.world.seed}")
        self._number = FIRST_NUMBER

    async def depose_a_watcher(self) -> None:
        """Let a watcher lose its lease while its first message about a job is on its way."""
        system, random = self._system, self._random
        holder = system.server.holder(LEASE)
        if holder is None or system.server.stream(Stream.OBSERVED).election:
            return
        seconds = random.uniform(*ON_ITS_WAY_SECONDS)
        if random.random() < 1 / 2:
            process = holder.partition(".")[0]
            system.world.links.hold(process, "bus", ways=("request",), seconds=seconds)
        else:
            system.server.elect(Stream.OBSERVED, seconds=seconds)
        await asyncio.sleep(BEFORE_SECONDS)
        self._number += 1
        job = await system.kube.create(kinds.JOB, load.burst_job(self._number, random))
        await asyncio.sleep(random.uniform(0.3, 1.0))
        if system.server.holder(LEASE) == holder:
            system.server.release(LEASE, holder)
            system.server.acquire(LEASE, "somebody else", ttl_seconds=ANOTHER_SECONDS)
        await asyncio.sleep(random.uniform(0.0, ANOTHER_SECONDS / 2))
        await self._delete(job["metadata"])
        await asyncio.sleep(seconds)
