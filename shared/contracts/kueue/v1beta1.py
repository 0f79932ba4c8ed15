"""The kinds as `v1beta1` has them, where that is not as in `v1beta2`."""

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from shared.contracts.kueue import checks, quotas, workloads
from shared.contracts.kueue.fields import DnsName, Int32, Int64, Metadata, Positive, Taint, Time
from shared.contracts.kueue.placement import TopologyRequestBase
from shared.contracts.kueue.schema import ApiModel, Extra, defaulted, keyed, listed, rules


class FlavorFungibility(ApiModel):
    """When to look at the next flavor although this one could do."""

    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor", "Borrow"] = "MayStopSearch"
    """What to do where the workload fits only by borrowing; `Borrow` means `MayStopSearch`."""

    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor", "Preempt"] = "TryNextFlavor"
    """What to do where it fits only after a preemption; `Preempt` means `MayStopSearch`."""

    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None
    """Which of the two is the lesser evil, once all flavors have been tried."""


class ClusterQueueSpec(quotas.ClusterQueueSpecBase):
    """Quota, and by which rules it is given away."""

    cohort: DnsName | None = None
    """The cohort with which quota is shared; `cohortName` in v1beta2."""

    flavor_fungibility: (
        Annotated[
            FlavorFungibility,
            defaulted({}),
            rules(
                (
                    (
                        "!has(self.preference) || "
                        "[self.whenCanBorrow, self.whenCanPreempt].all(w, w == 'TryNextFlavor')"
                    ),
                    (
                        "preference can only be set when both whenCanBorrow and whenCanPreempt are "
                        "TryNextFlavor"
                    ),
                )
            ),
        ]
        | None
    ) = None
    """When the next flavor is tried."""

    admission_checks: (
        Annotated[
            list[Annotated[str, StringConstraints(max_length=316)]],
            Field(max_length=64),
            listed("atomic"),
        ]
        | None
    ) = None
    """Checks for all flavors; `admissionChecksStrategy` in v1beta2."""

    admission_checks_strategy: quotas.AdmissionChecksStrategy | None = None
    """What must be ready before a workload runs."""


class PendingWorkload(ApiModel):
    """A workload that waits."""

    name: str
    """Its name."""

    namespace: str
    """Its namespace."""


class PendingWorkloads(ApiModel):
    """The head of the queue, as older releases published it."""

    cluster_queue_pending_workload: Annotated[list[PendingWorkload], listed("atomic")] | None = None
    """The first workloads in line."""

    last_change_time: Time
    """When this changed."""


class FairSharingStatus(quotas.FairSharingStatus):
    """Where the node stands in sharing."""

    admission_fair_sharing_status: quotas.ConsumedStatus | None = None
    """What it used lately."""


class ClusterQueueStatus(quotas.ClusterQueueStatus):
    """What the queue holds."""

    pending_workloads_status: PendingWorkloads | None = None
    """The head of the queue; not kept by Sluicegate, which answers this from its log."""

    fair_sharing: FairSharingStatus | None = None
    """Where it stands in its cohort."""


class ClusterQueue(ApiModel):
    """A pool of quota, and who may use it by which rules."""

    metadata: Metadata
    spec: Annotated[ClusterQueueSpec, rules(quotas.limits_need("cohort"))] | None = None
    """What the queue offers."""

    status: ClusterQueueStatus | None = None
    """What it holds; written by Sluicegate."""


class CohortStatus(ApiModel):
    """Where the cohort stands."""

    fair_sharing: FairSharingStatus | None = None
    """Where it stands beside its siblings."""


class Cohort(quotas.Cohort):
    """Joins ClusterQueues and other cohorts that lend one another what they do not use."""

    status: CohortStatus | None = None  # type: ignore[assignment]
    """Written by Sluicegate."""


class FlavorTopology(ApiModel):
    """The topology of a flavor."""

    name: DnsName
    """The Topology."""

    levels: Annotated[list[str], Field(min_length=1, max_length=16), listed("atomic")]
    """Its levels."""


class LocalFlavor(ApiModel):
    """A flavor that the queue offers."""

    name: DnsName
    """The flavor."""

    resources: Annotated[list[str], Field(max_length=64), listed("set")] | None = None
    """The resources that it offers."""

    node_labels: (
        Annotated[dict[str, str], Field(max_length=8), Extra({"x-kubernetes-map-type": "atomic"})]
        | None
    ) = None
    """Labels of its nodes."""

    node_taints: Annotated[list[Taint], Field(max_length=8), listed("atomic")] | None = None
    """Taints of its nodes."""

    topology: FlavorTopology | None = None
    """Its topology."""


class LocalQueueStatus(quotas.LocalQueueStatusBase):
    """What the queue holds."""

    flavor_usage: (
        Annotated[list[quotas.LocalFlavorUsage], Field(max_length=64), keyed("name")] | None
    ) = None
    """Quota used by its admitted workloads; `flavorsUsage` in v1beta2."""

    flavors: Annotated[list[LocalFlavor], Field(max_length=64), keyed("name")] | None = None
    """The flavors of its ClusterQueue."""


class LocalQueue(ApiModel):
    """The door of one namespace to a ClusterQueue; jobs name it in a label."""

    metadata: Metadata
    spec: quotas.LocalQueueSpec | None = None
    """Where it leads."""

    status: LocalQueueStatus | None = None
    """Written by Sluicegate."""


class AdmissionCheckSpec(checks.AdmissionCheckSpec):
    """Who checks what."""

    retry_delay_minutes: Int64 | None = None
    """Without effect: the program that answers the check says when to try again."""


class AdmissionCheck(ApiModel):
    """Something outside of quota that must be ready before a workload runs."""

    metadata: Metadata
    spec: AdmissionCheckSpec | None = None
    """Who checks what."""

    status: checks.ObjectStatus | None = None
    """Written by the program that answers the check."""


class MultiKueueConfigSpec(ApiModel):
    """The clusters among which workloads are distributed."""

    clusters: checks.Clusters
    """Names of MultiKueueCluster objects, in order of preference."""


class MultiKueueConfig(ApiModel):
    """Parameters of an AdmissionCheck that sends workloads to other clusters."""

    metadata: Metadata
    spec: MultiKueueConfigSpec | None = None
    """The clusters."""


class MultiKueueClusterSpec(ApiModel):
    """How the cluster is reached; `clusterSource` holds these two in v1beta2."""

    kube_config: checks.KubeConfig | None = None
    """By a kubeconfig."""

    cluster_profile_ref: checks.ClusterProfileRef | None = None
    """By a ClusterProfile."""


class MultiKueueCluster(ApiModel):
    """A cluster that runs workloads admitted here."""

    metadata: Metadata
    spec: MultiKueueClusterSpec | None = None
    """How it is reached."""

    status: checks.ObjectStatus | None = None
    """Written by the dispatcher."""


class PodSet(workloads.PodSetBase):
    """Pods of one shape."""

    topology_request: TopologyRequestBase | None = None
    """How near to one another they must be."""


class WorkloadSpec(workloads.WorkloadSpecBase):
    """What the job asks for."""

    pod_sets: (
        Annotated[
            list[Annotated[PodSet, workloads.MIN_COUNT_RULE]],
            Field(min_length=1, max_length=18),
            keyed("name"),
        ]
        | None
    ) = None
    """The pods of the job."""

    priority_class_name: DnsName | None = None
    """The class from which the priority was taken; `priorityClassRef` in v1beta2."""

    priority_class_source: (
        Literal["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""]
        | None
    ) = None
    """Which kind of class that is."""


class TopologyDomain(ApiModel):
    """Pods in one place."""

    values: Annotated[list[str], Field(min_length=1, max_length=16), listed("atomic")]
    """The place, level by level."""

    count: Positive
    """How many pods."""


class TopologyAssignment(ApiModel):
    """Which pods go where."""

    levels: Annotated[list[str], Field(min_length=1, max_length=16), listed("atomic")]
    """The labels of the levels, from the largest to the smallest."""

    domains: list[TopologyDomain]
    """The places."""


class PodSetAssignment(workloads.PodSetAssignmentBase):
    """What one pod set was given."""

    topology_assignment: TopologyAssignment | None = None
    """Which pods go where."""

    delayed_topology_request: str | None = None
    """Whether that is still to be decided."""


class Admission(ApiModel):
    """The quota that the workload holds."""

    cluster_queue: DnsName
    """Of which ClusterQueue."""

    pod_set_assignments: Annotated[list[PodSetAssignment], Field(max_length=18), keyed("name")]
    """One entry per pod set."""


class WorkloadStatus(workloads.WorkloadStatusBase):
    """How it stands."""

    admission: Admission | None = None
    """The quota that it holds."""

    # Misspelt by those who published the version.
    accumulated_past_execution_time_seconds: Int32 | None = Field(
        default=None, alias="accumulatedPastExexcutionTimeSeconds"
    )
    """How long it ran in earlier admissions."""


class Workload(ApiModel):
    """A job as quota sees it: what it asks for, and how it stands."""

    metadata: Metadata
    spec: (
        Annotated[
            WorkloadSpec,
            rules(
                (
                    "!has(self.priorityClassName) || has(self.priority)",
                    "priority should not be nil when priorityClassName is set",
                )
            ),
        ]
        | None
    ) = None
    """What the job asks for."""

    status: Annotated[WorkloadStatus, workloads.CLUSTER_RULES] | None = None
    """How it stands; written by Sluicegate."""


_SOURCE: Final = "priorityClassSource"
_NAME: Final = "priorityClassName"


def _both(field: str) -> str:
    return f"!has(oldSelf.spec.{field}) || !has(self.spec.{field})"


WORKLOAD_RULES: Final = workloads.workload_rules(
    (
        (
            f"!{workloads.was('oldSelf', 'QuotaReserved')} || {_both(_SOURCE)} || "
            f"oldSelf.spec.{_SOURCE} == self.spec.{_SOURCE}"
        ),
        "priorityClassSource is immutable while workload quota reserved",
    ),
    (
        (
            f"!{workloads.was('oldSelf', 'QuotaReserved')} || {_both(_NAME)} || "
            f"!has(self.spec.{_SOURCE}) || "
            f"self.spec.{_SOURCE} == 'kueue.x-k8s.io/workloadpriorityclass' || "
            f"oldSelf.spec.{_NAME} == self.spec.{_NAME}"
        ),
        (
            "priorityClassName is immutable while workload quota reserved and priorityClassSource is "
            "not equal to kueue.x-k8s.io/workloadpriorityclass"
        ),
    ),
)
