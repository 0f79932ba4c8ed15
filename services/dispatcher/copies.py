"""The copy of a job that runs elsewhere: how it is made, and what is seen of it."""

from typing import Final

from services.dispatcher.planning import Standing
from shared.contracts.kinds import Object
from shared.integrations import Integration

__all__ = [
    "ORIGIN",
    "PREBUILT_WORKLOAD",
    "has_quota",
    "make_copy",
    "name_of",
    "standing_of",
    "workload_of",
]

PREBUILT_WORKLOAD: Final = "kueue.x-k8s.io/prebuilt-workload-name"
"""Label of a copy: its Workload has the name of the hub's."""

ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
"""Label of a copy: whose it is. Nothing without it is ever touched."""

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def make_copy(job: Object, *, integration: Integration, workload: str, origin: str) -> Object:
    """What a spoke creates from the hub's `job`: what its user wrote, and two labels."""
    metadata = job["metadata"]
    labels = {**(metadata.get("labels") or {}), PREBUILT_WORKLOAD: workload, ORIGIN: origin}
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(_LAST_APPLIED, None)
    return {
        "apiVersion": integration.kind.api_version,
        "kind": integration.kind.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": annotations,
        },
        "spec": integration.carry(job),
    }


def name_of(
    *, api_version: str, kind: str, namespace: str, name: str, workload: str, origin: str
) -> Object:
    """No more of a copy than names it."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {PREBUILT_WORKLOAD: workload, ORIGIN: origin},
        },
    }


def workload_of(obj: Object, *, origin: str) -> str | None:
    """The workload that an object on a spoke is the copy for; None if it is none of ours."""
    labels = obj["metadata"].get("labels") or {}
    return labels.get(PREBUILT_WORKLOAD) if labels.get(ORIGIN) == origin else None


def standing_of(copy: Object, integration: Integration) -> Standing:
    """What a copy shows by itself, without its Workload."""
    if copy["metadata"].get("deletionTimestamp"):
        return Standing.ENDING
    if integration.active(copy) or integration.finish(copy) is not None:
        return Standing.RESERVED
    return Standing.WAITING


def has_quota(workload: Object) -> bool:
    """Whether a Workload on a spoke holds quota there."""
    conditions = (workload.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "QuotaReserved" and c.get("status") == "True" for c in conditions)
