"""What a Workload object must say about a decision. Pure; types, reasons and texts are Kueue's.

`research/kueue.md` 1.8 lists them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, assert_never

from shared.contracts.admissions import Admission
from shared.contracts.kinds import Object
from shared.contracts.workloads import Finish

__all__ = ["Conditions", "finished_status", "reserves", "status_for", "timestamp"]

ADMITTED: Final = "Admitted"
EVICTED: Final = "Evicted"
FINISHED: Final = "Finished"
PREEMPTED: Final = "Preempted"
QUOTA_RESERVED: Final = "QuotaReserved"
REQUEUED: Final = "Requeued"

MESSAGE_MAX: Final = 32_768
"""What Kubernetes takes in a condition."""

_HUMAN: Final = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
    "InCohortFairSharing": "Fair Sharing within the cohort",
    "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
}


def timestamp(at: datetime) -> str:
    """`metav1.Time`: whole seconds, UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class Conditions:
    """The conditions of one object, edited in place."""

    at: datetime
    generation: int
    items: list[Object] = field(default_factory=list)

    @classmethod
    def of(cls, obj: Object, *, at: datetime) -> "Conditions":
        """Copy the conditions of `obj`."""
        conditions: Iterable[Object] = (obj.get("status") or {}).get("conditions") or []
        generation = int(obj["metadata"].get("generation", 1))
        return cls(at=at, generation=generation, items=[dict(c) for c in conditions])

    def get(self, type_: str) -> Object | None:
        """The condition of that type."""
        return next((c for c in self.items if c.get("type") == type_), None)

    def is_true(self, type_: str) -> bool:
        """Whether it is there and true."""
        condition = self.get(type_)
        return condition is not None and condition.get("status") == "True"

    def set(self, type_: str, status: bool, reason: str, message: str) -> None:
        """Set it; the time of transition moves only when the status does."""
        value = "True" if status else "False"
        new = {
            "type": type_,
            "status": value,
            "reason": reason,
            "message": message[:MESSAGE_MAX],
            "observedGeneration": self.generation,
            "lastTransitionTime": timestamp(self.at),
        }
        old = self.get(type_)
        if old is None:
            self.items.append(new)
            return
        if old.get("status") == value:
            new["lastTransitionTime"] = old.get("lastTransitionTime") or new["lastTransitionTime"]
        old.update(new)

    def clear(self, type_: str, reason: str) -> None:
        """Turn a true condition false, keeping what it said; one that is not there stays away."""
        old = self.get(type_)
        if old is not None and old.get("status") == "True":
            self.set(type_, False, reason, f"Previously: {old.get('message', '')}")


def reserves(obj: Object) -> bool:
    """Whether a Workload object says that it has quota."""
    status = obj.get("status") or {}
    conditions = status.get("conditions") or []
    return "admission" in status or any(
        c.get("type") == QUOTA_RESERVED and c.get("status") == "True" for c in conditions
    )


def status_for(obj: Object, admission: Admission) -> Object:
    """The whole status that `obj` must have once `admission` was carried out."""
    status: dict[str, Any] = dict(obj.get("status") or {})
    conditions = Conditions.of(obj, at=admission.decided_at)
    match admission.state:
        case "waiting":
            _waiting(status, conditions, admission)
        case "reserved" | "admitted":
            _reserved(status, conditions, admission)
        case "evicted":
            _evicted(status, conditions, admission)
        case "released":
            _released(status, conditions, admission)
        case _:
            assert_never(admission.state)
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
        may_queue = admission.requeue_at is None and admission.reason != "Deactivated"
        conditions.set(REQUEUED, may_queue, evicted.get("reason", ""), evicted.get("message", ""))
    backed_off = "requeueAt" in (status.get("requeueState") or {})
    if admission.requeue_at is not None:
        _requeue_at(status, admission.requeue_at)
    elif backed_off:
        _requeue_now(status)
        if admission.reason != "Deactivated":
            conditions.set(REQUEUED, True, "BackoffFinished", "The workload backoff was finished")


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
    _requeue_now(status)
    conditions.set(QUOTA_RESERVED, True, QUOTA_RESERVED, f"Quota reserved in ClusterQueue {queue}")
    conditions.clear(EVICTED, QUOTA_RESERVED)
    conditions.clear(PREEMPTED, QUOTA_RESERVED)
    if admission.state == "admitted":
        conditions.set(ADMITTED, True, ADMITTED, "The workload is admitted")
    else:
        text = "The workload has not all checks ready"
        conditions.set(ADMITTED, False, "UnsatisfiedAdmissionChecks", text)


def _requeue_at(status: dict[str, Any], at: datetime) -> None:
    """Say when it may queue again; another moment is another eviction, which is counted."""
    state = dict(status.get("requeueState") or {})
    if state.get("requeueAt") != timestamp(at):
        count = int(state.get("count") or 0) + 1
        status["requeueState"] = {"count": count, "requeueAt": timestamp(at)}


def _requeue_now(status: dict[str, Any]) -> None:
    """The wait is over; how often it had to wait stays."""
    state = dict(status.get("requeueState") or {})
    if state.pop("requeueAt", None) is not None:
        status["requeueState"] = state


def _evicted(status: dict[str, Any], conditions: Conditions, admission: Admission) -> None:
    if admission.requeue_at is not None:
        _requeue_at(status, admission.requeue_at)
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
