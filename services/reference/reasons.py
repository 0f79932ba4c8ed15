"""`docs/reference/reasons.md`: what each reason of quota means, and what to do about it."""

import json
from collections.abc import Mapping
from typing import Final

from shared.contracts.reasons import HOPELESS, NEVER, STUCK

_CHECKS: Final = "Read the message of the check in `sluice explain`."

REASONS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "Why a workload waits": {
        "PendingEvaluation": (
            "It was not considered yet, backs off, or stands behind the head of a `StrictFIFO` queue.",
            "`sluice explain` says which: when and why it backs off, or which workload goes first.",
        ),
        "WaitingForQuota": (
            "It fits into the quota, but not beside the workloads that hold it now.",
            "Wait, raise the limit that the message names, or end a workload that holds the quota.",
        ),
        "ExceedsMaxQuota": (
            "It asks for more than its queue could ever have, borrowing included.",
            "Raise the limit that the message names, or request less.",
        ),
        "NoMatchingFlavor": (
            "No flavor of its queue has what it requests on nodes that it selects and tolerates.",
            "Correct its node selector and tolerations, or add the resource to a flavor that fits them.",
        ),
        "WaitingForPreemptedWorkloads": (
            "Other workloads were evicted for it, and their pods still run.",
            "Wait for their grace period; `sluice doctor` names those that do not end.",
        ),
        "WaitingForPodsReady": (
            "Pods of an admitted workload are not ready, and `blockAdmission` is set.",
            "Look at the pods of the workloads that the message names.",
        ),
        "Suspended": (
            "Its LocalQueue or ClusterQueue is stopped or inactive.",
            "Resume the queue, or correct what makes it inactive (below).",
        ),
        "Misconfigured": (
            "It names a missing object, violates a LimitRange, or its queue does not select its namespace.",
            "Correct the object that the message names.",
        ),
        "Deactivated": ("`spec.active` of its Workload is false.", "Set it to true."),
        "OnHold": (
            "Its user paused the job.",
            "Remove the pause, for example `spec.status: PipelineRunPending`.",
        ),
        "AdmissionGated": (
            "The job has admission gates.",
            "The controllers that set the gates remove them.",
        ),
    },
    "Why it does not wait": {
        "Reserved": (
            "It has quota, and waits for its admission checks, for example for a spoke or a machine.",
            "Wait: `sluice explain` tells what the check says. If it stays, ask whoever runs the check.",
        ),
        "Admitted": ("It may run.", ""),
        "Finished": ("It has ended.", ""),
    },
    "Why a workload lost its quota": {
        "Preempted": (
            "Another workload took its quota.",
            "`sluice who-preempted` names the workload and the rule.",
        ),
        "InClusterQueue": ("Preempted by a workload of its own queue with a higher priority.", ""),
        "InCohortReclamation": ("Preempted: its queue had borrowed the quota.", ""),
        "InCohortFairSharing": ("Preempted: its queue's share was larger.", ""),
        "InCohortReclaimWhileBorrowing": (
            "Preempted by a workload of another queue that borrows, too.",
            "",
        ),
        "PodsReadyTimeout": (
            "Its pods were not ready in time, or did not recover in time.",
            "Look at its pods. It is admitted again after a back-off.",
        ),
        "AdmissionCheck": (
            "An admission check said `Retry`.",
            f"{_CHECKS} It is admitted again after a back-off.",
        ),
        "ClusterQueueStopped": ("Its ClusterQueue was stopped.", "Resume the queue."),
        "LocalQueueStopped": ("Its LocalQueue was stopped.", "Resume the queue."),
        "ClusterQueueTerminating": (
            "Its ClusterQueue is being deleted, and it had not started.",
            "Submit it to another queue.",
        ),
        "DeactivatedDueToAdmissionCheck": ("An admission check said `Rejected`.", _CHECKS),
        "DeactivatedDueToRequeuingLimitExceeded": (
            "Its pods were not ready in time, and no retries are left.",
            "Correct its pods, then set `spec.active` to true. Its requeues are then counted from zero.",
        ),
        "DeactivatedDueToMaximumExecutionTimeExceeded": (
            "It was admitted for longer than its label allows.",
            "Raise `kueue.x-k8s.io/max-exec-time-seconds`, then set `spec.active` to true.",
        ),
        "NoMatchingWorkload": (
            "The running job asks for more pods than were admitted.",
            "It is suspended, and waits until all of its pods fit.",
        ),
        "WorkloadDeleted": (
            "Somebody deleted its Workload object.",
            "Nothing: its job gets a new Workload, and waits.",
        ),
        "ReleaseRefused": (
            "The API server refused to start the job.",
            "Correct the job or the policy that refuses it. Then `sluice stop` and `sluice resume` it.",
        ),
    },
    "Why a queue is inactive": {
        "Stopped": ("Its `stopPolicy` says so.", "`sluice resume`."),
        "Terminating": (
            "It is being deleted, and workloads still hold its quota.",
            "Nothing: it is removed when they have ended.",
        ),
        "FlavorNotFound": (
            "It names a ResourceFlavor that does not exist.",
            "Create it, or remove it from the queue.",
        ),
        "AdmissionCheckNotFound": (
            "It names an AdmissionCheck that does not exist.",
            "Create it, or remove it from the queue.",
        ),
        "AdmissionCheckInactive": (
            "No controller serves one of its AdmissionChecks.",
            "Start the check's controller, or correct its parameters.",
        ),
        "MultipleMultiKueueAdmissionChecks": (
            "Two of its AdmissionChecks send work to other clusters.",
            "Keep one, and name all clusters in its MultiKueueConfig.",
        ),
        "MultiKueueAdmissionCheckAppliedPerFlavor": (
            "Its MultiKueue check has `onFlavors`.",
            "Remove it. A flavor's label `sluicegate.dev/spoke` sends its work to one cluster.",
        ),
        "MultiKueueWithProvisioningRequest": (
            "It has a MultiKueue check and a ProvisioningRequest check.",
            "Keep one of them.",
        ),
        "TopologyNotFound": (
            "A flavor has a `topologyName`. Placement by topology is not implemented.",
            "Remove the field from the flavor.",
        ),
        "ConcurrentAdmissionNotSupported": (
            "It has a `concurrentAdmissionPolicy`, which is not implemented.",
            "The field is immutable: delete the queue, and create it without the field.",
        ),
        "Unknown": (
            "Its cohorts form a cycle.",
            "Give one of the cohorts another parent, or none.",
        ),
        "ClusterQueueDoesNotExist": (
            "A LocalQueue names a ClusterQueue that does not exist.",
            "Create it, or name another ClusterQueue.",
        ),
        "ClusterQueueIsInactive": (
            "The ClusterQueue of a LocalQueue is inactive.",
            "Read the condition `Active` of the ClusterQueue.",
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


def reasons_script(generated: str) -> str:
    """The same for the console's page: reason to what it means, and what to do."""
    words = {name: texts for reasons in REASONS.values() for name, texts in reasons.items()}
    lines = [f"  {json.dumps(name)}: {json.dumps(list(texts))}," for name, texts in words.items()]
    sets = (
        f"export const {name} = new Set({json.dumps(sorted(reasons))});"
        for name, reasons in (("HOPELESS", HOPELESS), ("STUCK", STUCK))
    )
    never = f"export const NEVER = {json.dumps(NEVER)};"
    script = [f"// {generated}", "export const REASONS = {", *lines, "};", *sets, never]
    return "\n".join(script) + "\n"
