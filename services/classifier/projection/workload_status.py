"""Reads a Workload object's status: the only memory of a workload's past if the log is lost. Pure."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from shared.contracts.kube.bodies import Body, status_of
from shared.contracts.kube.conditions import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    FINISHED,
    PODS_READY,
    QUOTA_RESERVED,
    REQUEUED,
    find_condition,
    has_status,
    is_true,
    message_of,
    reason_of,
    transition_time,
)
from shared.contracts.kube.numbers import INT32_MAX
from shared.contracts.messages.workloads import Finish, PodSet, RecordedCheck


def has_quota(workload: Body | None) -> bool:
    """Return whether quota is reserved for the workload."""
    return is_true(workload, QUOTA_RESERVED)


def finish_on_record(workload: Body | None) -> Finish | None:
    """Return how the workload has ended; None if it has not."""
    if not is_true(workload, FINISHED):
        return None
    condition = find_condition(workload, FINISHED)
    return Finish(
        success=reason_of(condition) != "Failed",
        message=message_of(condition),
        at=transition_time(condition),
    )


def status_fields(workload: Body | None, is_foreign_check: Callable[[str], bool]) -> dict[str, Any]:
    """Return the fields of `WorkloadState` that the Workload object sets, without absent ones."""
    if workload is None:
        return {}
    status = status_of(workload)
    fields: dict[str, Any] = {}
    if "deletionTimestamp" in workload["metadata"]:
        fields["deleting"] = workload["metadata"]["uid"]
    evicted = is_true(workload, EVICTED)
    if has_quota(workload):
        fields |= {"admission": status.get("admission"), "evicted": evicted}
        if evicted and has_status(workload, REQUEUED, "False"):
            fields["requeue_awaited"] = True
        listed = status.get("admissionChecks") or []
        if checks := [_recorded_check(each) for each in listed if is_foreign_check(each["name"])]:
            fields["checks"] = checks
    if evicted:
        condition = find_condition(workload, EVICTED)
        fields |= {
            "evicted_at": transition_time(condition),
            "evicted_reason": reason_of(condition),
        }
    if is_true(workload, ADMITTED):
        fields["admitted_at"] = transition_time(find_condition(workload, ADMITTED))
    requeue = status.get("requeueState") or {}
    if requeue.get("count"):
        fields["requeue_count"] = _in_32_bits(requeue["count"])
    if requeue.get("requeueAt"):
        fields["requeue_at"] = datetime.fromisoformat(requeue["requeueAt"])
    if executed_seconds := status.get("accumulatedPastExecutionTimeSeconds"):
        fields["executed_seconds"] = _in_32_bits(executed_seconds)
    if (ready := find_condition(workload, PODS_READY)) is not None:
        fields |= {"pods_ready_reason": reason_of(ready), "pods_ready_at": transition_time(ready)}
    if is_true(workload, DEACTIVATION_TARGET):
        fields["deactivating"] = True
    return fields


def _recorded_check(listed: Mapping[str, Any]) -> RecordedCheck:
    seconds = listed.get("requeueAfterSeconds")
    return RecordedCheck(
        check=listed["name"],
        state=listed["state"],
        message=str(listed.get("message") or ""),
        requeue_after_seconds=None if seconds is None else _in_32_bits(seconds),
        at=datetime.fromisoformat(listed["lastTransitionTime"]),
    )


def _in_32_bits(value: Any) -> int:
    """A count or a number of seconds, in the range that the Workload's schema gives it."""
    return min(max(0, int(value)), INT32_MAX)


def with_reclaimed(
    pod_sets: list[PodSet],
    by_job: Mapping[str, int],
    workload: Body | None,
    last: list[PodSet],
) -> list[PodSet]:
    """Return the pod sets with the number of pods that finished and need no quota.

    The number is the largest that the job (`by_job`), the Workload object, or the pod sets published
    before (`last`) give, at most the count. While the workload has quota and its pods may run it only grows,
    as Kueue requires of `status.reclaimablePods`. `workload` is None where they may not.
    """
    reclaimable_pods = status_of(workload).get("reclaimablePods") or []
    recorded = {r["name"]: int(r.get("count", 0)) for r in reclaimable_pods}
    before = {p.name: p.reclaimable for p in last} if has_quota(workload) else {}
    reclaimed = []
    for pod_set in pod_sets:
        counts = (counted.get(pod_set.name, 0) for counted in (by_job, recorded, before))
        reclaimable = min(max(counts), pod_set.count)
        reclaimed.append(pod_set.with_reclaimable(reclaimable) if reclaimable else pod_set)
    return reclaimed
