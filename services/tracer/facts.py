"""What the logs say of a workload, as far as its trace needs it."""

from dataclasses import dataclass
from datetime import datetime

from shared.bus.port import Entry
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.effects import CheckState, Dispatch, Outcome
from shared.contracts.messages.workloads import WorkloadState

__all__ = [
    "LOGS",
    "Asked",
    "Checked",
    "Decided",
    "Done",
    "Fact",
    "Ident",
    "Ordered",
    "asked",
    "fact_of",
]

LOGS = ("WORKLOADS", "ADMISSIONS", "CHECKS", "DISPATCHES", "OUTCOMES")
"""In the order in which what they say at one instant follows from one another."""

Ident = tuple[str, str, str]
"""Cluster, namespace and name of a workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that was put on a log."""

    log: str
    sequence: int
    uid: str
    """Of the workload that is meant."""

    at: datetime
    """By the clock of whoever said it."""

    stored: datetime
    """By the server's, which orders facts of different logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Fact):
    """How the job stood."""

    phase: str
    pods_ready: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided(Fact):
    """What quota decided."""

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
class Checked(Fact):
    """What the owner of an admission check said."""

    check: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Fact):
    """What the patcher did."""

    action: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered(Fact):
    """What a spoke was told to make."""

    state: str
    spoke: str


def fact_of(log: str, entry: Entry) -> tuple[Ident, Fact] | None:
    """Read an entry of any log but `WORKLOADS`; None where no trace needs it. Raises `UndecodableError`."""
    match log:
        case "ADMISSIONS" if entry.subject.startswith("sluice.admission."):
            return _decided(entry.read(Admission), entry)
        case "CHECKS":
            check = entry.read(CheckState)
            return (check.cluster, check.namespace, check.name), Checked(
                log=log, sequence=entry.sequence, uid=check.uid, at=check.at, stored=entry.time,
                check=check.check, state=check.state,
            )  # fmt: skip
        case "OUTCOMES":
            done = entry.read(Outcome)
            return (done.cluster, done.namespace, done.name), Done(
                log=log, sequence=entry.sequence, uid=done.uid, at=done.at, stored=entry.time,
                action=done.action, result=done.result,
            )  # fmt: skip
        case "DISPATCHES" if entry.subject.startswith("sluice.dispatch."):
            order = entry.read(Dispatch)
            # Of the copy: its workload has the name of the one at home, and a uid of its own.
            return (order.spoke, order.namespace, order.name), Ordered(
                log=log, sequence=entry.sequence, uid="", at=order.at, stored=entry.time,
                state=order.state, spoke=order.spoke,
            )  # fmt: skip
        case _:
            return None


def asked(state: WorkloadState, entry: Entry) -> Asked:
    """What a state of a workload says."""
    return Asked(
        log="WORKLOADS",
        sequence=entry.sequence,
        uid=state.uid,
        at=entry.time,
        stored=entry.time,
        phase=state.phase,
        pods_ready=state.pods_ready,
    )


def _decided(said: Admission, entry: Entry) -> tuple[Ident, Fact]:
    return (said.cluster, said.namespace, said.name), Decided(
        log="ADMISSIONS",
        sequence=entry.sequence,
        uid=said.uid,
        at=said.decided_at,
        stored=entry.time,
        state=said.state,
        reason=said.reason,
        message=said.message,
        cluster_queue=said.cluster_queue,
        term=said.term,
        number=said.number,
        checks=tuple(said.checks),
        spoke=said.spoke,
        preempted_by=said.preempted_by,
    )
