"""Durable work on a real server: every entry comes by the one standing request of its consumer."""

import asyncio

import nats
import pytest
from nats.aio.msg import Msg
from nats.js.client import JetStreamContext

from shared.bus.embedded import EmbeddedServer
from shared.bus.port import Entry
from shared.testing.waiting import PATIENCE_SECONDS, eventually
from tests.contract.bus.stage import step_of, workload
from tests.integration.buses import make


async def test_work_is_delivered_without_the_fetch_of_the_library(
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


@pytest.mark.parametrize("status", ["100", "404", "408", "409", "503", ""])
async def test_header_called_status_of_a_stored_message_says_nothing_about_the_pull(
    server: EmbeddedServer, status: str
) -> None:
    """The server speaks of a pull by such headers. A writer may have sent them, too."""
    bus, handled = make(server), []
    first, second = workload("first", step=1), workload("second", step=2)

    async def handle(entry: Entry) -> None:
        handled.append(entry.subject)

    bus.work("WORKLOADS", "worker", handle)
    await bus.start()
    forger = await nats.connect(server.url)
    try:
        headers = {
            "Status": status,
            "Description": "Consumer Deleted",
            "Nats-Pending-Messages": "x",
        }
        await forger.jetstream(timeout=PATIENCE_SECONDS).publish(
            first.subject, b"{}", headers=headers
        )
        await bus.publish(second)
        await eventually(lambda: {first.subject, second.subject} <= set(handled))
    finally:
        await forger.close()
        await bus.stop()

    assert handled.count(first.subject) == 1, "it did not come a second time"
