"""Workload of `v1beta2`: one job as quota sees it."""

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from shared.contracts.controllers import CheckStatus
from shared.contracts.kueue.fields import (
    Conditions,
    Count,
    DnsLabel,
    DnsName,
    Int32,
    Metadata,
    PodTemplate,
    Positive,
    Quantity,
    Time,
    Tolerations,
)
from shared.contracts.kueue.placement import TopologyAssignment, TopologyRequest
from shared.contracts.kueue.schema import ApiModel, Extra, defaulted, keyed, listed, rules

PodSetName = Annotated[DnsLabel, defaulted("main")]
Cause = Annotated[str, StringConstraints(max_length=316)]
GateName = Annotated[str, StringConstraints(min_length=1, max_length=63)]
ClusterName = Annotated[str, StringConstraints(max_length=256)]


def was(of: str, condition: str) -> str:
    """CEL: the condition is true of `self` or `oldSelf`."""
    return (
        f"(has({of}.status) && has({of}.status.conditions) && {of}.status.conditions.exists(c, "
        f"c.type == '{condition}' && c.status == 'True'))"
    )


def _unchanged(path: str) -> str:
    """CEL: an optional field of the spec is absent from both, or the same in both."""
    return (
        f"has(oldSelf.spec.{path}) == has(self.spec.{path}) && "
        f"(!has(self.spec.{path}) || oldSelf.spec.{path} == self.spec.{path})"
    )


_HELD: Final = was("oldSelf", "QuotaReserved")
_HOLDS: Final = was("self", "QuotaReserved")


def workload_rules(*more: tuple[str, str]) -> Extra:
    """The rules of a whole Workload: `more` are those about the priority class."""
    return rules(
        (
            (
                f"!{_HOLDS} || !has(self.status.admission) || "
                "!has(self.status.admission.podSetAssignments) || !has(self.spec.podSets) || "
                "size(self.spec.podSets) == size(self.status.admission.podSetAssignments)"
            ),
            "podSetAssignments must have the same number of podSets as the spec",
        ),
        (
            f"!{_HELD} || !{_HOLDS} || ({_unchanged('queueName')})",
            "queueName is immutable while workload quota reserved",
        ),
        (
            (
                f"!{was('oldSelf', 'Admitted')} || !{was('self', 'Admitted')} || "
                f"({_unchanged('maximumExecutionTimeSeconds')})"
            ),
            "maximumExecutionTimeSeconds is immutable while workload quota reserved",
        ),
        *more,
    )


_BOTH_REFER: Final = "!has(oldSelf.spec.priorityClassRef) || !has(self.spec.priorityClassRef)"


def _reference_unchanged(part: str) -> str:
    same = f"oldSelf.spec.priorityClassRef.{part} == self.spec.priorityClassRef.{part}"
    return f"!{_HELD} || {_BOTH_REFER} || {same}"


class PodSetBase(ApiModel):
    """Pods of one shape."""

    name: PodSetName | None = None
    """What these pods are, for instance `driver`."""

    count: Annotated[Count, defaulted(1)] | None = None
    """How many there are."""

    min_count: Positive | None = None
    """With how few the job would start; absent for none less than `count`."""

    template: PodTemplate
    """The pods. What they request is what quota counts, unless the API server knows better."""


class PodSet(PodSetBase):
    """Pods of one shape."""

    topology_request: TopologyRequest | None = None
    """How near to one another they must be."""


class PriorityClassRef(ApiModel):
    """Where the priority comes from."""

    group: Literal["kueue.x-k8s.io", "scheduling.k8s.io"]
    """Group of the class."""

    kind: Literal["WorkloadPriorityClass", "PriorityClass"]
    """Its kind."""

    name: Annotated[DnsName, StringConstraints(min_length=1)]
    """Its name."""


class PreemptionGate(ApiModel):
    """Holds back preemption for this workload."""

    name: GateName
    """Name of the gate."""


MIN_COUNT_RULE: Final = rules(
    (
        "!has(self.minCount) || self.minCount <= self.count",
        "minCount should be positive and less or equal to count",
    )
)


class WorkloadSpecBase(ApiModel):
    """What both versions of a Workload's spec say in the same words."""

    queue_name: DnsName | None = None
    """The LocalQueue; cannot be changed while the workload holds quota."""

    priority: Int32 | None = None
    """The higher, the earlier."""

    active: Annotated[bool, defaulted(True)] | None = None
    """False takes the workload out of the queue, or evicts it."""

    maximum_execution_time_seconds: Positive | None = None
    """How long it may run, over all its admissions, before it is deactivated."""


class WorkloadSpec(WorkloadSpecBase):
    """What the job asks for."""

    pod_sets: (
        Annotated[
            list[Annotated[PodSet, MIN_COUNT_RULE]],
            Field(min_length=1, max_length=18),
            keyed("name"),
        ]
        | None
    ) = None
    """The pods of the job."""

    priority_class_ref: (
        Annotated[
            PriorityClassRef,
            rules(
                (
                    "self.group != 'scheduling.k8s.io' || self.kind == 'PriorityClass'",
                    "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
                ),
                (
                    "self.group != 'kueue.x-k8s.io' || self.kind == 'WorkloadPriorityClass'",
                    "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
                ),
            ),
        ]
        | None
    ) = None
    """The class from which the priority was taken."""

    preemption_gates: Annotated[list[PreemptionGate], Field(max_length=8), keyed("name")] | None = (
        None
    )
    """Gates that must open before others are preempted for this workload."""


class PodSetAssignmentBase(ApiModel):
    """What one pod set was given."""

    name: PodSetName | None = None
    """The pod set."""

    flavors: dict[str, DnsName] | None = None
    """The flavor of each resource."""

    resource_usage: dict[str, Quantity] | None = None
    """How much of each resource all its pods take together."""

    count: Count | None = None
    """How many pods were admitted, if not all."""


class PodSetAssignment(PodSetAssignmentBase):
    """What one pod set was given."""

    topology_assignment: TopologyAssignment | None = None
    """Which pods go where."""

    delayed_topology_request: Literal["Pending", "Ready"] | None = None
    """Whether that is still to be decided, after the machines were made."""


class Admission(ApiModel):
    """The quota that the workload holds."""

    cluster_queue: DnsName | None = None
    """Of which ClusterQueue."""

    pod_set_assignments: (
        Annotated[list[PodSetAssignment], Field(max_length=18), keyed("name")] | None
    ) = None
    """One entry per pod set."""


class PodSetUpdate(ApiModel):
    """What a check adds to the pods of one pod set."""

    name: DnsLabel
    """The pod set."""

    labels: dict[str, str] | None = None
    """Labels."""

    annotations: dict[str, str] | None = None
    """Annotations."""

    node_selector: dict[str, str] | None = None
    """Node selectors."""

    tolerations: Tolerations | None = None
    """Tolerations."""


class CheckState(ApiModel):
    """What one admission check says."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=316)]
    """The check."""

    state: CheckStatus
    """`Retry` gives the quota back and tries later; `Rejected` deactivates the workload."""

    last_transition_time: Time
    """Since when."""

    message: Annotated[str, StringConstraints(max_length=32768)]
    """Why."""

    requeue_after_seconds: Count | None = None
    """How long to wait before the next try."""

    retry_count: Count | None = None
    """How many tries there were."""

    pod_set_updates: (
        Annotated[list[PodSetUpdate], Field(max_length=18), listed("atomic")] | None
    ) = None
    """What the pods get."""


class RequeueState(ApiModel):
    """How often the workload came back, and when it may come again."""

    count: Count | None = None
    """How often."""

    requeue_at: Time | None = None
    """Not before then."""


class ReclaimablePods(ApiModel):
    """Pods that need no quota any more."""

    name: DnsLabel
    """The pod set."""

    count: Count
    """How many of them."""


class PodSetRequest(ApiModel):
    """What one pod set asks for, as quota counts it."""

    name: DnsLabel
    """The pod set."""

    resources: dict[str, Quantity] | None = None
    """For all its pods together."""


class Eviction(ApiModel):
    """How often something happened."""

    reason: Cause
    """Why the workload was evicted."""

    underlying_cause: Cause
    """What was behind it; may be empty."""

    count: Count
    """How often."""


class SchedulingStats(ApiModel):
    """What became of earlier admissions."""

    evictions: (
        Annotated[list[Eviction], Field(max_length=256), keyed("reason", "underlyingCause")] | None
    ) = None
    """Evictions, counted."""


class UnhealthyNode(ApiModel):
    """A node that failed under the workload."""

    name: Annotated[str, StringConstraints(max_length=253)]
    """Its name."""


class GateState(ApiModel):
    """Where a gate stands."""

    name: GateName
    """The gate."""

    position: Literal["Closed", "Open"]
    """Whether preemption may pass."""

    last_transition_time: Time
    """Since when."""


class WorkloadStatusBase(ApiModel):
    """What both versions of a Workload's status say in the same words."""

    conditions: Conditions | None = None
    """`QuotaReserved`, `Admitted`, `PodsReady`, `Evicted`, `Preempted`, `Requeued`, `Finished`."""

    requeue_state: RequeueState | None = None
    """How often it came back."""

    reclaimable_pods: (
        Annotated[list[ReclaimablePods], Field(max_length=18), keyed("name")] | None
    ) = None
    """Pods that gave their quota back; grows only, while the workload holds quota."""

    admission_checks: Annotated[list[CheckState], Field(max_length=8), keyed("name")] | None = None
    """What the queue's checks say."""

    resource_requests: (
        Annotated[list[PodSetRequest], Field(max_length=18), keyed("name")] | None
    ) = None
    """What it asks for while it waits."""

    scheduling_stats: SchedulingStats | None = None
    """What became of earlier admissions."""

    nominated_cluster_names: (
        Annotated[list[ClusterName], Field(max_length=20), listed("atomic")] | None
    ) = None
    """Clusters that are being tried."""

    cluster_name: ClusterName | None = None
    """The cluster that runs it; cannot be changed once set."""

    unhealthy_nodes: Annotated[list[UnhealthyNode], Field(max_length=8), keyed("name")] | None = (
        None
    )
    """Nodes that failed under it."""


CLUSTER_RULES: Final = rules(
    (
        (
            "!has(oldSelf.clusterName) || !has(self.clusterName) || "
            "oldSelf.clusterName == self.clusterName"
        ),
        "clusterName is immutable once set",
    ),
    (
        (
            "!has(self.clusterName) || !has(self.nominatedClusterNames) || "
            "size(self.nominatedClusterNames) == 0"
        ),
        "clusterName and nominatedClusterNames are mutually exclusive",
    ),
)


class WorkloadStatus(WorkloadStatusBase):
    """How it stands."""

    admission: Admission | None = None
    """The quota that it holds."""

    accumulated_past_execution_time_seconds: Int32 | None = None
    """How long it ran in earlier admissions."""

    preemption_gates: Annotated[list[GateState], Field(max_length=8), keyed("name")] | None = None
    """Where its gates stand."""


class Workload(ApiModel):
    """A job as quota sees it: what it asks for, and how it stands."""

    metadata: Metadata
    spec: (
        Annotated[
            WorkloadSpec,
            rules(
                (
                    "!has(self.priorityClassRef) || has(self.priority)",
                    "priority should not be nil when priorityClassRef is set",
                )
            ),
        ]
        | None
    ) = None
    """What the job asks for."""

    status: Annotated[WorkloadStatus, CLUSTER_RULES] | None = None
    """How it stands; written by Sluicegate."""


WORKLOAD_RULES: Final = workload_rules(
    (
        f"!{_HELD} || has(oldSelf.spec.priorityClassRef) == has(self.spec.priorityClassRef)",
        "priorityClassRef is immutable while workload quota reserved",
    ),
    (
        _reference_unchanged("group"),
        "priorityClassRef.group is immutable while workload quota reserved",
    ),
    (
        _reference_unchanged("kind"),
        "priorityClassRef.kind is immutable while workload quota reserved",
    ),
    (
        f"{_reference_unchanged('name')} || self.spec.priorityClassRef.kind != 'PriorityClass'",
        (
            "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload "
            "quota reserved"
        ),
    ),
)
"""A WorkloadPriorityClass may be exchanged for another while the workload holds quota."""
