"""Controllers of admission checks: `spec.controllerName` of the AdmissionChecks that Sluicegate answers."""

from typing import Final

MACHINES: Final = "sluicegate.dev/machines"
"""Answered by the provisioner: a run starts when its machines are ready."""

MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
"""Answered by the dispatcher: a job runs on another cluster. The name is Kueue's."""

MULTIKUEUE_DISPATCHER_PREFIX: Final = "kueue.x-k8s.io/multikueue-dispatcher-"
"""Before `all-at-once` and `incremental` in `multiKueue.dispatcherName` of Kueue's Configuration."""

PROVISIONING: Final = "kueue.x-k8s.io/provisioning-request"
"""Answered by the patcher: a job starts when the autoscaler has provisioned for it. The name is Kueue's.

It is none of `OWN_CONTROLLERS`: the patcher answers in the Workload's status, as controllers of others do.
"""

WINDOW: Final = "sluicegate.dev/window"
"""Answered by the dispatcher: a job starts only in certain hours."""

OWN_CONTROLLERS: Final = frozenset({MACHINES, MULTIKUEUE, WINDOW})
