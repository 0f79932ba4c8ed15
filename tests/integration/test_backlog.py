"""How much work is not done, as a real server says it of a durable consumer."""

import asyncio
from datetime import UTC, datetime

import pytest
from prometheus_client import REGISTRY

from shared.bus.nats.bus import NatsBus
from shared.bus.nats.work import backlog
from shared.bus.port import Entry, LaterError
from shared.testing.nats_server import nats_server
from shared.testing.waiting import eventually
from tests.contract.bus.stage import workload

DURABLE = "backlog-test"


def told(state: str) -> float | None:
    labels = {"durable": DURABLE, "state": state}
    return REGISTRY.get_sample_value("sluicegate_work_backlog", labels)


def done(result: str) -> float | None:
    labels = {"durable": DURABLE, "result": result}
    return REGISTRY.get_sample_value("sluicegate_work_total", labels)


async def test_backlog_counts_waiting_and_delayed_entries_until_they_are_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backlog, "LOOK_SECONDS", 0.05)
    works = asyncio.Event()

    async def handle(_: Entry) -> None:
        if not works.is_set():
            raise LaterError("not now", delay_seconds=0.2)

    async with nats_server() as server:
        bus = NatsBus(url=server.url, instance="one", now=lambda: datetime.now(UTC))
        bus.work("WORKLOADS", DURABLE, handle)
        assert [done(result) for result in ("done", "later", "never")] == [0, 0, 0]
        await bus.start()
        try:
            for name in ("a", "b", "c"):
                bus.publish(workload(name))
            await bus.flush()
            await eventually(lambda: (told("waiting"), told("taken")) == (0, 3))
            works.set()
            await eventually(lambda: (done("done"), told("taken")) == (3, 0))
        finally:
            await bus.stop()
