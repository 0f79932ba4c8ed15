"""The Kubernetes events that a change of a Workload's status causes. Pure.

Reasons and messages are Kueue's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from services.patcher.cluster.events import EventType
from shared.contracts.kube.bodies import Body, spec_of, status_of
from shared.contracts.kube.conditions import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
    Condition,
    Conditions,
    message_of,
    reason_of,
    transition_time,
)
from shared.contracts.messages.admissions import Admission
from shared.contracts.reasons import ADMISSION_CHECK, MAXIMUM_EXECUTION_TIME_EXCEEDED


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusEvent:
    """Reason, message and type of an event to write."""

    reason: str
    message: str
    type_: EventType = "Normal"
    about: Body | None = None
    """The Workload that it is about; None: the one that changed."""


def events_of_change(
    before: Body, after: Body, admission: Admission, preemptor: Body | None = None
) -> Iterator[StatusEvent]:
    """The events for the conditions and checks that changed when `admission` was written.

    `preemptor` is the Workload for which it was evicted, if it is known.
    """
    old = Conditions.of(before, at=admission.decided_at)
    new = Conditions.of(after, at=admission.decided_at)

    def became_true(type_: str) -> bool:
        return new.is_true(type_) and not old.is_true(type_)

    queue, at = admission.cluster_queue, admission.decided_at
    if became_true(QUOTA_RESERVED):
        waited = _seconds_between(_queued_since(before, old), at)
        yield StatusEvent(
            reason=QUOTA_RESERVED,
            message=f"Quota reserved in ClusterQueue {queue}, wait time since queued was {waited}s",
        )
    if became_true(ADMITTED):
        waited = _seconds_between(transition_time(new.get(QUOTA_RESERVED)), at)
        yield StatusEvent(
            reason=ADMITTED,
            message=f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited}s",
        )
        if admission.unplanned:
            text = f"It ran before it was admitted, and counts in ClusterQueue {queue} all the same"
            yield StatusEvent(reason="AdmittedUnplanned", message=text, type_="Warning")
    yield from _check_events(before, after)
    evicted = new.get(EVICTED)
    if became_true(EVICTED):
        yield StatusEvent(reason=f"EvictedDueTo{reason_of(evicted)}", message=message_of(evicted))
        if became_true(PREEMPTED):
            yield from _preemption_events(after, admission, message_of(evicted), preemptor)
    target = new.get(DEACTIVATION_TARGET)
    if target is not None and became_true(DEACTIVATION_TARGET):
        yield from _deactivation_events(after, target)
    reservation = new.get(QUOTA_RESERVED)
    waits = reservation is not None and reservation["status"] == "False"
    if waits and message_of(reservation) not in {"", message_of(old.get(QUOTA_RESERVED))}:
        yield StatusEvent(
            reason=reason_of(reservation), message=message_of(reservation), type_="Warning"
        )


def _preemption_events(
    workload: Body, admission: Admission, text: str, preemptor: Body | None
) -> Iterator[StatusEvent]:
    """Both sides of a preemption. Nothing raises a priority here: the effective one is the base."""
    if preemptor is None:
        yield StatusEvent(reason=PREEMPTED, message=text)
        return
    priorities = "; ".join(
        f"{side} effective priority: {each} (base: {each}, boost: 0)"
        for side, each in (
            ("preemptor", int(spec_of(preemptor).get("priority") or 0)),
            ("preemptee", admission.priority),
        )
    )
    metadata = workload["metadata"]
    what = f"{metadata['namespace']}/{metadata['name']} (UID: {metadata['uid']})"
    yield StatusEvent(reason=PREEMPTED, message=f"{text}; {priorities}")
    yield StatusEvent(
        reason="PreemptedWorkload",
        message=f"Preempted workload {what} in ClusterQueue {admission.cluster_queue}; {priorities}",
        about=preemptor,
    )


def _check_events(before: Body, after: Body) -> Iterator[StatusEvent]:
    """An event for each check whose state changed. Every check starts as Pending, without an event."""
    old = {check["name"]: check["state"] for check in _check_states(before)}
    for check in _check_states(after):
        name, state, earlier = check["name"], check["state"], old.get(check["name"], "Pending")
        if state != earlier:
            text = f"Admission check {name} updated state from {earlier} to {state}"
            answer = f" with message: {check['message']}" if check.get("message") else ""
            yield StatusEvent(reason="AdmissionCheckUpdated", message=f"{text}{answer}")


def _check_states(workload: Body) -> list[dict[str, Any]]:
    return status_of(workload).get("admissionChecks") or []


def _deactivation_events(workload: Body, target: Condition) -> Iterator[StatusEvent]:
    """Warnings about deactivations that the quota service decided, besides the eviction."""
    if reason_of(target) == MAXIMUM_EXECUTION_TIME_EXCEEDED:
        limit = spec_of(workload).get("maximumExecutionTimeSeconds")
        text = f"The maximum execution time ({limit}s) exceeded"
        yield StatusEvent(reason=reason_of(target), message=text, type_="Warning")
    elif reason_of(target) == ADMISSION_CHECK:
        text = f"Deactivated due to {message_of(target)}"
        yield StatusEvent(reason="AdmissionCheckRejected", message=text, type_="Warning")


def _queued_since(workload: Body, conditions: Conditions) -> datetime | None:
    if conditions.is_true(REQUEUED):
        return transition_time(conditions.get(REQUEUED))
    created = workload["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(created) if created else None


def _seconds_between(since: datetime | None, until: datetime) -> int:
    """Whole seconds; 0 if `since` is None or later than `until`."""
    return 0 if since is None else max(0, int((until - since).total_seconds()))
