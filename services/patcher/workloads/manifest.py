"""The Workload object of a job, as Kueue makes it (`research/kueue.md` 3.1, 3.4). Pure."""

from typing import Any, Final

from services.patcher.workloads.status import is_being_put_out
from shared.contracts.kube import names
from shared.contracts.kube.kinds import WORKLOAD, Object
from shared.contracts.messages.workloads import WorkloadState
from shared.integrations import Integration

__all__ = ["finalizer_patch", "inactive_patch", "spec_patch", "workload_object"]

_WORKLOAD_CLASS: Final = "kueue.x-k8s.io/workloadpriorityclass"
_GROUPS: Final = {
    _WORKLOAD_CLASS: ("kueue.x-k8s.io", "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}
_BY_LABEL: Final = ("maximumExecutionTimeSeconds", "priorityClassRef")


def workload_object(state: WorkloadState, job: Object, integration: Integration) -> Object:
    """The object to create for `job`. Raises ValueError where its pod sets cannot be read."""
    assert state.owner is not None
    metadata = job["metadata"]
    annotations = {}
    if trace := (metadata.get("annotations") or {}).get(names.TRACEPARENT_ANNOTATION):
        annotations[names.TRACEPARENT_ANNOTATION] = trace
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {
            "name": state.name,
            "namespace": state.namespace,
            "labels": {"kueue.x-k8s.io/job-uid": metadata["uid"]},
            "annotations": annotations,
            "finalizers": [names.RESOURCE_IN_USE],
            "ownerReferences": [
                {
                    "apiVersion": state.owner.api_version,
                    "kind": state.owner.kind,
                    "name": state.owner.name,
                    "uid": state.owner.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"active": state.active, **_spec(state, job, integration)},
    }


def spec_patch(
    obj: Object, state: WorkloadState, job: Object, integration: Integration
) -> Object | None:
    """What to change while it waits: the job asks for something else now. None: nothing."""
    wanted, spec = _spec(state, job, integration), obj.get("spec") or {}
    # A label that was taken off takes off what it had said: once there is quota, the Workload counts.
    wanted |= {key: None for key in _BY_LABEL if key not in wanted}
    changed = {key: value for key, value in wanted.items() if spec.get(key) != value}
    if not changed:
        return None
    return {"metadata": {"uid": obj["metadata"]["uid"]}, "spec": changed}


def priority_patch(obj: Object, state: WorkloadState) -> Object | None:
    """What to change while it has quota: one WorkloadPriorityClass for another, or its new value.

    The API allows no more then. None: nothing.
    """
    spec = obj.get("spec") or {}
    group, kind = _GROUPS[_WORKLOAD_CLASS]
    reference = spec.get("priorityClassRef") or {}
    if state.priority_class_source != _WORKLOAD_CLASS or reference.get("kind") != kind:
        return None
    wanted = {
        "priority": state.priority,
        "priorityClassRef": {"group": group, "kind": kind, "name": state.priority_class},
    }
    changed = {key: value for key, value in wanted.items() if spec.get(key) != value}
    if not changed:
        return None
    return {"metadata": {"uid": obj["metadata"]["uid"]}, "spec": changed}


def finalizer_patch(obj: Object) -> list[Object] | None:
    """Take our finalizer off, so that the object can go with its job. None: it is off."""
    finalizers: list[str] = obj["metadata"].get("finalizers") or []
    if names.RESOURCE_IN_USE not in finalizers:
        return None
    left = [name for name in finalizers if name != names.RESOURCE_IN_USE]
    return [
        {"op": "test", "path": "/metadata/uid", "value": obj["metadata"]["uid"]},
        {"op": "test", "path": "/metadata/finalizers", "value": finalizers},
        {"op": "replace", "path": "/metadata/finalizers", "value": left},
    ]


def inactive_patch(obj: Object) -> list[Object] | None:
    """Set `spec.active` to false, if it is still marked for that. None: there is nothing to do."""
    if not is_being_put_out(obj) or (obj.get("spec") or {}).get("active", True) is False:
        return None
    metadata = obj["metadata"]
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "add", "path": "/spec/active", "value": False},
    ]


def _spec(state: WorkloadState, job: Object, integration: Integration) -> dict[str, Any]:
    spec: dict[str, Any] = {
        # A job may wait for somebody to give it a queue: the API takes no empty name.
        **({"queueName": state.queue} if state.queue else {}),
        "priority": state.priority,
        "podSets": integration.pod_sets(job),
    }
    if state.priority_class and state.priority_class_source in _GROUPS:
        group, kind = _GROUPS[state.priority_class_source]
        spec["priorityClassRef"] = {"group": group, "kind": kind, "name": state.priority_class}
    if state.max_execution_seconds is not None:
        spec["maximumExecutionTimeSeconds"] = state.max_execution_seconds
    return spec
