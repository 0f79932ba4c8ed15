"""A byte of a stored message is flipped while the server is down."""

from pathlib import Path

import pytest
from nats.aio.client import Client

from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.jetstream_api import PASSING, ApiError, Json, call
from shared.bus.port import Bus, Entry
from shared.testing.waiting import eventually
from tests.contract.bus.stage import Reading, step_of, workload
from tests.integration.buses import make

NAMES = [f"job-{number}" for number in range(20)]
DAMAGED = "job-7"


def flip_a_byte(server: EmbeddedServer, stream: str, name: str) -> None:
    """Change one bit in the body of the only message about a workload."""
    [block] = Path(server._directory).glob(f"jetstream/**/streams/{stream}/msgs/*.blk")
    data = bytearray(block.read_bytes())
    data[data.index(f'"{name}"'.encode()) + 1] ^= 1
    block.write_bytes(data)


async def listed(bus: Bus) -> list[Entry]:
    return (await Reading(bus.watch("WORKLOADS")).until_caught_up())[0]


async def damage(server: EmbeddedServer, stream: str) -> None:
    """Write a message about each workload, and damage that about one of them."""
    writer = make(server, "writer")
    await writer.start()
    for name in NAMES:
        await writer.publish(workload(name, step=1))

    async def all_taken() -> bool:
        return len(await listed(writer)) == len(NAMES)

    await eventually(all_taken)
    await writer.stop()
    await server.stop()
    flip_a_byte(server, stream, DAMAGED)
    await server.start()


@pytest.mark.parametrize("consumers", [True, False], ids=["by a consumer", "directly"])
async def test_workload_that_a_damaged_view_lost_is_read_from_the_log(
    server: EmbeddedServer, consumers: bool
) -> None:
    await damage(server, "WORKLOADS_NOW")
    reader = make(server, "reader", consumers=consumers)
    await reader.start()
    watch = Reading(reader.watch("WORKLOADS"))

    entries, end = await watch.until_caught_up()
    assert sorted(step_of(entry)[0] for entry in entries) == sorted(NAMES)
    [found] = [entry for entry in entries if step_of(entry)[0] == DAMAGED]
    assert (found.sequence, end.sequence) == (NAMES.index(DAMAGED) + 1, len(NAMES))

    await reader.publish(workload(DAMAGED, step=2), expect_subject=found.sequence)
    assert [step_of(entry) for entry in await watch.entries(1)] == [(DAMAGED, 2)]
    assert len(await listed(reader)) == len(NAMES)
    await reader.stop()


async def test_damage_is_found_though_an_election_delays_the_question(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await damage(server, "WORKLOADS_NOW")
    asked: list[str] = []

    async def call_later(nc: Client, what: str, body: Json | None = None) -> Json:
        asked.append(what)
        if len(asked) == 1:
            raise ApiError(what, min(PASSING), "no leader just now")
        return await call(nc, what, body)

    monkeypatch.setattr("shared.bus.nats.tails.damaged_views.call", call_later)
    reader = make(server, "reader")
    await reader.start()
    assert sorted(step_of(entry)[0] for entry in await listed(reader)) == sorted(NAMES)
    await reader.stop()


@pytest.mark.parametrize("consumers", [True, False], ids=["by a consumer", "directly"])
async def test_filtered_reader_of_a_damaged_view_is_given_what_it_asked_for(
    server: EmbeddedServer, consumers: bool
) -> None:
    await damage(server, "WORKLOADS_NOW")
    reader = make(server, "reader", consumers=consumers)
    await reader.start()
    for names in ([DAMAGED], ["job-8"], [DAMAGED, "job-8"]):
        subjects = [workload(name).subject for name in names]
        entries, _ = await Reading(reader.watch("WORKLOADS", *subjects)).until_caught_up()
        assert sorted(step_of(entry)[0] for entry in entries) == names
    await reader.stop()


async def test_view_of_a_damaged_log_is_whole_and_the_log_takes_on(server: EmbeddedServer) -> None:
    await damage(server, "WORKLOADS")
    reader = make(server, "reader")
    await reader.start()

    assert sorted(step_of(entry)[0] for entry in await listed(reader)) == sorted(NAMES)
    history, _ = await Reading(reader.replay("WORKLOADS")).until_caught_up()
    assert {step_of(entry)[0] for entry in history} == {*NAMES} - {DAMAGED}
    assert await reader.publish(workload(DAMAGED, step=2)) == len(NAMES) + 1
    assert len(await listed(reader)) == len(NAMES)
    await reader.stop()
