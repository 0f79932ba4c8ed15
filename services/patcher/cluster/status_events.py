"""Which events a change of a Workload is worth. Pure.

Reasons and texts are Kueue's (`research/kueue.md` 1.8).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from shared.contracts.kube.conditions import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
    Conditions,
)
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.admissions import Admission

__all__ = ["News", "of_status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """An event to be."""

    reason: str
    message: str
    type_: Literal["Normal", "Warning"] = "Normal"


def of_status(before: Object, after: Object, admission: Admission) -> Iterator[News]:
    """What became true when `admission` was written."""
    old = Conditions.of(before, at=admission.decided_at)
    new = Conditions.of(after, at=admission.decided_at)

    def began(type_: str) -> bool:
        return new.is_true(type_) and not old.is_true(type_)

    queue, at = admission.cluster_queue, admission.decided_at
    if began(QUOTA_RESERVED):
        waited = _seconds(_queued_since(before, old), at)
        yield News(
            reason=QUOTA_RESERVED,
            message=f"Quota reserved in ClusterQueue {queue}, wait time since queued was {waited}s",
        )
    if began(ADMITTED):
        reserved = new.get(QUOTA_RESERVED)
        waited = _seconds(_time(reserved), at)
        yield News(
            reason=ADMITTED,
            message=f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited}s",
        )
    if began(ADMITTED) and admission.unplanned:
        text = f"It ran before it was admitted, and counts in ClusterQueue {queue} all the same"
        yield News(reason="AdmittedUnplanned", message=text, type_="Warning")
    yield from _checks(before, after)
    evicted = new.get(EVICTED)
    if evicted is not None and began(EVICTED):
        yield News(reason=f"EvictedDueTo{evicted['reason']}", message=evicted["message"])
        if began(PREEMPTED):
            yield News(reason=PREEMPTED, message=evicted["message"])
    target = new.get(DEACTIVATION_TARGET)
    if target is not None and began(DEACTIVATION_TARGET):
        yield from _put_out(after, target)
    refused, said = new.get(QUOTA_RESERVED), old.get(QUOTA_RESERVED)
    told = None if said is None else said.get("message")
    waits = refused is not None and refused["status"] == "False"
    if refused is not None and waits and refused.get("message") not in {None, "", told}:
        yield News(reason=refused["reason"], message=refused["message"], type_="Warning")


def _checks(before: Object, after: Object) -> Iterator[News]:
    """Whose answer is another one than before; at first all are pending, which is no news."""
    old = {one["name"]: one["state"] for one in _check_states(before)}
    for check in _check_states(after):
        name, state, was = check["name"], check["state"], old.get(check["name"], "Pending")
        if state != was:
            text = f"Admission check {name} updated state from {was} to {state}"
            said = f" with message: {check['message']}" if check.get("message") else ""
            yield News(reason="AdmissionCheckUpdated", message=f"{text}{said}")


def _check_states(obj: Object) -> list[Object]:
    return (obj.get("status") or {}).get("admissionChecks") or []


def _put_out(obj: Object, target: Object) -> Iterator[News]:
    """What quota's own deactivations are warned of, besides the eviction."""
    if target["reason"] == "MaximumExecutionTimeExceeded":
        limit = (obj.get("spec") or {}).get("maximumExecutionTimeSeconds")
        text = f"The maximum execution time ({limit}s) exceeded"
        yield News(reason=target["reason"], message=text, type_="Warning")
    elif target["reason"] == "AdmissionCheck":
        text = f"Deactivated due to {target['message']}"
        yield News(reason="AdmissionCheckRejected", message=text, type_="Warning")


def _queued_since(obj: Object, conditions: Conditions) -> datetime | None:
    requeued = conditions.get(REQUEUED)
    if requeued is not None and requeued.get("status") == "True":
        return _time(requeued)
    created = obj["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(created) if created else None


def _time(condition: Object | None) -> datetime | None:
    value = (condition or {}).get("lastTransitionTime")
    return datetime.fromisoformat(value) if value else None


def _seconds(since: datetime | None, until: datetime) -> int:
    return 0 if since is None else max(0, int((until - since).total_seconds()))
