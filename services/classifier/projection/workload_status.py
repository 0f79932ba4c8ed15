"""What a Workload object's status says of its life: the memory of last resort, if the log is lost. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from shared.contracts.kube.kinds import Object
from shared.contracts.messages.workloads import PodSet

__all__ = ["condition", "is_true", "pods_ready", "recorded", "reserves", "with_reclaimed"]


def condition(obj: Object, type_: str) -> Object | None:
    """The condition of that type."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c.get("type") == type_), None)


def is_true(obj: Object, type_: str) -> bool:
    """Whether the condition is there and true."""
    found = condition(obj, type_)
    return found is not None and found.get("status") == "True"


def reserves(workload: Object | None) -> bool:
    """Whether it has quota."""
    return workload is not None and is_true(workload, "QuotaReserved")


def recorded(workload: Object | None) -> dict[str, Any]:
    """The fields of a `WorkloadState` that come from the Workload object; only those that say something."""
    if workload is None:
        return {}
    status = workload.get("status") or {}
    fields: dict[str, Any] = {}
    if "deletionTimestamp" in workload["metadata"]:
        fields["deleting"] = workload["metadata"]["uid"]
    evicted = is_true(workload, "Evicted")
    if reserves(workload):
        fields |= {"admission": status.get("admission"), "evicted": evicted}
    if evicted:
        found = condition(workload, "Evicted") or {}
        fields |= {"evicted_at": _since(found), "evicted_reason": str(found.get("reason") or "")}
    if is_true(workload, "Admitted"):
        fields["admitted_at"] = _since(condition(workload, "Admitted") or {})
    requeue = status.get("requeueState") or {}
    if requeue.get("count"):
        fields["requeue_count"] = int(requeue["count"])
    if requeue.get("requeueAt"):
        fields["requeue_at"] = datetime.fromisoformat(requeue["requeueAt"])
    if past := status.get("accumulatedPastExecutionTimeSeconds"):
        fields["executed_seconds"] = int(past)
    if (ready := condition(workload, "PodsReady")) is not None:
        fields["pods_ready_reason"] = str(ready.get("reason") or "")
        fields["pods_ready_at"] = _since(ready)
    if is_true(workload, "DeactivationTarget"):
        fields["deactivating"] = True
    return fields


def pods_ready(workload: Object) -> bool:
    """What somebody else's Workload says of its pods: one that says nothing is not ready yet."""
    return is_true(workload, "PodsReady")


def with_reclaimed(
    pod_sets: list[PodSet],
    by_job: Mapping[str, int],
    workload: Object | None,
    last: list[PodSet],
) -> list[PodSet]:
    """What job and Workload say of finished pods, by pod set: never past the count.

    While the workload has quota it only grows, whatever they say later (`kueue.md` 1.11).
    """
    status = (workload or {}).get("status") or {}
    said = {r["name"]: int(r.get("count", 0)) for r in status.get("reclaimablePods") or []}
    before = {p.name: p.reclaimable for p in last} if reserves(workload) else {}
    reclaimed = []
    for pod_set in pod_sets:
        counts = (counted.get(pod_set.name, 0) for counted in (by_job, said, before))
        reclaimable = min(max(counts), pod_set.count)
        update = {"reclaimable": reclaimable}
        reclaimed.append(pod_set.model_copy(update=update) if reclaimable else pod_set)
    return reclaimed


def _since(found: Object) -> datetime | None:
    at = found.get("lastTransitionTime")
    return datetime.fromisoformat(at) if at else None
