"""What ends a term of leadership, over a bus of which only leases matter."""

import asyncio
from typing import Any, cast

import pytest

from shared.bus.leadership import lead
from shared.bus.port import Bus, BusError
from shared.testing.waiting import eventually


class _Lease:
    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.released = False
        self.held = True

    async def lost(self) -> None:
        await self.gone.wait()

    async def release(self) -> None:
        self.released = True

    def lose(self) -> None:
        self.held = False
        self.gone.set()


class _Leases:
    def __init__(self) -> None:
        self.given: list[_Lease] = []
        self.wanted = asyncio.Semaphore(1)
        self.lacking: asyncio.Queue[str] = asyncio.Queue()
        self.flushed = asyncio.Semaphore(0)
        self.stored = asyncio.Event()
        self.stored.set()

    async def flush(self) -> None:
        """What is on its way is stored once `stored` is set."""
        self.flushed.release()
        await self.stored.wait()

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


async def test_replica_waits_for_its_earlier_messages_before_it_takes_the_lease() -> None:
    leases, serving = _Leases(), asyncio.Semaphore(0)

    async def serve() -> None:
        serving.release()
        await asyncio.Event().wait()

    task = asyncio.create_task(lead(cast("Bus", leases), "work", serve))
    await serving.acquire()
    leases.stored.clear()
    leases.wanted.release()
    leases.given[0].lose()
    for _ in range(2):  # Before the first term, and before the second.
        await leases.flushed.acquire()
    await asyncio.sleep(0)
    assert [lease.released for lease in leases.given] == [True]

    leases.stored.set()
    await serving.acquire()
    assert [lease.released for lease in leases.given] == [True, False]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("ends", ["by an error", "by its process"])
@pytest.mark.parametrize("within", [60.0, 0.01])
async def test_lease_is_kept_for_what_its_term_has_published(
    monkeypatch: pytest.MonkeyPatch, ends: str, within: float
) -> None:
    monkeypatch.setattr("shared.bus.leadership.RELEASE_SECONDS", within)
    leases, serving, over = _Leases(), asyncio.Event(), asyncio.Event()

    async def serve() -> None:
        serving.set()
        await over.wait()
        raise BusError("away")

    task = asyncio.create_task(lead(cast("Bus", leases), "work", serve, pause_seconds=lambda: 0.0))
    await serving.wait()
    await leases.flushed.acquire()
    leases.stored.clear()
    if ends == "by an error":
        over.set()
    else:
        task.cancel()
    await leases.flushed.acquire()
    if within > 1:
        assert not leases.given[0].released
        leases.stored.set()
    await eventually(lambda: leases.given[0].released)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
