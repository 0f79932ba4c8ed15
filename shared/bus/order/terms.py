"""Finds decisions that are void: their (epoch, term) is below the highest `Term` before them in the log.

On one server the writer's fence keeps them out of the log. On three it cannot (ADR 5): there the reader
is the fence (ADR 85). The view has only the last `Term`, so that all are read from the log. The log may
have lost its oldest messages, and with them a `Term` by which what is left is void: the view has it still,
unless another leader began since (ADR 126).
"""

from collections.abc import Awaitable, Callable
from typing import Final

import orjson
import structlog

from shared.bus.order.rulings import (
    DECISIONS,
    TERMS,
    Ruling,
    Rulings,
    ruling_in_body,
    ruling_in_header,
)
from shared.bus.port import Entry, VoidEntry
from shared.bus.streams import view_of
from shared.contracts.messages.admissions import Admission, Term
from shared.contracts.subjects import TERM_SUBJECT
from shared.telemetry import probes
from shared.telemetry.metrics import VOID

log = structlog.get_logger(__name__)

VOID_MAX: Final = 10_000
"""Subjects whose latest decision is void that are remembered: far more than can be on their way at once."""

NextEntry = Callable[[str, str, int], Awaitable[Entry | None]]
"""Returns the first entry of a stream, of a subject filter, behind a sequence, with its sequence in the
log. Raises a `BusError`."""

_VIEW: Final = view_of(Term.stream)


def rules(stream: str) -> bool:
    """Whether `stream` has terms."""
    return stream == Term.stream


class Terms:
    """Every `Term` of the log of decisions, for all readers and workers of one bus."""

    def __init__(self, next_entry: NextEntry) -> None:
        self._next_entry = next_entry
        self._generation = 0
        self._rulings = Rulings()
        self._logged: set[tuple[int, int]] = set()
        self._judged = 0
        """Sequence up to which every Term of the log is known, from whatever was judged."""

        self._void: dict[str, Entry] = {}
        """Subject to its last decision that was read, where that one is void."""

    async def refresh(self, generation: int) -> None:
        """Learn the Terms of the log by now: one request to it and one to the view where none is new.

        Whatever was in the log before the call can be judged after it. The view is asked last: it had
        every `Term` that the log has lost by then.
        """
        if generation != self._generation:
            self._generation = generation
            self._rulings = Rulings()
            self._judged = 0
            self._void.clear()
        while True:
            found = await self._next_entry(Term.stream, TERMS, self._rulings.last)
            if found is None:
                break
            self._learn(found)
        last = await self._next_entry(_VIEW, TERM_SUBJECT, 0)
        if last is not None and generation == self._generation:
            self._learn(last)

    def _learn(self, term: Entry) -> None:
        self._rulings.learn(term.sequence, _ruling_in(term.data))

    @property
    def highest(self) -> tuple[int, int]:
        """The highest (epoch, term) of all that are known; (0, 0): there is none."""
        return self._rulings.highest

    async def void_entries(self) -> list[VoidEntry]:
        """Each subject whose last decision that was read is void, with its last valid one in the log."""
        return [
            VoidEntry(entry=entry, valid=await self._last_valid(entry.subject))
            for entry in list(self._void.values())
        ]

    async def _last_valid(self, subject: str) -> Entry | None:
        # From the beginning: JetStream finds the next message of a subject, not the one before.
        valid, after = None, 0
        while (entry := await self._next_entry(Term.stream, subject, after)) is not None:
            after = entry.sequence
            if await self.judge(entry) is None:
                valid = entry
        return valid

    async def valid(self, last: Entry) -> Entry | None:
        """Return `last`, the last message of its subject, or the last valid one where it is void.

        None: the log has no valid one. Costs nothing where the bus has judged something as late in the
        log, else what `refresh` does; for a void one also a request for each message of the subject.
        Raises a `BusError`.
        """
        replaced_by = await self.judge(last)
        if replaced_by is None:
            return last
        self._count(last, replaced_by)
        return await self._last_valid(last.subject)

    async def judge(self, entry: Entry) -> tuple[int, int] | None:
        """Return who had replaced the leader of `entry` when it was stored; None: it is valid.

        Learns the Terms before it, if one may be unknown. Neither counts nor remembers it, as it need not
        be the last of its subject. Raises a `BusError`.
        """
        if not entry.subject.startswith(DECISIONS):
            return None
        if entry.generation != self._generation or entry.sequence > self._judged:
            await self.refresh(entry.generation)
        if entry.generation != self._generation:
            return None  # Meanwhile the log became another one.
        self._judged = max(self._judged, entry.sequence)
        return self._replaced_by(entry)

    def is_void(self, entry: Entry) -> bool:
        """Whether `entry` was decided by a leader that had been replaced. Counts it, logs each term once.

        For what was read before the last `refresh` began.
        """
        if not entry.subject.startswith(DECISIONS) or entry.generation != self._generation:
            return False
        self._judged = max(self._judged, entry.sequence)
        replaced_by = self._replaced_by(entry)
        if replaced_by is None:
            if (void := self._void.get(entry.subject)) and void.sequence < entry.sequence:
                del self._void[entry.subject]
            return False
        if len(self._void) < VOID_MAX:
            self._void[entry.subject] = entry
        self._count(entry, replaced_by)
        return True

    def _count(self, entry: Entry, replaced_by: tuple[int, int]) -> None:
        VOID.labels(stream=Admission.stream).inc()
        probes.TERM_VOID.fired += 1
        if replaced_by not in self._logged:
            self._logged.add(replaced_by)
            log.warning(
                "dropping decisions of a leader that was replaced",
                subject=entry.subject,
                sequence=entry.sequence,
                replaced_by=replaced_by,
            )

    def _replaced_by(self, entry: Entry) -> tuple[int, int] | None:
        """The leader that had replaced that of `entry` when it was stored; None: it is valid."""
        return self._rulings.replaced_by(entry.sequence, _ruling_of(entry))


def _ruling_of(entry: Entry) -> Ruling | None:
    """(epoch, term) of a decision; None: it cannot be read."""
    is_said, ruling = ruling_in_header(entry.headers)
    return ruling if is_said else _ruling_in(entry.data)


def _ruling_in(data: bytes) -> Ruling | None:
    """The same out of a body."""
    try:
        return ruling_in_body(orjson.loads(data))
    except ValueError:
        return None
