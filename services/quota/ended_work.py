"""Deletes ended workloads from the views, and the oldest history from a log that is nearly full.

The leader of quota is the only one that does this. Every step can be repeated, and a former leader does no
harm: each deletion names the sequence up to which this term has read, and what is newer stays.

1. The tombstone of a workload is applied; or a decision or outcome of a workload that is not there.
2. After `forget_seconds`, if the workload is still over, its decision and its outcome are deleted from the
   views, and then its tombstone: a leader that starts in between finds the tombstone and goes on.
3. From `TRIM_FROM` on, a log keeps only the newest messages of each workload, the fewer the fuller it is:
   else whoever changes one job again and again would fill it with what nobody needs any more.
4. If that is not enough, the messages of workloads that are in no view any more are deleted from it, the
   oldest first, until it is `TRIM_TO` full.

For all services it also deletes tombstones of objects, and what is left of dead letters that are closed: a
spoke may not purge what all clusters share.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import structlog

from services.quota.dead_letters import closed_letters
from services.quota.decider import Decider
from services.quota.metrics.service import ENDED, SWEPT, TRIMMED
from shared.bus.follow import recall
from shared.bus.port import Bus, BusError, Entry
from shared.bus.streams import view_of
from shared.contracts.kube.moments import EARLIEST
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.outcomes import DeadLetter, Outcome
from shared.contracts.messages.queues import SHORTENED_MAX, HistoryStart
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import SORT_OF, Stream, join, subject_filter, workload_of
from shared.telemetry import probes

log = structlog.get_logger(__name__)

STREAMS: Final = (Stream.ADMISSIONS, Stream.OUTCOMES, Stream.WORKLOADS)
"""Logs in the order in which an ended workload leaves their views."""

FORGET_SECONDS: Final = 600.0
"""Age of an end before it leaves the views: a reader without a durable has seen it then."""

SWEEP_SECONDS: Final = 30.0
"""How often it looks for workloads that ended long enough ago."""

AGAIN_SECONDS: Final = 60.0
"""When a workload is tried again that a durable had not passed."""

BATCH: Final = 100
"""Workloads, or messages of a log, between two pauses: other requests of this process come first."""

PAUSE_SECONDS: Final = 0.1

OBJECTS_AGE: Final = timedelta(days=1)
"""Age of a tombstone in `OBSERVED` before it leaves the view. More than for workloads: caches without a
lease or a durable read it, as the webhook's."""

CROWDED: Final = 0.5
"""Fullness of that view above which tombstones leave it sooner. It drops what is oldest when it is full:
queues and jobs that run."""

CROWDED_AGE: Final = timedelta(hours=1)
"""Age of a tombstone then. Half of the view has room for some 700 ends a second for so long."""

CROWDED_SECONDS: Final = 300.0
"""How often the view is looked through then."""

OBJECTS_SECONDS: Final = 3600.0
"""How often the view of `OBSERVED` is looked through for tombstones."""

OBJECTS_MAX: Final = 20_000
"""Tombstones that one look finds: it bounds the memory after an upgrade."""

LETTERS_AGE: Final = timedelta(days=1)
"""Age of a closed dead letter, and of a request that was answered, before it leaves the view: until then
people see what became of it without looking through the log."""

LETTERS_SECONDS: Final = 3600.0
"""How often the dead letters are looked through."""

TRIM_FROM: Final = 0.6
"""Fullness of a log from which on its oldest history is deleted."""

TRIM_TO: Final = 0.5

NEWEST_KEPT: Final = {TRIM_FROM: 64, 0.7: 16, 0.75: 8}
"""Fullness of a log to the messages of one workload that it keeps from there on. A usual workload has six.
Readers need the last one, and the one before where that is void or cannot be read."""

TRIM_AGAIN: Final = timedelta(minutes=10)
"""Pause after a log was looked through to its end: what is left in it lives, and each message costs a
round trip."""


class EndedWork:
    """The workloads that have ended and are still in a view."""

    def __init__(
        self,
        *,
        bus: Bus,
        now: Callable[[], datetime],
        decider: Decider,
        decided_up_to: Callable[[], int],
        holds: Callable[[str], bool],
        forget_seconds: float,
    ) -> None:
        """`decided_up_to`: last sequence of `ADMISSIONS` that this term knows.

        `holds`: whether the workload of a subject of that log has quota by what is stored there.
        """
        self._bus = bus
        self._now = now
        self._decider = decider
        self._decided_up_to = decided_up_to
        self._holds = holds
        self._delay = timedelta(seconds=forget_seconds)
        self._due: dict[WorkloadRef, datetime] = {}
        """When each ended workload is deleted from the views."""

        self._applied: dict[str, int] = {}
        """Log to the last sequence of it that was applied."""

        self._cursor: dict[str, int] = {}
        """Log to the sequence from which on `_trim` goes on looking."""

        self._trim_at: dict[str, datetime] = {}
        """Log to the time before which `_trim` would find nothing new in it."""

        self._starts: dict[str, HistoryStart] | None = None
        """Log to what people were told of its beginning; None: not read yet."""

    def observe(self, message: Message, entry: Entry) -> None:
        """Note a message that was just applied."""
        self._applied[message.stream] = max(self._applied.get(message.stream, 0), entry.sequence)
        match message:
            case WorkloadState(phase="gone"):
                self._due[message.ref] = entry.time + self._delay
            case WorkloadState():
                self._due.pop(message.ref, None)
            case Admission() | Outcome() if not self._decider.is_known(message.ref):
                self._due.setdefault(message.ref, entry.time + self._delay)

    async def run(self, fullness: Callable[[str], float]) -> None:
        """Delete what is due, until cancelled. `fullness`: of a log, as it was measured last."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self._sweep_due()
                for stream in STREAMS:
                    if fullness(stream) >= TRIM_FROM:
                        await self._shorten_histories(stream)
                        if self._may_trim(stream):
                            await self._trim(stream)
            except BusError as error:
                log.warning("ended workloads stay in the views", error=str(error))
            ENDED.set(len(self._due))

    async def sweep_objects(self) -> None:
        """Delete tombstones of objects from the view of `OBSERVED`, until cancelled.

        The leader of quota does it for all clusters: a watcher of a spoke may not purge what all share.
        """
        await asyncio.sleep(SWEEP_SECONDS)
        while True:
            pause = OBJECTS_SECONDS
            try:
                if found := await self._tombstones(CROWDED_AGE):
                    if await self._fullness(view_of(Observed.stream)) > CROWDED:
                        pause = CROWDED_SECONDS
                    else:
                        found = await self._tombstones(OBJECTS_AGE)
                if await self._sweep_all(Observed.stream, found) and len(found) >= OBJECTS_MAX:
                    pause = SWEEP_SECONDS
            except BusError as error:
                log.warning("tombstones stay in the view", error=str(error))
            await asyncio.sleep(pause)

    async def sweep_letters(self) -> None:
        """Delete closed dead letters and answered requests from the view of `DEAD`, until cancelled."""
        while True:
            await asyncio.sleep(LETTERS_SECONDS)
            try:
                found = await closed_letters(self._bus, before=self._now() - LETTERS_AGE)
                await self._sweep_all(DeadLetter.stream, found)
            except BusError as error:
                log.warning("dead letters that are closed stay in the view", error=str(error))

    async def _tombstones(self, age: timedelta) -> dict[str, int]:
        """The tombstones of that age in the view, as many as one look finds: subject to sequence."""
        before = self._now() - age
        return await self._bus.tombstones(Observed.stream, before=before, most=OBJECTS_MAX)

    async def _sweep_all(self, stream: str, found: Mapping[str, int]) -> int:
        """Delete what was found from the view; return how many."""
        subjects, swept = list(found), 0
        for begin in range(0, len(subjects), BATCH):
            batch = {each: found[each] for each in subjects[begin : begin + BATCH]}
            swept += len(await self._bus.sweep(stream, batch))
            await asyncio.sleep(PAUSE_SECONDS)
        SWEPT.labels(stream=stream).inc(swept)
        return swept

    async def _sweep_due(self) -> None:
        now = self._now()
        due = [ref for ref, at in self._due.items() if at <= now]
        for begin in range(0, len(due), BATCH):
            await self._sweep(due[begin : begin + BATCH])
            await asyncio.sleep(PAUSE_SECONDS)

    async def _sweep(self, refs: Iterable[WorkloadRef]) -> None:
        """Delete workloads from the views, one view after the other."""
        again = self._now() + timedelta(seconds=AGAIN_SECONDS)
        left = [ref for ref in refs if ref in self._due]
        for ref in left:
            self._due[ref] = again
        left = [ref for ref in left if self._is_over(ref)]
        for stream in STREAMS:
            if not left:
                return
            up_to = self._known_up_to(stream)
            subjects = {join(SORT_OF[stream], *ref): ref for ref in left}
            swept = await self._bus.sweep(stream, dict.fromkeys(subjects, up_to))
            SWEPT.labels(stream=stream).inc(len(swept))
            left = [ref for subject, ref in subjects.items() if subject in swept]
        for ref in left:
            if self._due.get(ref) == again:  # Otherwise it began or ended anew meanwhile.
                del self._due[ref]
                probes.END_SWEPT.fired += 1

    def _is_over(self, ref: WorkloadRef) -> bool:
        """Whether a workload is gone, and its last decision is stored: the next leader reads that."""
        return self._decider.is_over(ref) and not self._holds(join("admission", *ref))

    def _known_up_to(self, stream: str) -> int:
        return (
            self._decided_up_to() if stream == Stream.ADMISSIONS else self._applied.get(stream, 0)
        )

    async def _shorten_histories(self, stream: str) -> None:
        """Delete from a log all but the newest messages of each workload, the longest history first."""
        used = await self._fullness(stream)
        if used < TRIM_FROM:
            return
        keep = min(kept for level, kept in NEWEST_KEPT.items() if level <= used)
        found = await self._bus.long_histories(stream, subject_filter(SORT_OF[stream]), most=keep)
        for begin in range(0, len(found), BATCH):
            if begin and await self._fullness(stream) <= TRIM_TO:
                return
            batch = found[begin : begin + BATCH]
            await self._publish_shortened(stream, batch)
            number = sum([await self._bus.shorten(stream, each, keep=keep) for each in batch])
            TRIMMED.labels(stream=stream).inc(number)
            probes.HISTORY_SHORTENED.fired += bool(number)
            log.warning(
                "deleted old messages of long histories",
                stream=stream, messages=number, workloads=len(batch), longest=batch[0],
            )  # fmt: skip
            await asyncio.sleep(PAUSE_SECONDS)

    def _may_trim(self, stream: str) -> bool:
        return stream not in self._trim_at or self._trim_at[stream] <= self._now()

    async def _trim(self, stream: str) -> None:
        """Delete workloads that are in no view any more from a log, until it has room again."""
        began = await self._fullness(stream)
        trimmed, at = 0, None
        while began >= TRIM_FROM and await self._fullness(stream) > TRIM_TO:
            for _ in range(BATCH):
                entry = await self._bus.at_or_after(stream, self._cursor.get(stream, 1))
                if entry is None or entry.sequence > self._known_up_to(stream):
                    self._cursor.pop(stream, None)
                    self._trim_at[stream] = self._now() + TRIM_AGAIN
                    await self._publish_start(stream, trimmed, at)
                    return  # What is left lives, or has ended a moment ago.
                self._cursor[stream] = entry.sequence + 1
                at = entry.time
                trimmed += await self._trim_ended(stream, entry)
            await asyncio.sleep(PAUSE_SECONDS)
        await self._publish_start(stream, trimmed, at)

    async def _fullness(self, stream: str) -> float:
        return (await self._bus.log_end(stream)).fullness

    async def _trim_ended(self, stream: str, entry: Entry) -> int:
        """Delete the workload of an entry from a log if it is over and in no view; how many messages."""
        ref = workload_of(entry.subject, SORT_OF[stream])
        if ref is None or ref in self._due or not self._is_over(ref):
            return 0
        trimmed = await self._bus.trim(stream, entry.subject, up_to=self._known_up_to(stream))
        TRIMMED.labels(stream=stream).inc(trimmed)
        probes.HISTORY_TRIMMED.fired += 1
        return trimmed

    async def _publish_start(self, stream: str, trimmed: int, at: datetime | None) -> None:
        """Tell where the history of ended workloads begins now."""
        if not trimmed or at is None:
            return
        sequence = self._cursor.get(stream, self._known_up_to(stream) + 1)
        log.warning("deleted the oldest history", stream=stream, messages=trimmed, up_to=str(at))
        last = await self._last_start(stream)
        await self._publish(last.replace(sequence=sequence, began_at=at, at=self._now()))

    async def _publish_shortened(self, stream: str, subjects: list[str]) -> None:
        """Tell whose history begins in the middle, before it does: who dies in between has said so."""
        last = await self._last_start(stream)
        new = [each for each in subjects if each not in last.shortened]
        if not new:
            return
        named, now = [*last.shortened, *new], self._now()
        left = {"others_until": now} if len(named) > SHORTENED_MAX else {}
        await self._publish(last.replace(shortened=named[-SHORTENED_MAX:], at=now, **left))

    async def _last_start(self, stream: str) -> HistoryStart:
        """What was told last of a log's beginning, by this leader or one before."""
        if self._starts is None:
            found: dict[str, HistoryStart] = {}
            handlers = {HistoryStart: lambda start, _: found.update({start.log: start})}
            await recall(self._bus, handlers, filters=[subject_filter("history")])
            self._starts = found
        nothing = HistoryStart(log=stream, sequence=0, began_at=EARLIEST, at=self._now())
        return self._starts.get(stream, nothing)

    async def _publish(self, start: HistoryStart) -> None:
        await self._bus.publish(start)
        if self._starts is not None:
            self._starts[start.log] = start
