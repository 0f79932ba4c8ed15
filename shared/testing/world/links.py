"""The network between processes and servers: what is cut off, held up, or slow.

A cut breaks connections. A held direction is a network that loses packets for a while: the sender
repeats them, no connection breaks, and they arrive late, in order, once the hold is over.
"""

from collections.abc import Callable
from random import Random

BOTH_WAYS = ("request", "answer")


class Links:
    """The state of all links of a world, by process and by party: the bus or a cluster."""

    def __init__(self, *, now: Callable[[], float], note: Callable[[str], None]) -> None:
        self._now = now
        self._note = note
        self._cut: set[tuple[str, str]] = set()
        self._held_until: dict[tuple[str, str, str], float] = {}
        self._slow: dict[str, float] = {}

    def connected(self, process: str, to: str) -> bool:
        """True if nothing cuts `process` off from `to`."""
        return (process, to) not in self._cut

    @property
    def whole(self) -> bool:
        """True if nothing is cut or held."""
        now = self._now()
        return not self._cut and all(until <= now for until in self._held_until.values())

    def cut(self, process: str, to: str) -> bool:
        """Cut `process` off from `to`; return False if it was already."""
        if (process, to) in self._cut:
            return False
        self._note(f"partition {process} | {to}")
        self._cut.add((process, to))
        return True

    def heal(self, process: str, to: str) -> None:
        """End the partition of `process` from `to`."""
        if (process, to) in self._cut:
            self._note(f"heal {process} | {to}")
            self._cut.discard((process, to))

    def hold(self, process: str, to: str, *, ways: tuple[str, ...], seconds: float) -> None:
        """Let packets in these directions (`request`, `answer`) arrive only after `seconds`."""
        self._note(f"hold {' and '.join(ways)} of {process} | {to} for {seconds:.3f} s")
        for way in ways:
            key = (process, to, way)
            self._held_until[key] = max(self._held_until.get(key, 0.0), self._now() + seconds)

    def held_seconds(self, process: str, to: str, way: str) -> float:
        """Seconds until packets in this direction arrive again; 0 if they do."""
        if not self._held_until:
            return 0.0
        return max(0.0, self._held_until.get((process, to, way), 0.0) - self._now())

    def slow_down(self, process: str, seconds: float) -> None:
        """Add up to `seconds` of latency to all packets of `process`."""
        self._note(f"slow link {process}: {seconds:g} s")
        self._slow[process] = seconds

    def slowness_seconds(self, process: str, random: Random) -> float:
        """Draw the additional latency of its next packet."""
        slow = self._slow.get(process)
        return 0.0 if slow is None else slow * random.random()
