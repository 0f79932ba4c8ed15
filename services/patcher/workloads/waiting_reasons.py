"""Publishes waiting reasons at low priority so that they never delay an admission."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.pacing import Backlog, RateLimiter, WriteLoad, drain
from shared.contracts.refs import WorkloadRef

BURST: Final = 20
SYNC_POLL_SECONDS: Final = 0.1
"""Interval at which the start checks whether the cache is synced."""

Write = Callable[[str, str], Awaitable[None]]
"""Writes the current reason of one workload, if it still waits."""


class WaitingReasons:
    """Workloads whose reason is still to be written. Workloads of our own jobs have their own rate."""

    def __init__(
        self,
        *,
        cache: ObjectCache,
        per_second: float,
        foreign_per_second: float,
        load: WriteLoad,
    ) -> None:
        """`foreign_per_second`: for Workloads that another program created; slower under `load`."""
        self._cache = cache
        self._own: Backlog[WorkloadRef, None] = Backlog()
        self._foreign: Backlog[WorkloadRef, None] = Backlog()
        self._own_limiter = RateLimiter(per_second, burst=BURST)
        self._foreign_limiter = RateLimiter(foreign_per_second, load=load)

    def enqueue(self, workload: WorkloadRef, *, foreign: bool) -> None:
        """Write the reason later. What is written is the reason at that time."""
        (self._foreign if foreign else self._own).put(workload, None)

    def discard(self, workload: WorkloadRef) -> None:
        """Write no reason: the workload does not wait any more."""
        self._own.discard(workload)
        self._foreign.discard(workload)

    async def run(self, write: Write) -> None:
        """Write until cancelled, starting with what an earlier process left unwritten."""

        async def write_one(workload: WorkloadRef, _value: None) -> None:
            await write(workload.namespace, workload.name)

        async with asyncio.TaskGroup() as group:
            group.create_task(self._enqueue_all_waiting())
            group.create_task(drain(self._own, write_one, self._own_limiter, what="reason"))
            group.create_task(drain(self._foreign, write_one, self._foreign_limiter, what="reason"))

    async def _enqueue_all_waiting(self) -> None:
        while self._cache.not_synced() is not None:  # noqa: ASYNC110 - only once, at the start
            await asyncio.sleep(SYNC_POLL_SECONDS)
        for admission in self._cache.admissions():
            if admission.state == "waiting":
                state = self._cache.workload(admission.namespace, admission.name)
                if state is not None:
                    self.enqueue(admission.ref, foreign=state.owner is None)
