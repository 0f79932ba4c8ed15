"""Until the streams are committed to a format both releases go on; then the older one refuses to serve."""

import asyncio

import pytest

from shared.bus.port import Bus, Entry, NewerFormatError
from shared.contracts.messages.base import FORMAT
from shared.testing.waiting import PATIENCE_SECONDS, eventually
from tests.contract.bus.stage import Readings, Stage, error_of, workload

NEXT = FORMAT + 1
REASON = (
    rf"^stream \w+ is committed to format {NEXT} of the logs, and this release has format {FORMAT}: "
    "install the newer release again, or restore a backup made before the commit"
)


class Handled:
    """The names of the workloads that a release has handled."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def __call__(self, entry: Entry) -> None:
        self.names.append(entry.subject.rpartition(".")[2])


async def started(stage: Stage, instance: str, known_format: int) -> Bus:
    bus = stage.bus(instance, known_format=known_format)
    await bus.start()
    return bus


async def test_before_the_commit_both_releases_go_on(bus_factory: Stage) -> None:
    old = await started(bus_factory, "old", FORMAT)
    new = await started(bus_factory, "new", NEXT)
    await new.publish(workload("a"))
    await old.publish(workload("b"))
    assert await old.last_sequence("WORKLOADS") == 2
    assert old.connected


async def test_streams_that_are_committed_to_the_own_format_are_served(bus_factory: Stage) -> None:
    await bus_factory.commit(FORMAT)
    bus = await started(bus_factory, "one", FORMAT)
    await bus.publish(workload("a"))
    assert await bus.last_sequence("WORKLOADS") == 1


async def test_start_after_the_commit_is_refused_with_the_reason(bus_factory: Stage) -> None:
    await bus_factory.commit(NEXT)
    old = bus_factory.bus("old")
    with pytest.raises(NewerFormatError, match=REASON):
        await old.start()
    assert not old.connected
    assert isinstance(await error_of(old.publish(workload("a"))), NewerFormatError)
    new = await started(bus_factory, "new", NEXT)
    assert await new.last_sequence("WORKLOADS") == 0
    await new.publish(workload("b"))
    assert await new.last_sequence("WORKLOADS") == 1


async def test_bus_that_ran_before_the_commit_stops_once_it_looks(bus_factory: Stage) -> None:
    handled = Handled()
    old = bus_factory.bus("old")
    old.work("WORKLOADS", "worker", handled)
    await old.start()
    await old.publish(workload("before"))
    await eventually(lambda: handled.names == ["before"])
    new = await started(bus_factory, "new", NEXT)
    await bus_factory.commit(NEXT)
    with pytest.raises(NewerFormatError, match=REASON):
        await old.epoch("ADMISSIONS")
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert isinstance(await old.outdated(), NewerFormatError)
    assert not old.connected
    refused = [error_of(old.publish(workload(name))) for name in ("x", "y")]
    assert [type(error) for error in await asyncio.gather(*refused)] == 2 * [NewerFormatError]
    with pytest.raises(NewerFormatError):
        await old.flush()
    await old.stop()
    assert await new.last_sequence("WORKLOADS") == 1, "it has published nothing more"
    assert handled.names == ["before"]


async def test_work_goes_on_with_the_newer_release(bus_factory: Stage) -> None:
    old_handled, new_handled = Handled(), Handled()
    old = bus_factory.bus("old")
    old.work("WORKLOADS", "worker", old_handled)
    await old.start()
    await bus_factory.commit(NEXT)
    with pytest.raises(NewerFormatError):
        await old.last_sequence("WORKLOADS")
    await old.stop()
    new = bus_factory.bus("new", known_format=NEXT)
    new.work("WORKLOADS", "worker", new_handled)
    await new.start()
    await new.publish(workload("after"))
    await eventually(lambda: new_handled.names == ["after"])
    assert old_handled.names == []


async def test_reading_that_begins_after_the_commit_is_refused(
    bus_factory: Stage, read: Readings
) -> None:
    old = await started(bus_factory, "old", FORMAT)
    await old.publish(workload("a"))
    await bus_factory.commit(NEXT)
    with pytest.raises(NewerFormatError, match=REASON):
        await read(old.watch("WORKLOADS")).next()


async def test_who_waits_for_a_lease_does_not_get_it_after_the_commit(bus_factory: Stage) -> None:
    new = await started(bus_factory, "new", NEXT)
    held = await new.lease("quota")
    old = await started(bus_factory, "old", FORMAT)
    waiting = asyncio.ensure_future(old.lease("quota"))
    await bus_factory.commit(NEXT)
    with pytest.raises(NewerFormatError):
        await old.epoch("ADMISSIONS")
    await held.release()
    async with asyncio.timeout(PATIENCE_SECONDS):
        next_held = await (await started(bus_factory, "next", NEXT)).lease("quota")
    assert next_held.held
    waiting.cancel()
    [got] = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(got, BaseException)


async def test_older_release_serves_a_copy_from_before_the_commit(bus_factory: Stage) -> None:
    old = await started(bus_factory, "old", FORMAT)
    await old.publish(workload("a"))
    await old.stop()
    await bus_factory.copy_disk("before")
    await bus_factory.commit(NEXT)
    with pytest.raises(NewerFormatError):
        await bus_factory.bus("refused").start()
    await bus_factory.put_disk_back("before")
    again = await started(bus_factory, "again", FORMAT)
    await again.publish(workload("b"))
    assert await again.last_sequence("WORKLOADS") == 2


async def test_what_waits_for_a_connection_is_not_sent_after_the_commit(bus_factory: Stage) -> None:
    old = await started(bus_factory, "old", FORMAT)
    await bus_factory.commit(NEXT)
    await bus_factory.copy_disk("committed")
    await bus_factory.put_disk_back("committed")
    await eventually(lambda: not old.connected)
    sent = old.publish(workload("a"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await old.outdated()
    await old.stop()
    assert await error_of(sent) is not None
    new = await started(bus_factory, "new", NEXT)
    assert await new.last_sequence("WORKLOADS") == 0
