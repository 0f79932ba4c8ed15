"""The copy of a job on a spoke: how it is made, and which phase it is in."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from shared.contracts.kube.bodies import Body, annotations_of, labels_of
from shared.contracts.kube.conditions import EVICTED, QUOTA_RESERVED, find_condition, is_true
from shared.contracts.kube.kinds import WORKLOAD
from shared.contracts.kube.names import LAST_APPLIED, ORIGIN
from shared.contracts.kube.numbers import whole_number
from shared.contracts.messages.spokes import (
    COPY_FINALIZER,
    LEASE,
    ORDER,
    name_workload,
    prebuilt_workload_of,
)
from shared.integrations import Integration


class CopyPhase(StrEnum):
    """The phase of a copy, as its spoke shows it."""

    ABSENT = "absent"
    WAITING = "waiting"
    RESERVED = "reserved"
    """It has quota there, or runs."""

    FINISHED = "finished"
    EVICTED = "evicted"
    """The spoke took its quota back."""

    TERMINATING = "terminating"


class CopiedJob(NamedTuple):
    """The job of a copy, in the namespace of its workload."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What the hub knows of one copy."""

    workload: str
    """Name of its Workload."""

    number: int
    """Number of the order that it was made for."""

    phase: CopyPhase
    """Without its Workload."""

    job: CopiedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteWorkload:
    """What the Workload of a copy shows on its spoke."""

    reserved: bool
    evicted: str | None
    """Message of the condition `Evicted`; None while that is not true."""

    order: str = ""
    """`order_id` of a Workload that was made before its job; empty if the job carries it."""

    @property
    def phase(self) -> CopyPhase:
        """The phase of the copy, as far as its Workload shows it."""
        if self.evicted is not None:
            return CopyPhase.EVICTED
        return CopyPhase.RESERVED if self.reserved else CopyPhase.WAITING


def order_id(hub: str, number: int) -> str:
    """Value of the annotation `ORDER` of a copy."""
    return f"{hub}/{number}"


def make_copy(
    job: Body,
    *,
    integration: Integration,
    workload: str,
    origin: str,
    order: str,
    lease_seconds: float | None = None,
) -> dict[str, Any]:
    """The object that a spoke creates for the hub's `job`: what the user wrote, and the hub's labels."""
    metadata = job["metadata"]
    labels = {**labels_of(job), ORIGIN: origin}
    annotations = {**annotations_of(job), ORDER: order}
    name_workload(workload, labels=labels, annotations=annotations)
    annotations.pop(LAST_APPLIED, None)
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
    job: Body,
    *,
    integration: Integration,
    workload: str,
    origin: str,
    order: str,
    queue: str,
    priority: int,
) -> dict[str, Any]:
    """The Workload that waits for quota on a spoke with its own Kueue, before the job is created."""
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


def make_copy_reference(
    *,
    api_version: str,
    kind: str,
    namespace: str,
    name: str,
    workload: str,
    origin: str,
    order: str,
) -> dict[str, Any]:
    """The part of a copy that identifies it: enough to find and delete it."""
    labels, annotations = {ORIGIN: origin}, {ORDER: order}
    name_workload(workload, labels=labels, annotations=annotations)
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
        },
    }


def read_copy(obj: Body, integration: Integration, *, hub: str, origin: str) -> Copy | None:
    """Read an object of a spoke as a copy; None if this hub did not order it."""
    workload = prebuilt_workload_of(obj)
    if labels_of(obj).get(ORIGIN) != origin or not workload:
        return None
    of_hub, slash, text = annotations_of(obj).get(ORDER, "").rpartition("/")
    number = whole_number(text)
    if (slash and of_hub != hub) or number is None:
        return None  # Of another hub, or made by another program.
    return Copy(
        workload=workload,
        number=number,
        phase=phase_of(obj, integration),
        job=CopiedJob(integration.kind.api_version, integration.kind.kind, obj["metadata"]["name"]),
    )


def phase_of(copy: Body, integration: Integration) -> CopyPhase:
    """The phase of a copy without its Workload."""
    if integration.finish(copy) is not None:
        return CopyPhase.FINISHED
    if copy["metadata"].get("deletionTimestamp"):
        return CopyPhase.TERMINATING
    return CopyPhase.RESERVED if integration.active(copy) else CopyPhase.WAITING


def read_remote_workload(workload: Body) -> RemoteWorkload:
    """What a Workload of a spoke shows about its quota."""
    evicted = find_condition(workload, EVICTED) if is_true(workload, EVICTED) else None
    return RemoteWorkload(
        reserved=is_true(workload, QUOTA_RESERVED),
        evicted=None if evicted is None else evicted.get("message") or evicted.get("reason") or "",
        order=annotations_of(workload).get(ORDER, ""),
    )
