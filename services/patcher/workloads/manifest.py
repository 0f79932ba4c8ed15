"""The Workload object of a job, and patches of its spec, as Kueue makes them. Pure."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from services.patcher.cluster.patches import JsonPatch, if_unchanged, remove_finalizer
from services.patcher.workloads.status import is_being_deactivated
from shared.bus.port import LaterError
from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, OwnerReference, annotations_of, labels_of, spec_of
from shared.contracts.kube.kinds import PRIORITY_CLASS, WORKLOAD, WORKLOAD_PRIORITY_CLASS, Kind
from shared.contracts.messages.workloads import JobRef, WorkloadState
from shared.integrations import Integration
from shared.integrations.groups import group_in
from shared.kube.port import Patch
from shared.telemetry.traceparent import parse_traceparent

_PRIORITY_KINDS: Final = {
    names.WORKLOAD_PRIORITY_SOURCE: WORKLOAD_PRIORITY_CLASS,
    names.POD_PRIORITY_SOURCE: PRIORITY_CLASS,
}
"""`WorkloadState.priority_class_source` to the kind that `spec.priorityClassRef` names."""

_SET_BY_LABEL: Final = ("maximumExecutionTimeSeconds", "priorityClassRef")
"""Fields of the spec that follow labels of the job."""


def name_of(owner: JobRef) -> str:
    """Name of the job's Workload, unless it is a copy of another cluster's job."""
    return names.workload_name(kind=owner.kind, group=owner.group, name=owner.name, uid=owner.uid)


def has_name_of_job(state: WorkloadState) -> bool:
    """True if the uid of its job is in the name. Then it belongs to that job, whatever the object says."""
    return state.owner is not None and state.name == name_of(state.owner)


def workload_object(
    state: WorkloadState,
    job: Body,
    integration: Integration,
    *,
    labels_to_copy: Collection[str] = (),
) -> Body:
    """The Workload to create for `job`. Raises `ValueError` if its pod sets cannot be read.

    `labels_to_copy`: keys of the labels that it gets from the job.
    """
    assert state.owner is not None
    annotations = {
        key: value
        for key, value in annotations_of(job).items()
        if key.startswith(names.PROVISIONING_PREFIX)
    }
    trace = annotations_of(job).get(names.TRACEPARENT_ANNOTATION)
    if trace is not None and parse_traceparent(trace) is not None:
        annotations[names.TRACEPARENT_ANNOTATION] = trace
    if integration.is_group:
        annotations[names.GROUP_WORKLOAD] = "true"
    copied = {key: value for key, value in labels_of(job).items() if key in labels_to_copy}
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {
            "name": state.name,
            "namespace": state.namespace,
            "labels": {**copied, names.JOB_UID_LABEL: state.owner.uid},
            "annotations": annotations,
            "finalizers": [names.RESOURCE_IN_USE],
            "ownerReferences": _owners(state.owner, job, integration),
        },
        "spec": {"active": state.active, **_spec(state, job, integration)},
    }


def belongs_to(obj: Body, state: WorkloadState) -> bool:
    """True if the Workload object is that of this state, not of an earlier workload of that name.

    A foreign Workload has the uid of the state. A job's Workload is controlled by the job of the state.
    """
    if state.owner is None:
        return obj["metadata"]["uid"] == state.uid
    return names.may_be_of(obj, state.uid)


def adoption_patch(workload: Body, state: WorkloadState) -> JsonPatch | None:
    """A patch that makes the job control the Workload that its user wrote; None if it does, or another."""
    metadata = workload["metadata"]
    if state.owner is None or not names.may_be_of(workload, ""):
        return None
    owners = [*(metadata.get("ownerReferences") or []), _controller(state.owner)]
    labels = {**labels_of(workload), names.JOB_UID_LABEL: state.owner.uid}
    kept = metadata.get("finalizers") or []
    finalizers = [*kept, *({names.RESOURCE_IN_USE} - set(kept))]
    return if_unchanged(
        workload,
        {"op": "add", "path": "/metadata/ownerReferences", "value": owners},
        {"op": "add", "path": "/metadata/labels", "value": labels},
        {"op": "add", "path": "/metadata/finalizers", "value": finalizers},
    )


def _owners(owner: JobRef, job: Body, integration: Integration) -> list[OwnerReference]:
    """The job controls its Workload. All objects of a group own theirs, and none controls it, as in Kueue."""
    return list(group_in(job).owners()) if integration.is_group else [_controller(owner)]


def _controller(owner: JobRef) -> OwnerReference:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def job_reference(state: WorkloadState, owner: JobRef) -> tuple[Kind, Any]:
    """Kind and metadata of the job, for events about it."""
    metadata = {"namespace": state.namespace, "name": owner.name, "uid": owner.uid}
    return owner.as_kind(), {"metadata": metadata}


def without_our_finalizer(workload: Body) -> Patch | None:
    """A patch that removes our finalizer; None if it is not there."""
    return remove_finalizer(workload, names.RESOURCE_IN_USE)


def spec_patch(
    workload: Body, state: WorkloadState, job: Body, integration: Integration
) -> dict[str, Any] | None:
    """A merge patch for a Workload without quota whose job changed; None if nothing differs."""
    if state.prebuilt:
        return _merge_patch(workload, {"queueName": state.queue}) if state.queue else None
    wanted = _spec(state, job, integration)
    # Without quota the job counts: a label that was removed removes its field.
    wanted |= {key: None for key in _SET_BY_LABEL if key not in wanted}
    return _merge_patch(workload, wanted)


def priority_patch(workload: Body, state: WorkloadState) -> dict[str, Any] | None:
    """A merge patch for a Workload with quota whose WorkloadPriorityClass changed; None if it did not.

    The API allows no other change of the spec while the Workload holds quota.
    """
    reference = spec_of(workload).get("priorityClassRef") or {}
    if (
        state.priority_class_source != names.WORKLOAD_PRIORITY_SOURCE
        or reference.get("kind") != WORKLOAD_PRIORITY_CLASS.kind
    ):
        return None
    if state.owner is None and reference.get("name") != state.priority_class:
        return (
            None  # Its controller named another class meanwhile, which the state does not know yet.
        )
    return _merge_patch(workload, {"priority": state.priority, **_priority_class_ref(state)})


def _merge_patch(workload: Body, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    spec = spec_of(workload)
    changed = {key: value for key, value in wanted.items() if spec.get(key) != value}
    if not changed:
        return None
    return {"metadata": {"uid": workload["metadata"]["uid"]}, "spec": changed}


def inactive_patch(workload: Body) -> JsonPatch | None:
    """A patch that sets `spec.active` to false; None unless the Workload is still to be deactivated."""
    inactive = spec_of(workload).get("active", True) is False
    if inactive or not is_being_deactivated(workload):
        return None
    return if_unchanged(workload, {"op": "add", "path": "/spec/active", "value": False})


def _spec(state: WorkloadState, job: Body, integration: Integration) -> dict[str, Any]:
    spec: dict[str, Any] = {
        # A job may have no queue yet; the API refuses an empty name.
        **({"queueName": state.queue} if state.queue else {}),
        "priority": state.priority,
        "podSets": _pod_sets(state, job, integration),
        **_priority_class_ref(state),
    }
    if state.max_execution_seconds is not None:
        spec["maximumExecutionTimeSeconds"] = state.max_execution_seconds
    return spec


def _pod_sets(state: WorkloadState, job: Body, integration: Integration) -> list[Any]:
    """The pod sets of the job. Those of a group are as many as the state says: about that quota decides.

    Raises `LaterError` if this replica knows other ones.
    """
    pod_sets = integration.pod_sets(job)
    if not integration.is_group:
        return pod_sets
    counts = {one.name: one.count for one in state.pod_sets}
    if counts.keys() - {one["name"] for one in pod_sets}:
        raise LaterError(
            f"group {state.namespace}/{state.name} was not observed as it is now", delay_seconds=1.0
        )
    return [{**one, "count": counts[one["name"]]} for one in pod_sets if one["name"] in counts]


def _priority_class_ref(state: WorkloadState) -> dict[str, Any]:
    kind = _PRIORITY_KINDS.get(state.priority_class_source)
    if kind is None or not state.priority_class:
        return {}
    return {
        "priorityClassRef": {"group": kind.group, "kind": kind.kind, "name": state.priority_class}
    }
