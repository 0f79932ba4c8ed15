"""Every metric of Kueue: those that quota publishes, and why it does not publish the others.

Names, kinds and labels are those of kubernetes-sigs/kueue pkg/metrics/metrics.go.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from shared.telemetry.metrics import LEADER, ROLE

WAITS: Final = (1.0, *(2.5 * 2**n for n in range(15)))
"""Buckets in seconds, up to eleven hours."""

ROUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Kueue's buckets and two below them: most cycles are shorter than Kueue's first bucket."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, as it is declared."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = WAITS
    """Of a histogram."""

    def values(self, labels: Sequence[str]) -> tuple[str, ...]:
        """The values of all labels; `labels` leaves out the role."""
        return (*labels, LEADER) if ROLE in self.labels else tuple(labels)


def _metrics(
    kind: Literal["counter", "gauge", "histogram"],
    text: str,
    *,
    role: bool = True,
    buckets: tuple[float, ...] = WAITS,
) -> dict[str, Metric]:
    found = {}
    for line in text.strip().splitlines():
        name, labels, help_ = (part.strip() for part in line.split("|"))
        own = (*labels.split(), *([ROLE] if role else []))
        found[name] = Metric(name, kind, own, help_, buckets)
    return found


OURS: Final[dict[str, Metric]] = {
    **_metrics(
        "counter",
        """
kueue_admission_attempts_total | result | Rounds of deciding that admitted something, or nothing
kueue_quota_reserved_workloads_total | cluster_queue priority_class | Workloads that got quota
kueue_admitted_workloads_total | cluster_queue priority_class | Workloads that were admitted
kueue_finished_workloads_total | cluster_queue priority_class | Workloads that ended
kueue_evicted_workloads_total | cluster_queue reason underlying_cause priority_class | Evictions
kueue_evicted_workloads_once_total | cluster_queue reason underlying_cause priority_class | Each workload once
kueue_preempted_workloads_total | preempting_cluster_queue reason | Preemptions, by whose favour
kueue_cohort_subtree_admitted_workloads_total | cohort priority_class | Admissions in the subtree of a cohort
kueue_local_queue_quota_reserved_workloads_total | name namespace priority_class | Workloads that got quota
kueue_local_queue_admitted_workloads_total | name namespace priority_class | Workloads that were admitted
kueue_local_queue_finished_workloads_total | name namespace priority_class | Workloads that ended
kueue_local_queue_evicted_workloads_total | name namespace reason underlying_cause priority_class | Evictions
""",
    ),
    **_metrics(
        "histogram",
        "kueue_admission_attempt_duration_seconds | result | Length of a round of deciding",
        buckets=ROUNDS,
    ),
    **_metrics(
        "histogram",
        """
kueue_quota_reserved_wait_time_seconds | cluster_queue priority_class | From submission to quota
kueue_admission_wait_time_seconds | cluster_queue priority_class | From submission to admission
kueue_admission_checks_wait_time_seconds | cluster_queue priority_class | From quota to admission
kueue_ready_wait_time_seconds | cluster_queue priority_class | From submission to ready pods
kueue_admitted_until_ready_wait_time_seconds | cluster_queue priority_class | From admission to ready pods
kueue_execution_time_seconds | cluster_queue priority_class | From admission to the end
kueue_pods_ready_to_evicted_time_seconds | cluster_queue reason underlying_cause | Ready pods to eviction
kueue_workload_eviction_latency_seconds | cluster_queue reason | From an eviction to the release of its quota
kueue_local_queue_quota_reserved_wait_time_seconds | name namespace priority_class | From submission to quota
kueue_local_queue_admission_wait_time_seconds | name namespace priority_class | From submission to admission
kueue_local_queue_admission_checks_wait_time_seconds | name namespace priority_class | From quota to admission
kueue_local_queue_ready_wait_time_seconds | name namespace priority_class | From submission to ready pods
kueue_local_queue_admitted_until_ready_wait_time_seconds | name namespace priority_class | Pods' start
kueue_local_queue_execution_time_seconds | name namespace priority_class | From admission to the end
""",
    ),
    **_metrics(
        "gauge",
        """
kueue_pending_workloads | cluster_queue status | Who waits; the inadmissible wait for a change
kueue_pending_scheduling_hashes | cluster_queue status | Kinds of those who wait: equal ones share a verdict
kueue_reserving_active_workloads | cluster_queue | Who has quota
kueue_admitted_active_workloads | cluster_queue | Who is admitted
kueue_finished_workloads | cluster_queue | Ended workloads that are still kept
kueue_unadmitted_workloads | cluster_queue reason underlying_cause | Who is not admitted
kueue_cluster_queue_status | cluster_queue status | 1 for the status that it has
kueue_cluster_queue_info | cluster_queue parent_cohort root_cohort | 1; how it is placed
kueue_cluster_queue_nominal_quota | cohort cluster_queue flavor resource | In units of the resource
kueue_cluster_queue_borrowing_limit | cohort cluster_queue flavor resource | In units of the resource
kueue_cluster_queue_lending_limit | cohort cluster_queue flavor resource | In units of the resource
kueue_cluster_queue_resource_pending | cluster_queue resource | What those who wait ask for
kueue_cluster_queue_resource_reservation | cohort cluster_queue flavor resource | What is reserved
kueue_cluster_queue_resource_usage | cohort cluster_queue flavor resource | What is used by the admitted
kueue_cluster_queue_weighted_share | cluster_queue cohort | Fair share, in thousandths
kueue_cohort_info | cohort parent_cohort root_cohort | 1; how it is placed
kueue_cohort_weighted_share | cohort | Fair share, in thousandths
kueue_cohort_subtree_quota | cohort flavor resource | What the cohort and all below it have
kueue_cohort_subtree_resource_reservations | cohort flavor resource | What is reserved in it
kueue_cohort_subtree_admitted_active_workloads | cohort | Who is admitted in it
kueue_local_queue_pending_workloads | name namespace status | Who waits
kueue_local_queue_reserving_active_workloads | name namespace | Who has quota
kueue_local_queue_admitted_active_workloads | name namespace | Who is admitted
kueue_local_queue_finished_workloads | name namespace | Ended workloads that are still kept
kueue_local_queue_unadmitted_workloads | name namespace cluster_queue reason underlying_cause | Not admitted
kueue_local_queue_status | name namespace active | 1 for the status that it has
kueue_local_queue_resource_reservation | name namespace flavor resource | What is reserved
kueue_local_queue_resource_usage | name namespace flavor resource | What is used by the admitted
kueue_local_queue_admission_fair_sharing_usage | name namespace cluster_queue | Decayed past usage
""",
    ),
    **_metrics(
        "gauge",
        "kueue_build_info | git_version git_commit build_date go_version compiler platform | 1; what runs",
        role=False,
    ),
}

NOT_OURS: Final[dict[str, str]] = {
    "kueue_admission_cycle_preemption_skips": "no cycle skips a preemption: a claim keeps its place",
    "kueue_preemption_target_recomputations_total": "targets are not searched anew within a round",
    "kueue_pod_scheduling_gate_removal_seconds": "the patcher opens gates, which quota does not see",
    "kueue_replaced_workload_slices_total": "no elastic slices: a changed job is requeued",
    "kueue_workload_creation_latency_seconds": "the patcher tells it, which creates them",
    "multikueue_workloads_admitted_total": "the dispatcher tells it",
    "multikueue_workloads_dispatched_total": "the dispatcher tells it",
}
"""Metric to the reason for which the quota service does not publish it."""
