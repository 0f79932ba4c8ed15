"""One term of leadership: reads five views, decides, and writes one fenced log.

Nothing outlives a term: its state is rebuilt from the streams. A term begins in five steps.

1. It reads the view of every input to the end.
2. It publishes a `Term` message above every other of the log, fenced by the last sequence of `ADMISSIONS`.
3. It waits until it has read that message back: now it has read all that earlier leaders wrote.
4. It applies the inputs, in the order of `INPUTS`.
5. It decides. From here on every message on `ADMISSIONS` that it did not write ends the term.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial
from typing import Final

import structlog

from services.quota.audit.auditor import Auditor
from services.quota.audit.contradictions import OpenContradictions
from services.quota.dead_letters import DeadLetters
from services.quota.decider import Decider
from services.quota.ended_work import FORGET_SECONDS, EndedWork
from services.quota.log_room import LogRoom
from services.quota.metrics import DecisionMetrics
from services.quota.metrics.gauges import cohorts_of, named_cohorts, queue_of
from services.quota.metrics.service import AUDITS, HALTED, ISOLATED, UNPLANNED
from services.quota.publishing.queue_status import Status
from services.quota.trust.revived import RevivedEntries
from services.quota.trust.terms import next_term
from services.quota.wire.entries import HIDING, INPUTS, message_in, message_type, ruling_in
from services.quota.wire.inbound import CONFIGURATION_KINDS
from shared.bus.follow import TURN, existing, why_unreadable
from shared.bus.port import (
    Bus,
    Entry,
    FencedError,
    LogChangedError,
    LogEnd,
    VoidEntry,
)
from shared.contracts.kube.kinds import CLUSTER_QUEUE, COHORT
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.admissions import Term as TermBegan
from shared.contracts.messages.base import Message, NewerSchemaError
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.subjects import (
    Stream,
    encode,
    observed_filter,
    subject_filter,
    synced_filter,
    workload_of,
)
from shared.telemetry import probes

log = structlog.get_logger(__name__)

BATCH_MAX: Final = 2_000
"""Messages that are applied before the loop decides."""

REST: Final = 3.0
REST_SECONDS_MAX: Final = 0.05
"""After a decision the loop rests for this multiple of its duration, and no longer, so that nobody notices.
Facts gather meanwhile, and one evaluation of a queue serves all; other tasks carry out the decisions."""

PROBLEMS_MAX: Final = 20
"""Contradictions that one examination logs."""


class ContradictionError(Exception):
    """The engine believes something else than the log says: build a new one from the log."""


class Term:
    """One term. Call `begin`, then `decide_until_cancelled`."""

    def __init__(
        self,
        *,
        bus: Bus,
        decider: Decider,
        now: Callable[[], datetime],
        open_contradictions: OpenContradictions,
        may_begin_anew: Callable[[], bool],
        on_stopped: Callable[[str, str], None],
        metrics: DecisionMetrics,
        forget_seconds: float = FORGET_SECONDS,
    ) -> None:
        """`open_contradictions`: those of terms before; while there is any, nobody is admitted.

        `on_stopped` gets why nobody is admitted, twice empty when admission goes on: what the auditor
        found, and which log is nearly full. `may_begin_anew`: whether a contradiction may end the term.
        """
        self._bus = bus
        self._decider = decider
        self._now = now
        self._auditor = Auditor(open_contradictions)
        self._may_begin_anew = may_begin_anew
        self._on_stopped = on_stopped
        self._metrics = metrics
        self._metrics.reset()
        self._term = self._epoch = self._number = 0
        self._last_sent = 0
        """The sequence that `ADMISSIONS` will have when everything that was sent is stored."""

        self._last_stored = 0
        """Last sequence of `ADMISSIONS` that was read, or acknowledged for a message of ours."""

        self._holding: set[str] = set()
        """Subjects of the workloads that hold quota, as the log has it."""

        self._inbox: deque[tuple[str, Entry]] = deque()
        self._arrived = asyncio.Event()
        self._unread = set(INPUTS)
        self._all_read = asyncio.Event()
        self._inputs: dict[str, int] = {}
        """Stream to the last sequence of it that was applied."""

        self._publish_error: BaseException | None = None
        self.room = self._log_room()
        self._newer: set[str] = set()
        """Clusters whose queues a newer release describes, until somebody of this one has listed them."""

        self._ended = self._ended_work(forget_seconds)
        self._revived = RevivedEntries(
            bus, now, forget_seconds, apply=self._receive, read_up_to=self._inputs.__getitem__
        )
        self._letters, self._halted = DeadLetters(bus=bus, now=now), ""
        """The contradiction because of which nobody is admitted; empty: there is none."""

        self._is_examined = False
        """The engine that was built from the log has been compared with it."""

    def _log_room(self) -> LogRoom:
        return LogRoom(
            bus=self._bus,
            last_stored=lambda: self._last_stored,
            check_end=self._check_end,
            on_change=self._note_stopped,
        )

    def _ended_work(self, forget_seconds: float) -> EndedWork:
        return EndedWork(
            bus=self._bus,
            decider=self._decider,
            now=self._now,
            decided_up_to=lambda: self._last_stored,
            holds=self._holding.__contains__,
            forget_seconds=forget_seconds,
        )

    async def begin(self, group: asyncio.TaskGroup) -> None:
        """Read all inputs and write our term to the log: from there on only we can write."""
        filters = {Stream.OBSERVED: (synced_filter(), *map(observed_filter, CONFIGURATION_KINDS))}
        readers = {
            stream: group.create_task(self._read(stream, *filters.get(stream, ())))
            for stream in INPUTS
        }
        group.create_task(self._letters.run())
        await self._all_read.wait()
        last = await self._bus.last_sequence(Stream.ADMISSIONS)
        # The view may not have every term yet. What comes behind `last` is refused, or refuses ours.
        epoch, term = await self._bus.highest_term(Stream.ADMISSIONS)
        self._term = next_term(self._inbox, self._now(), above=term)
        self._epoch = max(epoch, await self._bus.epoch(Stream.ADMISSIONS))
        began = TermBegan(
            epoch=self._epoch,
            term=self._term,
            holder=self._bus.instance,
            began_at=self._now(),
        )
        self._last_sent = await self._bus.publish(began, expect_last=last)
        # The leader before us may have written until now. Everything that precedes our term on the
        # log is read once the term itself is; everything that follows it is ours.
        probes.TERM_AWAITED.fired += self._last_stored < self._last_sent
        while self._last_stored < self._last_sent:
            self._arrived.clear()
            await self._arrived.wait()
        # Acknowledgements tell us about our own decisions. The only news from others is their term.
        readers[Stream.ADMISSIONS].cancel()
        group.create_task(self._read(Stream.ADMISSIONS, subject_filter("term")))
        void = [*await self._bus.void(Stream.ADMISSIONS), *self._of_newer_release()]
        self._inbox.extend((Stream.ADMISSIONS, one.valid) for one in void if one.valid is not None)
        self._inbox = self._latest_in_order()
        await self._apply_inbox(len(self._inbox))
        await self._revived.look_first(self._decider.is_known)
        await self._apply_inbox(len(self._inbox))
        self._auditor.check_order()
        await self.room.look()
        for one in void:
            self._repair(one)
        self._note_stopped()
        log.info("this replica leads and decides", term=self._term, sequence=self._last_sent)

    def _of_newer_release(self) -> list[VoidEntry]:
        """The last decisions that a newer release wrote, before this one leads again.

        Patchers of this release do not carry them out, so that they have to be said in its own schema.
        """
        last = {
            entry.subject: entry for stream, entry in self._inbox if stream == Stream.ADMISSIONS
        }
        return [
            VoidEntry(entry=entry, valid=entry)
            for entry in last.values()
            if Admission.is_of_newer_schema(entry.headers)
            and ruling_in(entry, Admission) is not None
        ]

    def _repair(self, void: VoidEntry) -> None:
        """Publish the valid decision of a workload whose last one on the log is void.

        The view holds the void one, which every reader drops: whoever begins to read would know of no
        decision. A workload that never had a valid one is decided about, or does not exist any more.
        """
        message = ruling_in(void.valid or void.entry, Admission)
        if message is None:
            return
        probes.VOID_REPAIRED.fired += 1
        log.warning("publishing a decision again that readers drop", subject=message.subject)
        if void.valid is not None:
            self._send(message)  # The metrics know it.
            return
        state = self._decider.state_of(message)
        if state is None or state.phase == "finished":
            self._send(message.replace(state="released", decided_at=self._now()))

    def _latest_in_order(self) -> deque[tuple[str, Entry]]:
        """The last entry of each subject, in the order of `INPUTS`.

        Views go on while they are read, so that the inbox may hold two entries of a subject. An old
        decision must not meet newer facts.
        """
        last: dict[str, tuple[str, Entry]] = {}
        for stream, entry in self._inbox:
            probes.OLDER_ENTRY_DROPPED.fired += last.pop(entry.subject, None) is not None
            last[entry.subject] = (stream, entry)
        return deque(sorted(last.values(), key=lambda item: INPUTS.index(item[0])))

    async def decide_until_cancelled(self) -> None:
        """Apply what arrived, decide, publish; sleep while there is nothing to do."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self._apply_inbox()
            if self._publish_error is not None:
                # Every later publish fails as well: the next term reads from the log what is stored.
                raise self._publish_error
            now = self._now()
            admits = self._admits
            admitted = [self._publish(m) for m in self._decider.decide(now, admit=admits)]
            if admitted:
                self._metrics.record_attempt(seconds=loop.time() - began, admitted=any(admitted))
            for status in self._decider.queue_statuses(now):
                self._publish_status(status)
            self._examine()
            if self._admits != admits:
                await asyncio.sleep(0)
                continue  # It admits again, or admits nobody from now on.
            rest = min(REST_SECONDS_MAX, REST * (loop.time() - began))
            if rest > 0 and len(self._inbox) < BATCH_MAX:
                await asyncio.sleep(rest)
            if self._inbox or self._admits != admits:
                await asyncio.sleep(0)
                continue
            await self._wait(self._decider.seconds_to_next(now))

    async def delete_ended(self) -> None:
        """Delete ended workloads from the views, and from logs that are nearly full."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ended.sweep_objects())
            group.create_task(self._ended.sweep_letters())
            group.create_task(self._ended.run(self.room.fullness))
            group.create_task(self._revived.look())

    @property
    def _admits(self) -> bool:
        return self._is_examined and not (self.room.why_none() or self._halted or self._newer)

    def _check_end(self, end: LogEnd, stored: int) -> None:
        """Compare the end of `ADMISSIONS` with what we sent, and with what was `stored` before."""
        if end.last > self._last_sent:
            # Three servers cannot refuse a stale leader: the next term repairs what it wrote.
            raise FencedError(f"ADMISSIONS ends at {end.last}, we sent up to {self._last_sent}")
        if end.last < stored:
            raise LogChangedError(f"ADMISSIONS ends at {end.last}, it had {stored}")

    def _note_stopped(self) -> None:
        """Look whether the auditor stops admission, and say why nobody is admitted."""
        problem = self._auditor.problem()
        if bool(problem) != bool(self._halted):
            why = problem or self._halted
            log.error("admission is stopped" if problem else "admission goes on", problem=why)
        self._halted = problem
        HALTED.set(bool(problem))
        stopped = (
            f"the log and quota's own state contradict each other ({problem})" if problem else ""
        )
        full = self.room.why_none()
        if self._newer:
            full = f"a newer release writes OBSERVED of {', '.join(sorted(self._newer))}: upgrade quota"
        self._decider.admission_stopped = stopped or full
        self._on_stopped(problem, full)
        self._arrived.set()

    def _examine(self) -> None:
        """Have the auditor examine what was read and decided: admission may stop, or go on.

        A contradiction of the engine ends the term: an engine that is built anew may know better. One
        that comes again soon, and one that is on the log, stop admission until they are gone.
        """
        new = self._auditor.examine(self._decider.engine, self._decider.synced)
        self._is_examined = True
        if new is not None:
            AUDITS.labels(result="contradiction" if new else "ok").inc()
            self._note_stopped()
        for one in (new or ())[:PROBLEMS_MAX]:
            log.error("the auditor found a contradiction", problem=one.text)
        if new and any(one.source == "engine" for one in new) and self._may_begin_anew():
            raise ContradictionError(new[0].text)

    async def _wait(self, seconds: float | None) -> None:
        """Sleep until a message arrives, a publish fails, or `seconds` are over."""
        self._arrived.clear()
        if self._inbox or self._publish_error is not None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrived.wait()

    # --- inputs ------------------------------------------------------------------------------------

    async def _read(self, stream: str, *filters: str) -> None:
        on_entry = partial(self._receive, stream)
        kinds = HIDING.get(stream, ())
        items = existing(self._bus, stream, filters, kinds=kinds, on_entry=on_entry)
        async with aclosing(items):
            async for item in items:
                self._inputs[stream] = max(self._inputs.get(stream, 0), item.sequence)
                self._unread.discard(stream)
                if not self._unread:
                    self._all_read.set()

    def _receive(self, stream: str, entry: Entry) -> bool:
        """Keep an entry for `_apply_inbox`; False: it hides an object, the last state of which is needed."""
        self._inbox.append((stream, entry))
        if stream == Stream.ADMISSIONS:
            self._last_stored = max(self._last_stored, entry.sequence)
        self._arrived.set()
        may_hide = stream in HIDING and stream in self._unread
        return not may_hide or message_in(stream, entry) is not None

    async def _apply_inbox(self, limit: int = BATCH_MAX) -> None:
        """Apply what arrived, in the order of arrival. Other tasks have their turns meanwhile."""
        for number in range(min(len(self._inbox), limit)):
            if number % TURN == TURN - 1:
                await asyncio.sleep(0)
            stream, entry = self._inbox.popleft()
            self._inputs[stream] = max(self._inputs.get(stream, 0), entry.sequence)
            if (why := self._use(stream, entry)) is not None:
                self._letters.put(entry, why)
            else:
                self._letters.on_used(entry)

    def try_again(self, stream: str, entry: Entry) -> str | None:
        """Apply an entry once more, unless it is a decision in force; return why that fails, or None."""
        again = stream != Stream.ADMISSIONS or self._letters.is_about(entry)
        why = self._use(stream, entry) if again else None
        if why is None and (ref := workload_of(entry.subject)) is not None:
            self._decider.hold_back(ref, stream, None)
        self._arrived.set()
        return why

    def _use(self, stream: str, entry: Entry) -> str | None:
        """Apply one entry; return why it cannot be used, or None."""
        message = message_in(stream, entry)
        if message is None:
            return self._isolate(stream, entry, message_type(stream, entry.subject))
        why = self._apply(message, entry)
        self._ended.observe(message, entry)
        self._revived.observe(message, entry)
        return why

    def _isolate(self, stream: str, entry: Entry, kind: type[Message]) -> str | None:
        """Hold back the workload of an entry that cannot be read; None: a newer release can."""
        ISOLATED.labels(stream=stream).inc()
        probes.ISOLATED.fired += 1
        ref = workload_of(entry.subject)
        if stream in {Stream.ADMISSIONS, Stream.WORKLOADS} and ref is not None:
            self._decider.hold_back(ref, stream, f"sequence {entry.sequence} cannot be read")
        try:
            return why_unreadable(entry, lambda one: one.read(kind))
        except NewerSchemaError:
            if stream == Observed.stream:
                self._newer.add(entry.subject.split(".")[2])
                self._note_stopped()
            return None

    def _apply(self, message: Message, entry: Entry) -> str | None:
        """Apply a message; return why it cannot be used, or None."""
        match message:
            case TermBegan():
                if entry.sequence > self._last_sent:
                    probes.DECIDER_FENCED.fired += 1
                    raise FencedError(f"term {message.term} of {message.holder} began")
                self._auditor.restore(message, entry.sequence)
            case Admission():
                if entry.sequence > self._last_sent:
                    probes.DECIDER_FENCED.fired += 1
                    raise FencedError(f"{entry.subject} was decided by somebody else")
                if (why := self._decider.restore(message)) is not None:
                    return why
                self._remember(message)
                self._auditor.restore(message, entry.sequence)
                self._metrics.restore(message)
            case _:
                why = self._decider.apply(message)
                self._auditor.note(message)
                if isinstance(message, Synced) and encode(message.cluster) in self._newer:
                    self._newer.discard(encode(message.cluster))
                    self._note_stopped()
                if isinstance(message, Observed):
                    self._metrics.observe(message)
                    if message.deleted and message.plural in {CLUSTER_QUEUE.plural, COHORT.plural}:
                        self._metrics.keep_cohorts(named_cohorts(self._decider.engine))
                return why
        return None

    def _remember(self, admission: Admission) -> None:
        """Keep who holds quota by the log."""
        if admission.state in HOLDING:
            self._holding.add(admission.subject)
        else:
            self._holding.discard(admission.subject)

    # --- outputs -----------------------------------------------------------------------------------

    def _publish(self, draft: Admission) -> bool:
        """Publish a decision and count it; return whether it admits."""
        admission = self._send(draft)
        self._record(admission)
        return admission.state == "admitted"

    def _send(self, draft: Admission) -> Admission:
        self._number += 1
        admission = draft.numbered(
            epoch=self._epoch, term=self._term, number=self._number, inputs=dict(self._inputs)
        )
        future = self._bus.publish(admission, expect_last=self._last_sent)
        self._last_sent += 1
        self._decider.on_sent(admission)
        self._auditor.note(admission)
        self._revived.forget(admission)
        stored = partial(self._on_published, admission, self._last_sent)
        asyncio.ensure_future(future).add_done_callback(stored)
        return admission

    def _record(self, admission: Admission) -> None:
        """Count a decision in the metrics."""
        engine, cluster = self._decider.engine, admission.cluster
        preemptor = admission.preempted_by
        self._metrics.record_decision(
            admission,
            self._decider.state_of(admission),
            cohorts=cohorts_of(engine, cluster, admission.cluster_queue),
            preempting=queue_of(engine, cluster, preemptor) if preemptor is not None else "",
        )
        if admission.unplanned and admission.subject not in self._holding:
            UNPLANNED.labels(cluster_queue=admission.cluster_queue).inc()

    def _on_published(
        self, admission: Admission, expected: int, future: "asyncio.Future[int]"
    ) -> None:
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            self._publish_error = self._publish_error or error
            self._arrived.set()
            return
        self._remember(admission)
        self._auditor.on_stored(admission, future.result(), expected)
        self._last_stored = max(self._last_stored, future.result())
        self._inputs[Stream.ADMISSIONS] = self._last_stored

    def _publish_status(self, status: Status) -> None:
        """Publish the status of a queue or cohort. A lost one does no harm: the next one replaces it."""
        asyncio.ensure_future(self._bus.publish(status)).add_done_callback(_log_lost_status)


def _log_lost_status(future: "asyncio.Future[int]") -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        log.warning("a queue's status was not published", error=str(error))
