"""What list-and-watch promises."""

import asyncio

import pytest

from shared.bus.port import CaughtUp, Entry
from tests.contract.bus.conftest import READERS
from tests.contract.bus.stage import Readings, Stage, outcome, step_of, workload

pytestmark = pytest.mark.parametrize("bus_factory", READERS, indirect=True)


async def test_empty_log_is_caught_up_at_once(bus_factory: Stage, read: Readings) -> None:
    bus = bus_factory.bus()
    await bus.start()

    assert await read(bus.watch("WORKLOADS")).next() == CaughtUp(sequence=0)
    assert await read(bus.replay("WORKLOADS")).next() == CaughtUp(sequence=0)


async def test_watch_lists_the_latest_of_each_subject_then_follows(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    for step in range(30):
        bus.publish(workload(f"job-{step % 3}", step=step))
    await bus.flush()
    watch = read(bus.watch("WORKLOADS"))

    listed, end = await watch.until_caught_up()

    assert sorted(step_of(entry) for entry in listed) == [
        ("job-0", 27),
        ("job-1", 28),
        ("job-2", 29),
    ]
    assert sorted(entry.sequence for entry in listed) == [28, 29, 30], "the log's sequences"
    assert end == CaughtUp(sequence=30)

    await bus.publish(workload("job-0", step=30))
    followed = await watch.next()
    assert isinstance(followed, Entry)
    assert (step_of(followed), followed.sequence) == (("job-0", 30), 31)


async def test_watch_is_caught_up_only_after_all_stored_messages(
    bus_factory: Stage, read: Readings
) -> None:
    """The view may lag behind its log; whoever has published must find it."""
    bus = bus_factory.bus()
    await bus.start()
    for round_ in range(20):
        await bus.publish(workload(f"job-{round_}"))
        listed, end = await read(bus.watch("WORKLOADS")).until_caught_up()
        assert len(listed) == round_ + 1
        assert end.sequence == round_ + 1


async def test_watch_under_load_gets_every_last_state_and_never_goes_back(
    bus_factory: Stage, read: Readings
) -> None:
    bus, writer = bus_factory.bus("reader"), bus_factory.bus("writer")
    await bus.start()
    await writer.start()
    seen: dict[str, int] = {}

    async def write() -> None:
        for step in range(3000):
            writer.publish(workload(f"job-{step % 50}", step=step))
            if step % 100 == 0:
                await asyncio.sleep(0)
        await writer.flush()

    writing = asyncio.create_task(write())
    watch = read(bus.watch("WORKLOADS"))
    while len(seen) < 50 or min(seen.values()) < 2950:
        match await watch.next():
            case Entry() as entry:
                name, step = step_of(entry)
                assert seen.get(name, -1) < step
                seen[name] = step
            case CaughtUp():
                pass
    await writing


async def test_filters_choose_subjects_and_may_overlap(bus_factory: Stage, read: Readings) -> None:
    bus = bus_factory.bus()
    await bus.start()
    for namespace in ("team-a", "team-b", "team-c"):
        await bus.publish(workload("x", namespace=namespace))

    async def namespaces(*filters: str) -> list[str]:
        watch = read(bus.watch("WORKLOADS", *filters))
        return [entry.subject.split(".")[3] for entry in (await watch.until_caught_up())[0]]

    assert await namespaces("sluice.workload.*.team-b.*") == ["team-b"]
    assert await namespaces("sluice.workload.*.team-a.>", "sluice.workload.*.team-c.*") == [
        "team-a",
        "team-c",
    ]
    assert await namespaces("sluice.workload.hub.>", "sluice.workload.*.team-a.*") == [
        "team-a",
        "team-b",
        "team-c",
    ]
    assert await namespaces("sluice.workload.elsewhere.>") == []


async def test_filter_that_matches_nothing_catches_up_and_waits(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await bus.publish(workload("x"))
    watch = read(bus.watch("WORKLOADS", "sluice.workload.*.elsewhere.>"))

    assert await watch.next() == CaughtUp(sequence=1)

    await bus.publish(workload("y", namespace="elsewhere"))
    followed = await watch.next()
    assert isinstance(followed, Entry)
    assert followed.sequence == 2


async def test_replay_gives_every_message_from_a_sequence_on(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    for step in range(10):
        await bus.publish(workload("a", step=step))
    replay = read(bus.replay("WORKLOADS", start=4))

    entries, end = await replay.until_caught_up()

    assert [(entry.sequence, step_of(entry)[1]) for entry in entries] == [
        (n, n - 1) for n in range(4, 11)
    ]
    assert end.sequence == 10
    await bus.publish(workload("a", step=10))
    assert [entry.sequence for entry in await replay.entries(1)] == [11]


async def test_replay_from_beyond_the_end_waits_there(bus_factory: Stage, read: Readings) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await bus.publish(workload())
    replay = read(bus.replay("WORKLOADS", start=2))

    assert await replay.next() == CaughtUp(sequence=1)

    await bus.publish(workload(step=1))
    assert [entry.sequence for entry in await replay.entries(1)] == [2]


async def test_purged_tombstone_is_gone_from_the_view_and_stays_in_the_log(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await bus.publish(workload("dead"))
    end = await bus.publish(workload("dead", step=1).model_copy(update={"phase": "gone"}))
    await bus.publish(workload("alive"))
    await read(bus.watch("WORKLOADS")).until_caught_up()

    await bus.purge("WORKLOADS", workload("dead").subject, up_to=end)

    listed, caught_up = await read(bus.watch("WORKLOADS")).until_caught_up()
    assert [step_of(entry)[0] for entry in listed] == ["alive"]
    assert caught_up.sequence == 3
    replayed, _ = await read(bus.replay("WORKLOADS")).until_caught_up()
    assert [entry.sequence for entry in replayed] == [1, 2, 3]


async def test_purge_spares_newer_messages_and_other_subjects(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    end = await bus.publish(workload("a", step=1))
    await bus.publish(workload("a", step=2))
    await bus.publish(workload("a-b", step=3))
    await read(bus.watch("WORKLOADS")).until_caught_up()

    await bus.purge("WORKLOADS", workload("a").subject, up_to=end)
    await bus.purge("WORKLOADS", workload("never-was").subject, up_to=end)

    listed, _ = await read(bus.watch("WORKLOADS")).until_caught_up()
    assert [step_of(entry) for entry in listed] == [("a", 2), ("a-b", 3)]


async def test_readers_of_one_bus_do_not_disturb_each_other(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    readings = [read(bus.watch("WORKLOADS")), read(bus.watch("OUTCOMES"))]
    for reading in readings:
        await reading.until_caught_up()

    await bus.publish(outcome())
    await bus.publish(workload())

    assert [(await reading.entries(1))[0].subject.split(".")[1] for reading in readings] == [
        "workload",
        "outcome",
    ]
