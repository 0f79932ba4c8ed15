"""Leadership over both buses: one leader, a lost lease, errors that end a term or the service."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shared.bus.leadership import lead
from shared.bus.port import Bus, BusError, FencedError, UnavailableError
from shared.testing.waiting import PATIENCE_SECONDS
from tests.contract.bus.stage import Stage


async def _for_ever() -> None:
    await asyncio.Event().wait()


def _lead(bus: Bus, serve: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
    return asyncio.create_task(lead(bus, "work", serve, pause_seconds=lambda: 0.01))


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_standby_serves_once_the_leader_is_cancelled(bus_factory: Stage) -> None:
    one, two = bus_factory.bus("one"), bus_factory.bus("two")
    await one.start()
    await two.start()
    served: list[str] = []
    leading, standing = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        served.append("one")
        leading.set()
        await _for_ever()

    async def second() -> None:
        served.append("two")
        standing.set()
        await _for_ever()

    leader = _lead(one, first)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await leading.wait()
        standby = _lead(two, second)
        await asyncio.sleep(0.2)
        assert served == ["one"]
        await _end(leader)
        await standing.wait()

    assert served == ["one", "two"]
    await _end(standby)


@pytest.mark.parametrize("error", [FencedError("late"), UnavailableError("away")])
async def test_bus_error_ends_the_term_and_another_begins(
    bus_factory: Stage, error: BusError
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    terms: list[int] = []
    again = asyncio.Event()

    async def serve() -> None:
        terms.append(len(terms))
        if len(terms) == 1:
            raise ExceptionGroup("of tasks", [error, ExceptionGroup("inner", [BusError("too")])])
        again.set()
        await _for_ever()

    task = _lead(bus, serve)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await again.wait()

    assert terms == [0, 1]
    await _end(task)


async def test_other_error_is_raised_and_the_lease_is_free(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()

    async def serve() -> None:
        raise ExceptionGroup("of tasks", [BusError("away"), KeyError("a bug")])

    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(ExceptionGroup) as raised:
            await lead(bus, "work", serve)
        assert (await bus.lease("work")).held

    assert raised.group_contains(KeyError)


async def test_term_that_returns_is_followed_by_another(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    terms: list[int] = []
    enough = asyncio.Event()

    async def serve() -> None:
        terms.append(len(terms))
        if len(terms) == 2:
            enough.set()
            await _for_ever()

    task = _lead(bus, serve)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await enough.wait()
    await _end(task)


class HeldPauses:
    """asyncio, but that a pause lasts until the test says that it is over."""

    def __init__(self) -> None:
        self.began, self.over = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, _seconds: float) -> None:
        self.began.set()
        await self.over.wait()


async def test_replica_whose_term_failed_keeps_the_lease_while_it_pauses(
    bus_factory: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each replica in turn would try at once what fails for all of them."""
    one, two = bus_factory.bus("one"), bus_factory.bus("two")
    await one.start()
    await two.start()
    served: list[str] = []
    pauses, again = HeldPauses(), asyncio.Event()
    monkeypatch.setattr("shared.bus.leadership.asyncio", pauses)

    def fails(name: str) -> Callable[[], Awaitable[None]]:
        async def serve() -> None:
            served.append(name)
            if len(served) > 1:
                again.set()
            raise FencedError("poisoned")

        return serve

    first = _lead(one, fails("one"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await pauses.began.wait()
        second = _lead(two, fails("two"))
        lease = asyncio.create_task(two.lease("work"))
        await asyncio.sleep(0.1)
        assert served == ["one"]
        assert not lease.done()
        lease.cancel()
        pauses.over.set()
        await again.wait()
    for task in (first, second):
        await _end(task)
