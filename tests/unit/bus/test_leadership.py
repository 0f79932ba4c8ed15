"""What ends a term of leadership, over a bus of which only leases matter."""

import asyncio
from typing import Any, cast

from shared.bus.leadership import lead
from shared.bus.port import Bus


class _Lease:
    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.released = False
        self.held = True

    async def lost(self) -> None:
        await self.gone.wait()

    async def release(self) -> None:
        self.released = True


class _Leases:
    def __init__(self) -> None:
        self.given: list[_Lease] = []
        self.wanted = asyncio.Semaphore(1)
        self.lacking: asyncio.Queue[str] = asyncio.Queue()

    async def flush(self) -> None:
        """Nothing is on its way."""

    async def log_lost(self) -> str:
        return await self.lacking.get()

    async def lease(self, _name: str) -> Any:
        await self.wanted.acquire()
        self.given.append(_Lease())
        return self.given[-1]


async def test_lost_lease_cancels_the_term_before_the_lease_is_released() -> None:
    leases, events = _Leases(), list[str]()
    serving = asyncio.Event()

    async def serve() -> None:
        serving.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append(f"ended, released: {leases.given[-1].released}")

    task = asyncio.create_task(lead(cast("Bus", leases), "work", serve))
    await serving.wait()
    serving.clear()
    leases.given[0].gone.set()
    leases.wanted.release()
    await serving.wait()

    assert events == ["ended, released: False"]
    assert [lease.released for lease in leases.given] == [True, False]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [lease.released for lease in leases.given] == [True, True]


async def test_term_ends_when_a_log_lacks_what_was_published() -> None:
    leases, serving = _Leases(), asyncio.Semaphore(0)

    async def serve() -> None:
        serving.release()
        await asyncio.Event().wait()

    task = asyncio.create_task(lead(cast("Bus", leases), "work", serve, pause_seconds=lambda: 0.0))
    for _ in range(3):
        await serving.acquire()
        leases.lacking.put_nowait("OBSERVED")
        leases.wanted.release()
    await serving.acquire()

    assert [lease.released for lease in leases.given] == [True, True, True, False]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
