"""Facts, the input of the engine.

Every fact names its cluster: one engine decides for many clusters, which do not slow each other
down. Times are integer nanoseconds since the epoch. Amounts are integers: thousandths for `cpu`,
whole units (bytes, devices, slots) for everything else, as Kueue counts them.

A fact holds the whole present state of what it names, so that a repeated fact changes nothing. A late
fact is recognised by its `generation` or its `uid`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from services.quota.engine.decisions import (
    Admit,
    Decision,
    Evict,
    Preempt,
    Recheck,
    Release,
    Reserve,
    Wait,
)
from services.quota.engine.types import (
    DEFAULT_FUNGIBILITY,
    NO_PREEMPTION,
    WEIGHT_ONE,
    AssignedPodSet,
    CheckKind,
    CheckRule,
    CheckStatus,
    FlavorQuotas,
    Fungibility,
    Key,
    PodSet,
    Preemption,
    PreemptionPolicy,
    Quota,
    Requirement,
    ResourceGroup,
    Selector,
    StopPolicy,
    Taint,
    Toleration,
)

__all__ = [
    "WEIGHT_ONE",
    "AdmissionCheckChanged",
    "AdmissionCheckGone",
    "Admit",
    "AssignedPodSet",
    "CheckRule",
    "CheckStateChanged",
    "CheckStatus",
    "ClusterQueueChanged",
    "ClusterQueueGone",
    "CohortChanged",
    "CohortGone",
    "Decision",
    "Evict",
    "EvictionRequested",
    "Fact",
    "FlavorChanged",
    "FlavorGone",
    "FlavorQuotas",
    "Fungibility",
    "Key",
    "LocalQueueChanged",
    "LocalQueueGone",
    "NamespaceChanged",
    "NamespaceGone",
    "PodSet",
    "Preempt",
    "Preemption",
    "PreemptionPolicy",
    "Quota",
    "QuotaHeld",
    "Recheck",
    "Release",
    "Requirement",
    "Reserve",
    "ResourceGroup",
    "Selector",
    "StopPolicy",
    "Taint",
    "Toleration",
    "Wait",
    "WorkloadChanged",
    "WorkloadDrained",
    "WorkloadFinished",
    "WorkloadGone",
    "WorkloadRunning",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ObjectFact:
    """A fact about an object that is not namespaced."""

    cluster: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorkloadFact:
    """A fact about one workload. One of the same name with another uid is another workload."""

    cluster: str
    namespace: str
    name: str
    uid: str


# Facts about queues and what they refer to ---------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorChanged(_ObjectFact):
    """A ResourceFlavor exists and looks like this."""

    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str | None = None
    """Topology of its nodes. Placement by topology is not offered: see `model.topology`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorGone(_ObjectFact):
    """A ResourceFlavor was deleted. Queues that use it become inactive; running workloads go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortChanged(_ObjectFact):
    """A Cohort object exists. A cohort that only queues name needs no fact."""

    parent: str | None = None
    groups: tuple[ResourceGroup, ...] = ()
    weight: int = WEIGHT_ONE
    uid: str = ""
    """Identifies one life of the name: a later Cohort of that name has no status yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortGone(_ObjectFact):
    """The Cohort object was deleted; queues may go on naming it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueueChanged(_ObjectFact):
    """A ClusterQueue exists and looks like this."""

    cohort: str | None = None
    groups: tuple[ResourceGroup, ...] = ()
    strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    namespaces: Selector | None = None
    """None: no namespace at all."""

    stop: StopPolicy = "None"
    fungibility: Fungibility = DEFAULT_FUNGIBILITY
    preemption: Preemption = NO_PREEMPTION
    checks: tuple[CheckRule, ...] = ()
    weight: int = WEIGHT_ONE
    usage_based: bool = False
    """Admission fair sharing: LocalQueues that used less go first."""

    inactive: tuple[str, str] | None = None
    """(reason, message) if something outside the engine found it unusable."""

    terminating: bool = False
    """It is being deleted, and `inactive`: reservations that wait for checks are taken back."""

    uid: str = ""
    """Identifies one life of the name: a later queue of that name has no status yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueueGone(_ObjectFact):
    """A ClusterQueue was deleted. Workloads in it go on holding until they end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueueChanged:
    """A LocalQueue exists and points to a ClusterQueue."""

    cluster: str
    namespace: str
    name: str
    cluster_queue: str
    stop: StopPolicy = "None"
    weight: int = WEIGHT_ONE
    consumed: Mapping[str, int] | None = None
    """Decayed past usage in its status, in thousandths of the unit, for a restart; None: no record."""

    consumed_at: int | None = None
    """When that sample was taken."""

    uid: str = ""
    """As of a `ClusterQueueChanged`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueueGone:
    """A LocalQueue was deleted. Its waiting workloads wait for it to come back."""

    cluster: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceChanged(_ObjectFact):
    """A namespace exists with these labels. Queues select by them."""

    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceGone(_ObjectFact):
    """A namespace was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionCheckChanged(_ObjectFact):
    """An AdmissionCheck object exists; queues that need an inactive one are inactive."""

    active: bool = True
    inactive_message: str = ""
    """Why it is not active, in words."""

    kind: CheckKind = "other"
    """What its controller does; some kinds exclude each other in one queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionCheckGone(_ObjectFact):
    """An AdmissionCheck object was deleted."""


# Facts about workloads -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadChanged(_WorkloadFact):
    """A workload exists with these requests. It does not say whether the workload holds quota."""

    generation: int = 0
    """Grows with each change; a fact with an older generation is ignored."""

    job_uid: str = ""
    """Of the job behind it; empty: there is none, or it is unknown."""

    queue: str = ""
    """LocalQueue in the same namespace."""

    priority: int = 0
    created_at: int = 0
    pod_sets: tuple[PodSet, ...] = ()
    active: bool = True
    """False evicts and keeps out (`Deactivated`)."""

    runs: bool = field(default=False, compare=False)
    """Pods of it run, also if it has ended before: it counts anew."""

    inadmissible: str | None = None
    """Why it can never be admitted in its present form, in words (`Misconfigured`).

    A strict queue keeps it as its head, as in Kueue.
    """

    preemptible: bool = True
    """False: it cannot be stopped, so that it is never preempted once it is admitted."""

    unresolved: str | None = None
    """What it lacks to enter a queue, in words: others pass it (`Misconfigured`)."""

    on_hold: str | None = None
    """Why its integration keeps it from being evaluated (`OnHold`)."""

    gated: str | None = None
    """Names of admission gates that are still closed (`AdmissionGated`)."""

    unready: bool = False
    """Its pods are not ready, which blocks other admissions while it holds quota (`blockAdmission`)."""

    requeue_at: int | None = None
    """Not before this instant."""

    queued_at: int | None = None
    """Its position in the queue, if not that of its creation (evicted by a check or a time-out)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadGone(_WorkloadFact):
    """The workload and its pods are gone; what it held is free."""

    uid: str = ""
    """Empty: whatever uid it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFinished(_WorkloadFact):
    """The workload ended; it holds nothing and is not queued again."""

    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaHeld(_WorkloadFact):
    """An admission on record, applied at a restart before any decision.

    It counts even without a `WorkloadChanged` before it.
    """

    cluster_queue: str
    pod_sets: tuple[AssignedPodSet, ...]
    state: Literal["reserved", "admitted", "evicted"] = "admitted"
    """An `evicted` one releases its quota when it is drained."""

    at: int = 0
    """When quota was reserved. Later reservations are preempted first."""

    priority: int = 0
    """Priority at its admission; used until a `WorkloadChanged` arrives."""

    queue: str = ""
    reason: str = ""
    """Of the eviction."""

    checks: tuple[str, ...] | None = None
    """The admission checks that it was told; None: those that its queue has now."""

    preempted_by: Key | None = None
    """The preemptor; its claim on the freed quota is restored."""

    unplanned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRunning(_WorkloadFact):
    """Pods of the workload are active. Without an admission it holds unplanned, even above quota.

    An unplanned holding counts in full, on the first flavors of its queue that match; it can be
    preempted like any other, and ends with `Drained`, `Finished` or `WorkloadGone`.
    """

    at: int = 0
    eviction_reason: str = ""
    """Reason of its eviction if no ClusterQueue can count it; empty: the engine's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadDrained(_WorkloadFact):
    """No pod of the workload is active or terminating: an evicted one gives its quota back.

    Means nothing for a workload that is not evicted (an admitted job has no pods at first).
    """

    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStateChanged(_WorkloadFact):
    """The state of an admission check of one workload."""

    check: str
    state: CheckStatus
    message: str = ""
    at: int = 0
    """When the state was reached; states from before the reservation are ignored."""

    retry_after: int = 0
    """Nanoseconds to wait after `at` before it queues again; only with `Retry`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRequested(_WorkloadFact):
    """Something outside of quota wants the workload stopped (pods not ready, time is up)."""

    reason: str
    """Token of the condition `Evicted`, e.g. `PodsReadyTimeout`."""

    message: str = ""
    at: int = 0
    requeue_at: int | None = None
    loses_position: bool = False
    """It moves back in its queue: its queue time becomes `at`."""

    deactivate: bool = False
    """`spec.active` must become False. It may still queue until a `WorkloadChanged` confirms that."""


Fact: TypeAlias = (
    FlavorChanged
    | FlavorGone
    | CohortChanged
    | CohortGone
    | ClusterQueueChanged
    | ClusterQueueGone
    | LocalQueueChanged
    | LocalQueueGone
    | NamespaceChanged
    | NamespaceGone
    | AdmissionCheckChanged
    | AdmissionCheckGone
    | WorkloadChanged
    | WorkloadGone
    | WorkloadFinished
    | QuotaHeld
    | WorkloadRunning
    | WorkloadDrained
    | CheckStateChanged
    | EvictionRequested
)
