"""The parts of facts and decisions: quotas, selectors, pod sets, assignments."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Key: TypeAlias = str
"""``<namespace>/<name>`` of a workload (or of a LocalQueue), unique in its cluster."""

WEIGHT_ONE: Final = 1_000_000_000
"""Fair sharing weights are billionths: this is weight 1."""

StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
CheckKind = Literal["MultiKueue", "ProvisioningRequest", "other"]
"""What an AdmissionCheck asks for. Kueue excludes some combinations in one ClusterQueue."""

CheckStatus = Literal["Pending", "Ready", "Retry", "Rejected"]
PreemptionPolicy = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"]
Search = Literal["MayStopSearch", "TryNextFlavor"]
SharingStrategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]

SHARING_STRATEGIES: Final[tuple[SharingStrategy, ...]] = (
    "LessThanOrEqualToFinalShare",
    "LessThanInitialShare",
)
"""Preemption strategies of fair sharing, in Kueue's default order."""


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
    """None: it may borrow all that its cohort has."""

    lending_limit: int | None = None
    """None: it lends everything that it does not use."""


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
    """Which workloads the workloads of a queue may preempt (`spec.preemption`)."""

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
    """Pods that are alike, and the requests of each one."""

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
    """Pods that finished and hold no quota any more."""

    returned: Mapping[str, int] = field(default_factory=dict)
    """Resource to the amount that all pods together returned before they finished."""

    running: int = 0
    """Pods that run, if there are more than were admitted and did not finish: all of them hold quota."""

    template: Hashable = None
    """Anything else that distinguishes pod sets; equal workloads share wait reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPodSet:
    """The flavors and the usage that one pod set was granted."""

    name: str
    count: int
    flavors: Mapping[str, str]
    """Resource to flavor."""

    usage: Mapping[str, int]
    """Resource to amount, for all pods of the set together."""


DEFAULT_FUNGIBILITY: Final = Fungibility()
NO_PREEMPTION: Final = Preemption()
