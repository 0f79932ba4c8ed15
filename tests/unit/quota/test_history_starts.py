"""Whose history begins in the middle is told before it does, and the next leader tells it, too."""

import asyncio

import pytest

from shared.bus.follow import recall
from shared.contracts.kube.moments import EARLIEST
from shared.contracts.messages.base import Message
from shared.contracts.messages.queues import HistoryStart
from shared.contracts.subjects import join
from shared.testing.waiting import eventually, first_value
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_streams import MemoryStream
from tests.unit.quota.service_setup import Setup

LOG = "WORKLOADS"
SUBJECT = join("history", LOG)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.quota.ended_work.SWEEP_SECONDS", 0.02)
    monkeypatch.setattr("services.quota.ended_work.PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("services.quota.log_room.INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(MemoryStream, "fullness", property(lambda _: 0.9))


async def changed(setup: Setup, name: str) -> str:
    """A workload with more states than a log keeps that is nearly full; its subject."""
    for number in range(12):
        state = await setup.workload(name, priority=-number - 1, cpu=9)
    return state.subject


def states(setup: Setup, subject: str) -> int:
    stored = setup.server.stream(LOG).messages.values()
    return sum(one.subject == subject for one in stored)


async def told(setup: Setup) -> HistoryStart | None:
    found: list[HistoryStart] = []
    handlers = {HistoryStart: lambda start, _: found.append(start)}
    await recall(setup.bus, handlers, filters=[SUBJECT])
    return found[0] if found else None


async def shortened(setup: Setup, *subjects: str) -> HistoryStart:
    """What is told once these are short and the view has the last message that tells so."""

    async def yes() -> HistoryStart | None:
        start = await told(setup)
        is_short = all(states(setup, each) == 8 for each in subjects)
        return start if start and is_short and subjects[-1] in start.shortened else None

    return await first_value(yes)


async def test_shortened_history_is_named_and_others_are_not(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    noisy = await changed(setup, "noisy")
    await setup.workload("calm", cpu=9)
    await setup.start_quota()
    start = await shortened(setup, noisy)
    assert (start.shortened, start.others_until, start.began_at) == ([noisy], None, EARLIEST)


async def test_shortened_history_is_told_once(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    noisy = await changed(setup, "noisy")
    await setup.start_quota()
    await shortened(setup, noisy)
    await changed(setup, "noisy")
    await shortened(setup, noisy)
    stored = setup.server.stream("QUEUES").messages.values()
    assert sum(one.subject == SUBJECT for one in stored) == 1


async def test_next_leader_repeats_what_the_one_before_told(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    first = await changed(setup, "first")
    await setup.start_quota()
    await shortened(setup, first)
    await setup.stop_quota()
    second = await changed(setup, "second")
    await setup.start_quota("b")
    assert (await shortened(setup, second)).shortened == [first, second]


async def test_more_subjects_than_a_message_names_leave_a_time(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.quota.ended_work.SHORTENED_MAX", 1)
    await setup.cluster(cpus=1)
    subjects = [await changed(setup, name) for name in ("one", "other")]
    await setup.start_quota()
    start = await shortened(setup, *subjects)
    assert start.shortened == [subjects[-1]]
    assert start.others_until == start.at


async def test_history_that_nobody_could_tell_of_stays_whole(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, tries = MemoryBus.publish, 0

    def refused(bus: MemoryBus, message: Message, **fences: object) -> object:
        nonlocal tries
        if not isinstance(message, HistoryStart):
            return publish(bus, message, **fences)  # type: ignore[arg-type]
        tries += 1
        return asyncio.get_running_loop().create_future()

    monkeypatch.setattr(MemoryBus, "publish", refused)
    await setup.cluster(cpus=1)
    noisy = await changed(setup, "noisy")
    await setup.start_quota()
    await eventually(lambda: tries > 0)
    await asyncio.sleep(0.1)
    assert states(setup, noisy) == 12
