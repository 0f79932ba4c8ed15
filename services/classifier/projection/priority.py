"""Who goes first: which class or annotation a workload's priority comes from. Pure.

In this order: the label of a WorkloadPriorityClass, the pods' PriorityClass, the LocalQueue's
annotation `kueue.x-k8s.io/default-priority`, the cluster's default PriorityClass, 0. All but the
annotation is Kueue's (`research/kueue.md` 3.6). The annotation is an extension of ours: Kueue has
none, whatever the proposal for Kelos says; stock Kueue takes no notice of it.
"""

import re
from dataclasses import dataclass
from typing import Final

from services.classifier.projection.cluster_objects import Surroundings
from services.classifier.projection.pod_templates import spec_of
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import DEFAULT_PRIORITY, PRIORITY_CLASS_LABEL

__all__ = ["Priority", "default_priority", "foreign_priority", "job_priority"]

WORKLOAD_PRIORITY_CLASS: Final = "kueue.x-k8s.io/workloadpriorityclass"
POD_PRIORITY_CLASS: Final = "scheduling.k8s.io/priorityclass"

_SOURCES: Final = {
    ("kueue.x-k8s.io", "WorkloadPriorityClass"): WORKLOAD_PRIORITY_CLASS,
    ("scheduling.k8s.io", "PriorityClass"): POD_PRIORITY_CLASS,
}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_INT32: Final = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """What decides who goes first, and where it came from."""

    value: int = 0
    name: str | None = None
    source: str = ""
    missing: str | None = None
    """What was asked for and cannot be had, in words: nobody knows its place in the queue."""


def job_priority(
    job: Object,
    pod_sets: list[Object],
    *,
    queue: str,
    workload: Object | None,
    around: Surroundings,
) -> Priority:
    """The priority of a job. `workload` is its Workload object, once there is one.

    While that has quota, only one WorkloadPriorityClass may take the place of another, or change
    its value, as the API allows it; a class that was deleted leaves the priority as it was.
    """
    metadata = job["metadata"]
    recorded = _recorded(workload)
    wanted = str((metadata.get("labels") or {}).get(PRIORITY_CLASS_LABEL) or "")
    if recorded is not None and _reserves(workload):
        follows = recorded.source == WORKLOAD_PRIORITY_CLASS and wanted
        if not follows:
            return recorded
    if wanted:
        found = around.workload_priority_class(wanted)
        if found is not None:
            return _of_class(found, WORKLOAD_PRIORITY_CLASS)
        if recorded is not None and (recorded.name == wanted or _reserves(workload)):
            return recorded
        return Priority(name=wanted, missing=f'WorkloadPriorityClass "{wanted}" not found')
    named = (spec_of(pod_set).get("priorityClassName") for pod_set in pod_sets)
    pod_class = next((str(name) for name in named if name), "")
    if pod_class:
        found = around.priority_class(pod_class)
        if found is None:
            return Priority(name=pod_class, missing=f'PriorityClass "{pod_class}" not found')
        return _of_class(found, POD_PRIORITY_CLASS)
    return _of_queue(metadata["namespace"], queue, around) or _of_cluster(around)


def foreign_priority(workload: Object, around: Surroundings) -> Priority:
    """The priority of a Workload that somebody else created: what it says, else its queue's."""
    recorded = _recorded(workload)
    if recorded is not None:
        return recorded
    queue = str((workload.get("spec") or {}).get("queueName") or "")
    return _of_queue(workload["metadata"]["namespace"], queue, around) or Priority()


def default_priority(queue: Object | None) -> int | None:
    """What a LocalQueue's annotation says; None if it has none. Raises ValueError."""
    annotations = ((queue or {}).get("metadata") or {}).get("annotations") or {}
    text = annotations.get(DEFAULT_PRIORITY)
    if text is None:
        return None
    value = int(text) if _INTEGER.fullmatch(text) else _INT32
    if not -_INT32 <= value < _INT32:
        raise ValueError(f"annotation {DEFAULT_PRIORITY}: {text!r} is no 32-bit integer")
    return value


def _of_queue(namespace: str, queue: str, around: Surroundings) -> Priority | None:
    try:
        value = default_priority(around.local_queue(namespace, queue))
    except ValueError as error:
        return Priority(missing=f"LocalQueue {queue}: {error}")
    return None if value is None else Priority(value=value)


def _of_cluster(around: Surroundings) -> Priority:
    default = around.default_priority_class()
    return Priority() if default is None else _of_class(default, POD_PRIORITY_CLASS)


def _of_class(found: Object, source: str) -> Priority:
    return Priority(value=int(found.get("value", 0)), name=found["metadata"]["name"], source=source)


def _recorded(workload: Object | None) -> Priority | None:
    """What the Workload object has on record; None where it says nothing."""
    spec = (workload or {}).get("spec") or {}
    if spec.get("priority") is None:
        return None
    reference = spec.get("priorityClassRef") or {}
    source = _SOURCES.get((str(reference.get("group")), str(reference.get("kind"))), "")
    return Priority(value=int(spec["priority"]), name=reference.get("name") or None, source=source)


def _reserves(workload: Object | None) -> bool:
    conditions = ((workload or {}).get("status") or {}).get("conditions") or []
    return any(c.get("type") == "QuotaReserved" and c.get("status") == "True" for c in conditions)
