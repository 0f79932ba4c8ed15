"""Controllers of admission checks: `spec.controllerName` of the AdmissionChecks that Sluicegate answers."""

from typing import Final

__all__ = ["MACHINES", "MULTIKUEUE", "OWN_CONTROLLERS", "WINDOW"]

MACHINES: Final = "sluicegate.dev/machines"
"""Answered by the provisioner: a run starts when its machines are ready."""

MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
"""Answered by the dispatcher: a job runs on another cluster. The name is Kueue's."""

WINDOW: Final = "sluicegate.dev/window"
"""Answered by the dispatcher: a job starts only in certain hours."""

OWN_CONTROLLERS: Final = frozenset({MACHINES, MULTIKUEUE, WINDOW})
