"""Dead letters about messages that quota cannot use.

1. A leader cannot use a message. It holds the workload back and puts the entry here.
2. A letter is published, unless there is one about this very message that is open or dropped: each leader
   reads the message again.
3. `sluice dead retry` makes a leader apply the newest message of the subject once more. So does any later
   message of the subject; one that can be used closes the letter.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from services.quota.wire.entries import INPUTS
from shared.bus.follow import read, recall
from shared.bus.nats.work.dead_letters import Retried, RetryHandler, dead_letter
from shared.bus.port import Bus, BusError, Entry, LaterError, NeverError
from shared.contracts.messages.outcomes import DeadLetter, RetryRequest
from shared.contracts.subjects import SORT_OF, subject_filter

log = structlog.get_logger(__name__)

SERVICE: Final = "quota"
DURABLE: Final = "quota-retry"
RETRY_SECONDS: Final = 5.0
"""Pause after the bus refused a letter."""

NOT_LEADING_SECONDS: Final = 2.0
"""When a request is delivered again that a replica without the lease was given."""

WAITING_MAX: Final = 1_000
"""Letters that are kept until the bus takes them, each with its message. More are counted only."""

TryAgain = Callable[[str, Entry], str | None]
"""Applies an entry of a stream once more; returns why it cannot be used, None if it was."""


class DeadLetters:
    """The letters of one term."""

    def __init__(self, *, bus: Bus, now: Callable[[], datetime]) -> None:
        self._bus = bus
        self._now = now
        self._waiting: dict[str, tuple[Entry, str | None]] = {}
        """By subject: the entry, and why it cannot be used; None: its letter is to be closed."""

        self._written: dict[str, int] = {}
        """Subjects of which this term had to give up a message, and its sequence."""

        self._wake = asyncio.Event()

    def put(self, entry: Entry, why: str) -> None:
        """Publish a letter about an entry, soon."""
        if len(self._waiting) < WAITING_MAX or entry.subject in self._waiting:
            self._written[entry.subject] = entry.sequence
            self._queue(entry, why)

    def on_used(self, entry: Entry) -> None:
        """Close the letter about an earlier message of this subject."""
        if self._written.pop(entry.subject, None) is not None:
            self._queue(entry, None)

    def is_about(self, entry: Entry) -> bool:
        """Whether this term could not use this very entry."""
        return self._written.get(entry.subject) == entry.sequence

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                subject, (entry, why) = next(iter(self._waiting.items()))
                try:
                    await self._publish(entry, why)
                except BusError as error:
                    log.warning("a dead letter was not stored", subject=subject, error=str(error))
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if self._waiting[subject] == (entry, why):
                    del self._waiting[subject]

    def _queue(self, entry: Entry, why: str | None) -> None:
        self._waiting[entry.subject] = (entry, why)
        self._wake.set()

    async def _publish(self, entry: Entry, why: str | None) -> None:
        letter = dead_letter(SERVICE, entry, why or "", self._now())
        known = read(await self._bus.latest(DeadLetter.stream, letter.subject), DeadLetter)
        if why is None:
            if known is not None and known.state == "open":
                await self._bus.publish(known.closed("handled", self._now()))
            return
        same = known is not None and known.original_sequence == entry.sequence
        if not same or known is None or known.state == "handled":
            await self._bus.publish(letter)


def register_retries(
    *, bus: Bus, now: Callable[[], datetime], try_again: Callable[[], TryAgain | None]
) -> None:
    """Handle `sluice dead retry`. `try_again`: that of the present term; None: another replica leads."""

    async def handle(stream: str, entry: Entry) -> None:
        apply = try_again()
        if apply is None:
            raise LaterError("another replica leads", delay_seconds=NOT_LEADING_SECONDS)
        if (why := apply(stream, entry)) is not None:
            raise NeverError(why)

    def handled(stream: str) -> Retried:
        return Retried(stream=stream, handler=lambda entry: handle(stream, entry))

    sorts = {SORT_OF[stream]: handled(stream) for stream in INPUTS}
    RetryHandler(bus=bus, now=now, handled=sorts).register(SERVICE, None, DURABLE)


async def closed_letters(bus: Bus, *, before: datetime) -> dict[str, int]:
    """Subject and sequence of the letters of all services that were closed before that time, and of requests.

    A request is over once its letter is closed, is gone, or is newer: the service gave up again. Raises
    `BusError`.
    """
    still_open: dict[tuple[str, str], int] = {}
    closed: dict[str, int] = {}
    requests: list[tuple[RetryRequest, Entry]] = []

    def on_letter(letter: DeadLetter, entry: Entry) -> None:
        if letter.state == "open":
            still_open[letter.service, letter.original_subject] = entry.sequence
        elif entry.time < before:
            closed[entry.subject] = entry.sequence

    def on_request(request: RetryRequest, entry: Entry) -> None:
        if entry.time < before:
            requests.append((request, entry))

    await recall(
        bus,
        {DeadLetter: on_letter, RetryRequest: on_request},
        filters=[subject_filter("dead"), subject_filter("retry")],
    )
    for request, entry in requests:
        letter = still_open.get((request.service, request.original_subject), entry.sequence)
        if letter >= entry.sequence:
            closed[entry.subject] = entry.sequence
    return closed
