"""How long to wait before the next try."""

from random import Random
from typing import Final

_FACTOR: Final = 2.0


class Backoff:
    """Waits that double from `first_seconds` to `most_seconds`, each spread over its upper half."""

    def __init__(self, *, random: Random, first_seconds: float, most_seconds: float) -> None:
        self._random = random
        self._first = first_seconds
        self._most = most_seconds
        self._next = first_seconds

    def failed(self, *, at_least: float = 0.0) -> float:
        """Seconds to wait after one more failure; `at_least` is what the server asked for."""
        wait = self._spread(self._next)
        self._next = min(self._next * _FACTOR, self._most)
        return max(wait, at_least)

    def succeeded(self) -> None:
        """Begin anew."""
        self._next = self._first

    def _spread(self, seconds: float) -> float:
        return seconds * self._random.uniform(0.5, 1.0)
