"""Decisions, the output of the engine. Each names the uid of its workload."""

from dataclasses import dataclass
from typing import TypeAlias

from services.quota.engine.types import AssignedPodSet, Key


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    """A decision about one workload."""

    cluster: str
    key: Key
    uid: str
    cluster_queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve(_Decision):
    """Quota is reserved. Without pending checks the workload is admitted by the same decision."""

    pod_sets: tuple[AssignedPodSet, ...]
    checks: tuple[str, ...] = ()
    """Admission checks that must be Ready before it is admitted; empty: it may start now."""

    generation: int = 0
    """`WorkloadChanged.generation` that was decided about."""

    unplanned: bool = False
    """It runs without an admission, so its usage is counted."""

    @property
    def admitted(self) -> bool:
        """Whether it may start now."""
        return not self.checks


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit(_Decision):
    """All checks of a reserving workload are ready: it may start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck(_Decision):
    """The checks of the queue changed: a workload that holds quota needs these from now on."""

    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt(_Decision):
    """Stop this workload in favour of another. It holds quota until `WorkloadDrained`."""

    reason: str
    """InClusterQueue, InCohortReclamation, InCohortFairSharing, InCohortReclaimWhileBorrowing."""

    preemptor: Key
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict(_Decision):
    """Stop this workload for another reason. It holds quota until `WorkloadDrained`."""

    reason: str
    """Token of the condition `Evicted`: Deactivated, ClusterQueueStopped, AdmissionCheck …"""

    message: str
    requeue_at: int | None = None
    deactivate: bool = False
    """`spec.active` must become False: a check rejected it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(_Decision):
    """The workload holds no quota any more."""

    reason: str
    """Finished, Gone, or why it was evicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(_Decision):
    """The wait reason of a workload changed. `QuotaEngine.explain` gives the details."""

    reason: str
    """Reason of the condition `QuotaReserved=False`, one of Kueue's tokens."""

    message: str
    cluster_queue: str = ""
    requeue_at: int | None = None


Decision: TypeAlias = Reserve | Admit | Recheck | Preempt | Evict | Release | Wait
