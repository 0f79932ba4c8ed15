"""Finds decisions that are void: their (epoch, term) is below the highest `Term` before them in the log.

On one server the writer's fence keeps them out of the log. On three it cannot (ADR 5): there the reader
is the fence (ADR 85). The view has only the last `Term`, so that all are read from the log.
"""

from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson
import structlog

from shared.bus.port import Entry
from shared.contracts.messages.admissions import Admission, Term
from shared.contracts.messages.base import RULING
from shared.contracts.subjects import subject_filter
from shared.telemetry.metrics import VOID

log = structlog.get_logger(__name__)

VOID_MAX: Final = 10_000
"""Subjects whose latest decision is void that are remembered: far more than can be on their way at once."""

NextTerm = Callable[[int], Awaitable[tuple[int, tuple[int, int]] | None]]
"""The first `Term` behind a sequence of the log: its sequence, and (epoch, term). Raises a `BusError`."""


def rules(stream: str) -> bool:
    """Whether `stream` has terms."""
    return stream == Term.stream


class Terms:
    """Every `Term` of the log of decisions, for all readers and workers of one bus."""

    def __init__(self, next_term: NextTerm) -> None:
        self._next_term = next_term
        self._generation = 0
        self._sequences: list[int] = []
        self._highest: list[tuple[int, int]] = []
        """For each of `_sequences`, the highest (epoch, term) up to there."""

        self._logged: set[tuple[int, int]] = set()
        self.void: dict[str, int] = {}
        """Subject to the sequence of its last decision that was read, where that one is void."""

    async def refresh(self, generation: int) -> None:
        """Learn the Terms that are in the log by now: one request where there is none that is new.

        Whatever was in the log before the call can be judged after it.
        """
        if generation != self._generation:
            self._generation = generation
            self._sequences, self._highest = [], []
            self.void.clear()
        while True:
            after = self._sequences[-1] if self._sequences else 0
            found = await self._next_term(after)
            if found is None:
                return
            sequence, ruling = found
            # Two readers may have asked at once.
            if not self._sequences or sequence > self._sequences[-1]:
                highest = self._highest[-1] if self._highest else ruling
                self._sequences.append(sequence)
                self._highest.append(max(ruling, highest))

    def is_void(self, entry: Entry) -> bool:
        """Whether `entry` was decided by a leader that had been replaced. Counts it, logs each term once."""
        ruling = _ruling_of(entry)
        if ruling is None or entry.generation != self._generation:
            return False
        before = bisect_left(self._sequences, entry.sequence)
        if before == 0 or ruling >= self._highest[before - 1]:
            if self.void.get(entry.subject, entry.sequence) < entry.sequence:
                del self.void[entry.subject]
            return False
        VOID.labels(stream=Admission.stream).inc()
        if len(self.void) < VOID_MAX:
            self.void[entry.subject] = entry.sequence
        if ruling not in self._logged:
            self._logged.add(ruling)
            log.warning(
                "dropping decisions of a leader that was replaced",
                subject=entry.subject,
                sequence=entry.sequence,
                term=ruling,
                replaced_by=self._highest[before - 1],
            )
        return True


def _ruling_of(entry: Entry) -> tuple[int, int] | None:
    """(epoch, term) of a decision; None for what is none, or cannot be read."""
    if not entry.subject.startswith(_DECISIONS):
        return None
    said = entry.headers.get(RULING)
    if said is not None:
        epoch, _, term = said.partition(".")
        return (int(epoch), int(term)) if epoch.isdecimal() and term.isdecimal() else None
    return ruling_in(entry.data)


def ruling_in(data: bytes) -> tuple[int, int] | None:
    """The same out of a body: of a `Term`, or of a decision of a release without the header."""
    try:
        body: Any = orjson.loads(data)
        return int(body.get("epoch", 0)), int(body["term"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


_DECISIONS: Final = subject_filter("admission").removesuffix(">")
