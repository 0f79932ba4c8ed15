"""Reasons that one service writes and another one reads, and the status words that users see."""

from enum import Enum
from typing import Final, Literal

from shared.contracts.kube.conditions import ADMITTED, FINISHED

# --- why a workload waits ---

PENDING_EVALUATION: Final = "PendingEvaluation"
"""It was not considered yet, backs off, or stands behind the head of its queue; or nobody said why."""

MISCONFIGURED: Final = "Misconfigured"
SUSPENDED: Final = "Suspended"
"""Its LocalQueue or ClusterQueue is stopped or inactive."""

ON_HOLD: Final = "OnHold"
"""Its user paused the job."""

EXCEEDS_MAX_QUOTA: Final = "ExceedsMaxQuota"
NO_MATCHING_FLAVOR: Final = "NoMatchingFlavor"

UNSATISFIED_CHECKS: Final = "UnsatisfiedAdmissionChecks"
"""Reason of `Admitted` being false: it has quota, and waits for its admission checks. Kueue's."""

RESERVED: Final = "Reserved"
"""Not a reason of Kueue's: it has quota, and waits for its admission checks."""

# --- why a workload lost its quota ---

PODS_READY_TIMEOUT: Final = "PodsReadyTimeout"
"""Reason of an eviction: its pods were not ready, or did not recover, in time. Kueue's."""

ADMISSION_CHECK: Final = "AdmissionCheck"
"""Reason of an eviction: an admission check said `Retry`. Kueue's. As cause of a deactivation: `Rejected`."""

CLUSTER_QUEUE_STOPPED: Final = "ClusterQueueStopped"
LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"
"""Reasons of an eviction: the `stopPolicy` of its queue. Kueue's."""

MAXIMUM_EXECUTION_TIME_EXCEEDED: Final = "MaximumExecutionTimeExceeded"
REQUEUING_LIMIT_EXCEEDED: Final = "RequeuingLimitExceeded"
"""Causes of a deactivation, behind `DEACTIVATED_DUE_TO`; Kueue's."""

DEACTIVATED: Final = "Deactivated"
"""Prefix of eviction reasons that forbid a restart; Kueue's."""

DEACTIVATED_DUE_TO: Final = f"{DEACTIVATED}DueTo"
"""Prefix of eviction reasons of a workload that the scheduler deactivated; the cause follows. Kueue's."""

DEACTIVATION_PREFIX: Final = "The workload is deactivated due to "
"""Begin of the message of such an eviction; the text of the cause follows. Kueue's."""

CHECK_REJECTED: Final = f"{DEACTIVATED_DUE_TO}{ADMISSION_CHECK}"
"""Reason of an eviction: an admission check said `Rejected`. Kueue's."""

NOT_ADMITTED: Final = "NotAdmitted"
"""Reason of an eviction: the job ran without admission. Kueue's `StopReasonNotAdmitted`. A job that
cannot be suspended is cancelled."""

NOT_ADMITTED_HELD: Final = "NotAdmittedHeld"
"""As above, but a job that cannot be suspended is cancelled and a copy waits in its place."""

WORKLOAD_DELETED: Final = "WorkloadDeleted"
"""Reason of an eviction: somebody deletes the job's Workload object. Kueue's `StopReasonWorkloadDeleted`."""

NO_MATCHING_WORKLOAD: Final = "NoMatchingWorkload"
"""Reason of an eviction: the job asks for more than its Workload. Kueue's `StopReasonNoMatchingWorkload`."""

RELEASE_REFUSED: Final = "ReleaseRefused"
"""The API server refuses the release of a job. The job waits with this reason; its event has it too."""

CHECK_RESET: Final = "Reset to Pending after eviction. Previously: "
"""Begin of the message of an admission check that lost its answer with the quota; Kueue's."""

GONE: Final = "Gone"
"""Reason of a release: the workload was deleted."""

ENDED: Final = frozenset({FINISHED, GONE})
"""Reasons of a release after which the workload does not queue again."""

# --- why a queue admits nobody ---

QUEUE_STOPPED: Final = "Stopped"
"""Reason of the condition `Active` of a queue whose `stopPolicy` says so; Kueue's."""

CLUSTER_QUEUE_INACTIVE: Final = "ClusterQueueIsInactive"
"""Reason of the condition `Active` of a LocalQueue whose ClusterQueue is inactive; Kueue's."""

TERMINATING: Final = "Terminating"
"""Reason of the condition `Active` of a ClusterQueue that is being deleted; Kueue's. It admits nobody."""

# --- the words that users see ---

WorkloadStatus = Literal["PENDING", "QUOTARESERVED", "ADMITTED", "EVICTED", "FINISHED"]
"""A workload's status in kueuectl's words. `EVICTED`: it holds quota until its pods are gone."""

STATUS_BY_DECISION: Final[dict[str, WorkloadStatus]] = {
    "admitted": "ADMITTED",
    "reserved": "QUOTARESERVED",
    "evicted": "EVICTED",
}
"""State of an `Admission` that holds quota to the status of its workload."""

STATUS_WITH_QUOTA: Final = frozenset(STATUS_BY_DECISION.values())


def workload_status(phase: str, decision: str | None) -> WorkloadStatus:
    """The status from `WorkloadState.phase` and the state of the `Admission`, if there is one."""
    return "FINISHED" if phase == "finished" else STATUS_BY_DECISION.get(decision or "", "PENDING")


NOT_WAITING: Final = frozenset({ADMITTED, FINISHED})
"""Reasons in an `Explanation` of a workload that has started, or ended."""

TOO_LARGE: Final = frozenset({EXCEEDS_MAX_QUOTA, NO_MATCHING_FLAVOR})
"""Waiting reasons of a workload for which its queue has no quota at all, or never enough."""

HOPELESS: Final = TOO_LARGE | {MISCONFIGURED}
"""Waiting reasons that only a change of the job or of the configuration ends."""

STUCK: Final = HOPELESS | {DEACTIVATED, SUSPENDED}
"""Waiting reasons that do not end by themselves."""

NOT_FOR_QUOTA: Final = frozenset({MISCONFIGURED, DEACTIVATED, SUSPENDED, ON_HOLD})
"""Waiting reasons of a workload that more quota would not let start."""

NEVER: Final = "never, unless that is put right"
"""When a workload starts that waits for such a reason."""


class RefusalRule(Enum):
    """The rules of one place that refuses: a subclass, whose docstring says what is refused there.

    Name, text and remedy of a rule stand once, in the code that refuses. `docs/reference/refusals.md` is
    generated from the subclasses.
    """

    def __init__(self, label: str, text: str, remedy: str) -> None:
        """`label`: value in metrics. `text`: what the refused party reads. `remedy`: what to do."""
        self.label = label
        self.text = text
        self.remedy = remedy

    @property
    def series(self) -> str:
        """The time series in which a refusal is counted; empty if its caller says where."""
        return ""

    def says(self, **values: object) -> str:
        """Return the text with these values, among which are all that it names."""
        return self.text.format(**values)
