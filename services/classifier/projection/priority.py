"""Finds a workload's priority and the class or annotation that it comes from. Pure.

The sources, in order: the WorkloadPriorityClass in the job's label, the pods' PriorityClass, the
LocalQueue's annotation `kueue.x-k8s.io/default-priority`, the cluster's default PriorityClass, 0. All but
the annotation are Kueue's. The annotation is our extension, and stock Kueue ignores it.
"""

from dataclasses import dataclass
from typing import Final

from services.classifier.projection.cluster_objects import ClusterObjects
from services.classifier.projection.pods.pod_templates import pod_spec_of
from services.classifier.projection.workload_status import has_quota
from shared.contracts.kube.bodies import Body, annotations_of, labels_of, spec_of
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import (
    DEFAULT_PRIORITY,
    ORIGIN,
    POD_PRIORITY_SOURCE,
    PRIORITY_CLASS_LABEL,
    PRIORITY_CLASS_SOURCES,
    WORKLOAD_PRIORITY_SOURCE,
)
from shared.contracts.kube.numbers import INT32_MAX, SHORT_INTEGER
from shared.contracts.messages.workloads import WorkloadState

_SOURCES: Final = {class_: source for source, class_ in PRIORITY_CLASS_SOURCES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A priority and its source."""

    value: int = 0
    name: str | None = None
    """Of the class; None if the priority comes from no class."""

    source: str = ""
    missing: str | None = None
    """Names the class or annotation that cannot be resolved; the workload then waits with this reason."""


def job_priority(
    job: Body,
    pod_sets: list[Object],
    named_class: str,
    queue: str,
    workload: Body | None,
    cluster_objects: ClusterObjects,
    last: WorkloadState | None = None,
) -> Priority:
    """Return the priority of a job. `workload`: its Workload object, if it exists; `last`: its state before.

    `named_class`: the PriorityClass that the job names outside of its pod templates; it goes first.

    While quota is reserved, the priority changes only if it comes from a WorkloadPriorityClass: that may
    be replaced by another, and its value may change, as the API allows. A deleted class leaves the
    priority as it was. What it was, the state before tells; of one that somebody else admitted, the Workload.
    """
    metadata = job["metadata"]
    recorded = _recorded(workload)
    before = last if last is not None and last.uid == metadata["uid"] else None
    if recorded is not None and before is not None and _says_the_priority(before, workload):
        recorded = _of_state(before)
    label = labels_of(job).get(PRIORITY_CLASS_LABEL, "")
    if recorded is not None and has_quota(workload):
        may_change = recorded.source == WORKLOAD_PRIORITY_SOURCE and label
        if not may_change:
            return recorded
    if label:
        found = cluster_objects.workload_priority_class(label)
        if found is not None:
            return _of_class(found, WORKLOAD_PRIORITY_SOURCE)
        copied = ORIGIN in labels_of(workload)
        is_known = copied or before is None or not _lacked_its_priority(before)
        if recorded is not None and (has_quota(workload) or (recorded.name == label and is_known)):
            return recorded
        return Priority(name=label, missing=_not_found("WorkloadPriorityClass", label))
    named = (pod_spec_of(pod_set).get("priorityClassName") for pod_set in pod_sets)
    pod_class = named_class or next((str(name) for name in named if name), "")
    if pod_class:
        found = cluster_objects.priority_class(pod_class)
        if found is None:
            return Priority(name=pod_class, missing=_not_found("PriorityClass", pod_class))
        return _of_class(found, POD_PRIORITY_SOURCE)
    return _of_queue(metadata["namespace"], queue, cluster_objects) or _of_cluster(cluster_objects)


def external_priority(workload: Body, cluster_objects: ClusterObjects) -> Priority:
    """Return the priority of an external Workload: the one in its spec, else its queue's default.

    The value of a WorkloadPriorityClass that its spec names goes before the number beside it, as Kueue
    keeps it (kubernetes-sigs/kueue pkg/controller/core/workloadpriorityclass_controller.go). A deleted
    class leaves the number as it was. So does a copy from a hub with stock Kueue: the hub writes the number.
    """
    recorded = _recorded(workload)
    if recorded is not None:
        is_copy = ORIGIN in labels_of(workload)
        if recorded.source == WORKLOAD_PRIORITY_SOURCE and recorded.name and not is_copy:
            found = cluster_objects.workload_priority_class(recorded.name)
            if found is not None:
                return _of_class(found, WORKLOAD_PRIORITY_SOURCE)
        return recorded
    queue = str(spec_of(workload).get("queueName") or "")
    return _of_queue(workload["metadata"]["namespace"], queue, cluster_objects) or Priority()


def _annotated_priority(queue: Body | None) -> int | None:
    """Return the priority in a LocalQueue's annotation; None without one. Raises `ValueError`."""
    text = annotations_of(queue).get(DEFAULT_PRIORITY)
    if text is None:
        return None
    value = int(text) if SHORT_INTEGER.fullmatch(text) else INT32_MAX + 1
    if not -INT32_MAX - 1 <= value <= INT32_MAX:
        raise ValueError(f"annotation {DEFAULT_PRIORITY}: {text!r} is no 32-bit integer")
    return value


def _of_queue(namespace: str, queue: str, cluster_objects: ClusterObjects) -> Priority | None:
    try:
        value = _annotated_priority(cluster_objects.local_queue(namespace, queue))
    except ValueError as error:
        return Priority(missing=f"LocalQueue {queue}: {error}")
    return None if value is None else Priority(value=value)


def _of_cluster(cluster_objects: ClusterObjects) -> Priority:
    default = cluster_objects.global_default_priority_class()
    return Priority() if default is None else _of_class(default, POD_PRIORITY_SOURCE)


def _of_class(found: Body, source: str) -> Priority:
    return Priority(value=int(found.get("value", 0)), name=found["metadata"]["name"], source=source)


def _not_found(kind: str, name: str) -> str:
    return f'{kind} "{name}" not found'


def _lacked_its_priority(state: WorkloadState) -> bool:
    """Whether the state says nothing of a priority, because its class was not there."""
    kinds = ("WorkloadPriorityClass", "PriorityClass")
    return state.unresolved in [_not_found(kind, state.priority_class or "") for kind in kinds]


def _says_the_priority(state: WorkloadState, workload: Body | None) -> bool:
    """Whether the state before goes before what is written into the Workload.

    Not that of what ran before its Workload was seen, nor where the class came and went meanwhile. Into what
    MultiKueue placed here its hub writes the number, also where the class is not.
    """
    if ORIGIN in labels_of(workload):
        return False
    return state.admission is not None or (state.held and not _lacked_its_priority(state))


def _of_state(state: WorkloadState) -> Priority:
    return Priority(
        value=state.priority, name=state.priority_class, source=state.priority_class_source
    )


def _recorded(workload: Body | None) -> Priority | None:
    """Return the priority in the Workload object's spec; None without one."""
    spec = spec_of(workload)
    if spec.get("priority") is None:
        return None
    reference = spec.get("priorityClassRef") or {}
    source = _SOURCES.get((str(reference.get("group")), str(reference.get("kind"))), "")
    return Priority(value=int(spec["priority"]), name=reference.get("name") or None, source=source)
