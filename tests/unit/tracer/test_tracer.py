"""The tracer between logs and a collector: no trace is lost in restarts and outages."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest

from services.tracer import app, delivery, term
from services.tracer.app import Tracer
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import Message
from shared.contracts.messages.traces import Traced
from shared.contracts.messages.workloads import Finish, WorkloadState
from shared.telemetry.spans import Span
from shared.testing.waiting import eventually
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from tests.clock import now

BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)


class MemoryCollector:
    """A collector in memory, which can be away, or refuse one workload."""

    def __init__(self) -> None:
        self.kept: list[Span] = []
        self.away = False
        self.refuses = ""
        self.requests = 0

    async def export(self, spans: Sequence[Span]) -> bool:
        self.requests += 1
        if self.away or (self.refuses and any(self._of(span) == self.refuses for span in spans)):
            return False
        self.kept += spans
        return True

    def close(self) -> None:
        """Nothing to let go of."""

    @staticmethod
    def _of(span: Span) -> str:
        return str(span.attributes.get("sluicegate.workload", ""))

    def workloads(self) -> list[str]:
        """Whose traces it has, as often as it has them."""
        return [self._of(span) for span in self.kept if span.name.startswith("RUN ")]

    def batches(self) -> list[int]:
        """How many decisions each batch says that it had."""
        counts = [span.attributes.get("messaging.batch.message_count") for span in self.kept]
        return [int(count) for count in counts if count is not None]


class Logs:
    """The server, and hands that put messages on it."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.collector = MemoryCollector()
        self.bus = MemoryBus(self.server, instance="test")
        self._numbers = 0

    async def put(self, message: Message) -> None:
        await self.bus.publish(message)

    async def workload(self, name: str, *, done: bool) -> None:
        number = sum(map(ord, name))
        fields = {"cluster": "hub", "namespace": "a", "name": name, "uid": name}
        trace = {"traceparent": f"00-{number:032x}-{number:016x}-01"}
        finish = Finish(success=True, at=now()) if done else None
        for phase in ("waiting", "finished") if done else ("waiting",):
            state = {"phase": phase, "created_at": BEGAN}
            end = {"finish": finish} if phase == "finished" else {}
            await self.put(WorkloadState.model_validate(fields | trace | state | end))
            if phase == "waiting":
                self._numbers += 1
                decision = {"term": 1, "number": self._numbers, "decided_at": BEGAN}
                decision["state"] = "admitted"
                await self.put(Admission.model_validate(fields | trace | decision))

    @asynccontextmanager
    async def tracing(self, instance: str = "tracer") -> AsyncIterator[None]:
        bus = MemoryBus(self.server, instance=instance)
        await bus.start()
        tracer = Tracer(bus=bus, collector=self.collector, now=now, settle_seconds=0.02)
        task = asyncio.create_task(tracer.run())
        try:
            await eventually(self.record)
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await bus.stop()

    async def record(self) -> Traced | None:
        last = await self.bus.latest("TRACES", "sluice.traced.all")
        return None if last is None else Traced.decode(last.data)


@pytest.fixture
async def logs(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Logs]:
    monkeypatch.setattr(term, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(term, "RECORD_SECONDS", 0.02)
    monkeypatch.setattr(term, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(app, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(term, "BATCH_IDLE", timedelta(seconds=0.02))
    logs = Logs()
    await logs.bus.start()
    yield logs
    await logs.bus.stop()


async def ended(logs: Logs, sequence: int) -> bool:
    record = await logs.record()
    return record is not None and record.ended >= sequence


async def batched(logs: Logs, sequence: int) -> bool:
    record = await logs.record()
    return record is not None and record.batches >= sequence


async def recorded(logs: Logs, sequence: int) -> None:
    await eventually(lambda: ended(logs, sequence))


async def test_first_term_traces_waiting_but_not_ended_workloads(
    logs: Logs,
) -> None:
    await logs.workload("old", done=True)
    await logs.workload("waits", done=False)
    async with logs.tracing():
        await logs.workload("new", done=True)
        await eventually(logs.collector.workloads)
    assert logs.collector.workloads() == ["new"]


async def test_restart_continues_after_last_delivered_trace(logs: Logs) -> None:
    async with logs.tracing():
        await logs.workload("first", done=True)
        await recorded(logs, 2)
    await logs.workload("second", done=True)
    async with logs.tracing("another"):
        await eventually(lambda: len(logs.collector.workloads()) > 1)
        await recorded(logs, 4)
    assert logs.collector.workloads() == ["first", "second"]
    async with logs.tracing("a third"):
        await logs.workload("third", done=True)
        await eventually(lambda: len(logs.collector.workloads()) > 2)
    assert logs.collector.workloads() == ["first", "second", "third"]


async def test_each_decision_is_delivered_once_and_linked_from_its_batch(logs: Logs) -> None:
    async with logs.tracing():
        for name in ("a", "b", "c"):
            await logs.workload(name, done=False)
        await eventually(logs.collector.batches)
        await eventually(lambda: batched(logs, 3))
    async with logs.tracing("another"):
        await logs.workload("d", done=True)
        await eventually(logs.collector.workloads)
        await eventually(lambda: sum(logs.collector.batches()) >= 4)
    counts = logs.collector.batches()
    batches = [
        one for one in logs.collector.kept if "messaging.batch.message_count" in one.attributes
    ]
    assert sum(counts) == 4
    assert [len(one.links) for one in batches] == counts


async def test_workload_open_at_restart_has_whole_trace(logs: Logs) -> None:
    async with logs.tracing():
        await logs.workload("long", done=False)
        await logs.workload("short", done=True)
        await recorded(logs, 3)
    record = await logs.record()
    assert record is not None
    assert record.since["WORKLOADS"] == 1
    async with logs.tracing("another"):
        fields = {"cluster": "hub", "namespace": "a", "name": "long", "uid": "long"}
        end = {"phase": "finished", "finish": Finish(success=True, at=now()), "created_at": BEGAN}
        await logs.put(WorkloadState.model_validate(fields | end))
        await eventually(lambda: "long" in logs.collector.workloads())
    names = [
        s.name for s in logs.collector.kept if s.attributes.get("sluicegate.workload") == "long"
    ]
    assert any(name.startswith("create sluice.admission") for name in names), names


async def test_collector_gets_everything_after_outage(logs: Logs) -> None:
    logs.collector.away = True
    async with logs.tracing():
        for name in ("a", "b", "c"):
            await logs.workload(name, done=True)
        await eventually(lambda: logs.collector.requests > 3)
        assert logs.collector.kept == []
        logs.collector.away = False
        await eventually(lambda: len(logs.collector.workloads()) == 3)
    assert sorted(logs.collector.workloads()) == ["a", "b", "c"]


async def test_refused_trace_does_not_delay_others(logs: Logs) -> None:
    logs.collector.refuses = "bad"
    async with logs.tracing():
        await logs.workload("bad", done=True)
        for number in range(8):
            await logs.workload(f"good-{number}", done=True)
            await asyncio.sleep(0.03)
        await eventually(lambda: len(logs.collector.workloads()) == 8)
        await recorded(logs, 18)
    assert "bad" not in logs.collector.workloads()


async def test_reading_stops_while_delivery_queue_is_full(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "PENDING_MAX", 10)
    logs.collector.away = True
    async with logs.tracing():
        for number in range(60):
            await logs.workload(f"w-{number}", done=True)
        await eventually(lambda: logs.collector.requests > 2)
        logs.collector.away = False
        await eventually(lambda: len(logs.collector.workloads()) >= 60)
    assert len(set(logs.collector.workloads())) == 60


async def test_second_tracer_stands_by(logs: Logs) -> None:
    async with logs.tracing("one"), logs.tracing("two"):
        await logs.workload("a", done=True)
        await eventually(logs.collector.workloads)
        await recorded(logs, 2)
        await asyncio.sleep(0.1)
    assert logs.collector.workloads() == ["a"]
