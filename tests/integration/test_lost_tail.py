"""A power cut on a real server: the log has lost its last messages, its view has not."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.port import Bus, Entry, LogChangedError
from shared.telemetry import probes
from shared.testing.waiting import eventually
from tests.contract.bus.stage import Reading, outcome, step_of, workload
from tests.contract.bus.test_order import decided, decision, term
from tests.integration.buses import make


def stored(server: EmbeddedServer, stream: str) -> Path:
    [found] = server._directory.glob(f"jetstream/**/streams/{stream}")
    return found


@asynccontextmanager
async def power_cut(
    server: EmbeddedServer, *streams: str, keep_consumers: bool = False
) -> AsyncIterator[None]:
    """What is stored inside of the block is lost by these streams, and kept by all others.

    `keep_consumers`: their consumers do not forget what they delivered.
    """
    await server.stop()
    for stream in streams:
        shutil.copytree(stored(server, stream), server._directory / "before" / stream)
    await server.start()
    yield
    await server.kill()
    for stream in streams:
        place, before = stored(server, stream), server._directory / "before" / stream
        if keep_consumers and (place / "obs").exists():
            shutil.rmtree(before / "obs", ignore_errors=True)
            shutil.copytree(place / "obs", before / "obs")
        shutil.rmtree(place)
        shutil.copytree(before, place)
    await server.start()


async def listed(bus: Bus, stream: str = "WORKLOADS") -> list[Entry]:
    entries, _ = await Reading(bus.watch(stream)).until_caught_up()
    return entries


async def publish(bus: Bus, *names: str, step: int) -> None:
    for name in names:
        await bus.publish(workload(name, step=step))


async def test_log_that_lost_its_tail_gets_it_back_at_the_same_sequences(
    server: EmbeddedServer,
) -> None:
    first, late = make(server, "first"), make(server, "late")
    await first.start()
    await publish(first, "a", "b", step=1)
    async with power_cut(server, "WORKLOADS"):
        await eventually(lambda: first.connected)
        await publish(first, "c", "a", "d", "a", "b", step=2)
        await eventually_taken(first, 7)
        await first.stop()
    await late.start()

    assert [(*step_of(entry), entry.sequence) for entry in await listed(late)] == [
        ("c", 2, 3),
        ("d", 2, 5),
        ("a", 2, 6),
        ("b", 2, 7),
    ], "nothing of the view is lost"
    for name, sequence in (("a", 6), ("b", 7), ("c", 3), ("d", 5)):
        entry = await late.latest("WORKLOADS", workload(name).subject)
        assert entry is not None
        assert (entry.sequence, step_of(entry)) == (sequence, (name, 2)), "as the view has it"

    assert await late.publish(workload("a", step=3), expect_subject=6) == 8
    assert step_of((await listed(late))[-1]) == ("a", 3), "the view goes on"
    await late.stop()


async def eventually_taken(bus: Bus, sequence: int) -> None:
    async def taken() -> bool:
        entries = await listed(bus)
        return max(entry.sequence for entry in entries) >= sequence

    await eventually(taken)


async def test_nothing_is_published_before_the_log_is_as_far_as_its_view(
    server: EmbeddedServer,
) -> None:
    bus, handled = make(server), list[tuple[str, int]]()

    async def handle(entry: Entry) -> None:
        handled.append(step_of(entry))

    bus.work("WORKLOADS", "worker", handle)
    await bus.start()
    refilled = probes.LOG_REFILLED.fired
    view = Reading(bus.watch("WORKLOADS"))
    async with power_cut(server, "WORKLOADS"):
        await eventually(lambda: bus.connected)
        await publish(bus, *(f"w{number}" for number in range(700)), step=1)
        await eventually(lambda: ("w699", 1) in handled)
    # It was on its way while the server was away, and comes behind all that was lost.
    assert await bus.publish(workload("w0", step=2)) == 701

    assert probes.LOG_REFILLED.fired == refilled + 700
    await eventually(lambda: ("w0", 2) in handled)
    while step_of((await view.entries(1))[0]) != ("w0", 2):
        pass
    await bus.stop()


async def test_terms_are_filled_in_where_they_were(server: EmbeddedServer) -> None:
    bus = make(server)
    await bus.start()
    await bus.publish(term(1))
    async with power_cut(server, "ADMISSIONS"):
        await eventually(lambda: bus.connected)
        for message in (
            *(decision("a", 1, 1), term(2), decision("a", 2, 1), decision("b", 2, 2)),
            *(term(3), decision("c", 3, 1)),
        ):
            last = await bus.publish(message)
        await until_view_has(bus, "ADMISSIONS", last)
    await eventually(lambda: bus.connected)
    assert await bus.publish(decision("d", 3, 2)) == last + 1

    assert await bus.void("ADMISSIONS") == []
    assert {name for name, _ in decided(await listed(bus, "ADMISSIONS"))} == set("abcd")
    await bus.stop()


async def until_view_has(bus: Bus, stream: str, sequence: int) -> None:
    async def has() -> bool:
        return (await listed(bus, stream))[-1].sequence >= sequence

    await eventually(has)


async def test_reader_of_log_that_lost_what_it_read_begins_again(server: EmbeddedServer) -> None:
    reader, writer = make(server, "reader"), make(server, "writer")
    await reader.start()
    await writer.start()
    await writer.publish(outcome(number=1))
    watch, replay = Reading(reader.watch("OUTCOMES")), Reading(reader.replay("OUTCOMES"))
    async with power_cut(server, "OUTCOMES", "OUTCOMES_NOW"):
        await eventually(lambda: writer.connected)
        for number in range(2, 6):
            await writer.publish(outcome(number=number))
        for reading in (watch, replay):
            while (await reading.entries(1))[0].sequence < 5:
                pass
    await eventually(lambda: writer.connected)
    for number in range(12, 20):  # More than was lost: the end of the log tells nothing.
        await writer.publish(outcome(number=number))

    for reading in (watch, replay):
        with pytest.raises(LogChangedError):
            await asyncio.wait_for(reading.entries(1000), timeout=60)
    entries = await listed(reader, "OUTCOMES")
    assert [entry.sequence for entry in entries] == [9]
    for bus in (reader, writer):
        await bus.stop()


async def test_writer_of_some_subjects_fills_up_with_its_own(server: EmbeddedServer) -> None:
    writes = ("sluice.workload.hub.team-a.>",)
    first = make(server, "first")
    await first.start()
    await publish(first, "mine", step=1)
    async with power_cut(server, "WORKLOADS"):
        await eventually(lambda: first.connected)
        for step in (2, 3):
            await first.publish(workload("other", step=step, namespace="team-b"))
        await eventually_taken(first, 3)
        await first.stop()
    late: NatsBus = make(server, "late", writes=writes)
    await late.start()

    assert await late.publish(workload("mine", step=4)) == 4
    found = {step_of(entry) for entry in await listed(late)}
    assert found == {("mine", 4), ("other", 3)}
    await late.stop()


async def test_consumer_that_is_further_than_its_view_skips_nothing(server: EmbeddedServer) -> None:
    """Log and view have lost the same tail, and the process that had handled it is gone, too."""
    handled = list[tuple[str, int]]()

    async def handle(entry: Entry) -> None:
        handled.append(step_of(entry))

    def worker(instance: str) -> NatsBus:
        bus = make(server, instance)
        bus.work("WORKLOADS", "worker", handle)
        return bus

    first, late = worker("first"), worker("late")
    await first.start()
    await publish(first, "a", step=1)
    await eventually(lambda: ("a", 1) in handled)
    async with power_cut(server, "WORKLOADS", "WORKLOADS_NOW", keep_consumers=True):
        await eventually(lambda: first.connected)
        await publish(first, "b", "c", "d", "e", step=2)
        await eventually(lambda: ("e", 2) in handled)
        await first.stop()
    await late.start()
    await publish(late, "f", "g", step=3)

    await eventually(lambda: {("f", 3), ("g", 3)} <= set(handled))
    await late.stop()
