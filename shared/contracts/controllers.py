"""Controllers of admission checks: `spec.controllerName` of the AdmissionChecks that Sluicegate answers."""

from collections.abc import Mapping
from typing import Final, Literal

MACHINES: Final = "sluicegate.dev/machines"
"""Answered by the provisioner: a run starts when its machines are ready."""

MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
"""Answered by the dispatcher: a job runs on another cluster. The name is Kueue's.

Also `spec.managedBy` of a job that runs elsewhere, or the field that its kind has for it: its own controller
ignores it here.
"""

MULTIKUEUE_DISPATCHER_PREFIX: Final = "kueue.x-k8s.io/multikueue-dispatcher-"
"""Before `all-at-once` and `incremental` in `multiKueue.dispatcherName` of Kueue's Configuration."""

PROVISIONING: Final = "kueue.x-k8s.io/provisioning-request"
"""Answered by the patcher: a job starts when the autoscaler has provisioned for it. The name is Kueue's.

It is none of `OWN_CONTROLLERS`: the patcher answers in the Workload's status, as controllers of others do.
"""

WINDOW: Final = "sluicegate.dev/window"
"""Answered by the dispatcher: a job starts only in certain hours."""

CheckService = Literal["dispatcher", "provisioner"]
"""A service that answers admission checks on the bus."""

CheckStatus = Literal["Pending", "Ready", "Retry", "Rejected"]
"""What an admission check says, in Kueue's words. The engine, which imports nothing, repeats it."""

ANSWERED_BY: Final[Mapping[str, CheckService]] = {
    MACHINES: "provisioner",
    MULTIKUEUE: "dispatcher",
    WINDOW: "dispatcher",
}
"""Controller to the service that answers its checks. The service stands in the subject of the answer, so
that its user of NATS can publish no other one."""

OWN_CONTROLLERS: Final = frozenset(ANSWERED_BY)


def may_answer(controller: str, service: str) -> bool:
    """Whether a service answers the checks of a controller on the bus.

    Empty: an earlier release wrote the answer. Its subject did not say which service did, and nobody may
    publish to it any more.
    """
    return controller in ANSWERED_BY and service in {"", ANSWERED_BY[controller]}
