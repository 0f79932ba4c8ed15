"""ClusterQueue, Cohort and LocalQueue of `v1beta2`."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from shared.contracts.kueue.fields import (
    Conditions,
    DnsName,
    Int32,
    Int64,
    LabelSelector,
    Metadata,
    Quantity,
    ResourceName,
    Time,
)
from shared.contracts.kueue.schema import ApiModel, Extra, defaulted, keyed, listed, rules

StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
CheckName = Annotated[str, StringConstraints(min_length=1, max_length=316)]


def limits_need(field: str) -> tuple[str, str]:
    """The rule that a queue outside of any cohort limits neither borrowing nor lending."""
    limits = ("borrowingLimit", "lendingLimit")
    unset = " && ".join(f"!has(r.{limit})" for limit in limits)
    rule = (
        f"has(self.{field}) || !has(self.resourceGroups) || "
        f"self.resourceGroups.all(g, g.flavors.all(f, f.resources.all(r, {unset})))"
    )
    return rule, "borrowingLimit and lendingLimit must be nil when cohort is empty"


class ResourceQuota(ApiModel):
    """How much there is of one resource in one flavor."""

    name: ResourceName
    """The resource, for instance `cpu` or `tekton.dev/pipelineruns`."""

    nominal_quota: Quantity
    """What may be used without borrowing."""

    borrowing_limit: Quantity | None = None
    """How much may be borrowed from the cohort beyond the quota; absent for as much as there is."""

    lending_limit: Quantity | None = None
    """How much of the quota others in the cohort may borrow; absent for all of it."""


class FlavorQuotas(ApiModel):
    """The quotas of one flavor."""

    name: DnsName
    """The ResourceFlavor. It may be created later; until then the queue is inactive."""

    resources: Annotated[list[ResourceQuota], Field(min_length=1, max_length=64), keyed("name")]
    """One entry per covered resource, in the same order."""


class ResourceGroup(ApiModel):
    """Resources that are taken from the same flavor."""

    covered_resources: Annotated[
        list[ResourceName], Field(min_length=1, max_length=64), listed("atomic")
    ]
    """The resources of the group. A resource is in one group only."""

    flavors: Annotated[list[FlavorQuotas], Field(min_length=1, max_length=64), keyed("name")]
    """Where they may come from, in the order in which they are tried."""


ResourceGroups = Annotated[
    list[
        Annotated[
            ResourceGroup,
            rules(
                (
                    "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
                    "flavors must have the same number of resources as the coveredResources",
                )
            ),
        ]
    ],
    Field(max_length=16),
    listed("atomic"),
]


class FlavorFungibility(ApiModel):
    """When to look at the next flavor although this one could do."""

    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor"] = "MayStopSearch"
    """What to do where the workload fits only by borrowing."""

    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = "TryNextFlavor"
    """What to do where the workload fits only after a preemption."""

    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None
    """Which of the two is the lesser evil, once all flavors have been tried."""


class BorrowWithinCohort(ApiModel):
    """Whether a workload that borrows may preempt in other queues."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    """Whom it may preempt there."""

    max_priority_threshold: Int32 | None = None
    """Only workloads of this priority or a lower one are preempted so."""


class Preemption(ApiModel):
    """Who is preempted when a workload of this queue does not fit."""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Which workloads of this queue make room."""

    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    """Which workloads of other queues give back what they borrowed from this one."""

    borrow_within_cohort: Annotated[BorrowWithinCohort, defaulted({})] | None = None
    """Whether others are preempted even though the workload itself would borrow."""


class CheckRule(ApiModel):
    """One admission check, and for which flavors it is asked."""

    name: CheckName
    """The AdmissionCheck."""

    on_flavors: Annotated[list[DnsName], Field(max_length=64), listed("set")] | None = None
    """Only workloads that got one of these flavors are checked; absent for all workloads."""


class AdmissionChecksStrategy(ApiModel):
    """What must be ready before a workload with quota may run."""

    admission_checks: Annotated[list[CheckRule], Field(min_length=1, max_length=64), keyed("name")]
    """The checks; a workload runs when all that concern it are ready."""


class FairSharing(ApiModel):
    """How much of what is free this node of the cohort tree deserves."""

    weight: Annotated[Quantity, Extra({"default": 1})] | None = None
    """Compared with its siblings' weights: twice the weight is twice the share. 0 is always last."""


class FairSharingStatus(ApiModel):
    """Where the node stands in sharing."""

    weighted_share: Int64
    """What it borrows, in thousandths of what can be lent, by its weight; 0 if it borrows nothing."""


class ConsumedStatus(ApiModel):
    """What a LocalQueue has used lately."""

    consumed_resources: dict[str, Quantity]
    """Use of each resource, with older use counting less."""

    last_update: Time
    """Until when it is counted."""


class AdmissionScope(ApiModel):
    """Whether LocalQueues of one ClusterQueue take turns by what they used."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
    """How they take turns."""


class MigrationConstraints(ApiModel):
    """How far a workload may fall back."""

    last_acceptable_flavor_name: DnsName | None = None
    """The last flavor, in the queue's order, on which it may start."""


class Migration(ApiModel):
    """What happens when a better flavor becomes free."""

    mode: Literal["TryPreferredFlavors", "RetainFirstAdmission"]
    """Whether to move to it or to stay."""

    constraints: MigrationConstraints | None = None
    """Limits of moving."""


class ConcurrentAdmissionPolicy(ApiModel):
    """Trying several flavors of one workload at a time."""

    migration: Migration
    """What to do with a workload that runs already."""


class ClusterQueueSpecBase(ApiModel):
    """What both versions of a ClusterQueue's spec say in the same words."""

    resource_groups: ResourceGroups | None = None
    """The quotas."""

    queueing_strategy: Literal["StrictFIFO", "BestEffortFIFO"] = "BestEffortFIFO"
    """Whether a workload that does not fit holds up those behind it (`StrictFIFO`) or not."""

    namespace_selector: (
        Annotated[LabelSelector, Extra({"x-kubernetes-map-type": "atomic"})] | None
    ) = None
    """Whose workloads are admitted: `{}` for every namespace's, absent for nobody's."""

    preemption: (
        Annotated[
            Preemption,
            defaulted({}),
            rules(
                (
                    (
                        "!has(self.borrowWithinCohort) || self.borrowWithinCohort.policy == 'Never' || "
                        "self.reclaimWithinCohort != 'Never'"
                    ),
                    "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
                )
            ),
        ]
        | None
    ) = None
    """Who is preempted for whom."""

    stop_policy: StopPolicy = "None"
    """`Hold` admits nothing new; `HoldAndDrain` also evicts what is running."""

    fair_sharing: FairSharing | None = None
    """Its part in what the cohort shares."""

    admission_scope: AdmissionScope | None = None
    """How its LocalQueues take turns."""


class ClusterQueueSpec(ClusterQueueSpecBase):
    """Quota, and by which rules it is given away."""

    cohort_name: DnsName | None = None
    """The cohort with which quota is shared. A Cohort object of that name need not exist."""

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

    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """What must be ready before a workload runs."""

    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    """Whether several flavors are tried at a time; cannot be changed."""


class ResourceUsage(ApiModel):
    """Use of one resource in one flavor."""

    name: ResourceName
    """The resource."""

    total: Quantity | None = None
    """All that is used, what is borrowed included."""

    borrowed: Quantity | None = None
    """What of it is borrowed from the cohort."""


class FlavorUsage(ApiModel):
    """Use of one flavor."""

    name: DnsName
    """The flavor."""

    resources: Annotated[list[ResourceUsage], Field(max_length=64), keyed("name")]
    """Use by resource."""


FlavorUsages = Annotated[list[FlavorUsage], Field(max_length=64), keyed("name")]


class ClusterQueueStatus(ApiModel):
    """What the queue holds."""

    conditions: Conditions | None = None
    """`Active` says whether it admits, and why not."""

    flavors_reservation: FlavorUsages | None = None
    """Quota reserved by workloads, whether they run or still wait for checks."""

    flavors_usage: FlavorUsages | None = None
    """Quota used by admitted workloads."""

    pending_workloads: Int32 | None = None
    """Workloads that wait."""

    reserving_workloads: Int32 | None = None
    """Workloads that hold quota."""

    admitted_workloads: Int32 | None = None
    """Workloads that run and have not finished."""

    fair_sharing: FairSharingStatus | None = None
    """Where it stands in its cohort."""


class ClusterQueue(ApiModel):
    """A pool of quota, and who may use it by which rules."""

    metadata: Metadata
    spec: Annotated[ClusterQueueSpec, rules(limits_need("cohortName"))] | None = None
    """What the queue offers."""

    status: ClusterQueueStatus | None = None
    """What it holds; written by Sluicegate."""


class CohortSpec(ApiModel):
    """A node of the tree along which quota is shared."""

    parent_name: DnsName | None = None
    """The cohort above; absent for a root. Members of a circle admit nothing until it is broken."""

    resource_groups: ResourceGroups | None = None
    """Quota that belongs to nobody in particular: members borrow it."""

    fair_sharing: FairSharing | None = None
    """Its part in what its parent shares."""


class CohortStatus(ApiModel):
    """Where the cohort stands."""

    fair_sharing: FairSharingStatus | None = None
    """Where it stands beside its siblings."""


class Cohort(ApiModel):
    """Joins ClusterQueues and other cohorts that lend one another what they do not use."""

    metadata: Metadata
    spec: CohortSpec | None = None
    """Its place in the tree, and its own quota."""

    status: CohortStatus | None = None
    """Written by Sluicegate."""


class LocalQueueSpec(ApiModel):
    """Where the workloads of a namespace wait."""

    cluster_queue: Annotated[DnsName, rules(("self == oldSelf", "field is immutable"))] | None = (
        None
    )
    """The ClusterQueue that admits them; cannot be changed."""

    stop_policy: StopPolicy = "None"
    """`Hold` admits nothing new; `HoldAndDrain` also evicts what is running."""

    fair_sharing: FairSharing | None = None
    """Its part in the ClusterQueue, where LocalQueues take turns by what they used."""


class LocalResourceUsage(ApiModel):
    """Use of one resource by one LocalQueue."""

    name: ResourceName
    """The resource."""

    total: Quantity | None = None
    """How much is used."""


class LocalFlavorUsage(ApiModel):
    """Use of one flavor by one LocalQueue."""

    name: DnsName
    """The flavor."""

    resources: Annotated[list[LocalResourceUsage], Field(max_length=64), keyed("name")]
    """Use by resource."""


class LocalFairSharingStatus(FairSharingStatus):
    """Where the LocalQueue stands."""

    admission_fair_sharing_status: ConsumedStatus | None = None
    """What it used lately."""


class LocalQueueStatusBase(ApiModel):
    """What both versions of a LocalQueue's status say in the same words."""

    conditions: Conditions | None = None
    """`Active` says whether workloads may be admitted through it, and why not."""

    pending_workloads: Int32 | None = None
    """Workloads that wait."""

    reserving_workloads: Int32 | None = None
    """Workloads that hold quota."""

    admitted_workloads: Int32 | None = None
    """Workloads that run and have not finished."""

    flavors_reservation: (
        Annotated[list[LocalFlavorUsage], Field(max_length=64), keyed("name")] | None
    ) = None
    """Quota reserved by its workloads."""

    fair_sharing: LocalFairSharingStatus | None = None
    """What it used lately."""


class LocalQueueStatus(LocalQueueStatusBase):
    """What the queue holds."""

    flavors_usage: Annotated[list[LocalFlavorUsage], Field(max_length=64), keyed("name")] | None = (
        None
    )
    """Quota used by its admitted workloads."""


class LocalQueue(ApiModel):
    """The door of one namespace to a ClusterQueue; jobs name it in a label."""

    metadata: Metadata
    spec: LocalQueueSpec | None = None
    """Where it leads."""

    status: LocalQueueStatus | None = None
    """Written by Sluicegate."""
