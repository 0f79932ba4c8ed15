"""Processes, their deaths, and the log."""

import asyncio

import pytest

from shared.testing.world.world import EPOCH, Faults, ProcessContext, World

BAD_TIMES = Faults(until_seconds=60, crash=0.1, kill_every_seconds=7, skew_seconds=1)


async def ticking(context: ProcessContext) -> None:
    while True:
        await context.world.point("tick")
        context.world.note(f"tick {context.random.random():.3f} {context.now()}")
        await asyncio.sleep(0.5 + context.random.random())


def history(seed: int) -> list[str]:
    with World(seed, faults=BAD_TIMES) as world:
        world.process("a", ticking)
        world.process("b", ticking)
        world.start_faults()
        world.run(lambda: asyncio.sleep(90))
    return world.log


def test_same_seed_gives_the_same_log() -> None:
    assert history(7) == history(7)


def test_another_seed_gives_another_log() -> None:
    assert history(7) != history(8)


def test_processes_crash_under_faults_and_live_when_calm() -> None:
    log = history(7)
    deaths = [float(line.split()[0]) for line in log if " crash " in line]
    assert len(deaths) > 5
    assert max(deaths) < 60
    assert {line.split()[1][0] for line in log if float(line.split()[0]) > 80} == {"a", "b"}


def test_clock_begins_at_the_epoch_and_follows_the_loop() -> None:
    with World(1) as world:
        world.run(lambda: asyncio.sleep(3.25))
        assert (world.now() - EPOCH).total_seconds() == 3.25


def test_crashed_process_executes_no_further_line() -> None:
    ran: list[str] = []

    async def stubborn(context: ProcessContext) -> None:
        del context
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            ran.append("except")
        finally:
            ran.append("finally")

    async def drive() -> None:
        await asyncio.sleep(1)
        world.crash("stubborn")
        await asyncio.sleep(100)
        assert ran == []

    with World(1) as world:
        world.process("stubborn", stubborn)
        world.run(drive)


def test_tasks_timers_and_callbacks_die_with_the_process_that_made_them() -> None:
    ran: list[str] = []

    async def grandchild() -> None:
        await asyncio.sleep(5)
        ran.append("grandchild")

    async def child() -> None:
        await asyncio.create_task(grandchild())

    async def parent(context: ProcessContext) -> None:
        del context
        loop = asyncio.get_running_loop()
        loop.call_later(5, ran.append, "timer")
        asyncio.create_task(child())  # noqa: RUF006 # it lives as long as its process
        await asyncio.Event().wait()

    async def drive() -> None:
        await asyncio.sleep(1)
        world.crash("parent")
        await asyncio.sleep(100)

    with World(1) as world:
        world.process("parent", parent)
        world.run(drive)
        assert ran == []


def test_results_for_a_dead_process_are_dropped() -> None:
    woken: list[str] = []
    news = asyncio.Event()

    async def waiting(context: ProcessContext) -> None:
        await news.wait()
        woken.append(context.instance)

    async def drive() -> None:
        await asyncio.sleep(1)
        world.crash("waiting", down_seconds=1)
        news.set()
        news.clear()
        await asyncio.sleep(5)
        news.set()
        await asyncio.sleep(0.01)

    with World(1) as world:
        world.process("waiting", waiting)
        world.run(drive)
        assert woken == ["waiting.2"]


def test_process_that_ends_by_itself_is_a_failure_and_restarts() -> None:
    async def broken(context: ProcessContext) -> None:
        await asyncio.sleep(1)
        if context.start_number == 1:
            raise ValueError("no such thing")
        await asyncio.Event().wait()

    with World(1) as world:
        process = world.process("broken", broken)
        world.run(lambda: asyncio.sleep(60))
        assert process.start_number == 2
        (failure,) = world.failures
        assert "broken.1 ended by itself" in failure
        assert "no such thing" in failure


def test_unobserved_task_exception_is_a_failure() -> None:
    async def careless() -> None:
        raise ValueError("unheard")

    async def drive() -> None:
        asyncio.create_task(careless())  # noqa: RUF006 # that is the mistake
        await asyncio.sleep(1)

    with World(1) as world:
        world.run(drive)
        assert "unheard" in world.failures[0]


def test_process_crashing_while_its_task_fails_is_no_failure() -> None:
    with World(1) as world:

        async def service(_context: ProcessContext) -> None:
            async def fail() -> None:
                raise RuntimeError("refused")

            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                # After the task has failed, and before its group is called back.
                asyncio.get_running_loop().call_soon(world.crash, "service")
                await asyncio.sleep(3600)

        async def drive() -> None:
            world.process("service", service)
            await asyncio.sleep(1)

        world.run(drive)
        assert world.failures == []


@pytest.mark.parametrize("seconds", [None, 5.0])
def test_partition_lasts_until_it_heals(seconds: float | None) -> None:
    async def drive() -> None:
        world.partition("a", "bus", seconds=seconds)
        await asyncio.sleep(4)
        assert not world.connected("a", "bus")
        assert world.connected("a", "hub")
        assert world.connected("b", "bus")
        await asyncio.sleep(4)
        assert world.connected("a", "bus") == (seconds is not None)
        world.heal("a", "bus")
        assert world.connected("a", "bus")

    with World(1) as world:
        world.run(drive)
