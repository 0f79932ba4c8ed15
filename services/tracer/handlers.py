"""The tracer's side of the wire: five logs in, a collector out. What it took is put on record.

A trace is handed over when its workload has ended, whole, and again until the collector has taken it: a
tracer that dies loses none, and a collector that is away finds them all when it comes back.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog
from prometheus_client import Counter, Gauge

from services.tracer.facts import LOGS, Decided, fact_of
from services.tracer.lives import Life, Lives
from services.tracer.timeline import batch_of, spans_of
from shared.bus.port import Bus, BusError, CaughtUp, Entry, FencedError
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.traces import Traced
from shared.telemetry.otlp import Collector
from shared.telemetry.spans import Context, Span
from shared.telemetry.tracing import is_sampled, parse_traceparent

__all__ = ["Tracer"]

log = structlog.get_logger(__name__)

LEASE: Final = "tracer"
RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 30.0
TICK_SECONDS: Final = 1.0
"""Between two looks at what has settled."""

RECORD_SECONDS: Final = 5.0
"""Between two records of what was taken: what lies between is handed over again after a crash."""

INBOX_MAX: Final = 1_000
PENDING_MAX: Final = 5_000
"""Traces and batches that wait for the collector. Beyond it the logs are not read: they keep the rest."""

TOGETHER_MAX: Final = 50
"""Traces handed over at once."""

ATTEMPTS_MAX: Final = 3
"""After so many a trace is given up which the collector refuses while it takes others."""

AWAY_AFTER: Final = 2
"""After so many in a row that it does not take, a collector is thought to be away."""

BATCH_IDLE: Final = timedelta(seconds=2)
"""What was decided so long ago will not be joined by more."""

TRACES = Counter("sluicegate_tracer_traces", "Traces that were made.", ["result"])
OPEN = Gauge("sluicegate_tracer_open", "Workloads whose traces are open.")
PENDING = Gauge("sluicegate_tracer_pending", "Traces that wait for the collector.")


@dataclass(slots=True, kw_only=True)
class _Ready:
    """Spans that go to the collector together."""

    spans: Callable[[], list[Span]]
    settled_at: float
    """By the loop's clock."""

    life: Life | None = None
    batch: int = 0
    """Sequence in `ADMISSIONS` of the last decision of a batch."""

    attempts: int = 0


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Decisions of one moment, as far as they were read."""

    key: tuple[int, datetime]
    first: int
    last: int = 0
    count: int = 0
    end: datetime
    traced: list[tuple[Context, Decided]] = field(default_factory=list)


class Tracer:
    """Reads and hands over, whenever the lease is its own."""

    def __init__(
        self,
        *,
        bus: Bus,
        collector: Collector,
        now: Callable[[], datetime],
        settle_seconds: float,
    ) -> None:
        self._bus = bus
        self._collector = collector
        self._now = now
        self._settle_seconds = settle_seconds

    async def run(self) -> None:
        """One term after another, until cancelled."""
        while True:
            lease = await self._bus.lease(LEASE)
            try:
                async with asyncio.TaskGroup() as group:
                    term = _Term(
                        bus=self._bus,
                        collector=self._collector,
                        now=self._now,
                        settle_seconds=self._settle_seconds,
                    )
                    tracing = group.create_task(term.run())
                    await lease.lost()
                    log.warning("the lease is lost")
                    tracing.cancel()
            except* FencedError:
                log.warning("somebody else traces; starting again from the record")
            except* BusError as errors:
                log.warning("starting again from the record", errors=str(errors.exceptions))
            finally:
                await lease.release()
            await asyncio.sleep(RETRY_SECONDS)


class _Term:
    """One holder's time: all of it is rebuilt from the logs."""

    def __init__(
        self,
        *,
        bus: Bus,
        collector: Collector,
        now: Callable[[], datetime],
        settle_seconds: float,
    ) -> None:
        self._bus = bus
        self._collector = collector
        self._now = now
        self._settle_seconds = settle_seconds
        self._record = Traced(ended=0, batches=0, at=now())
        self._record_sequence = 0
        self._lives = Lives(ended=0)
        self._inbox: asyncio.Queue[tuple[str, Entry | CaughtUp]] = asyncio.Queue(INBOX_MAX)
        self._unread = set(LOGS)
        self._pending: deque[_Ready] = deque()
        self._room = asyncio.Event()
        self._room.set()
        self._batch: _Batch | None = None
        self._batches = 0
        """The last sequence of `ADMISSIONS` whose batch was handed over."""

    async def run(self) -> None:
        """Go on where the record says, until cancelled."""
        await self._recall()
        async with asyncio.TaskGroup() as group:
            for stream in LOGS:
                group.create_task(self._read(stream))
            group.create_task(self._take_all())
            await self._hand_over()

    async def _recall(self) -> None:
        """Read the record. Without one, what ended before now is nobody's question."""
        last = await self._bus.last_sequence("WORKLOADS")
        decided = await self._bus.last_sequence("ADMISSIONS")
        record = None
        async with aclosing(self._bus.watch("TRACES", self._record.subject)) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    break
                self._record_sequence = item.sequence
                try:
                    found = item.read(Traced)
                except UndecodableError as error:
                    log.warning("the record cannot be read; beginning now", error=str(error))
                    continue
                # Beyond the logs' ends it speaks of logs that were lost.
                if found.ended <= last and found.batches <= decided:
                    record = found
        if record is None:
            record = Traced(ended=last, batches=decided, at=self._now())
            self._record_sequence = await self._bus.publish(
                record, expect_subject=self._record_sequence
            )
        self._record = record
        self._lives = Lives(ended=record.ended)
        self._batches = record.batches
        log.info("tracing", since=record.since, ended=record.ended)

    async def _read(self, stream: str) -> None:
        start = max(1, self._record.since.get(stream, 1))
        async with aclosing(self._bus.replay(stream, start=start)) as items:
            async for item in items:
                await self._inbox.put((stream, item))

    async def _take_all(self) -> None:
        while True:
            stream, item = await self._inbox.get()
            if isinstance(item, CaughtUp):
                self._unread.discard(stream)
                continue
            await self._room.wait()
            try:
                self._take(stream, item)
            except UndecodableError as error:
                log.warning("skipping what cannot be read", subject=item.subject, error=str(error))

    def _take(self, stream: str, entry: Entry) -> None:
        settled_at = asyncio.get_running_loop().time() + self._settle_seconds
        if stream == "ADMISSIONS" and entry.sequence > self._batches:
            self._gather(entry, settled_at)
        for life in self._lives.take(stream, entry):
            self._append(_Ready(spans=partial(spans_of, life), settled_at=settled_at, life=life))

    def _gather(self, entry: Entry, settled_at: float) -> None:
        """Decisions that one moment brought about are one batch; they are beside one another."""
        found = fact_of("ADMISSIONS", entry)
        if found is None or not isinstance(found[1], Decided):
            return
        decided = found[1]
        key = (decided.term, decided.at)
        if self._batch is not None and self._batch.key != key:
            self._close_batch(settled_at)
        if self._batch is None:
            self._batch = _Batch(key=key, first=entry.sequence, end=entry.time)
        batch = self._batch
        batch.count += 1
        batch.last, batch.end = entry.sequence, max(batch.end, entry.time)
        traceparent = entry.headers.get("traceparent")
        ids = parse_traceparent(traceparent)
        if ids is not None and is_sampled(traceparent):
            batch.traced.append((Context(trace_id=ids[0], span_id=ids[1]), decided))

    def _close_batch(self, settled_at: float) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return

        def spans() -> list[Span]:
            span = batch_of(batch.traced, count=batch.count, end=batch.end)
            return [] if span is None else [span]

        self._append(_Ready(spans=spans, settled_at=settled_at, batch=batch.last))

    def _append(self, ready: _Ready) -> None:
        self._pending.append(ready)
        if len(self._pending) >= PENDING_MAX:
            self._room.clear()

    async def _hand_over(self) -> None:
        loop = asyncio.get_running_loop()
        pause = RETRY_SECONDS
        recorded_at = loop.time()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            OPEN.set(self._lives.open)
            PENDING.set(len(self._pending))
            if self._unread:
                continue  # What is needed of a trace may be among what is not read yet.
            self._close_idle_batch()
            while due := self._due():
                if await self._give(due):
                    pause = RETRY_SECONDS
                    continue
                log.warning("the collector does not take traces", pending=len(self._pending))
                await asyncio.sleep(pause)
                pause = min(RETRY_SECONDS_MAX, pause * 2)
            if loop.time() - recorded_at >= RECORD_SECONDS:
                recorded_at = loop.time()
                await self._put_record()

    def _close_idle_batch(self) -> None:
        """The last batch ends when nothing followed it for a while."""
        if self._batch is not None and self._now() - self._batch.end > BATCH_IDLE:
            self._close_batch(0)

    def _due(self) -> list[_Ready]:
        """The first few that have settled; they stay where they are until they were taken."""
        now = asyncio.get_running_loop().time()
        due: list[_Ready] = []
        for ready in self._pending:
            if ready.settled_at > now or len(due) == TOGETHER_MAX:
                break
            due.append(ready)
        return due

    async def _give(self, due: list[_Ready]) -> bool:
        """Hand them over: together, or, where that fails, one by one, since one may be at fault."""
        if await self._collected([span for ready in due for span in ready.spans()]):
            for ready in due:
                self._drop(ready, "taken")
            return True
        refused: list[_Ready] = []
        for ready in due:
            if await self._collected(ready.spans()):
                self._drop(ready, "taken")
                continue
            refused.append(ready)
            # The next attempt begins with others: these may be at fault, or the collector is away.
            self._pending.remove(ready)
            self._pending.append(ready)
            if refused[-AWAY_AFTER:] == due[:AWAY_AFTER]:
                return False
        if len(refused) == len(due):
            return False
        for ready in refused:
            ready.attempts += 1
            if ready.attempts >= ATTEMPTS_MAX:
                log.error("a trace is given up: the collector refuses it", of=_name(ready))
                self._drop(ready, "refused")
        return True

    async def _collected(self, spans: list[Span]) -> bool:
        return not spans or await asyncio.to_thread(self._collector.take, spans)

    def _drop(self, ready: _Ready, result: str) -> None:
        self._pending.remove(ready)
        self._room.set()
        if ready.life is None:
            self._batches = max(self._batches, ready.batch)
        else:
            self._lives.let_go(ready.life)
            TRACES.labels(result=result).inc()

    async def _put_record(self) -> None:
        """Say how far the collector is. A second tracer that said more fences this one out."""
        since = self._lives.since()
        batches = [self._batch.first] if self._batch is not None else []
        since["ADMISSIONS"] = min([since["ADMISSIONS"], self._batches + 1, *batches])
        record = Traced(
            ended=self._lives.ended(), batches=self._batches, since=since, at=self._now()
        )
        if record.model_copy(update={"at": self._record.at}) == self._record:
            return
        self._record_sequence = await self._bus.publish(
            record, expect_subject=self._record_sequence
        )
        self._record = record


def _name(ready: _Ready) -> str:
    return "/".join(ready.life.ident) if ready.life is not None else "a batch"
