"""How much one spoke may write to one log: pure arithmetic, with the time given by the caller.

A log drops its oldest messages when it is full, whoever wrote them. So a spoke has a bucket for each log
that it writes: an eighth of the log at once, and as much again in the log's `spoke_hours`. The number of
messages has a bucket as well, because readers pay for each.
"""

from dataclasses import dataclass
from typing import Final

PART: Final = 8
"""A spoke may write one of so many parts of a log at once."""

MESSAGES_PER_SECOND: Final = 1000
"""About a fifth of what a reader in Python takes in."""

MESSAGES_AT_ONCE: Final = 20_000
"""A cluster that is listed anew: all its jobs and Workloads."""


class _Bucket:
    """Fills with time up to `size`. What is larger can be taken when it is full, and leaves it in debt."""

    def __init__(self, *, size: float, per_second: float, now: float) -> None:
        self._size = size
        self._per_second = per_second
        self._level = size
        self._at = now

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` can be taken, 0 for at once."""
        self._level = min(self._size, self._level + max(0.0, now - self._at) * self._per_second)
        self._at = now
        return max(0.0, min(amount, self._size) - self._level) / self._per_second

    def charge(self, amount: float) -> None:
        """Take it, after `wait` has said 0."""
        self._level -= amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one spoke in one log."""

    log_bytes: int
    hours: float
    """In how many hours it may write its part of the log again."""

    messages_per_second: float = MESSAGES_PER_SECOND
    messages_at_once: float = MESSAGES_AT_ONCE


class Budget:
    """What one spoke may still write to one log."""

    def __init__(self, limits: Limits, now: float) -> None:
        part = max(1.0, limits.log_bytes / PART)
        self._bytes = _Bucket(size=part, per_second=part / (limits.hours * 3600), now=now)
        self._messages = _Bucket(
            size=limits.messages_at_once, per_second=limits.messages_per_second, now=now
        )

    def lacks(self, size: int, now: float) -> bool:
        """Whether the spoke has written its part: there is no room for a message of `size` bytes yet."""
        return self._bytes.wait(size, now) > 0

    def wait(self, now: float) -> float:
        """Seconds until it may write one more message; 0 for at once. Never long: it is a pace."""
        return self._messages.wait(1, now)

    def charge(self, size: int) -> None:
        """Count a message that is written."""
        self._bytes.charge(size)
        self._messages.charge(1)


def share_of(view_bytes: int, spokes: int) -> int:
    """Bytes of a view that each of so many spokes may fill while it is crowded: half of it is the hub's."""
    return view_bytes // 2 // max(1, spokes)
