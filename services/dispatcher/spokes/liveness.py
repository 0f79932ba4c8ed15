"""Whether a spoke is live, and how many of its offers failed lately.

All times are of the hub's clock: a spoke's clock may be wrong.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shared.contracts.messages.spokes import SCHEMA, Heartbeat
from shared.contracts.refs import WorkloadRef

LATENCY_WEIGHT: Final = 0.2
"""Weight of the newest value in the running mean of latencies."""

FAILURE_SECONDS: Final = 300.0
"""How long a failed offer counts."""


class Liveness(StrEnum):
    """What the heartbeats of a spoke show."""

    UNKNOWN = "unknown"
    """It never sent a heartbeat."""

    LIVE = "live"
    SILENT = "silent"
    """It missed a few heartbeats: no new workload goes there."""

    LOST = "lost"
    """It sent no heartbeat for longer than the time-out."""


@dataclass(slots=True, kw_only=True)
class _Heartbeat:
    message: Heartbeat
    received_at: float
    sequence: int
    shown_since: int
    """Sequence of the first heartbeat of this term with the same identity."""


class SpokeHealth:
    """Heartbeats, offers and failures of the spokes in one term.

    A heartbeat that was sent before the term counts as received when the term started, so a restart never
    makes a spoke lost too early.
    """

    def __init__(
        self, *, clock: Callable[[], float], silent_seconds: float, lost_seconds: float
    ) -> None:
        self._clock = clock
        self._started_at = clock()
        self._silent_seconds = silent_seconds
        self._lost_seconds = lost_seconds
        self._heartbeats: dict[str, _Heartbeat] = {}
        self._offers: dict[tuple[str, WorkloadRef], float] = {}
        """Spoke and workload to the time of the offer, until its copy is observed."""

        self._recalled: dict[str, str | None] = {}
        """Spoke to the identity under which an earlier term used it."""

        self._latency: dict[str, float] = {}
        self._failures: dict[str, list[float]] = {}

    def observe_heartbeat(self, beat: Heartbeat, sequence: int) -> None:
        """Record a heartbeat; the same one may be read twice."""
        known = self._heartbeats.get(beat.spoke)
        if known is not None and known.sequence >= sequence:
            return
        is_same = known is not None and known.message.identity == beat.identity
        self._heartbeats[beat.spoke] = _Heartbeat(
            message=beat,
            received_at=self._clock(),
            sequence=sequence,
            shown_since=known.shown_since if known is not None and is_same else sequence,
        )

    def recall_identity(self, spoke: str, identity: str | None) -> None:
        """Record the identity under which an earlier term used a spoke; None: it used it under none."""
        self._recalled[spoke] = identity

    def first_shown(self, names: Iterable[str]) -> str:
        """Which of these names of one cluster was known first under the identity that it shows now.

        Everybody may show the identity of another cluster: who came with it later is refused.
        """
        return min(names, key=self._claim)

    def _claim(self, name: str) -> tuple[bool, int, str]:
        known, uid = self._heartbeats.get(name), self.cluster_uid(name)
        is_new = uid is None or self._recalled.get(name) != uid
        return is_new, 0 if known is None else known.shown_since, name

    def last_heartbeat(self, spoke: str) -> Heartbeat | None:
        """The last heartbeat of a spoke; None if it never sent one."""
        known = self._heartbeats.get(spoke)
        return None if known is None else known.message

    def liveness(self, spoke: str) -> Liveness:
        """Whether a spoke is live now."""
        known = self._heartbeats.get(spoke)
        silence = self._clock() - (self._started_at if known is None else known.received_at)
        if silence >= self._lost_seconds:
            return Liveness.LOST
        if known is None:
            return Liveness.UNKNOWN
        return Liveness.LIVE if silence < self._silent_seconds else Liveness.SILENT

    def is_compatible(self, spoke: str) -> bool:
        """Whether a spoke uses this hub's version of the messages; True if it never sent a heartbeat."""
        beat = self.last_heartbeat(spoke)
        return beat is None or beat.form == SCHEMA

    def reaches_api_server(self, spoke: str) -> bool:
        """Whether the spoke's patcher reaches its API server; True if it never sent a heartbeat."""
        beat = self.last_heartbeat(spoke)
        return beat is None or beat.api

    def cluster_uid(self, cluster: str) -> str | None:
        """The uid of a cluster's namespace `kube-system`; None if no heartbeat tells it."""
        beat = self.last_heartbeat(cluster)
        return None if beat is None else beat.identity

    def aliases(self, cluster: str) -> list[str]:
        """Other names under which the same cluster sends heartbeats."""
        uid = self.cluster_uid(cluster)
        if not uid:
            return []
        names = [name for name, known in self._heartbeats.items() if known.message.identity == uid]
        return sorted(name for name in names if name != cluster)

    # --- offers ---

    def start_offer(self, spoke: str, workload: WorkloadRef) -> None:
        """Measure the latency of an offer from now on."""
        self._offers[spoke, workload] = self._clock()

    def observe_copy(self, spoke: str, workload: WorkloadRef) -> None:
        """Record the latency of an offer whose copy is observed."""
        offered_at = self._offers.pop((spoke, workload), None)
        if offered_at is not None:
            latency = self._clock() - offered_at
            mean = self._latency.get(spoke, latency)
            self._latency[spoke] = mean + LATENCY_WEIGHT * (latency - mean)

    def fail_offer(self, spoke: str, workload: WorkloadRef) -> None:
        """Count an offer that the spoke refused, or that never became a copy."""
        self.end_offer(spoke, workload)
        self._failures.setdefault(spoke, []).append(self._clock())

    def end_offer(self, spoke: str, workload: WorkloadRef) -> None:
        """Stop measuring an offer."""
        self._offers.pop((spoke, workload), None)

    def latency_seconds(self, spoke: str) -> float | None:
        """Running mean of the seconds from an offer to its copy; None if nothing was measured."""
        return self._latency.get(spoke)

    def failures(self, spoke: str) -> int:
        """How many offers failed within `FAILURE_SECONDS`."""
        since = self._clock() - FAILURE_SECONDS
        recent = [at for at in self._failures.get(spoke, ()) if at > since]
        self._failures[spoke] = recent
        return len(recent)
