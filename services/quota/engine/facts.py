"""What the engine is told (facts) and what it says (decisions).

Every fact names its cluster: one engine decides for many clusters, and none of them costs the
others anything. Times are integer nanoseconds since the epoch. Amounts are integers: thousandths
for `cpu`, whole units (bytes, devices, slots) for everything else, as Kueue counts them.

A fact tells the whole present state of what it names, so a repeated fact changes nothing and a
late one can only be told by its `generation` or by the `uid` it names.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

__all__ = [
    "WEIGHT_ONE",
    "AdmissionCheckChanged",
    "AdmissionCheckGone",
    "Admit",
    "Assigned",
    "CheckRule",
    "CheckState",
    "CheckStatus",
    "ClusterQueueChanged",
    "ClusterQueueGone",
    "CohortChanged",
    "CohortGone",
    "Decision",
    "Drained",
    "Evict",
    "EvictionRequested",
    "Fact",
    "Finished",
    "FlavorChanged",
    "FlavorGone",
    "FlavorQuotas",
    "Fungibility",
    "Held",
    "Key",
    "LocalQueueChanged",
    "LocalQueueGone",
    "NamespaceChanged",
    "NamespaceGone",
    "PodSet",
    "Preempt",
    "Preemption",
    "Quota",
    "Release",
    "Requirement",
    "Reserve",
    "ResourceGroup",
    "Running",
    "Selector",
    "StopPolicy",
    "Taint",
    "Toleration",
    "Wait",
    "WorkloadChanged",
    "WorkloadGone",
]

Key: TypeAlias = str
"""``<namespace>/<name>`` of a workload (or of a LocalQueue), unique in its cluster."""

WEIGHT_ONE: Final = 1_000_000_000
"""Fair sharing weights are billionths: this is weight 1."""

StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
CheckStatus = Literal["Pending", "Ready", "Retry", "Rejected"]
PreemptionPolicy = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"]
Search = Literal["MayStopSearch", "TryNextFlavor"]


# Parts of facts ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One term of a label selector or of a node affinity."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A label selector; all requirements must hold, so an empty one selects everything."""

    requirements: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint of a flavor's nodes. Only NoSchedule and NoExecute matter to quota."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """As in a pod spec. An empty key with `Exists` tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What a queue or cohort owns of one resource in one flavor."""

    nominal: int
    borrowing_limit: int | None = None
    """None: borrows as much as its cohort has."""

    lending_limit: int | None = None
    """None: lends everything that it does not use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorQuotas:
    """One flavor of a resource group, with a quota for each covered resource."""

    name: str
    quotas: Mapping[str, Quota]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroup:
    """Resources that always come from the same flavor; flavors in the order they are tried."""

    covered: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Whom a queue's workloads may preempt (`kueue.md` 2.7)."""

    within: PreemptionPolicy = "Never"
    reclaim: PreemptionPolicy = "Never"
    borrow: Literal["Never", "LowerPriority"] = "Never"
    """`borrowWithinCohort.policy`: preempt in the cohort even though it needs borrowing."""

    borrow_threshold: int | None = None
    """`maxPriorityThreshold`: such victims have at most this priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fungibility:
    """When the search for a flavor stops, and what is preferred when it does not."""

    when_can_borrow: Search = "MayStopSearch"
    when_can_preempt: Search = "TryNextFlavor"
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRule:
    """An AdmissionCheck that a queue's workloads need before they may run."""

    name: str
    on_flavors: frozenset[str] = frozenset()
    """Only workloads that got one of these flavors need it; empty: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """Pods that are alike, and what each one asks."""

    name: str
    count: int
    requests: Mapping[str, int] = field(default_factory=dict)
    """For ONE pod. `pods` is not among them: queues that cover it count by themselves."""

    min_count: int | None = None
    """Partial admission may go down to this many; None: all or nothing."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[tuple[Requirement, ...], ...] = ()
    """Required node affinity: one of these terms must hold; no terms: no affinity."""

    tolerations: tuple[Toleration, ...] = ()
    reclaimable: int = 0
    """Pods that finished and need their quota no more."""

    template: Hashable = None
    """Whatever else tells two pod sets apart; equal workloads share verdicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """What one pod set was given."""

    name: str
    count: int
    flavors: Mapping[str, str]
    """Resource to flavor."""

    usage: Mapping[str, int]
    """Resource to amount, for all pods of the set together."""


# Facts about the cluster's set-up ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorChanged:
    """A ResourceFlavor exists and looks like this."""

    cluster: str
    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


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
    fungibility: Fungibility = Fungibility()
    preemption: Preemption = Preemption()
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
    """Decayed usage that its status recorded, in thousandths of the unit; for a restart."""


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

    on_hold: str | None = None
    """Why its integration keeps it from being evaluated (`OnHold`)."""

    gated: str | None = None
    """Names of admission gates that are still closed (`AdmissionGated`)."""

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
class Finished:
    """The workload ended; it holds nothing and is not queued again."""

    cluster: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An admission that is already on record, told at a restart before any decision.

    Needs no `WorkloadChanged` before it: what holds quota counts, whatever else is known.
    """

    cluster: str
    namespace: str
    name: str
    uid: str
    cluster_queue: str
    pod_sets: tuple[Assigned, ...]
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
class Running:
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
class Drained:
    """No pod of the workload is active or terminating: an evicted one gives its quota back.

    Means nothing for a workload that is not evicted (an admitted job has no pods at first).
    """

    cluster: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckState:
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
    to_back: bool = False
    """It loses its place: from now on its queue time is `at`."""


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
    | Finished
    | Held
    | Running
    | Drained
    | CheckState
    | EvictionRequested
)


# Decisions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Quota is reserved. Without pending checks the workload is admitted by the same decision."""

    cluster: str
    key: Key
    uid: str
    cluster_queue: str
    pod_sets: tuple[Assigned, ...]
    checks: tuple[str, ...] = ()
    """Must be Ready before it is admitted; empty: it may start now."""

    generation: int = 0
    """`WorkloadChanged.generation` that this answers."""

    unplanned: bool = False
    """Nobody decided this: it runs, so it holds."""

    @property
    def admitted(self) -> bool:
        """Whether it may start now."""
        return not self.checks


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """All checks of a reserving workload are ready: it may start."""

    cluster: str
    key: Key
    uid: str
    cluster_queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """Stop this workload in favour of another. It holds quota until `Drained`."""

    cluster: str
    key: Key
    uid: str
    cluster_queue: str
    reason: str
    """InClusterQueue, InCohortReclamation, InCohortFairSharing, InCohortReclaimWhileBorrowing."""

    preemptor: Key
    preemptor_uid: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """Stop this workload for another reason. It holds quota until `Drained`."""

    cluster: str
    key: Key
    uid: str
    cluster_queue: str
    reason: str
    """Token of the condition `Evicted`: Deactivated, ClusterQueueStopped, AdmissionCheck …"""

    message: str
    requeue_at: int | None = None
    deactivate: bool = False
    """`spec.active` must become False: a check rejected it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The workload holds no quota any more."""

    cluster: str
    key: Key
    uid: str
    cluster_queue: str
    reason: str
    """Finished, Gone, or why it was evicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The reason for which a workload waits changed. `QuotaEngine.explain` says it in full."""

    cluster: str
    key: Key
    uid: str
    reason: str
    """A token of `QuotaReserved=False` (`kueue.md` 1.8)."""

    message: str
    cluster_queue: str = ""
    requeue_at: int | None = None


Decision: TypeAlias = Reserve | Admit | Preempt | Evict | Release | Wait
