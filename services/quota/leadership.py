"""quota's side of the wire: five views in, one fenced log out. Nothing is decided here."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog
from prometheus_client import Counter, Gauge

from services.quota.decider import Decider
from services.quota.metrics import DecisionMetrics
from services.quota.metrics.decisions import LABELS
from services.quota.metrics.gauges import cohorts_of, queue_of
from services.quota.queries.explainer import QueryResponder
from shared.bus.port import Bus, BusError, CaughtUp, Entry, FencedError
from shared.contracts.messages.admissions import HOLDING, Admission, Term
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.subjects import observed_filter

__all__ = ["Quota"]

log = structlog.get_logger(__name__)

LEASE: Final = "quota"
SYNCED_FILTER: Final = "sluice.observed.*._._.synced"
TERM_FILTER: Final = "sluice.term.>"
INPUTS: Final = ("OBSERVED", "ADMISSIONS", "WORKLOADS", "CHECKS", "OUTCOMES")
"""In the order in which a new leader takes them in."""
RETRY_SECONDS: Final = 1.0
"""Between a term that failed and the next attempt: the log may be full, or the server away."""

BATCH_MAX: Final = 2_000
"""Facts that are taken in before the loop decides and lets others run."""

REST: Final = 3.0
"""After it decided, the loop rests for so many times as long as that took. Meanwhile facts gather: to
weigh the same queues once for ten of them takes a tenth, and others get on with what was decided."""

REST_SECONDS_MAX: Final = 0.05

CONTRADICTIONS_MAX: Final = 1
"""Once a fresh state from the log may cure it; twice it is the log, or the engine."""

ROOM_SECONDS: Final = 5.0
"""Between two looks at how full the log of decisions is."""

FULL: Final = 0.8
"""From here on nobody is admitted: what is left is for those who end."""

PROBLEMS_MAX: Final = 20
HALTED: Final = "admission is stopped"

AUDITS = Counter("sluicegate_quota_audits", "Audits of the engine against the log.", ["result"])
for _result in ("ok", "contradiction"):
    AUDITS.labels(_result)  # There from the start: a rate sees the first.

UNPLANNED = Counter(
    "sluicegate_unplanned_workloads",
    "Workloads that ran before anybody had admitted them: they hold quota, also above what there is.",
    ["cluster_queue"],
)
LOG_FULLNESS = Gauge(
    "sluicegate_log_fullness",
    "How much room is used of the logs that refuse more when they are full, from 0 to 1.",
    ["stream"],
)
HALTED_GAUGE = Gauge("sluicegate_quota_halted", "1 while an audit's result stops admission.")


class ContradictionError(Exception):
    """What the engine believes is not what the log says."""


class Quota:
    """Waits for the lease, decides while it has it, and starts again from the log after any doubt."""

    def __init__(
        self,
        *,
        bus: Bus,
        new_decider: Callable[[], Decider],
        now: Callable[[], datetime],
        audit_seconds: float,
        meter: DecisionMetrics | None = None,
    ) -> None:
        self._bus = bus
        self._meter = meter or DecisionMetrics()
        self.leading: Decider | None = None
        """The memory of the leadership that goes on; None: another replica's, or none."""

        self._audit_seconds = audit_seconds
        self._contradicted = 0
        """Terms in a row that ended because an audit failed."""

        self._new_decider = new_decider
        self._now = now
        self._state = "waiting for the lease"

    def state(self) -> str:
        """What it does at the moment, in words."""
        return self._state

    async def run(self) -> None:
        """Lead whenever the lease is ours."""
        while True:
            self._state = "waiting for the lease"
            lease = await self._bus.lease(LEASE)
            try:
                async with asyncio.TaskGroup() as group:
                    leading = group.create_task(self._lead())
                    await lease.lost()
                    log.warning("the lease is lost")
                    leading.cancel()
            except* ContradictionError as errors:
                self._contradicted += 1
                if self._contradicted > CONTRADICTIONS_MAX:
                    await self._halt(str(_innermost(errors)))
            except* FencedError:
                log.warning("somebody else decides; starting again from the log")
                await asyncio.sleep(RETRY_SECONDS)
            except* BusError as errors:
                log.warning(
                    "cannot publish; starting again from the log", errors=str(errors.exceptions)
                )
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                self.leading = None
                await lease.release()

    async def _halt(self, problem: str) -> None:
        """A state rebuilt from the log contradicts it again: admit nothing until a person has looked."""
        self._state = f"{HALTED}: {problem}"
        HALTED_GAUGE.set(1)
        while True:
            log.error("admission is stopped", problem=problem)
            await asyncio.sleep(self._audit_seconds)

    def _audited(self) -> None:
        self._contradicted = 0

    async def _lead(self) -> None:
        self._state = "reading the streams"
        decider = self._new_decider()
        term = _Leadership(
            bus=self._bus,
            decider=decider,
            now=self._now,
            audit_seconds=self._audit_seconds,
            audited=self._audited,
            meter=self._meter,
        )
        async with asyncio.TaskGroup() as group:
            await term.begin(group)
            group.create_task(QueryResponder(bus=self._bus, decider=decider).serve())
            group.create_task(term.watch_room(self._on_room))
            self._state = "deciding"
            self.leading = decider
            await term.decide_for_ever()

    def _on_room(self, full: float | None) -> None:
        self._state = (
            "deciding" if full is None else f"admitting nobody: the log is {full:.0%} full"
        )


class _Leadership:
    """One term: everything in it is rebuilt from the streams, so nothing outlives it."""

    def __init__(
        self,
        *,
        bus: Bus,
        decider: Decider,
        now: Callable[[], datetime],
        audit_seconds: float,
        audited: Callable[[], None],
        meter: DecisionMetrics,
    ) -> None:
        self._meter = meter
        self._meter.reset()
        self._audit_seconds = audit_seconds
        self._audited = audited
        self._audit_at: datetime | None = None
        self._read_back = 0
        """Last sequence of `ADMISSIONS` that was read, or of ours that is stored."""

        self._on_log: dict[str, Admission] = {}
        """Subject to the decision by which it holds quota, as the log has it."""

        self._bus = bus
        self._decider = decider
        self._now = now
        self._term = 0
        self._number = 0
        self._last = 0
        """The sequence that `ADMISSIONS` will have when all that was sent is stored."""

        self._inbox: deque[tuple[str, Entry]] = deque()
        self._arrived = asyncio.Event()
        self._unread = set(INPUTS)
        self._all_read = asyncio.Event()
        self._inputs: dict[str, int] = {}
        self._failed: BaseException | None = None
        self._admit = True

    async def begin(self, group: asyncio.TaskGroup) -> None:
        """Read everything, then put our term on the log: from there on only we can write."""
        filters = {"OBSERVED": (SYNCED_FILTER, *map(observed_filter, Decider.watched()))}
        readers = {
            stream: group.create_task(self._read(stream, *filters.get(stream, ())))
            for stream in INPUTS
        }
        await self._all_read.wait()
        last = await self._bus.last_sequence("ADMISSIONS")
        self._term = self._last_term() + 1
        began = Term(term=self._term, holder=self._bus.instance, began_at=self._now())
        self._last = await self._bus.publish(began, expect_last=last)
        # The leader before us may have written to the end. Once our own term comes back, all of that
        # has been read: whatever follows it on the log is ours.
        while self._read_back < self._last:
            self._arrived.clear()
            await self._arrived.wait()
        # What we decide is known from its receipt; of others, that one began is all there is to hear.
        readers["ADMISSIONS"].cancel()
        group.create_task(self._read("ADMISSIONS", TERM_FILTER))
        self._inbox = self._in_order()
        self._take_in(len(self._inbox))
        log.info("leading", term=self._term, sequence=self._last)

    def _last_term(self) -> int:
        """The last that began; where the log has lost that, the last in which anything was decided."""
        began: list[int] = []
        decided: list[int] = []
        for stream, entry in self._inbox:
            with suppress(UndecodableError):
                if _is_term(entry):
                    began.append(entry.read(Term).term)
                elif stream == "ADMISSIONS" and not began:
                    decided.append(entry.read(Admission).term)
        return max(began or decided, default=0)

    def _in_order(self) -> deque[tuple[str, Entry]]:
        """What was read to begin with, and of each subject the last: a view goes on while it is read.

        A decision that was followed by another must not be weighed with what was said since. What was
        decided comes before what runs: a job that runs by our leave is not unplanned.
        """
        last: dict[str, tuple[str, Entry]] = {}
        for stream, entry in self._inbox:
            last.pop(entry.subject, None)
            last[entry.subject] = (stream, entry)
        return deque(sorted(last.values(), key=lambda item: INPUTS.index(item[0])))

    async def decide_for_ever(self) -> None:
        """Take in what arrived, decide, publish; sleep only where nothing is left to do."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self._take_in()
            self._raise_failure()
            now = self._now()
            admitted = [self._send(m) for m in self._decider.decide(now, admit=self._admit)]
            if admitted:
                self._meter.record_attempt(seconds=loop.time() - began, admitted=any(admitted))
            for status in self._decider.queue_statuses(now):
                self._tell(status)
            self._audit(now)
            rest = min(REST_SECONDS_MAX, REST * (loop.time() - began))
            if rest > 0 and len(self._inbox) < BATCH_MAX:
                await asyncio.sleep(rest)
            if self._inbox:
                await asyncio.sleep(0)
                continue
            await self._wait(self._decider.seconds_to_next(now))

    async def watch_room(self, tell: Callable[[float | None], None]) -> None:
        """Stop admitting while the log is nearly full: every admission needs room for its end, too.

        A log that refuses the release of quota that is free would hold everybody up.
        """
        while True:
            try:
                full = await self._bus.fullness("ADMISSIONS")
                # The classifier's, of which all that is needed here is that somebody tells it.
                LOG_FULLNESS.labels(stream="WORKLOADS").set(await self._bus.fullness("WORKLOADS"))
            except BusError as error:
                log.debug("the room is not known now", error=str(error))
            else:
                LOG_FULLNESS.labels(stream="ADMISSIONS").set(full)
                admit = full < FULL
                if admit != self._admit:
                    log.error("the log of decisions", fullness=full, admitting=admit)
                    self._admit = admit
                    tell(None if admit else full)
                    self._arrived.set()
            await asyncio.sleep(ROOM_SECONDS)

    def _audit(self, now: datetime) -> None:
        """Now and then, when all that was decided was read back, ask whether the engine believes it."""
        if self._audit_at is None:
            self._audit_at = now + timedelta(seconds=self._audit_seconds)
        if now < self._audit_at or self._inbox or self._read_back != self._last:
            return
        self._audit_at = now + timedelta(seconds=self._audit_seconds)
        problems = self._decider.contradictions(self._on_log.values())
        AUDITS.labels(result="contradiction" if problems else "ok").inc()
        if not problems:
            self._audited()
            return
        for problem in problems[:PROBLEMS_MAX]:
            log.error("audit", problem=problem)
        raise ContradictionError(problems[0])

    async def _wait(self, seconds: float | None) -> None:
        self._arrived.clear()
        if self._inbox or self._failed is not None:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            return  # Something that waited for a time is due.

    async def _read(self, stream: str, *filters: str) -> None:
        async with aclosing(self._bus.watch(stream, *filters)) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    self._inputs[stream] = max(self._inputs.get(stream, 0), item.sequence)
                    self._unread.discard(stream)
                    if not self._unread:
                        self._all_read.set()
                    continue
                self._inbox.append((stream, item))
                if stream == "ADMISSIONS":
                    self._read_back = max(self._read_back, item.sequence)
                self._arrived.set()

    def _take_in(self, limit: int = BATCH_MAX) -> None:
        """Turn what arrived into facts, in the order of arrival."""
        for _ in range(min(len(self._inbox), limit)):
            stream, entry = self._inbox.popleft()
            self._inputs[stream] = max(self._inputs.get(stream, 0), entry.sequence)
            try:
                self._take(stream, entry)
            except UndecodableError as error:
                log.warning("skipping what cannot be read", subject=entry.subject, error=str(error))

    def _take(self, stream: str, entry: Entry) -> None:
        if stream == "ADMISSIONS":
            self._take_admission(entry)
        elif entry.subject.endswith(".synced"):
            self._decider.apply_synced(entry.read(Synced))
        else:
            self._decider.apply(stream, entry)
            if _is_of_a_queue(entry.subject) and (observed := entry.read(Observed)).deleted:
                self._meter.remove_series(observed.plural, observed.namespace, observed.name)

    def _take_admission(self, entry: Entry) -> None:
        if _is_term(entry):
            if entry.sequence > self._last:
                term = entry.read(Term)
                raise FencedError(f"term {term.term} of {term.holder} began")
            return
        if entry.sequence > self._last:
            raise FencedError(f"{entry.subject} was decided by somebody else")
        admission = entry.read(Admission)
        self._note(admission)
        self._decider.restore(admission)
        self._meter.restore(admission)

    def _note(self, admission: Admission) -> None:
        """It is on the log."""
        if admission.state in HOLDING:
            self._on_log[admission.subject] = admission
        else:
            self._on_log.pop(admission.subject, None)

    def _send(self, admission: Admission) -> bool:
        """Publish a decision; whether it admits."""
        self._number += 1
        numbered = admission.model_copy(
            update={"term": self._term, "number": self._number, "inputs": dict(self._inputs)}
        )
        future = self._bus.publish(numbered, expect_last=self._last)
        self._last += 1
        asyncio.ensure_future(future).add_done_callback(partial(self._done, numbered))
        self._count(numbered)
        if numbered.unplanned and numbered.subject not in self._on_log:
            UNPLANNED.labels(cluster_queue=numbered.cluster_queue).inc()
        return numbered.state == "admitted"

    def _count(self, admission: Admission) -> None:
        engine, cluster = self._decider.engine, admission.cluster
        by = admission.preempted_by
        self._meter.record_decision(
            admission,
            self._decider.state_of(admission),
            cohorts=cohorts_of(engine, cluster, admission.cluster_queue),
            preempting=queue_of(engine, cluster, by) if by is not None else "",
        )

    def _tell(self, status: QueueStatus) -> None:
        """A status is for people: one that is lost is followed by the next."""
        asyncio.ensure_future(self._bus.publish(status)).add_done_callback(_untold)

    def _done(self, admission: Admission, future: "asyncio.Future[int]") -> None:
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            self._failed = self._failed or error
            self._arrived.set()
            return
        self._note(admission)
        self._read_back = max(self._read_back, future.result())
        self._inputs["ADMISSIONS"] = self._read_back

    def _raise_failure(self) -> None:
        """One lost publish fails all behind it: what is on the log is read anew by the next term."""
        if self._failed is not None:
            raise self._failed


def _is_term(entry: Entry) -> bool:
    return entry.subject.startswith("sluice.term.")


def _innermost(error: BaseException) -> BaseException:
    """What was raised, out of the groups that brought it here."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _is_of_a_queue(subject: str) -> bool:
    """Whether it was observed of a kind by whose objects metrics are told apart."""
    resource = subject.rpartition(".")[2].partition("_")[0]
    return subject.startswith("sluice.observed.") and resource in LABELS


def _untold(future: "asyncio.Future[int]") -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        log.warning("a queue's status was not published", error=str(error))
