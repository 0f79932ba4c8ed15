"""Laws of the virtual loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from shared.testing.world.loop import (
    UNSEEN_SECONDS,
    DeadlockError,
    NoThreadsError,
    StepBudgetError,
    VirtualLoop,
)

T = TypeVar("T")


def run(work: Callable[[], Coroutine[Any, Any, T]], loop: VirtualLoop | None = None) -> T:
    loop = loop or VirtualLoop()
    try:
        return loop.run_until_complete(work())
    finally:
        loop.dispose()


def now() -> float:
    return asyncio.get_running_loop().time()


def test_year_passes_at_once() -> None:
    async def work() -> float:
        await asyncio.sleep(365 * 86_400.0)
        return now()

    assert run(work) == 365 * 86_400.0


def test_timers_fire_in_the_order_of_their_times() -> None:
    async def work() -> list[tuple[float, str]]:
        fired: list[tuple[float, str]] = []

        def fire(name: str) -> None:
            fired.append((now(), name))

        loop = asyncio.get_running_loop()
        for name, delay in (("late", 3.0), ("early", 1.0), ("middle", 2.0)):
            loop.call_later(delay, fire, name)
        await asyncio.sleep(4)
        return fired

    assert run(work) == [(1.0, "early"), (2.0, "middle"), (3.0, "late")]


def test_callbacks_of_one_instant_run_in_the_order_in_which_they_were_asked_for() -> None:
    async def work() -> list[int]:
        fired: list[int] = []
        for number in range(50):
            asyncio.get_running_loop().call_soon(fired.append, number)
        await asyncio.sleep(0)
        return fired

    assert run(work) == list(range(50))


def test_virtual_time_stands_still_while_a_callback_is_ready() -> None:
    async def work() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return now()

    assert run(work) == 0.0


def test_timeout_expires_at_its_virtual_time() -> None:
    async def work() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5):
                await asyncio.sleep(10)
        return now()

    assert run(work) == 2.5


def test_cancelled_timer_neither_fires_nor_moves_the_time() -> None:
    async def work() -> float:
        asyncio.get_running_loop().call_later(100, pytest.fail, "it fired").cancel()
        await asyncio.sleep(1)
        return now()

    assert run(work) == 1.0


def test_cancelled_task_may_clean_up_in_virtual_time() -> None:
    async def slow_to_end(ends: list[float]) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(5)
            ends.append(now())

    async def work() -> list[float]:
        ends: list[float] = []
        task = asyncio.create_task(slow_to_end(ends))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return ends

    assert run(work) == [6.0]


def test_deadlock_error_names_waiting_tasks_and_lines() -> None:
    async def forgotten() -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        await asyncio.create_task(forgotten(), name="the forgotten one")

    with pytest.raises(
        DeadlockError, match=r"the forgotten one at .*test_loop\.py:\d+ \(.*forgotten"
    ):
        run(work)


def test_loop_that_spins_is_stopped() -> None:
    async def work() -> None:
        while True:  # noqa: ASYNC110 # spinning is the point
            await asyncio.sleep(0)

    with pytest.raises(StepBudgetError, match="without time passing at virtual time 0"):
        run(work, VirtualLoop(steps_per_instant_max=1000))


def test_run_that_never_ends_is_stopped() -> None:
    async def work() -> None:
        while True:  # noqa: ASYNC110 # going on forever is the point
            await asyncio.sleep(1)

    with pytest.raises(StepBudgetError, match="in one run"):
        run(work, VirtualLoop(steps_max=1000))


def test_threads_are_refused_by_name() -> None:
    async def work() -> None:
        await asyncio.to_thread(sorted, [2, 1])

    with pytest.raises(NoThreadsError, match="sorted wants a thread"):
        run(work)


def test_name_lookup_is_refused() -> None:
    async def work() -> None:
        await asyncio.open_connection("localhost", 80)

    with pytest.raises(NoThreadsError, match="getaddrinfo wants a thread"):
        run(work)


def test_task_names_are_equal_in_every_loop() -> None:
    async def work() -> list[str]:
        async def nothing() -> None: ...

        return [asyncio.create_task(nothing()).get_name() for _ in range(3)]

    assert run(work) == run(work) == ["world#2", "world#3", "world#4"]


@pytest.mark.parametrize("gathered", [True, False], ids=["retrieved later", "never retrieved"])
def test_failure_is_reported_unless_it_is_retrieved_in_time(gathered: bool) -> None:
    said: list[str] = []

    async def fail() -> None:
        raise ValueError("it is broken")

    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.set_exception_handler(lambda _loop, context: said.append(context["message"]))
        failing = loop.create_task(fail(), name="failing")
        slow = loop.create_task(asyncio.sleep(UNSEEN_SECONDS / 2))
        ends = asyncio.gather(failing, slow, return_exceptions=True) if gathered else slow
        await asyncio.sleep(1)
        loop.sweep()
        assert said == []
        await ends
        await asyncio.sleep(UNSEEN_SECONDS)
        loop.sweep()

    run(work)
    assert said == ([] if gathered else ["nobody looked at how failing ended"])
