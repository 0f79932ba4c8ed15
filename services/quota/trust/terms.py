"""The number of the next term (ADR 94).

Log and view may have lost the same tail, and with it a `Term` and decisions that were carried out. Outcomes
of them may be on the log or on their way, and name that term: a new one must be above it. The present second
is above it, where the clocks agree. Where they do not, an outcome is believed within bounds.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from services.quota.trust.refusals import OutcomeRule, refuse
from services.quota.wire.entries import message_type, ruling_in
from shared.bus.follow import read
from shared.bus.port import Entry
from shared.contracts.messages.admissions import Admission, Term
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.subjects import Stream, workload_of
from shared.telemetry import probes

AHEAD_SECONDS_MAX: Final = 3_600
"""How far above the present second an outcome may raise the term: clocks that differ by more are broken.

Whoever raises it gains nothing: the next term is above it, and has as many digits.
"""


def next_term(inbox: Iterable[tuple[str, Entry]], now: datetime, *, above: int) -> int:
    """A number above every term that anybody may have seen.

    `inbox`: stream and entry of what was read. `above`: the highest term of the log, which a view may not
    have yet: readers drop the decisions of a leader that is not above it. Of outcomes, only those count that
    are about a workload which exists: its cluster's patcher was sent the decision, and nobody else can
    publish under its name.
    """
    entries = list(inbox)
    present = int(now.timestamp())
    decided = (_term_of(entry) for stream, entry in entries if stream == Stream.ADMISSIONS)
    known = max(present - 1, *decided, 0)
    probes.TERM_UNREAD.fired += above > known
    highest = max(known, above)
    outcomes = [
        outcome
        for stream, entry in entries
        if stream == Stream.OUTCOMES
        and (outcome := ruling_in(entry, Outcome)) is not None
        and outcome.term > highest
    ]
    if not outcomes:
        return highest + 1
    named = {outcome.ref for outcome in outcomes}
    states = {
        ref: entry
        for stream, entry in entries
        if stream == Stream.WORKLOADS and (ref := workload_of(entry.subject)) in named
    }
    for outcome in outcomes:
        if outcome.term > present + AHEAD_SECONDS_MAX:
            refuse(
                outcome,
                OutcomeRule.TERM_AHEAD,
                term=outcome.term,
                seconds=AHEAD_SECONDS_MAX,
                present=present,
            )
            continue
        state = read(states.get(outcome.ref), WorkloadState)
        if state is not None and state.uid == outcome.uid:
            highest = max(highest, outcome.term)
    return highest + 1


def _term_of(entry: Entry) -> int:
    """The term in an entry of `ADMISSIONS`; 0 if it cannot be read."""
    kind = message_type(Stream.ADMISSIONS, entry.subject)
    message = ruling_in(entry, Admission) if kind is Admission else ruling_in(entry, Term)
    return message.term if message is not None else 0
