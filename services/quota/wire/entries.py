"""Entries of the inputs: of which type each is, and what is read of a newer release."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

from shared.bus.follow import read
from shared.bus.port import Entry
from shared.contracts import subjects
from shared.contracts.messages.admissions import Admission, Term
from shared.contracts.messages.base import Message, without_schema
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.subjects import Stream

R = TypeVar("R", bound=Message)

INPUTS: Final = (
    Stream.OBSERVED,
    Stream.ADMISSIONS,
    Stream.WORKLOADS,
    Stream.CHECKS,
    Stream.OUTCOMES,
)
"""Streams in the order in which a new leader applies them, and a new replica.

Admissions come before workloads, so that a job that runs with an admission is not unplanned.
"""

HIDING: Final[Mapping[str, tuple[type[Message], ...]]] = {
    Stream.OBSERVED: (Observed, Synced),
    Stream.CHECKS: (CheckState,),
    Stream.OUTCOMES: (Outcome,),
}
"""Inputs whose last readable message counts for a new leader, behind one that nobody can read."""

OF_ANY_RELEASE: Final = frozenset({Stream.ADMISSIONS, Stream.CHECKS, Stream.OUTCOMES})
"""Inputs that count whatever release wrote them: who leads, who holds quota, who may run, who has stopped.

Nobody says them again, and what runs by an answer that quota cannot read would be stopped. An outcome frees
only what quota sees stopped.
"""


def message_type(stream: str, subject: str) -> type[Message]:
    """The type of the messages that `stream` carries on `subject`."""
    match stream:
        case Stream.OBSERVED:
            return Synced if subjects.is_synced(subject) else Observed
        case Stream.ADMISSIONS:
            return Term if subject == subjects.TERM_SUBJECT else Admission
        case Stream.WORKLOADS:
            return WorkloadState
        case Stream.CHECKS:
            return CheckState
        case Stream.OUTCOMES:
            return Outcome
        case _:
            raise AssertionError(f"{stream} is no input")


def message_in(stream: str, entry: Entry) -> Message | None:
    """The message of an entry of an input; None: it cannot be read."""
    kind = message_type(stream, entry.subject)
    return ruling_in(entry, kind) if stream in OF_ANY_RELEASE else read(entry, kind)


def ruling_in(entry: Entry, kind: type[R]) -> R | None:
    """A message of one of the inputs `OF_ANY_RELEASE`, also of a newer release."""
    if not kind.is_of_newer_schema(entry.headers):
        return read(entry, kind)
    return read(replace(entry, headers=without_schema(entry.headers)), kind)
