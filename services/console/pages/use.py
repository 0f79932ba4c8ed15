"""Quota in use over time: what a ClusterQueue had reserved at the end of each point of a span.

The figures are those that quota published with the queue's status. The log of statuses is read once for
a queue that somebody looks at, for that queue alone, and afterwards only what is new.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import structlog

from services.console.pages.documents import Use, UsePoint, UseRow
from services.console.pages.logs import first_since, last_before
from services.console.pages.trends import FRESH_SECONDS, SPANS
from shared.bus.follow import skip_undecodable, stored_entries
from shared.bus.port import Bus, BusError, Entry
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.subjects import subject_pattern

log = structlog.get_logger(__name__)

READINGS_MAX: Final = 100
"""Queues and spans of which figures are kept."""

BATCH: Final = 200
"""Messages between two turns of other tasks."""

_Name = tuple[str, str, str]
"""Cluster, ClusterQueue and span."""


@dataclass(slots=True)
class _QueueUse:
    """What was read about one queue."""

    seconds: int
    points: dict[int, list[UseRow]] = field(default_factory=dict)
    """Number of the point to the last figures in it."""

    before: list[UseRow] | None = None
    """The last figures before the first point; None: there are none."""

    next: int = 0
    """The first sequence that was not read; 0: nothing was."""

    complete: bool = False
    asked: float = -1.0
    task: "asyncio.Task[None] | None" = None


class UseHistory:
    """The figures of one process."""

    def __init__(self, *, bus: Bus, now: Callable[[], datetime]) -> None:
        self.fresh_seconds = FRESH_SECONDS
        self._bus = bus
        self._now = now
        self._readings: dict[_Name, _QueueUse] = {}

    def forget(self) -> None:
        """Drop what was read: nobody asks any more."""
        for reading in self._readings.values():
            if reading.task is not None:
                reading.task.cancel()
        self._readings.clear()

    async def of(self, cluster: str, name: str, span: str, *, wait_seconds: float) -> Use:
        """The figures of a queue. If they are not read within `wait_seconds`, as far as they are."""
        length, seconds = SPANS[span]
        now = self._now()
        reading = self._reading((cluster, name, span), seconds)
        at = asyncio.get_running_loop().time()
        is_old = reading.asked < 0 or at - reading.asked >= self.fresh_seconds
        if is_old and (reading.task is None or reading.task.done()):
            reading.asked = at
            reading.task = asyncio.create_task(self._try(reading, cluster, name, now - length))
        assert reading.task is not None
        # Whoever asks may go; the figures are for everybody.
        await asyncio.wait({reading.task}, timeout=wait_seconds)
        if reading.task.done() and not reading.task.cancelled():
            reading.task.result()
        return _answer(reading, span, int((now - length).timestamp()), int(now.timestamp()))

    def _reading(self, name: _Name, seconds: int) -> _QueueUse:
        known = self._readings.pop(name, None) or _QueueUse(seconds)
        while len(self._readings) >= READINGS_MAX:
            del self._readings[next(iter(self._readings))]
        self._readings[name] = known
        return known

    async def _try(self, reading: _QueueUse, cluster: str, name: str, begin: datetime) -> None:
        """Read; after a failure the next question begins anew, because the log may be another one."""
        try:
            await self._read(reading, cluster, name, begin)
        except BusError as error:
            log.warning("cannot read the log for quota in use", queue=name, error=str(error))
            reading.points.clear()
            reading.before, reading.next, reading.complete = None, 0, False

    async def _read(self, reading: _QueueUse, cluster: str, name: str, begin: datetime) -> None:
        """Read the statuses that were not read, up to the end of the log."""
        stream, subject = QueueStatus.stream, subject_pattern("queue", cluster, "", name)
        if not reading.next:
            start = await first_since(self._bus, stream, begin)
            earlier = await last_before(self._bus, stream, subject, start)
            if earlier is not None:
                skip_undecodable(lambda _, entry: _note_earlier(reading, entry), stream, earlier)
            reading.next = start
        number = 0
        stored = stored_entries(self._bus, stream, subject, start=reading.next)
        async with aclosing(stored) as entries:
            async for entry in entries:
                skip_undecodable(lambda _, entry: _note(reading, entry), stream, entry)
                reading.next = entry.sequence + 1
                number += 1
                if number % BATCH == 0:
                    await asyncio.sleep(0)
        reading.complete = True
        _prune(reading, int(begin.timestamp()) // reading.seconds)


def _note_earlier(reading: _QueueUse, entry: Entry) -> None:
    reading.before = _rows(entry.read(QueueStatus))


def _note(reading: _QueueUse, entry: Entry) -> None:
    number = int(entry.time.timestamp()) // reading.seconds
    reading.points[number] = _rows(entry.read(QueueStatus))


def _prune(reading: _QueueUse, first: int) -> None:
    """Forget points that have left the span; the last of them is what the first point begins with."""
    for number in sorted(reading.points):
        if number >= first:
            break
        reading.before = reading.points.pop(number)


def _answer(reading: _QueueUse, span: str, begin: int, now: int) -> Use:
    seconds, rows = reading.seconds, reading.before
    points = []
    for number in range(begin // seconds, now // seconds + 1):
        rows = reading.points.get(number, rows)
        at = datetime.fromtimestamp(number * seconds, tz=UTC)
        points.append(UsePoint(at=at, reserved=rows))
    return Use(span=span, seconds=seconds, complete=reading.complete, points=points)


def _rows(status: QueueStatus) -> list[UseRow]:
    return [
        UseRow(flavor=flavor.name, resource=each.name, reserved=each.total)
        for flavor in status.reservation
        for each in flavor.resources
    ]
