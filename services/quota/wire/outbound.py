"""Decisions of the engine become messages, and admissions on record become facts of the engine.

This module is the only one that converts "who got which flavor" between the engine's
`AssignedPodSet` and the wire's `PodSetAssignment`.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from math import isnan
from typing import TYPE_CHECKING, Any, Final, Literal, assert_never

from services.quota.engine import facts
from services.quota.engine.facts import (
    Admit,
    AssignedPodSet,
    Decision,
    Evict,
    Preempt,
    QuotaHeld,
    Recheck,
    Release,
    Reserve,
    Wait,
    WorkloadGone,
)
from services.quota.engine.model.shapes import BLOCKED
from services.quota.engine.scheduling.messages import NOT_YET_EVALUATED
from services.quota.wire.inbound import nanoseconds
from services.quota.wire.workloads import identity
from shared.contracts.kube.moments import UNIX_EPOCH
from shared.contracts.kube.numbers import INT32_MAX
from shared.contracts.kube.quantities import (
    QuantityError,
    amount,
    amount_max,
    format_amount,
    nearest_amount,
    recorded_amount,
)
from shared.contracts.kueue.assignments import amounts, from_status
from shared.contracts.messages.admissions import GRANTED, HOLDING, Admission, PodSetAssignment
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.workloads import PodSet, WorkloadState
from shared.contracts.reasons import (
    CLUSTER_QUEUE_STOPPED,
    ENDED,
    LOCAL_QUEUE_STOPPED,
    MISCONFIGURED,
    NO_MATCHING_WORKLOAD,
    NOT_ADMITTED,
    NOT_ADMITTED_HELD,
    PENDING_EVALUATION,
    SUSPENDED,
    WORKLOAD_DELETED,
)
from shared.contracts.refs import WorkloadRef

if TYPE_CHECKING:
    from services.quota.settings import OnBypass

Fields = dict[str, Any]
"""Fields of an `Admission` by name. The message is built once, when all of them are known."""

RETRY_SECONDS_MAX: Final = 10 * 365 * 86_400.0
"""Times are nanoseconds since the epoch: a check may ask for any delay, and the sum stays an int64."""

STOPPED: Final = {
    CLUSTER_QUEUE_STOPPED: "The ClusterQueue is stopped",
    LOCAL_QUEUE_STOPPED: "The LocalQueue is stopped",
}
"""Reasons of a release after which the workload waits for its queue, with their messages."""

NOT_COMPARED: Final = frozenset(
    {
        "epoch",
        "term",
        "number",
        "decided_at",
        "waiting_since",
        "inputs",
        "traceparent",
        "generation",
    }
)
"""Fields of a decision whose change alone is not worth a message."""

COMPARED: Final = tuple(name for name in Admission.model_fields if name not in NOT_COMPARED)


# Decisions -------------------------------------------------------------------------------------


def ref_of(decision: Decision) -> WorkloadRef:
    """The workload of a decision."""
    namespace, _, name = decision.key.partition("/")
    return WorkloadRef(decision.cluster, namespace, name)


def decision_fields(decision: Decision, now: datetime) -> Fields:
    """The fields of a decision's message, as far as the engine knows them."""
    cluster, namespace, name = ref_of(decision)
    fields: Fields = {
        "cluster": cluster,
        "namespace": namespace,
        "name": name,
        "uid": decision.uid,
        "decided_at": now,
        "cluster_queue": decision.cluster_queue,
    }
    match decision:
        case Reserve():
            return fields | {
                "state": "admitted" if decision.admitted else "reserved",
                "pod_sets": [_to_wire(assigned) for assigned in decision.pod_sets],
                "checks": list(decision.checks),
                "unplanned": decision.unplanned,
            }
        case Admit():
            return fields | {"state": "admitted"}
        case Recheck():
            return fields | {"checks": list(decision.checks)}
        case Preempt():
            return fields | {
                "state": "evicted",
                "reason": decision.reason,
                "message": decision.message,
                "preempted_by": decision.preemptor,
            }
        case Evict():
            return fields | {
                "state": "evicted",
                "reason": decision.reason,
                "message": decision.message,
            }
        case Release():
            return fields | _release_fields(decision)
        case Wait():
            return fields | {
                "state": "waiting",
                "reason": decision.reason,
                "message": decision.message,
            }
        case _:
            assert_never(decision)


def _release_fields(decision: Release) -> Fields:
    reason = decision.reason
    if reason == "ClusterQueueTerminating":
        text = f"ClusterQueue {decision.cluster_queue} is terminating or missing"
        return {"state": "waiting", "reason": MISCONFIGURED, "message": text}
    if reason in ENDED:
        return {"state": "released", "reason": reason}
    if reason in STOPPED:
        return {"state": "waiting", "reason": SUSPENDED, "message": STOPPED[reason]}
    message = f"Gave its quota back: {reason}"
    return {"state": "waiting", "reason": PENDING_EVALUATION, "message": message}


def admission_fields(admission: Admission) -> Fields:
    """All fields of a message but its number, to build the next one from."""
    names = Admission.model_fields.keys() - {"term", "number", "inputs"}
    return {name: getattr(admission, name) for name in names}


def carried_over(last: Admission, fields: Fields) -> Fields:
    """What the next decision takes over from the last one: an eviction keeps the assignment."""
    changes: Fields = {}
    state = fields["state"]
    if state in {"admitted", "evicted"} and "pod_sets" not in fields:
        changes |= {"pod_sets": last.pod_sets, "unplanned": last.unplanned}
    if state == last.state == "waiting":
        changes["waiting_since"] = last.waiting_since or last.decided_at
    if state == "evicted" or (state == "admitted" and last.state == "reserved"):
        changes["checks"] = last.checks
    if not fields["cluster_queue"]:
        changes["cluster_queue"] = last.cluster_queue
    return changes


def rechecked_fields(last: Admission | None, decision: Recheck) -> Fields | None:
    """`last` with the checks of `decision`; None if it is not about a workload that holds quota.

    It keeps its time: answers that came since the reservation go on counting.
    """
    if last is None or last.uid != decision.uid or last.state not in GRANTED:
        return None
    return admission_fields(last) | {"checks": list(decision.checks)}


def is_less_specific(wait: Wait, last: Admission | None) -> bool:
    """Whether `wait` only says that a workload is not evaluated yet, which was evaluated before.

    An engine that was built anew after a restart does not know that any more.
    """
    if wait.message != NOT_YET_EVALUATED or last is None or last.uid != wait.uid:
        return False
    return last.state == "waiting" and last.reason not in BLOCKED


def is_repetition(last: Admission, new: Admission) -> bool:
    """Whether `new` says nothing that `last` did not say."""
    return all(getattr(last, name) == getattr(new, name) for name in COMPARED)


# Admissions on record --------------------------------------------------------------------------


def restored_fact(admission: Admission, last: Admission | None) -> QuotaHeld | WorkloadGone | None:
    """What a decision on the log says of a workload's quota; None: nothing.

    `last`: the decision before it, of a workload that is over. Only a leader gives it: it has read the last
    decision of each workload, so that a second one ends what a killed server had brought back (ADR 139).
    """
    if admission.state in HOLDING:
        return to_quota_held(admission)
    if last is None or last.state not in HOLDING:
        return None
    return WorkloadGone(**identity(last))


def to_quota_held(admission: Admission) -> QuotaHeld:
    """An admission on the log as a fact, for a restart."""
    assert admission.state in {"reserved", "admitted", "evicted"}
    return QuotaHeld(
        cluster=admission.cluster,
        namespace=admission.namespace,
        name=admission.name,
        uid=admission.uid,
        cluster_queue=admission.cluster_queue,
        pod_sets=tuple(_from_wire(pod_set) for pod_set in admission.pod_sets),
        state=admission.state,
        at=nanoseconds(admission.decided_at),
        priority=admission.priority,
        queue=admission.queue,
        reason=admission.reason,
        preempted_by=admission.preempted_by,
        unplanned=admission.unplanned,
        checks=tuple(admission.checks),
    )


def held_fields(held: QuotaHeld, now: datetime) -> Fields:
    """The fields of a decision about an admission that only the cluster has on record."""
    return {
        "cluster": held.cluster,
        "namespace": held.namespace,
        "name": held.name,
        "uid": held.uid,
        "state": held.state,
        "decided_at": now,
        "queue": held.queue,
        "cluster_queue": held.cluster_queue,
        "priority": held.priority,
        "pod_sets": [_to_wire(assigned) for assigned in held.pod_sets],
        "reason": held.reason,
    }


def last_that_counts(
    decisions: dict[WorkloadRef, Admission], state: WorkloadState
) -> Admission | None:
    """The last decision about a workload; None: there is none. One that the cluster has outrun is removed."""
    last = decisions.get(state.ref)
    recorded_at = state.admitted_at if state.admission else None
    if last is None or last.uid != state.uid or not last.is_outrun(recorded_at, held=state.held):
        return last
    del decisions[state.ref]
    return None


def adopted_holding(state: WorkloadState, last: Admission | None) -> QuotaHeld | None:
    """The admission that the cluster records, where it counts; None: what was decided `last` counts.

    It counts without a decision on the log, and for a job that takes a Workload that holds quota: the
    decision was about the Workload. What that Workload has given back is another's. A job that asks for more
    than the Workload inherits nothing: it waits for its own turn.
    """
    if last is None:
        return recorded_holding(state)
    if last.state not in HOLDING or not state.adopts == last.uid != state.uid:
        return None
    recorded = recorded_holding(state)
    return recorded if recorded is not None and _suffices(recorded, state) else None


def _suffices(recorded: QuotaHeld, state: WorkloadState) -> bool:
    """Whether an admission covers all that a job asks for."""
    granted = {assigned.name: assigned for assigned in recorded.pod_sets}
    for asked in state.pod_sets:
        given = granted.get(asked.name)
        if given is None or (asked.min_count is None and given.count < asked.count):
            return False
        each = {name: nearest_amount(name, text) for name, text in asked.requests.items()}
        if any(value * given.count > given.usage.get(name, 0) for name, value in each.items()):
            return False
    return True


def recorded_holding(state: WorkloadState) -> QuotaHeld | None:
    """The admission that the status of the Workload object records; None: it records none.

    Where an amount of it is out of range (-1, 12E), what the workload asks counts in its place.
    """
    status = state.admission
    if not status or not status.get("clusterQueue"):
        return None
    asked = {pod_set.name: pod_set for pod_set in state.pod_sets}
    return QuotaHeld(
        cluster=state.cluster,
        namespace=state.namespace,
        name=state.name,
        uid=state.uid,
        cluster_queue=str(status["clusterQueue"]),
        pod_sets=tuple(_recorded_pod_set(each, asked) for each in from_status(status)),
        state=_recorded_state(state),
        at=nanoseconds(state.admitted_at or state.created_at),
        reason=state.evicted_reason if state.evicted else "",
        priority=state.priority,
        queue=state.queue,
    )


def _recorded_state(state: WorkloadState) -> Literal["reserved", "admitted", "evicted"]:
    """Which of the states that hold quota the Workload object shows; what runs is admitted in any case."""
    if state.evicted:
        return "evicted"
    runs = state.owner is not None and not state.held
    return "admitted" if runs or state.admitted_at is not None else "reserved"


def _recorded_pod_set(recorded: PodSetAssignment, asked: Mapping[str, PodSet]) -> AssignedPodSet:
    """An assignment in a Workload's status, which anybody with the right may have written."""
    count = min(max(0, recorded.count), INT32_MAX)
    usage = {}
    for resource, text in recorded.usage.items():
        try:
            usage[resource] = amount(resource, text)
        except QuantityError as error:
            wanted = asked.get(recorded.name)
            each = "0" if wanted is None else wanted.requests.get(resource, "0")
            usage[resource] = min(nearest_amount(resource, each) * count, amount_max(resource))
            from structlog import get_logger  # noqa: PLC0415 - `sluice plan` does without

            get_logger(__name__).warning(
                "a recorded amount is replaced", resource=resource, error=str(error)
            )
    return AssignedPodSet(name=recorded.name, count=count, flavors=recorded.flavors, usage=usage)


def to_check_fact(check: CheckState) -> facts.CheckStateChanged:
    """The state of an admission check as a fact."""
    return facts.CheckStateChanged(
        cluster=check.cluster,
        namespace=check.namespace,
        name=check.name,
        uid=check.uid,
        check=check.check,
        state=check.state,
        message=check.message,
        at=nanoseconds(check.at),
        retry_after=_retry_after(check.requeue_after_seconds or 0.0),
    )


def _retry_after(seconds: float) -> int:
    """Nanoseconds, at most `RETRY_SECONDS_MAX`; 0 for what is no number."""
    return 0 if isnan(seconds) else int(min(max(0.0, seconds), RETRY_SECONDS_MAX) * 1e9)


def to_datetime(at: int | None) -> datetime | None:
    """The engine's nanoseconds as a time; None stays None."""
    return None if at is None else UNIX_EPOCH + timedelta(microseconds=at // 1_000)


def _to_wire(assigned: AssignedPodSet) -> PodSetAssignment:
    return PodSetAssignment(
        name=assigned.name,
        count=assigned.count,
        flavors=dict(assigned.flavors),
        usage={
            resource: format_amount(resource, value) for resource, value in assigned.usage.items()
        },
    )


def _from_wire(pod_set: PodSetAssignment) -> AssignedPodSet:
    return AssignedPodSet(
        name=pod_set.name,
        count=pod_set.count,
        flavors=pod_set.flavors,
        usage=amounts(pod_set.usage),
    )


# Changes behind quota's back -------------------------------------------------------------------


def eviction_cause(
    state: WorkloadState, holding: Admission | QuotaHeld, *, ignore_undeclared: bool = False
) -> tuple[str, str] | None:
    """(reason, message) if somebody changed the job so that it must stop and queue again.

    Causes are a deleted Workload object of ours and a job that asks for more than it was granted, by a
    decision or by the admission on record that it has just taken over. With `ignore_undeclared` what was
    granted of no resource is not counted.
    """
    is_ours = state.owner is not None and state.on_eviction == "suspend"
    if state.deleting and is_ours and holding.state in GRANTED:
        return WORKLOAD_DELETED, "The workload is deleted"
    if holding.state != "admitted" or not (
        excess := list(_excess(state, holding, ignore_undeclared=ignore_undeclared))
    ):
        return None
    what = ", ".join(excess)
    if state.inadmissible and not state.pod_sets:
        what = f"what cannot be counted ({state.inadmissible})"
    text = f"The job asks for {what}: it is stopped and waits for all of it"
    return NO_MATCHING_WORKLOAD, text


def bypass_cause(
    state: WorkloadState, admission: Admission | None, on_bypass: "OnBypass", on_missed: "OnBypass"
) -> tuple[str, str] | None:
    """(reason, message) if a workload runs though it is not admitted, and is to be stopped.

    The caller counts it first: until its pods are gone it holds quota, also above what there is. Kueue
    suspends such jobs too (kubernetes-sigs/kueue pkg/controller/jobframework/reconciler.go, "Running
    job is not admitted by a cluster queue, suspending"). For kinds that cannot be suspended, `on_bypass`
    holds for what somebody let go of while our hold was on it, `on_missed` for the others.
    """
    if state.owner is None:
        return None
    if state.held and not state.pods_active:
        return None
    decided = admission if admission is not None and admission.uid == state.uid else None
    if decided is not None and (
        decided.state == "evicted" or (decided.state == "admitted" and not decided.unplanned)
    ):
        return None
    why = "Not admitted by a ClusterQueue"
    if state.on_eviction == "suspend":
        return NOT_ADMITTED, f"{why}: it is stopped and waits for its turn"
    if not state.pods_active:
        return None  # It has not started: it is held.
    match on_bypass if state.was_held else on_missed:
        case "stop":
            return NOT_ADMITTED, f"{why}: it is cancelled, because its kind cannot be suspended"
        case "hold":
            return NOT_ADMITTED_HELD, f"{why}: it is cancelled, and a copy waits for its turn"
        case "report":
            return None


def uncounted_reason(
    why: tuple[str, str] | None,
    state: WorkloadState,
    admission: Admission | None,
    on_bypass: "OnBypass",
) -> str:
    """The reason of its eviction if no queue can count it: then it is stopped, where others are reported.

    `why` is the cause for which it is stopped in any case. Empty: it runs on.
    """
    cause = why or bypass_cause(state, admission, on_bypass, on_bypass)
    return "" if cause is None else cause[0]


def _excess(
    state: WorkloadState, holding: Admission | QuotaHeld, *, ignore_undeclared: bool
) -> Iterator[str]:
    """What a running job asks for beyond its admission, in words."""
    pods = state.outgrown or {}
    now = {pod_set.name: pod_set for pod_set in state.pod_sets} if state.enlarged else {}
    ended = {pod_set.name: pod_set.reclaimable for pod_set in state.pod_sets}
    for granted in _granted(holding):
        more = pods.get(granted.name, 0)
        if more > granted.count:
            yield f"{more} pods in {granted.name}, admitted {granted.count}"
        elif more and ended.get(granted.name):
            yield f"{more} pods in {granted.name}, of which {ended[granted.name]} had ended"
        if granted.name not in now:
            continue
        for resource, text in now[granted.name].requests.items():
            if ignore_undeclared and resource not in granted.usage:
                continue
            used = granted.usage.get(resource, "0")
            asked = nearest_amount(resource, text) * granted.count
            if asked <= recorded_amount(resource, used):
                continue
            each = f"{text} {resource} for each of {granted.count} pods in {granted.name}"
            yield f"{each}, admitted {used} for all"


def _granted(holding: Admission | QuotaHeld) -> list[PodSetAssignment]:
    if isinstance(holding, Admission):
        return holding.pod_sets
    return [_to_wire(assigned) for assigned in holding.pod_sets]
