"""Which leader had begun at a place of the log of decisions: what is below it is void (ADR 85). Pure.

For the bus and for commands that start fast: it imports little.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

from shared.contracts.kube.numbers import whole_number
from shared.contracts.subjects import RULING, subject_filter

TERMS: Final = subject_filter("term")

DECISIONS: Final = subject_filter("admission").removesuffix(">")
"""Prefix of the subjects of decisions."""

Ruling = tuple[int | None, int]
"""(epoch, term) of a leader. Epoch None: a release before there were epochs wrote it."""


class Rulings:
    """The leaders that began in a log, by the sequence of their `Term`."""

    def __init__(self) -> None:
        self._sequences: list[int] = []
        self._rulings: list[Ruling | None] = []
        """Of the `Term` at each of `_sequences`."""

        self._highest: list[tuple[int, int]] = []
        """For each of `_sequences`, the highest (epoch, term) up to there."""

    @property
    def last(self) -> int:
        """Sequence of the last `Term` that is known; 0: none is."""
        return self._sequences[-1] if self._sequences else 0

    @property
    def highest(self) -> tuple[int, int]:
        """The highest (epoch, term) of all that are known; (0, 0): there is none."""
        return self._highest[-1] if self._highest else (0, 0)

    def learn(self, sequence: int, ruling: Ruling | None) -> None:
        """Remember a `Term`, unless it is known. `ruling`: None if nobody can read it."""
        at = bisect_left(self._sequences, sequence)
        if self._sequences[at : at + 1] == [sequence]:
            return
        self._sequences.insert(at, sequence)
        self._rulings.insert(at, ruling)
        del self._highest[at:]
        for each in self._rulings[at:]:
            before = self.highest
            self._highest.append(max(_completed(each, before), before))

    def replaced_by(self, sequence: int, ruling: Ruling | None) -> tuple[int, int] | None:
        """The leader that had replaced that of a decision when it was stored; None: it is valid.

        What does not say which leader wrote it was written by none.
        """
        before = bisect_left(self._sequences, sequence)
        if before == 0:
            return None
        highest = self._highest[before - 1]
        return highest if ruling is None or _completed(ruling, highest) < highest else None


def _completed(ruling: Ruling | None, before: tuple[int, int]) -> tuple[int, int]:
    """Fill in the epoch that a release without epochs did not write: that of the log so far."""
    if ruling is None:
        return (0, 0)
    return (before[0] if ruling[0] is None else ruling[0], ruling[1])


def ruling_in_header(headers: Mapping[str, str]) -> tuple[bool, Ruling | None]:
    """Whether a decision has the header, and (epoch, term) in it; None: nobody can read it."""
    ruling = headers.get(RULING)
    if ruling is None:
        return (False, None)
    before, _, after = ruling.partition(".")
    epoch, term = whole_number(before), whole_number(after)
    return (True, None if epoch is None or term is None else (epoch, term))


def ruling_in_body(body: Any) -> Ruling | None:
    """The same out of a body: of a `Term`, or of a decision of a release without the header."""
    try:
        epoch = body.get("epoch")
        return (None if epoch is None else int(epoch), int(body["term"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
