"""Between decisions and messages. Knows both vocabularies and does nothing else."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from services.quota.engine import facts
from services.quota.engine.facts import (
    Admit,
    AssignedPodSet,
    Decision,
    Evict,
    Preempt,
    QuotaHeld,
    Release,
    Reserve,
    Wait,
)
from services.quota.wire.inbound import nanoseconds
from shared.contracts.kube.quantities import amount, format_amount
from shared.contracts.messages.admissions import Admission, AdmissionState, PodSetAssignment
from shared.contracts.messages.effects import CheckState
from shared.contracts.messages.workloads import WorkloadState

__all__ = [
    "admission_of",
    "carried_over",
    "eviction_cause",
    "is_at_least",
    "recorded_holding",
    "says_the_same",
    "to_admission",
    "to_check_fact",
    "to_datetime",
    "to_quota_held",
]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ENDED = frozenset({"Finished", "Gone"})
"""Reasons of a release after which nothing waits any more."""

STOPPED = {
    "ClusterQueueStopped": "The ClusterQueue is stopped",
    "LocalQueueStopped": "The LocalQueue is stopped",
}
"""Reasons of a release after which it waits for its queue."""


def to_admission(decision: Decision, now: datetime) -> Admission:
    """The message of a decision, as far as the engine knows it."""
    match decision:
        case Reserve():
            state: AdmissionState = "admitted" if decision.admitted else "reserved"
            return _admission(
                decision,
                state,
                now,
                pod_sets=[_assignment(assigned) for assigned in decision.pod_sets],
                checks=list(decision.checks),
                unplanned=decision.unplanned,
            )
        case Admit():
            return _admission(decision, "admitted", now)
        case Preempt():
            return _admission(
                decision,
                "evicted",
                now,
                reason=decision.reason,
                message=decision.message,
                preempted_by=decision.preemptor,
            )
        case Evict():
            return _admission(
                decision,
                "evicted",
                now,
                reason=decision.reason,
                message=decision.message,
            )
        case Release():
            if decision.reason in ENDED:
                return _admission(decision, "released", now, reason=decision.reason)
            if decision.reason in STOPPED:
                reason, message = "Suspended", STOPPED[decision.reason]
            else:
                reason = "PendingEvaluation"
                message = f"Gave its quota back: {decision.reason}"
            return _admission(decision, "waiting", now, reason=reason, message=message)
        case Wait():
            return _admission(
                decision,
                "waiting",
                now,
                reason=decision.reason,
                message=decision.message,
            )
        case _:
            assert_never(decision)


def carried_over(last: Admission, new: Admission) -> Admission:
    """What a decision does not repeat stays as it was: an eviction still holds what was assigned."""
    changes: dict[str, Any] = {}
    if new.state in {"admitted", "evicted"} and not new.pod_sets:
        changes["pod_sets"] = last.pod_sets
        changes["unplanned"] = last.unplanned
    if new.state == "evicted" or (new.state == "admitted" and last.state == "reserved"):
        changes["checks"] = last.checks
    if not new.cluster_queue:
        changes["cluster_queue"] = last.cluster_queue
    return new.model_copy(update=changes) if changes else new


def says_the_same(last: Admission, new: Admission) -> bool:
    """Whether publishing `new` would tell nobody anything."""
    ignored: dict[str, Any] = {
        "term": 0,
        "number": 0,
        "decided_at": EPOCH,
        "inputs": {},
        "traceparent": None,
        "generation": 0,
    }
    return last.model_copy(update=ignored) == new.model_copy(update=ignored)


def to_quota_held(admission: Admission) -> QuotaHeld:
    """An admission on record, for a restart."""
    assert admission.state in {"reserved", "admitted", "evicted"}
    return QuotaHeld(
        cluster=admission.cluster,
        namespace=admission.namespace,
        name=admission.name,
        uid=admission.uid,
        cluster_queue=admission.cluster_queue,
        pod_sets=tuple(_assigned(pod_set) for pod_set in admission.pod_sets),
        state=admission.state,
        at=nanoseconds(admission.decided_at),
        priority=admission.priority,
        queue=admission.queue,
        reason=admission.reason,
        preempted_by=admission.preempted_by,
        unplanned=admission.unplanned,
    )


def admission_of(held: QuotaHeld, now: datetime) -> Admission:
    """The decision of an admission that only the cluster had on record."""
    return Admission(
        cluster=held.cluster,
        namespace=held.namespace,
        name=held.name,
        uid=held.uid,
        state=held.state,
        term=0,
        number=0,
        decided_at=now,
        queue=held.queue,
        cluster_queue=held.cluster_queue,
        priority=held.priority,
        pod_sets=[_assignment(assigned) for assigned in held.pod_sets],
        reason=held.reason,
    )


def recorded_holding(state: WorkloadState) -> QuotaHeld | None:
    """The admission that the Workload object's status records; None if it records none that counts."""
    status = state.admission
    if not status or not status.get("clusterQueue"):
        return None
    return QuotaHeld(
        cluster=state.cluster,
        namespace=state.namespace,
        name=state.name,
        uid=state.uid,
        cluster_queue=str(status["clusterQueue"]),
        pod_sets=tuple(
            AssignedPodSet(
                name=str(assigned.get("name", "")),
                count=int(assigned.get("count") or 0),
                flavors=dict(assigned.get("flavors") or {}),
                usage={
                    resource: amount(resource, str(value))
                    for resource, value in (assigned.get("resourceUsage") or {}).items()
                },
            )
            for assigned in status.get("podSetAssignments") or []
        ),
        state="evicted" if state.evicted else "admitted",
        at=nanoseconds(state.admitted_at or state.created_at),
        reason=state.evicted_reason if state.evicted else "",
        priority=state.priority,
        queue=state.queue,
    )


def to_check_fact(check: CheckState) -> facts.CheckStateChanged:
    """What a check's owner says, for the engine."""
    return facts.CheckStateChanged(
        cluster=check.cluster,
        namespace=check.namespace,
        name=check.name,
        uid=check.uid,
        check=check.check,
        state=check.state,
        message=check.message,
        at=nanoseconds(check.at),
        retry_after=int((check.requeue_after_seconds or 0) * 1e9),
    )


def to_datetime(at: int | None) -> datetime | None:
    """The engine's nanoseconds as a time; None stays None."""
    return None if at is None else EPOCH + timedelta(microseconds=at // 1_000)


def _admission(decision: Decision, state: AdmissionState, now: datetime, **more: Any) -> Admission:
    namespace, _, name = decision.key.partition("/")
    return Admission(
        cluster=decision.cluster,
        namespace=namespace,
        name=name,
        uid=decision.uid,
        state=state,
        term=0,
        number=0,
        decided_at=now,
        cluster_queue=decision.cluster_queue,
        **more,
    )


def _assignment(assigned: AssignedPodSet) -> PodSetAssignment:
    return PodSetAssignment(
        name=assigned.name,
        count=assigned.count,
        flavors=dict(assigned.flavors),
        usage={
            resource: format_amount(resource, value) for resource, value in assigned.usage.items()
        },
    )


def _assigned(pod_set: PodSetAssignment) -> AssignedPodSet:
    return AssignedPodSet(
        name=pod_set.name,
        count=pod_set.count,
        flavors=pod_set.flavors,
        usage={resource: amount(resource, value) for resource, value in pod_set.usage.items()},
    )


def eviction_cause(state: WorkloadState, admission: Admission) -> tuple[str, str] | None:
    """Reason and words where a job that has quota is to stop and wait anew by what somebody did to it."""
    is_ours = state.owner is not None and state.on_eviction == "suspend"
    if state.deleting and is_ours and admission.state in {"reserved", "admitted"}:
        return "WorkloadDeleted", "The workload is deleted"
    if admission.state != "admitted" or not (more := list(growth(state, admission))):
        return None
    text = f"The job asks for {', '.join(more)}: it is stopped and waits for all of it"
    return "NoMatchingWorkload", text


def growth(state: WorkloadState, admission: Admission) -> Iterator[str]:
    """What a running job asks for beyond its admission, in words."""
    pods = state.outgrown or {}
    now = {pod_set.name: pod_set for pod_set in state.pod_sets} if state.enlarged else {}
    for given in admission.pod_sets:
        if pods.get(given.name, 0) > given.count:
            yield f"{pods[given.name]} pods in {given.name}, admitted {given.count}"
        if given.name not in now:
            continue
        for resource, text in now[given.name].requests.items():
            used = given.usage.get(resource)
            if used is not None and amount(resource, text) * given.count > amount(resource, used):
                each = f"{text} {resource} for each of {given.count} pods in {given.name}"
                yield f"{each}, admitted {used} for all"


def is_at_least(version: str, least: str) -> bool:
    """Resource versions are numbers that grow (KEP-5504); others can only be compared for equality."""
    if version.isdecimal() and least.isdecimal():
        return int(version) >= int(least)
    return version == least
