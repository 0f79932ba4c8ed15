"""The copy of a job that runs elsewhere: how it is made, and what is seen of it."""

from dataclasses import dataclass
from typing import Any, Final

from services.dispatcher.planning.plan import Standing
from shared.contracts.kube.kinds import WORKLOAD, Object
from shared.contracts.messages.spokes import COPY_FINALIZER, LEASE, ORDER, ORIGIN, PREBUILT_WORKLOAD
from shared.integrations import Integration

__all__ = [
    "ORIGIN",
    "PREBUILT_WORKLOAD",
    "Copy",
    "Remote",
    "copy_of",
    "make_copy",
    "make_workload",
    "name_of",
    "order_text",
    "remote_of",
    "standing_of",
]

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What is seen of one copy."""

    workload: str
    number: int
    """Of the order that it was made for; 0: it does not say."""

    standing: Standing
    uid: str
    job: tuple[str, str, str]
    """apiVersion, kind and name."""

    status: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """What is seen of the Workload of a copy."""

    reserved: bool
    evicted: str | None
    """Why its quota was taken back; None: it was not."""

    order: str = ""
    """That it was made for, as `order_text` has it; empty: it has a job, whose copy says so."""

    @property
    def standing(self) -> Standing:
        """What it says of the copy by itself."""
        if self.evicted is not None:
            return Standing.EVICTED
        return Standing.RESERVED if self.reserved else Standing.WAITING


def order_text(hub: str, number: int) -> str:
    """What the annotation `ORDER` says."""
    return f"{hub}/{number}"


def make_copy(
    job: Object,
    *,
    integration: Integration,
    workload: str,
    origin: str,
    order: str,
    lease_seconds: float | None = None,
) -> Object:
    """What a spoke creates from the hub's `job`: what its user wrote, and whose copy it is."""
    metadata = job["metadata"]
    labels = {**(metadata.get("labels") or {}), PREBUILT_WORKLOAD: workload, ORIGIN: origin}
    annotations = {**(metadata.get("annotations") or {}), ORDER: order}
    annotations.pop(_LAST_APPLIED, None)
    if lease_seconds is not None:
        annotations[LEASE] = f"{lease_seconds:g}"
    return {
        "apiVersion": integration.kind.api_version,
        "kind": integration.kind.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": annotations,
            "finalizers": [COPY_FINALIZER],
        },
        "spec": integration.carry_held(job),
    }


def make_workload(
    job: Object,
    *,
    integration: Integration,
    workload: str,
    origin: str,
    order: str,
    queue: str,
    priority: int,
) -> Object:
    """The Workload that queues on a spoke with a Kueue of its own, before there is a job."""
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {
            "name": workload,
            "namespace": job["metadata"]["namespace"],
            "labels": {ORIGIN: origin},
            "annotations": {ORDER: order},
        },
        "spec": {
            "queueName": queue,
            "priority": priority,
            "podSets": integration.pod_sets(job),
            "active": True,
        },
    }


def name_of(
    *,
    api_version: str,
    kind: str,
    namespace: str,
    name: str,
    workload: str,
    origin: str,
    order: str,
) -> Object:
    """No more of a copy than names it."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {PREBUILT_WORKLOAD: workload, ORIGIN: origin},
            "annotations": {ORDER: order},
        },
    }


def copy_of(obj: Object, integration: Integration, *, hub: str, origin: str) -> Copy | None:
    """What an object on a spoke shows as a copy of ours; None if it is none of ours."""
    metadata = obj["metadata"]
    labels = metadata.get("labels") or {}
    if labels.get(ORIGIN) != origin or not labels.get(PREBUILT_WORKLOAD):
        return None
    of_hub, slash, number = str((metadata.get("annotations") or {}).get(ORDER, "")).rpartition("/")
    if (slash and of_hub != hub) or not (number.isascii() and number.isdigit()):
        return None  # Another hub's, or one that some other program made.
    return Copy(
        workload=str(labels[PREBUILT_WORKLOAD]),
        number=int(number),
        standing=standing_of(obj, integration),
        uid=metadata["uid"],
        job=(integration.kind.api_version, integration.kind.kind, metadata["name"]),
        status=dict(obj.get("status") or {}),
    )


def standing_of(copy: Object, integration: Integration) -> Standing:
    """What a copy shows by itself, without its Workload."""
    if integration.finish(copy) is not None:
        return Standing.FINISHED
    if copy["metadata"].get("deletionTimestamp"):
        return Standing.ENDING
    return Standing.RESERVED if integration.active(copy) else Standing.WAITING


def remote_of(workload: Object) -> Remote:
    """What a Workload on a spoke says about quota there."""
    conditions = (workload.get("status") or {}).get("conditions") or []
    true = {c.get("type"): c for c in conditions if c.get("status") == "True"}
    evicted = true.get("Evicted")
    return Remote(
        reserved="QuotaReserved" in true,
        evicted=None if evicted is None else str(evicted.get("message") or evicted.get("reason")),
        order=str((workload.get("metadata", {}).get("annotations") or {}).get(ORDER, "")),
    )
