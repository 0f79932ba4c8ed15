"""`docs/reference/reasons.md`: what each reason of quota means, and what to do about it."""

from collections.abc import Mapping
from typing import Final

_CHECKS: Final = "Its owner says more: `sluice explain` shows it."

REASONS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "Why a workload waits": {
        "PendingEvaluation": (
            "It was not weighed yet, backs off, or stands behind the head of a strict queue.",
            "`sluice explain` says which: until when it backs off and because of what, or who must go first.",
        ),
        "WaitingForQuota": (
            "It fits into the quota, but not beside those who hold it now.",
            "Wait, raise the limit that is named, or let somebody end.",
        ),
        "ExceedsMaxQuota": (
            "It asks for more than its queue could ever have, borrowing included.",
            "Raise the limit that is named, or ask for less.",
        ),
        "NoMatchingFlavor": (
            "No flavor of its queue offers what it asks on nodes that it selects and tolerates.",
            "Correct node selector and tolerations, or offer the resource in such a flavor.",
        ),
        "WaitingForPreemptedWorkloads": (
            "Others were evicted for it, and their pods still run.",
            "Wait for their grace period; `sluice doctor` names those that do not end.",
        ),
        "WaitingForPodsReady": (
            "Somebody was admitted whose pods are not ready, and `blockAdmission` lets nobody pass.",
            "Look at the pods of those that are named.",
        ),
        "Suspended": (
            "Its LocalQueue or ClusterQueue admits nobody.",
            "Resume it, or correct what makes it inactive: see below.",
        ),
        "Misconfigured": (
            "It names what is not there, breaks a LimitRange, or its namespace is not selected.",
            "Correct what the message names.",
        ),
        "Deactivated": ("`spec.active` of its Workload is false.", "Set it to true."),
        "OnHold": ("Its user holds the job itself.", "Take the job off hold."),
        "AdmissionGated": (
            "Admission gates of the job are closed.",
            "Their owners remove them.",
        ),
    },
    "Why it does not wait": {
        "Reserved": ("It has quota; its admission checks are not all ready.", _CHECKS),
        "Admitted": ("It may run.", ""),
        "Finished": ("It is over.", ""),
    },
    "Why a workload lost its quota": {
        "Preempted": (
            "Somebody else took its place.",
            "`sluice who-preempted` says who, and by which rule.",
        ),
        "InClusterQueue": ("Preempted by a more important one of its own queue.", ""),
        "InCohortReclamation": ("Preempted: its queue had borrowed it.", ""),
        "InCohortFairSharing": ("Preempted: its queue's share was larger.", ""),
        "InCohortReclaimWhileBorrowing": (
            "Preempted by one of another queue that borrows as well.",
            "",
        ),
        "PodsReadyTimeout": (
            "Its pods were not ready in time, or not again in time.",
            "Look at its pods. It is tried again after a back-off.",
        ),
        "AdmissionCheck": (
            "An admission check said `Retry`.",
            f"{_CHECKS} It is tried again after a while.",
        ),
        "ClusterQueueStopped": ("Its ClusterQueue was stopped.", "Resume the queue."),
        "LocalQueueStopped": ("Its LocalQueue was stopped.", "Resume the queue."),
        "ClusterQueueTerminating": (
            "Its ClusterQueue is being deleted, and it had not started.",
            "Name another queue.",
        ),
        "DeactivatedDueToAdmissionCheck": ("An admission check said `Rejected`.", _CHECKS),
        "DeactivatedDueToRequeuingLimitExceeded": (
            "Its pods were not ready in time, too often.",
            "Mend it, then set `spec.active` to true: its requeues are counted from zero again.",
        ),
        "DeactivatedDueToMaximumExecutionTimeExceeded": (
            "It was admitted for longer than its label allows.",
            "Raise `kueue.x-k8s.io/max-exec-time-seconds`, then set `spec.active` to true.",
        ),
        "NoMatchingWorkload": (
            "The running job asks for more pods than were admitted.",
            "It waits for all of them.",
        ),
        "WorkloadDeleted": (
            "Somebody deleted its Workload object.",
            "Nothing: its job has another one, and waits.",
        ),
        "ReleaseRefused": (
            "The cluster would not let the job run.",
            "Correct the job; or what refuses it, then `sluice stop` and `sluice resume` its Workload.",
        ),
    },
    "Why a queue is inactive": {
        "Stopped": ("Its `stopPolicy` says so.", "`sluice resume`."),
        "Terminating": (
            "It is being deleted, and workloads hold its quota.",
            "Nothing: it goes when they have ended.",
        ),
        "FlavorNotFound": (
            "It names a ResourceFlavor that is not there.",
            "Create it, or take it out of the queue.",
        ),
        "AdmissionCheckNotFound": (
            "It names an AdmissionCheck that is not there.",
            "Create it, or take it out of the queue.",
        ),
        "AdmissionCheckInactive": (
            "Nobody answers one of its AdmissionChecks.",
            "Start the check's controller, or correct its parameters.",
        ),
        "MultipleMultiKueueAdmissionChecks": (
            "Two of its AdmissionChecks send work to other clusters.",
            "Leave one; name all clusters in its MultiKueueConfig.",
        ),
        "MultiKueueAdmissionCheckAppliedPerFlavor": (
            "Its MultiKueue check has `onFlavors`.",
            "Take them off; a flavor's label `sluicegate.dev/spoke` demands a cluster.",
        ),
        "MultiKueueWithProvisioningRequest": (
            "It has a MultiKueue check and one for ProvisioningRequests.",
            "Leave one of them.",
        ),
        "TopologyNotFound": (
            "A flavor has a `topologyName`; placement by topology is not offered.",
            "Take it out of the flavor.",
        ),
        "ConcurrentAdmissionNotSupported": (
            "It has a `concurrentAdmissionPolicy`; trying several flavors at a time is not offered.",
            "Make it anew without the policy, which cannot be changed.",
        ),
        "Unknown": ("Its cohorts form a circle.", "Give one of them another parent, or none."),
        "ClusterQueueDoesNotExist": (
            "A LocalQueue names a ClusterQueue that is not there.",
            "Create it, or name another.",
        ),
        "ClusterQueueIsInactive": (
            "The ClusterQueue of a LocalQueue is inactive.",
            "Look at the ClusterQueue.",
        ),
    },
}
"""By heading, each reason with its meaning and what to do."""

_INTRODUCTION: Final = """\
Reasons are Kueue's where it has one. `kubectl describe workload` shows them in the conditions
`QuotaReserved`, `Evicted` and `Preempted`; `sluice explain` adds the resource and flavor that are short,
whose limit that is, who holds it, who is ahead, and what would help.
"""


def reasons_page(generated: str) -> str:
    """The page. `generated` says how it is made."""
    lines = ["# Reasons", "", generated, "", _INTRODUCTION]
    for heading, reasons in REASONS.items():
        lines += [f"## {heading}", "", "| reason | meaning | what to do |", "|---|---|---|"]
        lines += [f"| `{name}` | {means} | {do} |" for name, (means, do) in reasons.items()]
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"
