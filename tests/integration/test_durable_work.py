"""Durable work on a real server: every entry comes by the one standing request of its consumer."""

import asyncio

import pytest
from nats.aio.msg import Msg
from nats.js.client import JetStreamContext

from shared.bus.embedded import EmbeddedServer
from shared.bus.port import Entry
from shared.testing.waiting import eventually
from tests.contract.bus.stage import step_of, workload
from tests.integration.buses import make


async def test_no_entry_comes_by_a_request_of_the_library(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that ends while an entry is on its way loses it for the whole acknowledgement wait."""
    asked: list[int] = []

    async def fetch(_self: object, batch: int = 1, timeout: float | None = 5) -> list[Msg]:  # noqa: ASYNC109
        asked.append(batch)
        await asyncio.sleep(timeout or 0)
        return []

    monkeypatch.setattr(JetStreamContext.PullSubscription, "fetch", fetch)
    bus, handled = make(server), []

    async def handle(entry: Entry) -> None:
        handled.append(step_of(entry))

    # The first starts to ask while the second is still being made.
    bus.work("WORKLOADS", "worker", handle)
    bus.work("ADMISSIONS", "other", handle)
    await bus.start()
    try:
        await bus.publish(workload("first", step=1))
        await eventually(lambda: handled == [("first", 1)])
        await server.kill()
        await server.start()
        await eventually(lambda: bus.connected)
        await bus.publish(workload("second", step=2))
        await eventually(lambda: ("second", 2) in handled)
    finally:
        await bus.stop()

    assert asked == []
