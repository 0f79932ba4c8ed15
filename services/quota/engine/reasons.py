"""Reasons that the engine gives and other services read.

`shared/contracts/reasons.py` has the same under the same names, and says what each means. The engine
imports the standard library only, so it has its own; `tests/unit/quota/engine/test_shared_reasons.py`
compares both.
"""

from typing import Final

PENDING_EVALUATION: Final = "PendingEvaluation"
MISCONFIGURED: Final = "Misconfigured"
SUSPENDED: Final = "Suspended"
ON_HOLD: Final = "OnHold"
EXCEEDS_MAX_QUOTA: Final = "ExceedsMaxQuota"
NO_MATCHING_FLAVOR: Final = "NoMatchingFlavor"
RESERVED: Final = "Reserved"
ADMISSION_CHECK: Final = "AdmissionCheck"
CLUSTER_QUEUE_STOPPED: Final = "ClusterQueueStopped"
LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"
DEACTIVATED: Final = "Deactivated"
DEACTIVATION_PREFIX: Final = "The workload is deactivated due to "
CHECK_REJECTED: Final = "DeactivatedDueToAdmissionCheck"
FINISHED: Final = "Finished"
GONE: Final = "Gone"
QUEUE_STOPPED: Final = "Stopped"
CLUSTER_QUEUE_INACTIVE: Final = "ClusterQueueIsInactive"
TERMINATING: Final = "Terminating"
