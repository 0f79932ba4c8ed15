"""What a user can do about a workload or a queue that waits for a person."""

from typing import Final

from services.quota.engine.reasons import (
    CLUSTER_QUEUE_INACTIVE,
    DEACTIVATED,
    ON_HOLD,
    PENDING_EVALUATION,
    QUEUE_STOPPED,
    SUSPENDED,
    TERMINATING,
)

CORRECT_WHAT_IT_NAMES: Final = "correct what the message names"

REJECTION_REMEDIES: Final = {
    DEACTIVATED: "set spec.active to true",
    ON_HOLD: "take the job off hold",
    "AdmissionGated": "let the gates' owners remove them",
    SUSPENDED: "resume the LocalQueue",
    PENDING_EVALUATION: "",
}
"""By reason, for workloads that may not enter a ClusterQueue."""

_INACTIVE_REMEDIES: Final = {
    QUEUE_STOPPED: "resume the ClusterQueue",
    TERMINATING: "name another queue: this one is being deleted",
    "FlavorNotFound": "create the ResourceFlavor, or take it out of the ClusterQueue",
    "AdmissionCheckNotFound": "create the AdmissionCheck, or take it out of the ClusterQueue",
    "AdmissionCheckInactive": "start the check's controller, or correct its parameters",
    "MultipleMultiKueueAdmissionChecks": "leave one MultiKueue check in the ClusterQueue",
    "MultiKueueAdmissionCheckAppliedPerFlavor": "take onFlavors off the MultiKueue check",
    "MultiKueueWithProvisioningRequest": "leave one of the two checks in the ClusterQueue",
    "TopologyNotFound": "take topologyName out of the ResourceFlavor",
    "ConcurrentAdmissionNotSupported": "make the ClusterQueue anew without the policy",
    "Unknown": "give one Cohort of the cycle another spec.parentName, or none",
    "ClusterQueueDoesNotExist": "create its ClusterQueue, or name one that exists",
    CLUSTER_QUEUE_INACTIVE: "correct its ClusterQueue, or name another one",
}
"""By the reason why a ClusterQueue or LocalQueue is inactive."""


def remedy_of_inactive(reason: str) -> str:
    """What makes an inactive ClusterQueue or LocalQueue active again."""
    return _INACTIVE_REMEDIES.get(reason, CORRECT_WHAT_IT_NAMES)
