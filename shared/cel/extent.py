"""How much data is handed to a program: measured while it is taken out of an object, and cut off early.

The library converts what it is given, about 1 µs and 400 bytes for each element, before a step is counted.
"""

from dataclasses import dataclass
from typing import Any, Final

ELEMENTS_MAX: Final = 5_000
"""Entries of all lists and maps together: 5 ms and 2 MiB. A Spark job with 500 executors, each of which was
replaced twice, hands over 1,500."""

TEXT_MAX: Final = 500_000
"""Characters of all keys and texts together. The indexes of a Job with 100,000 completions have 393,000."""

LEVELS_MAX: Final = 100
"""Lists and maps inside of each other, as in a review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one program may be given."""

    elements: int = ELEMENTS_MAX
    items: int = ELEMENTS_MAX
    """Entries of the longest list or map."""

    text: int = TEXT_MAX


class TooMuchError(ValueError):
    """An object hands over more than a program may be given."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self._reason = reason
        self._path: list[str] = []

    def inside(self, field: str) -> None:
        """Note that it was found below this field."""
        self._path.append(field)

    def __str__(self) -> str:
        path = ".".join(reversed(self._path))
        return f"{path}: {self._reason}" if path else self._reason


class Meter:
    """Counts what is handed over. Raises `TooMuchError` as soon as it is more than the limits."""

    __slots__ = ("_limits", "elements", "text")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.elements = 0
        self.text = 0

    @property
    def counted(self) -> tuple[int, int]:
        """Elements and characters so far."""
        return self.elements, self.text

    @counted.setter
    def counted(self, counted: tuple[int, int]) -> None:
        self.elements, self.text = counted

    @property
    def share(self) -> float:
        """The part of the limits that is used up, from 0 to 1."""
        limits = self._limits
        return max(self.elements / limits.elements, self.text / limits.text)

    def count(self, entries: int) -> None:
        """Add the entries of one list or map, before they are iterated."""
        limits = self._limits
        if entries > limits.items:
            raise _too_many(entries, limits.items, "one list or map")
        self.elements += entries
        if self.elements > limits.elements:
            raise _too_many(self.elements, limits.elements, "lists and maps together")

    def read(self, text: str) -> None:
        """Add a text."""
        self.text += len(text)
        if self.text > self._limits.text:
            raise TooMuchError(
                f"more than {self._limits.text:,} characters are too many for its expressions: "
                "make it shorter"
            )

    def whole(self, value: Any) -> Any:
        """Add a value with all that is in it, without recursion. Returns the value."""
        level, levels = [value], 0
        while level:
            below: list[Any] = []
            for one in level:
                if isinstance(one, str):
                    self.read(one)
                elif isinstance(one, dict):
                    self.count(len(one))
                    for key in one:
                        self.read(key)
                    below += one.values()
                elif isinstance(one, list):
                    self.count(len(one))
                    below += one
            level, levels = below, levels + 1
            if levels > LEVELS_MAX + 1:
                raise TooMuchError(f"more than {LEVELS_MAX} levels deep: nest it less")
        return value


def _too_many(entries: int, most: int, where: str) -> TooMuchError:
    return TooMuchError(
        f"{entries:,} entries are too many for its expressions: at most {most:,} in {where}"
    )
