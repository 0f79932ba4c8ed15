"""What a Workload object must say about a decision. Pure; types, reasons and texts are Kueue's.

`research/kueue.md` 1.8 lists them.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, assert_never

from services.patcher.workloads import check_states
from shared.contracts.kube.conditions import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    FINISHED,
    PODS_READY,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
    Conditions,
    find_condition,
    is_true,
    message_of,
    reason_of,
    timestamp,
)
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.effects import CheckState
from shared.contracts.messages.workloads import Finish, WorkloadState

__all__ = [
    "finished_status",
    "is_being_put_out",
    "reserves",
    "status_for",
]

DEACTIVATED: Final = "Deactivated"

_HUMAN: Final = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
    "InCohortFairSharing": "Fair Sharing within the cohort",
    "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
}

_NOT_READY: Final = "Not all pods are ready or succeeded"
_IS_READY: Final = "All pods reached readiness and the workload is running"
_READINESS: Final = {
    "WaitForStart": (False, _NOT_READY),
    "Started": (True, _IS_READY),
    "WaitForRecovery": (False, "At least one pod has failed, waiting for recovery"),
    "Recovered": (True, _IS_READY),
}
"""Reason of `PodsReady` to its status and text."""

_BACKS_OFF: Final = frozenset({"PodsReadyTimeout", "AdmissionCheck"})
_RESTARTED: Final = {
    "ClusterQueueStopped": ("ClusterQueueRestarted", "The ClusterQueue"),
    "LocalQueueStopped": ("LocalQueueRestarted", "The LocalQueue"),
}
"""Reason of an eviction to what ends the wait after it."""


def reserves(obj: Object) -> bool:
    """Whether a Workload object says that it has quota."""
    return "admission" in (obj.get("status") or {}) or is_true(obj, QUOTA_RESERVED)


def is_being_put_out(obj: Object) -> bool:
    """Whether `spec.active` is about to become False, because quota decided it."""
    return is_true(obj, DEACTIVATION_TARGET)


def status_for(
    obj: Object,
    admission: Admission,
    state: WorkloadState | None = None,
    said: Sequence[CheckState] = (),
) -> Object:
    """The whole status that `obj` must have once `admission` was carried out.

    `state` says what its job reports; None: nothing of that is to be said. `said`: by its checks.
    """
    status: dict[str, Any] = dict(obj.get("status") or {})
    conditions = Conditions.of(obj, at=admission.decided_at)
    match admission.state:
        case "waiting":
            _waiting(status, conditions, admission)
        case "reserved" | "admitted":
            _reserved(status, conditions, admission)
        case "evicted":
            _evicted(conditions, admission)
        case "released":
            _released(status, conditions, admission)
        case _:
            assert_never(admission.state)
    if admission.state != "released":
        _put_out(obj, conditions, admission)
        _checked(status, admission, said)
        _remembered(status, admission)
        if state is not None and state.owner is not None:
            _reported(status, conditions, admission, state)
    status["conditions"] = conditions.items
    return status


def finished_status(obj: Object, finish: Finish, *, at: datetime) -> Object:
    """The status of a workload whose job has ended."""
    status: dict[str, Any] = dict(obj.get("status") or {})
    conditions = Conditions.of(obj, at=finish.at or at)
    if not conditions.is_true(FINISHED):
        reason = "Succeeded" if finish.success else "Failed"
        conditions.set(FINISHED, True, reason, finish.message or f"Job {reason.lower()}")
    status["conditions"] = conditions.items
    return status


def _waiting(status: dict[str, Any], conditions: Conditions, admission: Admission) -> None:
    had_quota = conditions.is_true(QUOTA_RESERVED)
    status.pop("admission", None)
    conditions.set(QUOTA_RESERVED, False, admission.reason or "Pending", admission.message)
    if conditions.get(ADMITTED) is not None:
        conditions.set(ADMITTED, False, "NoReservation", "The workload has no reservation")
    evicted = conditions.get(EVICTED)
    if had_quota and evicted is not None and evicted.get("status") == "True":
        # Quota is free again: it queues, unless something still keeps it out.
        reason = str(evicted.get("reason", ""))
        waits = reason.startswith(DEACTIVATED) or reason in _BACKS_OFF or reason in _RESTARTED
        conditions.set(REQUEUED, not waits, reason, evicted.get("message", ""))
    if admission.reason == DEACTIVATED and not conditions.is_true(EVICTED):
        conditions.set(EVICTED, True, DEACTIVATED, "The workload is deactivated")
    _requeued(conditions, admission)


def _requeued(conditions: Conditions, admission: Admission) -> None:
    """What it waited for after its eviction is over."""
    requeued = conditions.get(REQUEUED)
    if requeued is None or requeued.get("status") == "True":
        return
    reason = str(requeued.get("reason", ""))
    if reason.startswith(DEACTIVATED):
        if admission.reason != DEACTIVATED and not admission.deactivate:
            conditions.set(REQUEUED, True, "Reactivated", "The workload was reactivated")
    elif reason in _BACKS_OFF:
        if admission.requeue_at is None:
            conditions.set(REQUEUED, True, "BackoffFinished", "The workload backoff was finished")
    elif reason in _RESTARTED and admission.reason != "Suspended":
        token, subject = _RESTARTED[reason]
        conditions.set(REQUEUED, True, token, f"{subject} was restarted after being stopped")


def _reserved(status: dict[str, Any], conditions: Conditions, admission: Admission) -> None:
    queue = admission.cluster_queue
    status["admission"] = {
        "clusterQueue": queue,
        "podSetAssignments": [
            {
                "name": pod_set.name,
                "count": pod_set.count,
                "flavors": pod_set.flavors,
                "resourceUsage": pod_set.usage,
            }
            for pod_set in admission.pod_sets
        ],
    }
    _requeued(conditions, admission)
    conditions.set(QUOTA_RESERVED, True, QUOTA_RESERVED, f"Quota reserved in ClusterQueue {queue}")
    conditions.clear(EVICTED, QUOTA_RESERVED)
    conditions.clear(PREEMPTED, QUOTA_RESERVED)
    if admission.state == "admitted":
        conditions.set(ADMITTED, True, ADMITTED, "The workload is admitted")
    else:
        text = "The workload has not all checks ready"
        conditions.set(ADMITTED, False, "UnsatisfiedAdmissionChecks", text)


def _put_out(obj: Object, conditions: Conditions, admission: Admission) -> None:
    """Mark it until `spec.active` is False. Once that was so the mark stays off: a user may set it back."""
    if (obj.get("spec") or {}).get("active", True) is False:
        conditions.remove(DEACTIVATION_TARGET)
        return
    if not admission.deactivate:
        return
    told = is_true(obj, EVICTED) and reason_of(find_condition(obj, EVICTED)).startswith(DEACTIVATED)
    if told:
        return
    evicted = conditions.get(EVICTED)
    cause = reason_of(evicted).removeprefix(f"{DEACTIVATED}DueTo")
    text = message_of(evicted).removeprefix("The workload is deactivated due to ")
    conditions.set(DEACTIVATION_TARGET, True, cause or DEACTIVATED, text)


def _checked(status: dict[str, Any], admission: Admission, said: Sequence[CheckState]) -> None:
    """What its checks say; whoever holds no quota has all of them before itself."""
    listed = status.get("admissionChecks") or []
    holds = admission.state in {"reserved", "admitted"}
    if listed or (holds and admission.checks):
        states = (check_states.kept if holds else check_states.reset)(listed, admission, said)
        _set_or_drop(status, "admissionChecks", states)


def _remembered(status: dict[str, Any], admission: Admission) -> None:
    """What must be known of earlier admissions."""
    requeue: dict[str, Any] = {}
    if admission.requeue_count:
        requeue["count"] = admission.requeue_count
    if admission.requeue_at is not None:
        requeue["requeueAt"] = timestamp(admission.requeue_at)
    _set_or_drop(status, "requeueState", requeue)
    _set_or_drop(status, "accumulatedPastExecutionTimeSeconds", admission.executed_seconds)


def _reported(
    status: dict[str, Any], conditions: Conditions, admission: Admission, state: WorkloadState
) -> None:
    """What its job says of its pods; somebody else's Workload says that by itself."""
    if admission.pods_ready:
        ready, text = _READINESS[admission.pods_ready]
        conditions.set(PODS_READY, ready, admission.pods_ready, text, at=admission.pods_ready_at)
    reclaimable = [
        {"name": p.name, "count": p.reclaimable} for p in state.pod_sets if p.reclaimable
    ]
    _set_or_drop(status, "reclaimablePods", reclaimable)


def _set_or_drop(status: dict[str, Any], key: str, value: Any) -> None:
    if value:
        status[key] = value
    else:
        status.pop(key, None)


def _evicted(conditions: Conditions, admission: Admission) -> None:
    if admission.preempted_by is not None:
        why = _HUMAN.get(admission.reason, admission.reason)
        text = f"Preempted to accommodate a workload ({admission.preempted_by}) due to {why}"
        conditions.set(EVICTED, True, PREEMPTED, text)
        conditions.set(PREEMPTED, True, admission.reason, text)
    else:
        conditions.set(EVICTED, True, admission.reason, admission.message)


def _released(status: dict[str, Any], conditions: Conditions, admission: Admission) -> None:
    # A finished workload keeps showing where it ran; the others give their reservation up.
    if conditions.is_true(FINISHED) or admission.reason == FINISHED:
        return
    status.pop("admission", None)
    reason = admission.reason or "Pending"
    if conditions.get(QUOTA_RESERVED) is not None:
        conditions.set(QUOTA_RESERVED, False, reason, admission.message)
    if conditions.get(ADMITTED) is not None:
        conditions.set(ADMITTED, False, "NoReservation", "The workload has no reservation")
