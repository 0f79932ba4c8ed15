"""One term of leadership: reads five logs, delivers the traces of ended workloads, records how far it is.

A tracer that dies loses no trace: the next term reads again from where the record says, and traces that were
delivered after the last record are delivered a second time, with the same span ids.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from services.tracer.delivery import Delivery, PendingSpans, Result
from services.tracer.events import LOGS, DecisionEvent
from services.tracer.metrics import OPEN, PENDING, TRACES
from services.tracer.open_traces import OpenTraces, WorkloadTrace
from services.tracer.timeline import batch_of, spans_of
from shared.bus.follow import isolated, read, recall_entries
from shared.bus.port import Bus, CaughtUp, Entry
from shared.contracts.messages.traces import Traced
from shared.contracts.subjects import Stream
from shared.telemetry.otlp import Collector
from shared.telemetry.spans import Context, Span
from shared.telemetry.traceparent import is_sampled, parse_traceparent

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 30.0
TICK_SECONDS: Final = 1.0
"""Between two looks for settled traces."""

RECORD_SECONDS: Final = 5.0
"""Between two records. After a crash, what was delivered since the last record is delivered again."""

INBOX_MAX: Final = 1_000
"""Messages that wait in memory to be traced; the others wait in their logs."""

BATCH_IDLE: Final = timedelta(seconds=2)
"""Age of the last decision of a batch after which no further decision belongs to the batch."""


@dataclass(slots=True, kw_only=True)
class _DecisionBatch:
    """Decisions of one moment, as far as they were read."""

    key: tuple[int, datetime]
    """Term and time of the decisions."""

    first: int
    last: int
    """First and last sequence in `ADMISSIONS`."""

    end: datetime
    count: int = 0
    traced: list[tuple[Context, DecisionEvent]] = field(default_factory=list)

    def add(self, decision: DecisionEvent, entry: Entry) -> None:
        self.count += 1
        self.last, self.end = entry.sequence, max(self.end, entry.time)
        traceparent = entry.headers.get("traceparent")
        ids = parse_traceparent(traceparent)
        if ids is not None and is_sampled(traceparent):
            self.traced.append((Context(trace_id=ids[0], span_id=ids[1]), decision))

    def spans(self) -> list[Span]:
        span = batch_of(self.traced, count=self.count, end=self.end)
        return [] if span is None else [span]


class Term:
    """From the start of a lease to its loss. Everything is read from the logs again in the next term."""

    def __init__(
        self,
        *,
        bus: Bus,
        collector: Collector,
        now: Callable[[], datetime],
        settle_seconds: float,
    ) -> None:
        self._bus = bus
        self._now = now
        self._settle_seconds = settle_seconds
        self._record = Traced(ended=0, batches=0, at=now())
        self._record_sequence = 0
        self._traces = OpenTraces(delivered=0)
        self._inbox: asyncio.Queue[tuple[str, Entry | CaughtUp]] = asyncio.Queue(INBOX_MAX)
        self._unread = set(LOGS)
        self._delivery = Delivery(collector)
        self._batch: _DecisionBatch | None = None
        self._batches_delivered = 0
        """The last sequence in `ADMISSIONS` whose batch is delivered."""

    async def run(self) -> None:
        """Continue from the last record, until cancelled."""
        await self._read_record()
        async with asyncio.TaskGroup() as group:
            for stream in LOGS:
                group.create_task(self._read(stream))
            group.create_task(self._observe_all())
            await self._deliver()

    async def _read_record(self) -> None:
        """Read the last record. Without one, workloads that have ended before now are not traced."""
        last = await self._bus.last_sequence(Stream.WORKLOADS)
        decided = await self._bus.last_sequence(Stream.ADMISSIONS)
        record: Traced | None = None

        def on_entry(entry: Entry) -> None:
            nonlocal record
            # Also of an unreadable record: its successor must expect this sequence.
            self._record_sequence = entry.sequence
            found = read(entry, Traced)
            # A record beyond the ends of the logs is about logs that were deleted.
            if found is not None and found.ended <= last and found.batches <= decided:
                record = found

        filters = [self._record.subject]
        await recall_entries(self._bus, Stream.TRACES, filters, on_entry=on_entry)
        if record is None:
            record = Traced(ended=last, batches=decided, at=self._now())
            self._record_sequence = await self._bus.publish(
                record, expect_subject=self._record_sequence
            )
        self._record = record
        self._traces = OpenTraces(delivered=record.ended)
        self._batches_delivered = record.batches
        log.info("this replica leads and exports traces", since=record.since, ended=record.ended)

    # --- reading ---

    async def _read(self, stream: str) -> None:
        start = max(1, self._record.since.get(stream, 1))
        async with aclosing(self._bus.replay(stream, start=start)) as items:
            async for item in items:
                await self._inbox.put((stream, item))

    async def _observe_all(self) -> None:
        while True:
            stream, item = await self._inbox.get()
            if isinstance(item, CaughtUp):
                self._unread.discard(stream)
                continue
            await self._delivery.wait_for_room()
            self._observe(stream, item)

    def _observe(self, stream: str, entry: Entry) -> None:
        settled_at = asyncio.get_running_loop().time() + self._settle_seconds
        decision: DecisionEvent | None = None
        ended: list[WorkloadTrace] = []
        with isolated(stream, entry.subject):
            decision, ended = self._traces.observe(stream, entry)
        if decision is not None and entry.sequence > self._batches_delivered:
            self._add_to_batch(decision, entry, settled_at)
        for trace in ended:
            self._delivery.add(
                PendingSpans(
                    name="/".join(trace.workload),
                    spans=partial(spans_of, trace),
                    settled_at=settled_at,
                    on_done=partial(self._on_trace_done, trace),
                )
            )

    def _add_to_batch(self, decision: DecisionEvent, entry: Entry, settled_at: float) -> None:
        """Decisions of one moment are one batch; they follow each other on the log."""
        key = (decision.term, decision.at)
        if self._batch is not None and self._batch.key != key:
            self._close_batch(self._batch, settled_at)
        if self._batch is None:
            sequence = entry.sequence
            self._batch = _DecisionBatch(key=key, first=sequence, last=sequence, end=entry.time)
        self._batch.add(decision, entry)

    def _close_batch(self, batch: _DecisionBatch, settled_at: float) -> None:
        self._batch = None
        self._delivery.add(
            PendingSpans(
                name="a batch",
                spans=batch.spans,
                settled_at=settled_at,
                on_done=partial(self._on_batch_done, batch),
            )
        )

    # --- delivering ---

    def _on_trace_done(self, trace: WorkloadTrace, result: Result) -> None:
        self._traces.mark_delivered(trace)
        TRACES.labels(result=result).inc()

    def _on_batch_done(self, batch: _DecisionBatch, _result: Result) -> None:
        self._batches_delivered = max(self._batches_delivered, batch.last)

    async def _deliver(self) -> None:
        loop = asyncio.get_running_loop()
        pause = RETRY_SECONDS
        recorded_at = loop.time()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            OPEN.set(self._traces.open)
            PENDING.set(len(self._delivery))
            if self._unread:
                continue  # An event of a trace may be among what is not read yet.
            if self._batch is not None and self._now() - self._batch.end > BATCH_IDLE:
                self._close_batch(self._batch, 0)
            while due := self._delivery.due():
                if await self._delivery.send(due):
                    pause = RETRY_SECONDS
                    continue
                log.warning("the collector does not take traces", pending=len(self._delivery))
                await asyncio.sleep(pause)
                pause = min(RETRY_SECONDS_MAX, pause * 2)
            if loop.time() - recorded_at >= RECORD_SECONDS:
                recorded_at = loop.time()
                await self._publish_record()

    async def _publish_record(self) -> None:
        """Publish how much is delivered. Raises `FencedError` if a second tracer has published since."""
        since = self._traces.since()
        open_batch = [self._batch.first] if self._batch is not None else []
        since[Stream.ADMISSIONS] = min(
            [since[Stream.ADMISSIONS], self._batches_delivered + 1, *open_batch]
        )
        record = Traced(
            ended=self._traces.delivered(),
            batches=self._batches_delivered,
            since=since,
            at=self._now(),
        )
        if not record.repeats(self._record):
            self._record_sequence = await self._bus.publish(
                record, expect_subject=self._record_sequence
            )
            self._record = record
