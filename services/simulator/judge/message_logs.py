"""The decoded messages of the streams, each in the order of its stream."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Generic, TypeVar

from shared.bus.headers import TYPE
from shared.bus.port import Entry
from shared.contracts.messages.admissions import HOLDING, Admission, Term
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.outcomes import DeadLetter, Outcome
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.subjects import Stream

M = TypeVar("M", bound=Message)

LOGS: Final = (Stream.OBSERVED, Stream.WORKLOADS, Stream.ADMISSIONS, Stream.OUTCOMES, Stream.DEAD)
"""The streams that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Generic[M]):
    """One message and its sequence in its stream."""

    sequence: int
    time: datetime
    """When the stream stored it."""

    message: M


@dataclass(slots=True, kw_only=True)
class MessageLogs:
    """All messages, stream by stream."""

    observed: list[Record[Observed]] = field(default_factory=list)
    workloads: list[Record[WorkloadState]] = field(default_factory=list)
    admissions: list[Record[Admission]] = field(default_factory=list)
    terms: list[Record[Term]] = field(default_factory=list)
    outcomes: list[Record[Outcome]] = field(default_factory=list)
    dead: list[Record[DeadLetter]] = field(default_factory=list)
    lost_at: dict[int, datetime] = field(default_factory=dict)
    """Sequence of a message in `observed` to when its log lost it."""

    replicated: bool = False
    """On three servers a window of decisions may stand in the log without its first one (ADR 100)."""


def read_logs(entries: Iterable[Entry]) -> MessageLogs:
    """Decode entries of the streams and sort them by message type. Keeps the order of each stream.

    Messages of other types are skipped. Raises `UndecodableError` for an invalid body.
    """
    message_logs = MessageLogs()
    for entry in entries:
        type_ = entry.headers.get(TYPE)
        if type_ == Observed.type:
            message_logs.observed.append(_record(entry, Observed))
        elif type_ == WorkloadState.type:
            message_logs.workloads.append(_record(entry, WorkloadState))
        elif type_ == Admission.type:
            message_logs.admissions.append(_record(entry, Admission))
        elif type_ == Term.type:
            message_logs.terms.append(_record(entry, Term))
        elif type_ == Outcome.type:
            message_logs.outcomes.append(_record(entry, Outcome))
        elif type_ == DeadLetter.type:
            message_logs.dead.append(_record(entry, DeadLetter))
    return message_logs


def without_void(message_logs: MessageLogs) -> MessageLogs:
    """Return the logs without decisions that no reader believes: a later term had begun before them.

    On three servers such a decision of a replaced leader can be stored (ADR 5).
    """
    begun = [(one.sequence, (one.message.epoch, one.message.term)) for one in message_logs.terms]

    def is_void(record: Record[Admission]) -> bool:
        ruling = (record.message.epoch, record.message.term)
        return any(sequence < record.sequence and later > ruling for sequence, later in begun)

    valid = [record for record in message_logs.admissions if not is_void(record)]
    return replace(message_logs, admissions=valid)


def without_ghosts(message_logs: MessageLogs) -> MessageLogs:
    """Return the logs without decisions by which work that was gone and released has quota again.

    A leader decides so about what a killed server brought back, until it has compared that with the log
    (ADR 139). Nothing runs by such a decision.
    """
    gone: dict[str, datetime] = {}
    for state in message_logs.workloads:
        if state.message.phase == "gone":
            gone.setdefault(state.message.uid, state.time)
        else:
            gone.pop(state.message.uid, None)
    released: set[str] = set()
    real = []
    for one in message_logs.admissions:
        uid, at = one.message.uid, gone.get(one.message.uid)
        if one.message.state not in HOLDING and at is not None and one.time >= at:
            released.add(uid)
        if one.message.state not in HOLDING or uid not in released:
            real.append(one)
    return replace(message_logs, admissions=real)


def _record(entry: Entry, type_: type[M]) -> Record[M]:
    message = type_.decode(entry.data, entry.headers)
    return Record(sequence=entry.sequence, time=entry.time, message=message)
