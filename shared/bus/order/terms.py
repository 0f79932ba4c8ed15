"""Finds decisions that are void: their (epoch, term) is below the highest `Term` before them in the log.

On one server the writer's fence keeps them out of the log. On three it cannot (ADR 5): there the reader
is the fence (ADR 85). The view has only the last `Term`, so that all are read from the log. The log may
have lost its oldest messages, and with them a `Term` by which what is left is void: the view has it still,
unless another leader began since (ADR 126).
"""

from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson
import structlog

from shared.bus.port import Entry, VoidEntry
from shared.bus.streams import view_of
from shared.contracts.kube.numbers import whole_number
from shared.contracts.messages.admissions import Admission, Term
from shared.contracts.messages.base import RULING
from shared.contracts.subjects import join, subject_filter
from shared.telemetry import probes
from shared.telemetry.metrics import VOID

log = structlog.get_logger(__name__)

VOID_MAX: Final = 10_000
"""Subjects whose latest decision is void that are remembered: far more than can be on their way at once."""

NextEntry = Callable[[str, str, int], Awaitable[Entry | None]]
"""Returns the first entry of a stream, of a subject filter, behind a sequence, with its sequence in the
log. Raises a `BusError`."""

TERMS: Final = subject_filter("term")
TERM: Final = join("term", "quota")
"""The subject of every `Term`: the view has one."""

_VIEW: Final = view_of(Term.stream)
Ruling = tuple[int | None, int]
"""(epoch, term) of a leader. Epoch None: a release before there were epochs wrote it."""


def rules(stream: str) -> bool:
    """Whether `stream` has terms."""
    return stream == Term.stream


class Terms:
    """Every `Term` of the log of decisions, for all readers and workers of one bus."""

    def __init__(self, next_entry: NextEntry) -> None:
        self._next_entry = next_entry
        self._generation = 0
        self._sequences: list[int] = []
        self._rulings: list[Ruling | None] = []
        """Of the `Term` at each of `_sequences`."""

        self._highest: list[tuple[int, int]] = []
        """For each of `_sequences`, the highest (epoch, term) up to there."""

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
            self._sequences, self._rulings, self._highest = [], [], []
            self._judged = 0
            self._void.clear()
        while True:
            after = self._sequences[-1] if self._sequences else 0
            found = await self._next_entry(Term.stream, TERMS, after)
            if found is None:
                break
            self._learn(found)
        last = await self._next_entry(_VIEW, TERM, 0)
        if last is not None and generation == self._generation:
            self._learn(last)

    def _learn(self, term: Entry) -> None:
        """Remember a `Term`, unless it is known: two readers may have asked at once."""
        at = bisect_left(self._sequences, term.sequence)
        if self._sequences[at : at + 1] == [term.sequence]:
            return
        self._sequences.insert(at, term.sequence)
        self._rulings.insert(at, _ruling_in(term.data))
        del self._highest[at:]
        for ruling in self._rulings[at:]:
            before = self.highest
            self._highest.append(max(_completed(ruling, before), before))

    @property
    def highest(self) -> tuple[int, int]:
        """The highest (epoch, term) of all that are known; (0, 0): there is none."""
        return self._highest[-1] if self._highest else (0, 0)

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
        if not entry.subject.startswith(_DECISIONS):
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
        if not entry.subject.startswith(_DECISIONS) or entry.generation != self._generation:
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
        """The leader that had replaced that of `entry` when it was stored; None: it is valid.

        What does not say which leader wrote it was written by none.
        """
        before = bisect_left(self._sequences, entry.sequence)
        if before == 0:
            return None
        highest, ruling = self._highest[before - 1], _ruling_of(entry)
        return highest if ruling is None or _completed(ruling, highest) < highest else None


def _completed(ruling: Ruling | None, before: tuple[int, int]) -> tuple[int, int]:
    """Fill in the epoch that a release without epochs did not write: that of the log so far."""
    if ruling is None:
        return (0, 0)
    return (before[0] if ruling[0] is None else ruling[0], ruling[1])


def _ruling_of(entry: Entry) -> Ruling | None:
    """(epoch, term) of a decision; None: it cannot be read."""
    said = entry.headers.get(RULING)
    if said is not None:
        before, _, after = said.partition(".")
        epoch, term = whole_number(before), whole_number(after)
        return None if epoch is None or term is None else (epoch, term)
    return _ruling_in(entry.data)


def _ruling_in(data: bytes) -> Ruling | None:
    """The same out of a body: of a `Term`, or of a decision of a release without the header."""
    try:
        body: Any = orjson.loads(data)
        epoch = body.get("epoch")
        return (None if epoch is None else int(epoch), int(body["term"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


_DECISIONS: Final = subject_filter("admission").removesuffix(">")
