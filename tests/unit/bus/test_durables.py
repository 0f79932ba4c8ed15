"""Durable work of one bus on a real server: what there is no room for stays where it can be given back."""

import asyncio
from datetime import UTC, datetime

from shared.bus.nats.bus import NatsBus
from shared.bus.nats.work.worker import IN_FLIGHT_MAX
from shared.bus.port import Entry
from shared.testing.nats_server import nats_server
from shared.testing.waiting import eventually
from tests.contract.bus.stage import workload

BESIDE = 44
"""More than there is room for."""


async def test_no_more_entries_are_fetched_than_handlers_are_free() -> None:
    """What is taken and waits has no heartbeats, and a bus that stops gives back only the rest."""
    go_on, given = asyncio.Event(), []

    async def handle(entry: Entry) -> None:
        given.append(entry)
        await go_on.wait()

    async with nats_server() as server:
        bus = NatsBus(url=server.url, instance="one", now=lambda: datetime.now(UTC))
        bus.work("WORKLOADS", "worker", handle)
        await bus.start()
        for number in range(IN_FLIGHT_MAX + BESIDE):
            bus.publish(workload(f"job-{number}"))
        await bus.flush()
        held = bus._durables._subscribers[0].subscription._pull._buffer
        # One is held by who waits for room.
        await eventually(lambda: len(held) == BESIDE - 1)
        go_on.set()
        await eventually(lambda: len(given) == IN_FLIGHT_MAX + BESIDE)
        await bus.stop()
