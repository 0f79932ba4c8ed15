"""Who lives among the spokes, and how well it went there lately. By our own clock, never by theirs."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shared.contracts.messages.spokes import SCHEMA, Beat

__all__ = ["Life", "Presence"]

LATENCY_WEIGHT: Final = 0.2
"""Of the newest in the running mean."""

FORGIVE_SECONDS: Final = 300.0
"""A failure counts for so long."""


class Life(StrEnum):
    """What is known of a spoke."""

    UNHEARD = "unheard"
    """Nothing was ever heard of it."""

    LIVE = "live"
    SILENT = "silent"
    """It missed a few beats: nothing new goes there."""

    LOST = "lost"
    """Nothing for longer than the time-out."""


@dataclass(slots=True, kw_only=True)
class _Heard:
    beat: Beat
    at: float
    """In our own time, when it came in."""

    sequence: int


class Presence:
    """The spokes' beats, offers and failures in one session.

    What was heard before the session began counts as heard when it began: a restart never makes a
    spoke lost too early.
    """

    def __init__(
        self, *, clock: Callable[[], float], silent_seconds: float, lost_seconds: float
    ) -> None:
        self._clock = clock
        self._began = clock()
        self._silent_seconds = silent_seconds
        self._lost_seconds = lost_seconds
        self._heard: dict[str, _Heard] = {}
        self._offered: dict[tuple[str, object], float] = {}
        self._latency: dict[str, float] = {}
        self._failures: dict[str, list[float]] = {}

    def take(self, beat: Beat, sequence: int) -> None:
        """A spoke was heard. The same beat twice says nothing new."""
        known = self._heard.get(beat.spoke)
        if known is None or known.sequence < sequence:
            self._heard[beat.spoke] = _Heard(beat=beat, at=self._clock(), sequence=sequence)

    def beat(self, spoke: str) -> Beat | None:
        """The last one."""
        heard = self._heard.get(spoke)
        return None if heard is None else heard.beat

    def life(self, spoke: str) -> Life:
        """How it stands now."""
        heard = self._heard.get(spoke)
        since = self._clock() - (self._began if heard is None else heard.at)
        if since >= self._lost_seconds:
            return Life.LOST
        if heard is None:
            return Life.UNHEARD
        return Life.LIVE if since < self._silent_seconds else Life.SILENT

    def silence_seconds(self, spoke: str) -> float:
        """How long nothing was heard of it."""
        heard = self._heard.get(spoke)
        return self._clock() - (self._began if heard is None else heard.at)

    def understands(self, spoke: str) -> bool:
        """Whether it speaks as this hub does."""
        beat = self.beat(spoke)
        return beat is None or beat.form == SCHEMA

    def reaches(self, spoke: str) -> bool:
        """Whether its patcher reaches its API server."""
        beat = self.beat(spoke)
        return beat is None or beat.api

    def identity(self, cluster: str) -> str | None:
        """Which cluster it is, whatever it is called; None: it does not say."""
        beat = self.beat(cluster)
        return None if beat is None else beat.identity

    def alike(self, cluster: str) -> list[str]:
        """Other names under which the same cluster was heard."""
        identity = self.identity(cluster)
        if not identity:
            return []
        names = [name for name, heard in self._heard.items() if heard.beat.identity == identity]
        return sorted(name for name in names if name != cluster)

    # --- how well it goes ---

    def offered(self, spoke: str, key: object) -> None:
        """An offer is on its way."""
        self._offered[spoke, key] = self._clock()

    def seen(self, spoke: str, key: object) -> None:
        """Its copy is there."""
        began = self._offered.pop((spoke, key), None)
        if began is not None:
            took = self._clock() - began
            mean = self._latency.get(spoke, took)
            self._latency[spoke] = mean + LATENCY_WEIGHT * (took - mean)

    def failed(self, spoke: str, key: object) -> None:
        """An offer came to nothing, or what was chosen came to a bad end that was the spoke's."""
        self._offered.pop((spoke, key), None)
        self._failures.setdefault(spoke, []).append(self._clock())

    def settled(self, spoke: str, key: object) -> None:
        """Nobody waits for that copy any more."""
        self._offered.pop((spoke, key), None)

    def latency_seconds(self, spoke: str) -> float | None:
        """From an offer to its copy, lately; None: nothing is known."""
        return self._latency.get(spoke)

    def failures(self, spoke: str) -> int:
        """Not forgiven yet."""
        since = self._clock() - FORGIVE_SECONDS
        left = [at for at in self._failures.get(spoke, ()) if at > since]
        self._failures[spoke] = left
        return len(left)
