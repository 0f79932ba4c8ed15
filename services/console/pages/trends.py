"""The recent past in figures: admissions, preemptions and waits, counted from the logs.

Nothing is read before somebody asks. Then the logs are read once, from as far back as was asked, and
afterwards only what is new. What is kept are counts: a figure for each span of time, namespace and
priority, not the messages.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil, exp, log1p
from typing import Final

import structlog

from services.console.pages.documents import Trend, TrendPoint, TrendWait
from services.console.pages.logs import first_since
from shared.bus.follow import skip_undecodable, stored_entries
from shared.bus.port import Bus, BusError, Entry
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import ENDED_PHASES, WorkloadState
from shared.contracts.subjects import SORT_OF, Stream, subject_filter

log = structlog.get_logger(__name__)

SPANS: Final = {
    "1h": (timedelta(hours=1), 60),
    "24h": (timedelta(hours=24), 1800),
    "7d": (timedelta(days=7), 10800),
}
"""Name of a span to its length, and to the seconds of one point."""

FRESH_SECONDS: Final = 5.0
"""How old an answer may be."""

WAITING_MAX: Final = 100_000
"""Workloads whose creation is remembered until they are admitted; the oldest are forgotten first."""

TIERS_MAX: Final = 5
"""Priorities that are told apart. The rarer ones are counted together."""

BATCH: Final = 200
"""Messages between two turns of other tasks."""

_OTHERS: Final = "other"
_STEP: Final = 0.2
"""Width of a class of waits, as a logarithm: a wait is told within 10 %."""

Shows = Callable[[str], bool]


@dataclass(slots=True)
class _Figures:
    """What happened in one span of time to the workloads of one namespace."""

    admitted: int = 0
    preempted: int = 0
    waits: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(priority, class of the wait) to how often."""


@dataclass(slots=True)
class _LogReading:
    """One reading of the logs."""

    begin: datetime
    figures: dict[tuple[str, int, str], _Figures] = field(default_factory=dict)
    """By span, number of the point and namespace."""

    created: dict[str, datetime] = field(default_factory=dict)
    """Uid of a workload that was not admitted yet to its creation."""

    originals: dict[tuple[str, str], None] = field(default_factory=dict)
    """Namespace and name of workloads that have not ended and are no copies."""

    copies: set[str] = field(default_factory=set)
    """Uids of their copies on spokes, which are no further workloads."""

    last: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    """Uid to its last admission or preemption, so that a repeated decision counts once."""

    next: dict[str, int] = field(default_factory=dict)
    """Log to the first sequence that was not read."""

    until: datetime | None = None
    """Time of the last message that was read."""

    complete: bool = False


class Trends:
    """The figures of one process. `run` reads."""

    def __init__(self, *, bus: Bus, now: Callable[[], datetime]) -> None:
        self._bus = bus
        self._now = now
        self._reading: _LogReading | None = None
        self.fresh_seconds = FRESH_SECONDS
        self._read_at = -1.0
        self._wanted = asyncio.Event()
        self._told = asyncio.Event()

    async def run(self) -> None:
        """Read when somebody asks, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            reading = self._reading
            if reading is None:
                continue
            try:
                await self._read(reading)
            except BusError as error:
                log.warning("cannot read the logs for figures of the past", error=str(error))
                self._reading = None
            finally:
                self._told.set()

    def forget(self) -> None:
        """Drop what was read: nobody asks any more."""
        self._reading = None

    async def trend(self, span: str, *, shows: Shows, wait_seconds: float) -> Trend:
        """The figures of a span, of the namespaces that the user may see.

        If the logs are not read within `wait_seconds`, it says so and holds what was read.
        """
        length, seconds = SPANS[span]
        now = self._now()
        loop = asyncio.get_running_loop()
        if self._reading is None or self._reading.begin > now - length:
            self._reading = _LogReading(begin=now - length - timedelta(minutes=1))
            self._read_at = -1.0
        if loop.time() - self._read_at >= self.fresh_seconds or self._read_at < 0:
            self._read_at = loop.time()
            self._told.clear()
            self._wanted.set()
        try:
            async with asyncio.timeout(wait_seconds):
                await self._told.wait()
        except TimeoutError:
            pass
        return _answer(self._reading, span, now, length, seconds, shows)

    # --- reading -----------------------------------------------------------------------------------

    async def _read(self, reading: _LogReading) -> None:
        """Read both logs side by side, in the order of time, to their ends."""
        async with AsyncExitStack() as stack:
            logs = [
                await stack.enter_async_context(aclosing(self._log(reading, name)))
                for name in _LOGS
            ]
            # To find the first entries takes a dozen questions to each log.
            heads = list(await asyncio.gather(*(anext(entries, None) for entries in logs)))
            number = 0
            while reading is self._reading and any(head is not None for head in heads):
                at = min(
                    (n for n, head in enumerate(heads) if head is not None),
                    key=lambda n: heads[n].time,  # type: ignore[union-attr]
                )
                entry = heads[at]
                assert entry is not None
                skip_undecodable(lambda stream, e: _count(reading, stream, e), _LOGS[at], entry)
                reading.next[_LOGS[at]] = entry.sequence + 1
                reading.until = entry.time
                heads[at] = await anext(logs[at], None)
                number += 1
                if number % BATCH == 0:
                    await asyncio.sleep(0)
        if reading is self._reading:
            reading.complete = True
            _prune(reading, self._now())

    async def _log(self, reading: _LogReading, name: str) -> AsyncGenerator[Entry]:
        """The entries of a log that were not read, up to its end."""
        if name not in reading.next:
            reading.next[name] = await first_since(self._bus, name, reading.begin)
        start = reading.next[name]
        stored = stored_entries(self._bus, name, subject_filter(SORT_OF[name]), start=start)
        async with aclosing(stored) as entries:
            async for entry in entries:
                yield entry


_LOGS: Final = (Stream.WORKLOADS, Stream.ADMISSIONS)


def _count(reading: _LogReading, stream: str, entry: Entry) -> None:
    if stream == Stream.WORKLOADS:
        state = entry.read(WorkloadState)
        ended = state.phase in ENDED_PHASES
        _tell_copies(reading, state, ended=ended)
        if ended:
            reading.created.pop(state.uid, None)
            reading.last.pop(state.uid, None)
        elif state.uid not in reading.created:
            reading.created[state.uid] = state.created_at
            if len(reading.created) > WAITING_MAX:
                del reading.created[next(iter(reading.created))]
        return
    admission = entry.read(Admission)
    if admission.state == "admitted":
        at = admission.admitted_at or admission.decided_at
    elif admission.state == "evicted" and admission.preempted_by is not None:
        at = admission.decided_at
    else:
        return
    if admission.uid in reading.copies:
        return
    if reading.last.get(admission.uid) == (admission.state, at):
        return
    reading.last[admission.uid] = (admission.state, at)
    began = admission.queued_at or reading.created.get(admission.uid)
    for figures in _at(reading, admission.namespace, at):
        if admission.state == "evicted":
            figures.preempted += 1
            continue
        figures.admitted += 1
        if began is not None:
            wait = max(0.0, (at - began).total_seconds())
            figures.waits[admission.priority, round(log1p(wait) / _STEP)] += 1


def _tell_copies(reading: _LogReading, state: WorkloadState, *, ended: bool) -> None:
    """Note an original, or its copy: a hub writes the former first. Copies of a hub elsewhere count."""
    named = (state.namespace, state.name)
    if ORIGIN in state.labels:
        if named in reading.originals and not ended:
            reading.copies.add(state.uid)
        if state.phase == "gone":
            reading.copies.discard(state.uid)
    elif ended:
        reading.originals.pop(named, None)
    else:
        reading.originals[named] = None
        if len(reading.originals) > WAITING_MAX:
            del reading.originals[next(iter(reading.originals))]


def _at(reading: _LogReading, namespace: str, at: datetime) -> list[_Figures]:
    """The figures of each span that `at` belongs to."""
    return [
        reading.figures.setdefault((span, _point(at, seconds), namespace), _Figures())
        for span, (_, seconds) in SPANS.items()
        if at >= reading.begin
    ]


def _point(at: datetime, seconds: int) -> int:
    return int(at.timestamp()) // seconds


def _prune(reading: _LogReading, now: datetime) -> None:
    """Forget points that are older than their span."""
    first = {span: _point(now - length, seconds) for span, (length, seconds) in SPANS.items()}
    for key in [key for key in reading.figures if key[1] < first[key[0]]]:
        del reading.figures[key]


def _answer(
    reading: _LogReading | None,
    span: str,
    now: datetime,
    length: timedelta,
    seconds: int,
    shows: Shows,
) -> Trend:
    first, last = _point(now - length, seconds), _point(now, seconds)
    points = {number: _Figures() for number in range(first, last + 1)}
    for (of, number, namespace), figures in ({} if reading is None else reading.figures).items():
        if of == span and number in points and shows(namespace):
            point = points[number]
            point.admitted += figures.admitted
            point.preempted += figures.preempted
            point.waits.update(figures.waits)
    counts: Counter[int] = Counter()
    for point in points.values():
        for (priority, _), times in point.waits.items():
            counts[priority] += times
    tiers = {priority: str(priority) for priority, _ in counts.most_common(TIERS_MAX)}
    return Trend(
        span=span,
        seconds=seconds,
        complete=reading is not None and reading.complete,
        read_until=None if reading is None else reading.until,
        points=[
            TrendPoint(
                at=datetime.fromtimestamp(number * seconds, tz=now.tzinfo),
                admitted=point.admitted,
                preempted=point.preempted,
                waits=_waits(point.waits, tiers),
            )
            for number, point in points.items()
        ],
    )


def _waits(waits: Counter[tuple[int, int]], tiers: dict[int, str]) -> list[TrendWait]:
    """Median and 95th percentile by priority, the highest first."""
    found: dict[str, Counter[int]] = {}
    for (priority, size), times in sorted(waits.items(), reverse=True):
        found.setdefault(tiers.get(priority, _OTHERS), Counter())[size] += times
    return [
        TrendWait(
            priority=tier,
            admitted=sizes.total(),
            p50_seconds=_quantile(sizes, 0.5),
            p95_seconds=_quantile(sizes, 0.95),
        )
        for tier, sizes in found.items()
    ]


def _quantile(sizes: Counter[int], share: float) -> float:
    """The wait that `share` of them does not exceed, in seconds."""
    rank = ceil(share * sizes.total())
    for size in sorted(sizes):
        rank -= sizes[size]
        if rank <= 0:
            return round(exp(size * _STEP) - 1, 1)
    return 0.0
