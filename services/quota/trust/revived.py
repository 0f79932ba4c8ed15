"""Finds entries of a view that the server has brought back, although their subject ended.

A view keeps the last message of each subject. The server drops the one before without a trace in its files,
and the last one of an ended workload is deleted (`EndedWork`). A server that was killed reads its files anew
and finds the one before: a workload that runs, or a decision that holds quota (nats-io/nats-server#8505). The
log knows better: what is newer there leaves it only once the view has nothing of that subject.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from services.quota.metrics.service import REVIVED
from shared.bus.port import Bus, BusError, Entry
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.base import Message
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import Stream, workload_of
from shared.telemetry import probes

log = structlog.get_logger(__name__)

STREAMS: Final = (Stream.WORKLOADS, Stream.ADMISSIONS)
"""Logs in the order in which they are looked at: the end of a workload ends its decision, too."""

BATCH: Final = 100
"""Subjects between two pauses: each costs a round trip, and other requests come first."""

PAUSE_SECONDS: Final = 0.1

AGAIN_SECONDS: Final = 5.0
"""When the log is asked again that did not answer."""


class RevivedEntries:
    """What a term has read at its beginning, until the log was asked about it."""

    def __init__(
        self,
        bus: Bus,
        now: Callable[[], datetime],
        age_seconds: float,
        *,
        apply: Callable[[str, Entry], object],
        read_up_to: Callable[[str], int],
    ) -> None:
        """`age_seconds`: what ended later is in the view still. `apply` gets what is newer in a log.

        `read_up_to`: the sequence of a log up to which its view was read. What is newer is on its way.
        """
        self._bus = bus
        self._apply, self._read_up_to = apply, read_up_to
        self._now = now
        self._age = timedelta(seconds=age_seconds)
        self._read: dict[str, dict[str, int]] = {stream: {} for stream in STREAMS}
        """Log to subjects to the sequence of the entry that was read."""

        self._begins = True

    def observe(self, message: Message, entry: Entry) -> None:
        """Note an entry that was just applied."""
        holds = isinstance(message, Admission) and message.state in HOLDING
        exists = isinstance(message, WorkloadState) and message.phase != "gone"
        if self._begins and (holds or exists) and entry.time <= self._now() - self._age:
            self._read[message.stream][entry.subject] = entry.sequence
        else:
            self.forget(message)

    def forget(self, message: Message) -> None:
        """Note that something newer is known of a subject."""
        if known := self._read.get(message.stream):  # To name a subject costs more than to look.
            known.pop(message.subject, None)

    async def look_first(self, is_known: Callable[[WorkloadRef], bool]) -> None:
        """Compare the decisions about workloads that nobody knows: before anything is decided about them."""
        held = self._read[Admission.stream]
        ghosts = [each for each in held if (ref := workload_of(each)) and not is_known(ref)]
        for begin in range(0, len(ghosts), BATCH):
            await self._look_at(Admission.stream, ghosts[begin : begin + BATCH])

    async def look(self) -> None:
        """Compare everything else that was read with the logs, once."""
        self._begins = False
        for stream, known in self._read.items():
            while known:
                try:
                    await self._look_at(stream, list(known)[:BATCH])
                    await asyncio.sleep(PAUSE_SECONDS)
                except BusError as error:
                    log.warning("views are not compared with their logs", error=str(error))
                    await asyncio.sleep(AGAIN_SECONDS)

    async def _look_at(self, stream: str, subjects: list[str]) -> None:
        known = self._read[stream]
        last = await asyncio.gather(*(self._bus.latest(stream, each) for each in subjects))
        for subject, entry in zip(subjects, last, strict=True):
            sequence = known.pop(subject, None)
            if sequence is None or entry is None:
                continue
            if not sequence < entry.sequence <= self._read_up_to(stream):
                continue
            REVIVED.labels(stream=stream).inc()
            probes.REVIVED.fired += 1
            log.warning("the view has an entry that is over", subject=subject, sequence=sequence)
            self._apply(stream, entry)
