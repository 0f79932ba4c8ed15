"""What the engine is told (facts) and what it says (decisions).

Every fact names its cluster: one engine decides for many clusters, and none of them costs the
others anything. Times are integer nanoseconds since the epoch. Amounts are integers: thousandths
for `cpu`, whole units (bytes, devices, slots) for everything else, as Kueue counts them.

A fact tells the whole present state of what it names, so a repeated fact changes nothing and a
late one can only be told by its `generation` or by the `uid` it names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from services.quota.engine.decisions import Admit, Decision, Evict, Preempt, Release, Reserve, Wait
from services.quota.engine.types import (
    DEFAULT_FUNGIBILITY,
    NO_PREEMPTION,
    WEIGHT_ONE,
    AssignedPodSet,
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


# Facts about the cluster's set-up ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorChanged:
    """A ResourceFlavor exists and looks like this."""

    cluster: str
    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str | None = None
    """Of which topology its nodes are. Nobody places pods by topology yet: see `judge`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorGone:
    """A ResourceFlavor was deleted. Queues that use it become inactive; what runs, runs on."""

    cluster: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortChanged:
    """A Cohort object exists. A cohort that only queues name needs no fact."""

    cluster: str
    name: str
    parent: str | None = None
    groups: tuple[ResourceGroup, ...] = ()
    weight: int = WEIGHT_ONE


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortGone:
    """The Cohort object was deleted; queues may go on naming it."""

    cluster: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueueChanged:
    """A ClusterQueue exists and looks like this."""

    cluster: str
    name: str
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
    """(reason, message) when somebody else found it unusable; None: the engine judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueueGone:
    """A ClusterQueue was deleted. Workloads in it go on holding until they end."""

    cluster: str
    name: str


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
    """Decayed usage that its status recorded, in thousandths of the unit; for a restart. None: none."""

    consumed_at: int | None = None
    """Nanoseconds of the sample that was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueueGone:
    """A LocalQueue was deleted. Its waiting workloads wait for it to come back."""

    cluster: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceChanged:
    """A namespace exists with these labels. Queues select by them."""

    cluster: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceGone:
    """A namespace was deleted."""

    cluster: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionCheckChanged:
    """An AdmissionCheck object exists; queues that need an inactive one are inactive."""

    cluster: str
    name: str
    active: bool = True
    inactive_message: str = ""
    """In words, why it is not active. For those who ask."""

    controller: str = ""
    """Who answers it: some do not go together in one queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionCheckGone:
    """An AdmissionCheck object was deleted."""

    cluster: str
    name: str


# Facts about workloads -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadChanged:
    """A workload exists and asks this. Says nothing about quota that it holds."""

    cluster: str
    namespace: str
    name: str
    uid: str
    """Names the life: a workload of the same name with another uid is another one."""

    generation: int = 0
    """Grows with each change; an older one than known is late and ignored."""

    queue: str = ""
    """LocalQueue in the same namespace."""

    priority: int = 0
    created_at: int = 0
    pod_sets: tuple[PodSet, ...] = ()
    active: bool = True
    """False evicts and keeps out (`Deactivated`)."""

    inadmissible: str | None = None
    """Why it can never be admitted as it stands, in words (`Misconfigured`)."""

    preemptible: bool = True
    """False: once it is admitted nobody takes its place, because it cannot be stopped."""

    unresolved: str | None = None
    """What it names and is not there, in words: it has no place in a queue (`Misconfigured`)."""

    on_hold: str | None = None
    """Why its integration keeps it from being evaluated (`OnHold`)."""

    gated: str | None = None
    """Names of admission gates that are still closed (`AdmissionGated`)."""

    unready: bool = False
    """While it holds quota nobody else is admitted: its pods are not ready (`blockAdmission`)."""

    requeue_at: int | None = None
    """Not before this instant."""

    queued_at: int | None = None
    """Its place in the queue when not that of its creation (evicted by check or time-out)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadGone:
    """The workload and its pods are gone; what it held is free."""

    cluster: str
    namespace: str
    name: str
    uid: str = ""
    """Empty: whichever life it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFinished:
    """The workload ended; it holds nothing and is not queued again."""

    cluster: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaHeld:
    """An admission that is already on record, told at a restart before any decision.

    Needs no `WorkloadChanged` before it: what holds quota counts, whatever else is known.
    """

    cluster: str
    namespace: str
    name: str
    uid: str
    cluster_queue: str
    pod_sets: tuple[AssignedPodSet, ...]
    state: Literal["reserved", "admitted", "evicted"] = "admitted"
    """`evicted`: it gives its quota back when it is drained."""

    at: int = 0
    """When quota was reserved. Later reservations are preempted first."""

    priority: int = 0
    """As of then; used until `WorkloadChanged` says more."""

    queue: str = ""
    reason: str = ""
    """Of the eviction."""

    preempted_by: Key | None = None
    """Who claims what the eviction frees; its claim is taken up again."""

    unplanned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRunning:
    """Pods of the workload are active. Without an admission it holds unplanned, even above quota.

    An unplanned holding counts in full, on the first flavors of its queue that match; it can be
    preempted like any other, and ends with `Drained`, `Finished` or `WorkloadGone`.
    """

    cluster: str
    namespace: str
    name: str
    uid: str
    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadDrained:
    """No pod of the workload is active or terminating: an evicted one gives its quota back.

    Means nothing for a workload that is not evicted (an admitted job has no pods at first).
    """

    cluster: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStateChanged:
    """What a check's owner says about one workload."""

    cluster: str
    namespace: str
    name: str
    uid: str
    check: str
    state: CheckStatus
    message: str = ""
    at: int = 0
    """When the state was reached; states older than the latest reset are ignored."""

    retry_after: int = 0
    """Nanoseconds to wait after `at` before it queues again; only with `Retry`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRequested:
    """Something outside of quota wants the workload stopped (pods not ready, time is up)."""

    cluster: str
    namespace: str
    name: str
    uid: str
    reason: str
    """Token of the condition `Evicted`, e.g. `PodsReadyTimeout`."""

    message: str = ""
    at: int = 0
    requeue_at: int | None = None
    loses_position: bool = False
    """It loses its place: from now on its queue time is `at`."""

    deactivate: bool = False
    """`spec.active` must become False. Until a `WorkloadChanged` says so it is not kept out by it."""


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
