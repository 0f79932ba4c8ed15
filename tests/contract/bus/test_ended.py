"""Ended subjects leave the view once every durable has passed them, and the log when it needs room."""

from datetime import UTC, datetime, timedelta

from shared.bus.port import Bus, Entry, LaterError
from shared.contracts.kube import kinds
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.builders import observed
from shared.testing.waiting import eventually
from tests.contract.bus.stage import Readings, Stage, workload


def gone(name: str, step: int = 9) -> WorkloadState:
    return workload(name, step=step).gone()


async def view_of(read: Readings, bus: Bus) -> list[str]:
    listed, _ = await read(bus.watch("WORKLOADS")).until_caught_up()
    # A view that follows its log a moment later may show a subject twice.
    return list(dict.fromkeys(entry.subject.rsplit(".", 1)[1] for entry in listed))


async def test_end_leaves_the_view_after_every_durable_has_passed_it(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    busy, seen = [True], []

    async def handler(entry: Entry) -> None:
        if busy[0] and entry.subject.endswith(".dead"):
            raise LaterError("not yet", delay_seconds=0.05)
        seen.append(entry.subject)

    bus.work("WORKLOADS", "worker", handler, filters=("sluice.workload.hub.>",))
    bus.work("WORKLOADS", "elsewhere", handler, filters=("sluice.workload.west.>",))
    await bus.start()
    end = await bus.publish(gone("dead"))
    await bus.publish(workload("alive"))
    ended = {gone("dead").subject: end}

    async def alive_is_handled() -> bool:
        return workload("alive").subject in seen

    await eventually(alive_is_handled)
    assert await bus.sweep("WORKLOADS", ended) == set()
    assert await view_of(read, bus) == ["dead", "alive"]
    busy[0] = False

    async def swept() -> bool:
        return await bus.sweep("WORKLOADS", ended) == set(ended)

    await eventually(swept)
    assert await view_of(read, bus) == ["alive"]
    assert await swept()


async def test_sweep_spares_what_is_newer_and_the_last_message_of_the_view(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    old = await bus.publish(gone("again"))
    await bus.publish(workload("again", step=10))
    last = await bus.publish(gone("last"))
    assert await view_of(read, bus) == ["again", "last"]
    ended = {workload("again").subject: old, workload("last").subject: last}
    ended[workload("never-was").subject] = last
    done = await bus.sweep("WORKLOADS", ended)
    assert done == {workload("again").subject, workload("never-was").subject}
    assert await view_of(read, bus) == ["again", "last"]


async def test_trimmed_subject_leaves_the_log_and_others_stay(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await bus.publish(workload("dead"))
    await bus.publish(workload("alive"))
    end = await bus.publish(gone("dead"))
    await bus.publish(workload("alive", step=1))
    first = await bus.at_or_after("WORKLOADS", 1)
    assert first is not None
    assert (first.sequence, first.subject) == (1, workload("dead").subject)
    assert await bus.trim("WORKLOADS", workload("dead").subject, up_to=end) == 2
    first = await bus.at_or_after("WORKLOADS", 1)
    assert first is not None
    assert (first.sequence, first.subject) == (2, workload("alive").subject)
    assert await bus.at_or_after("WORKLOADS", 5) is None
    alive = workload("alive").subject
    found = [await bus.at_or_after("WORKLOADS", n, subject=alive) for n in (1, 3, 5)]
    assert [one and one.sequence for one in found] == [2, 4, None]
    assert await bus.latest("WORKLOADS", workload("dead").subject) is None
    again = await bus.publish(workload("dead", step=1), expect_subject=0)
    replayed, _ = await read(bus.replay("WORKLOADS")).until_caught_up()
    assert [entry.sequence for entry in replayed] == [2, 4, again]


async def test_trim_spares_newer_messages_of_the_subject(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    end = await bus.publish(gone("a"))
    newer = await bus.publish(workload("a", step=10))
    assert await bus.trim("WORKLOADS", workload("a").subject, up_to=end) == 1
    kept = await bus.latest("WORKLOADS", workload("a").subject)
    assert kept is not None
    assert kept.sequence == newer


async def test_shortened_subject_keeps_its_newest_messages(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    for step in range(5):
        await bus.publish(workload("noisy", step=step))
        await bus.publish(workload("busy", step=step))
    await bus.publish(workload("busy", step=5))
    last = await bus.publish(workload("calm"))
    everything = "sluice.workload.>"
    noisy, busy = workload("noisy").subject, workload("busy").subject
    assert await bus.long_histories("WORKLOADS", everything, most=1) == [busy, noisy]
    assert await bus.long_histories("WORKLOADS", everything, most=5) == [busy]
    assert await bus.long_histories("WORKLOADS", "sluice.workload.west.>", most=1) == []
    assert [await bus.shorten("WORKLOADS", noisy, keep=2) for _ in range(2)] == [3, 0]
    assert await bus.long_histories("WORKLOADS", everything, most=2) == [busy]
    found = [await bus.at_or_after("WORKLOADS", n, subject=noisy) for n in (1, 8, 10)]
    assert [one and one.sequence for one in found] == [7, 9, None]
    assert await bus.publish(workload("noisy", step=9), expect_subject=9) == last + 1
    assert sorted(await view_of(read, bus)) == ["busy", "calm", "noisy"]


def seen(name: str, *, deleted: bool = False) -> Observed:
    return observed(kinds.JOB, name, {}, "team", version=1 + deleted, deleted=deleted)


async def test_old_tombstones_of_objects_are_found_by_their_headers(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await bus.publish(seen("dead"))
    end = await bus.publish(seen("dead", deleted=True))
    await bus.publish(seen("other", deleted=True))
    await bus.publish(seen("alive"))
    later = datetime.now(UTC) + timedelta(minutes=5)
    await read(bus.watch("OBSERVED")).until_caught_up()

    found = await bus.tombstones("OBSERVED", before=later, most=10)

    assert found == {seen("dead").subject: end, seen("other").subject: end + 1}
    assert len(await bus.tombstones("OBSERVED", before=later, most=1)) == 1
    assert await bus.tombstones("OBSERVED", before=later - timedelta(days=1), most=10) == {}
    assert await bus.sweep("OBSERVED", found) == set(found)
    listed, _ = await read(bus.watch("OBSERVED")).until_caught_up()
    assert [entry.subject for entry in listed] == [seen("alive").subject]
