"""The events of a workload that its trace shows, read from the logs."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from shared.bus.follow import read
from shared.bus.port import Entry
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import Stream, message_sort

LOGS: Final = (
    Stream.WORKLOADS,
    Stream.ADMISSIONS,
    Stream.CHECKS,
    Stream.DISPATCHES,
    Stream.OUTCOMES,
)
"""All logs that are read. Of events that were stored at the same time, an earlier log's come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """A message about one workload."""

    log: str
    sequence: int
    uid: str
    """Of the workload; empty for an order, which does not know the uid of its copy."""

    at: datetime
    """By the publisher's clock."""

    stored: datetime
    """By the NATS server's clock: it orders events of different logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEvent(TraceEvent):
    """A state of the workload."""

    phase: str
    pods_ready: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionEvent(TraceEvent):
    """A decision of quota."""

    state: str
    reason: str
    message: str
    cluster_queue: str
    term: int
    number: int
    checks: tuple[str, ...]
    spoke: str | None
    preempted_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEvent(TraceEvent):
    """An answer of an admission check."""

    check: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeEvent(TraceEvent):
    """What the patcher did."""

    action: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderEvent(TraceEvent):
    """An order to the spoke where the workload is a copy."""

    state: str
    spoke: str


def read_event(log: str, entry: Entry) -> tuple[WorkloadRef, TraceEvent] | None:
    """Read an entry of any log but `WORKLOADS`; None if no trace needs it, or if it cannot be read."""
    match log:
        case Stream.ADMISSIONS if message_sort(entry.subject) == "admission":
            admission = read(entry, Admission)
            return None if admission is None else (admission.ref, _decision(admission, entry))
        case Stream.CHECKS if (check := read(entry, CheckState)) is not None:
            return check.ref, CheckEvent(
                log=log, sequence=entry.sequence, uid=check.uid, at=check.at, stored=entry.time,
                check=check.check, state=check.state,
            )  # fmt: skip
        case Stream.OUTCOMES if (outcome := read(entry, Outcome)) is not None:
            return outcome.ref, OutcomeEvent(
                log=log, sequence=entry.sequence, uid=outcome.uid, at=outcome.at, stored=entry.time,
                action=outcome.action, result=outcome.result,
            )  # fmt: skip
        case Stream.DISPATCHES if message_sort(entry.subject) == "dispatch":
            order = read(entry, Dispatch)
            if order is None:
                return None
            # The copy's workload has the hub workload's name, and a uid of its own.
            return order.ref.on(order.spoke), OrderEvent(
                log=log, sequence=entry.sequence, uid="", at=order.at, stored=entry.time,
                state=order.state, spoke=order.spoke,
            )  # fmt: skip
        case _:
            return None


def phase_event(state: WorkloadState, entry: Entry) -> PhaseEvent:
    """The event of a workload's state."""
    return PhaseEvent(
        log=Stream.WORKLOADS,
        sequence=entry.sequence,
        uid=state.uid,
        at=entry.time,
        stored=entry.time,
        phase=state.phase,
        pods_ready=state.pods_ready,
    )


def _decision(admission: Admission, entry: Entry) -> DecisionEvent:
    return DecisionEvent(
        log=Stream.ADMISSIONS,
        sequence=entry.sequence,
        uid=admission.uid,
        at=admission.decided_at,
        stored=entry.time,
        state=admission.state,
        reason=admission.reason,
        message=admission.message,
        cluster_queue=admission.cluster_queue,
        term=admission.term,
        number=admission.number,
        checks=tuple(admission.checks),
        spoke=admission.spoke,
        preempted_by=admission.preempted_by,
    )
