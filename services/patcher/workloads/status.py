"""The status that a Workload object must have after a decision. Pure.

Types, reasons and messages of the conditions are Kueue's (`apis/kueue/v1beta1/workload_types.go`).
"""

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final, assert_never

from services.patcher.workloads.check_states import held_states, reset_states
from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, labels_of, spec_of, status_of
from shared.contracts.kube.conditions import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    FINISHED,
    PODS_READY,
    PREEMPTED,
    QUOTA_RESERVED,
    REPLACEMENT,
    REQUEUED,
    Conditions,
    find_condition,
    is_true,
    message_of,
    reason_of,
    timestamp,
)
from shared.contracts.kube.quantities import format_amount, recorded_amount
from shared.contracts.kueue.assignments import to_status
from shared.contracts.messages.admissions import GRANTED, Admission
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.workloads import Finish, PodSet, WorkloadState
from shared.contracts.reasons import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE_STOPPED,
    DEACTIVATED,
    DEACTIVATED_DUE_TO,
    DEACTIVATION_PREFIX,
    LOCAL_QUEUE_STOPPED,
    PODS_READY_TIMEOUT,
    SUSPENDED,
    UNSATISFIED_CHECKS,
)
from shared.integrations import controller_uid

_UNKNOWN: Final = "UNKNOWN"
"""Kueue's word for a uid that is not known."""

_WHOM: Final = re.compile(r"\(UID: [^)]*\)")
"""How quota's message names the preemptor."""

_NOT_READY: Final = "Not all pods are ready or succeeded"
_READY: Final = "All pods reached readiness and the workload is running"
_PODS_READY_TEXTS: Final = {
    "WaitForStart": (False, _NOT_READY),
    "Started": (True, _READY),
    "WaitForRecovery": (False, "At least one pod has failed, waiting for recovery"),
    "Recovered": (True, _READY),
}
"""Reason of `PodsReady` to its status and message."""

_BACKOFF_REASONS: Final = frozenset({PODS_READY_TIMEOUT, ADMISSION_CHECK})
"""Reasons of an eviction after which the workload backs off before it queues again."""

_RESTARTS: Final = {
    CLUSTER_QUEUE_STOPPED: ("ClusterQueueRestarted", "The ClusterQueue"),
    LOCAL_QUEUE_STOPPED: ("LocalQueueRestarted", "The LocalQueue"),
}
"""Reason of an eviction to the reason and the subject of the restart that ends its wait."""

_ORPHANED: Final = "OwnerNotFound"


def holds_quota(workload: Body) -> bool:
    """True if the Workload object shows a quota reservation."""
    return "admission" in status_of(workload) or is_true(workload, QUOTA_RESERVED)


def takes_back(workload: Body, admission: Admission) -> bool:
    """True if the Workload object shows a reservation or an admission that `admission` does not give."""
    if admission.state == "reserved":
        return is_true(workload, ADMITTED)
    return admission.state == "waiting" and holds_quota(workload)


def is_being_deactivated(workload: Body) -> bool:
    """True if the quota service decided that `spec.active` becomes false, and it is not so yet."""
    return is_true(workload, DEACTIVATION_TARGET)


def status_for(
    workload: Body,
    admission: Admission,
    state: WorkloadState | None = None,
    checks: Sequence[CheckState] = (),
    foreign: Collection[str] = (),
    preemptor: Body | None = None,
) -> dict[str, Any]:
    """Return the whole status that `workload` must have after `admission`.

    `state` adds what the job reports about its pods; with None that part stays as it is. `checks` are
    the latest answers of the admission checks; `foreign` are the names of those that other controllers answer
    in the status itself. `preemptor` is the Workload for which it was evicted, if it is known.
    """
    status: dict[str, Any] = dict(status_of(workload))
    conditions = Conditions.of(workload, at=admission.decided_at)
    match admission.state:
        case "waiting":
            _set_waiting(status, conditions, admission)
        case "reserved" | "admitted":
            _set_reserved(status, conditions, admission)
        case "evicted":
            if not conditions.is_true(EVICTED):
                _count_eviction(status, admission)
            _set_evicted(conditions, admission, preemptor)
            if reason_of(conditions.get(REQUEUED)) in _BACKOFF_REASONS:
                _set_requeued(conditions, admission)
        case "released":
            _set_released(status, conditions, admission)
        case _:
            assert_never(admission.state)
    if admission.state != "released":
        _set_deactivation_target(workload, conditions, admission)
        _set_check_states(status, admission, checks, foreign)
        _set_requeue_state(status, admission)
        _set_resource_requests(status, admission, state)
        if state is not None and state.owner is not None:
            _set_pod_states(status, conditions, admission, state)
    status["conditions"] = conditions.items
    return status


def finished_status(workload: Body, finish: Finish, *, at: datetime) -> dict[str, Any]:
    """Return the status of a workload whose job has ended. `at`: where `finish` has no time of its own."""
    status: dict[str, Any] = dict(status_of(workload))
    conditions = Conditions.of(workload, at=finish.at or at)
    if not conditions.is_true(FINISHED):
        reason = "Succeeded" if finish.success else "Failed"
        conditions.set(FINISHED, True, reason, finish.message or f"Job {reason.lower()}")
    status["conditions"] = conditions.items
    return status


def orphaned_status(workload: Body, *, at: datetime) -> dict[str, Any]:
    """Return the status of a workload whose job is gone, so that no admission of it is on record.

    The reason is Kueue's (kubernetes-sigs/kueue pkg/controller/jobframework/reconciler.go).
    """
    status: dict[str, Any] = dict(status_of(workload))
    conditions = Conditions.of(workload, at=at)
    status.pop("admission", None)
    for condition in (QUOTA_RESERVED, ADMITTED):
        if conditions.is_true(condition):
            conditions.set(condition, False, _ORPHANED, "The job is gone")
    if not conditions.is_true(FINISHED):
        conditions.set(FINISHED, True, _ORPHANED, "The job is gone")
    status["conditions"] = conditions.items
    return status


def is_kept(after: Body, before: Body | None, uid: str) -> bool:
    """Whether somebody wrote into the Workload of the gone job `uid`, so that the collector may leave it."""
    meddled = after is before or bool(after["metadata"].get("finalizers"))
    return holds_quota(after) and (meddled or controller_uid(after) != uid)


def _set_waiting(status: dict[str, Any], conditions: Conditions, admission: Admission) -> None:
    had_quota = conditions.is_true(QUOTA_RESERVED)
    status.pop("admission", None)
    conditions.set(QUOTA_RESERVED, False, admission.reason or "Pending", admission.message)
    conditions.set(ADMITTED, False, "NoReservation", "The workload has no reservation")
    if had_quota and conditions.is_true(EVICTED):
        # Its quota is free again. It queues, unless the reason of the eviction makes it wait first.
        evicted = conditions.get(EVICTED)
        reason = reason_of(evicted)
        waits = reason.startswith(DEACTIVATED) or reason in _BACKOFF_REASONS or reason in _RESTARTS
        conditions.set(REQUEUED, not waits, reason, message_of(evicted))
    if admission.reason == DEACTIVATED and not conditions.is_true(EVICTED):
        conditions.set(EVICTED, True, DEACTIVATED, "The workload is deactivated")
    _set_requeued(conditions, admission)


def _set_requeued(conditions: Conditions, admission: Admission) -> None:
    """Set `Requeued` to true when the wait after an eviction is over."""
    requeued = conditions.get(REQUEUED)
    if requeued is None or requeued.get("status") == "True":
        return
    reason = reason_of(requeued)
    if reason.startswith(DEACTIVATED):
        if admission.reason != DEACTIVATED and not admission.deactivate:
            conditions.set(REQUEUED, True, "Reactivated", "The workload was reactivated")
    elif reason in _BACKOFF_REASONS:
        if admission.requeue_at is None:
            conditions.set(REQUEUED, True, "BackoffFinished", "The workload backoff was finished")
    elif reason in _RESTARTS and admission.reason != SUSPENDED:
        restarted, subject = _RESTARTS[reason]
        conditions.set(REQUEUED, True, restarted, f"{subject} was restarted after being stopped")


def _set_reserved(status: dict[str, Any], conditions: Conditions, admission: Admission) -> None:
    queue = admission.cluster_queue
    status["admission"] = to_status(queue, admission.pod_sets)
    _set_requeued(conditions, admission)
    conditions.set(QUOTA_RESERVED, True, QUOTA_RESERVED, f"Quota reserved in ClusterQueue {queue}")
    conditions.clear(EVICTED, QUOTA_RESERVED)
    conditions.clear(PREEMPTED, QUOTA_RESERVED)
    if admission.state == "admitted":
        conditions.set(ADMITTED, True, ADMITTED, "The workload is admitted")
    else:
        text = "The workload has not all checks ready"
        conditions.set(ADMITTED, False, UNSATISFIED_CHECKS, text)


def _set_evicted(conditions: Conditions, admission: Admission, preemptor: Body | None) -> None:
    if admission.preempted_by is not None:
        text = _preemption_text(admission, preemptor)
        conditions.set(EVICTED, True, PREEMPTED, text)
        conditions.set(PREEMPTED, True, admission.reason, text)
    else:
        conditions.set(EVICTED, True, admission.reason, admission.message)


def _count_eviction(status: dict[str, Any], admission: Admission) -> None:
    """Count an eviction that the status does not show yet."""
    reason, cause = admission.eviction_cause
    stats = status.get("schedulingStats") or {}
    evictions = [dict(each) for each in stats.get("evictions") or []]
    wanted = {"reason": reason, "underlyingCause": cause}
    for each in evictions:
        if wanted.items() <= each.items():
            each["count"] = int(each.get("count") or 0) + 1
            break
    else:
        evictions.append({**wanted, "count": 1})
    status["schedulingStats"] = {**stats, "evictions": evictions}


def _preemption_text(admission: Admission, preemptor: Body | None) -> str:
    """Quota's message, in Kueue's words, with the preemptor as the cluster knows it.

    Do not show its namespace and name: it may be another tenant's.
    """
    uid = job_uid = _UNKNOWN
    if preemptor is not None:
        uid = preemptor["metadata"]["uid"]
        job_uid = labels_of(preemptor).get(names.JOB_UID_LABEL) or _UNKNOWN
    whom = f"UID: {uid}, JobUID: {job_uid}"
    return _WHOM.sub(lambda _quotas: f"({whom})", admission.message, count=1)


def _set_released(status: dict[str, Any], conditions: Conditions, admission: Admission) -> None:
    # A finished workload keeps showing where it ran; all others lose their reservation.
    if conditions.is_true(FINISHED) or admission.reason == FINISHED:
        return
    status.pop("admission", None)
    reason = admission.reason or "Pending"
    if conditions.get(QUOTA_RESERVED) is not None:
        conditions.set(QUOTA_RESERVED, False, reason, admission.message)
    if conditions.get(ADMITTED) is not None:
        conditions.set(ADMITTED, False, "NoReservation", "The workload has no reservation")


def _set_deactivation_target(workload: Body, conditions: Conditions, admission: Admission) -> None:
    """Set `DeactivationTarget` until `spec.active` is false.

    It is set once for each eviction: a user may set `spec.active` to true again afterwards.
    """
    if spec_of(workload).get("active", True) is False:
        conditions.remove(DEACTIVATION_TARGET)
        return
    already_evicted = is_true(workload, EVICTED) and reason_of(
        find_condition(workload, EVICTED)
    ).startswith(DEACTIVATED)
    if not admission.deactivate or already_evicted:
        return
    evicted = conditions.get(EVICTED)
    cause = reason_of(evicted).removeprefix(DEACTIVATED_DUE_TO)
    text = message_of(evicted).removeprefix(DEACTIVATION_PREFIX)
    conditions.set(DEACTIVATION_TARGET, True, cause or DEACTIVATED, text)


def _set_check_states(
    status: dict[str, Any],
    admission: Admission,
    checks: Sequence[CheckState],
    foreign: Collection[str],
) -> None:
    """Set the states of its checks: the latest answers with quota, all Pending without."""
    listed = status.get("admissionChecks") or []
    holds = admission.state in GRANTED
    if listed or (holds and admission.checks):
        if holds:
            states = held_states(listed, admission, checks, foreign)
        else:
            states = reset_states(listed, admission, checks)
        _set_or_remove(status, "admissionChecks", states)


def _set_requeue_state(status: dict[str, Any], admission: Admission) -> None:
    """Set what later admissions need to know of the earlier ones."""
    requeue_state: dict[str, Any] = {}
    if admission.requeue_count:
        requeue_state["count"] = admission.requeue_count
    if admission.requeue_at is not None:
        requeue_state["requeueAt"] = timestamp(admission.requeue_at)
    _set_or_remove(status, "requeueState", requeue_state)
    _set_or_remove(status, "accumulatedPastExecutionTimeSeconds", admission.executed_seconds)


def _set_resource_requests(
    status: dict[str, Any], admission: Admission, state: WorkloadState | None
) -> None:
    """Set what a waiting workload asks for, all pods of a pod set together; its admission says it then."""
    if state is None:
        return
    waits = admission.state == "waiting"
    requests = [_requests_of(pod_set) for pod_set in state.pod_sets] if waits else []
    _set_or_remove(status, "resourceRequests", requests)


def _requests_of(pod_set: PodSet) -> dict[str, Any]:
    count = max(0, pod_set.count - pod_set.reclaimable)
    total = {
        resource: format_amount(resource, recorded_amount(resource, each) * count)
        for resource, each in pod_set.requests.items()
    }
    return {"name": pod_set.name, **({"resources": total} if total else {})}


def _set_pod_states(
    status: dict[str, Any], conditions: Conditions, admission: Admission, state: WorkloadState
) -> None:
    """Set what the job reports about its pods. The controllers of foreign Workloads do it themselves."""
    if admission.pods_ready:
        ready, text = _PODS_READY_TEXTS[admission.pods_ready]
        conditions.set(PODS_READY, ready, admission.pods_ready, text, at=admission.pods_ready_at)
    reclaimable = [
        {"name": p.name, "count": p.reclaimable} for p in state.pod_sets if p.reclaimable
    ]
    _set_or_remove(status, "reclaimablePods", reclaimable)
    if state.members is not None:
        _set_replacement(conditions, is_needed=not state.members.complete)


def _set_replacement(conditions: Conditions, *, is_needed: bool) -> None:
    """Set whether a group waits for objects in the place of those that failed or were deleted; Kueue's."""
    if not is_needed:
        if conditions.get(REPLACEMENT) is not None:
            conditions.set(REPLACEMENT, False, PODS_READY, "No pods need replacement")
    elif conditions.is_true(EVICTED):
        evicted = conditions.get(EVICTED)
        conditions.set(REPLACEMENT, True, reason_of(evicted), message_of(evicted))
    elif not conditions.is_true(REPLACEMENT):
        conditions.set(REPLACEMENT, True, "PodsFailed", "Some Failed pods need replacement")


def _set_or_remove(status: dict[str, Any], key: str, value: Any) -> None:
    if value:
        status[key] = value
    else:
        status.pop(key, None)
