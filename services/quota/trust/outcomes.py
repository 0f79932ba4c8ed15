"""Which outcomes count: those of the last decision about a workload.

A patcher writes about its own cluster what it likes. So an outcome is compared with what quota has decided:
one of an earlier decision is late; one of an unknown decision is forged, or the log has lost the decision.
"""

from services.quota.trust.refusals import OutcomeRule, refuse
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.outcomes import Outcome
from shared.telemetry import probes

_OF_UNREADABLE = frozenset({("release", "refused"), ("hold", "refused")})
"""Action and result of outcomes that may name no decision: a patcher cannot read it."""


def is_believed(outcome: Outcome, last: Admission, *, counts: bool) -> bool:
    """Whether it can be of the last decision.

    One of an earlier decision is dropped, any other one is refused; `counts`: count and log refusals.
    """
    if _is_late(outcome, last):
        probes.EARLIER_OUTCOME.fired += 1
        return False
    if outcome.term == 0:
        if (outcome.action, outcome.result) in _OF_UNREADABLE:
            return True
        if counts:
            refuse(outcome, OutcomeRule.NO_DECISION, action=outcome.action, result=outcome.result)
        return False
    if (outcome.term, outcome.number) <= (last.term, last.number):
        return True
    if counts:
        refuse(
            outcome,
            OutcomeRule.UNKNOWN_DECISION,
            term=outcome.term,
            number=outcome.number,
            of=outcome.ref.path,
            last_number=last.number,
            last_term=last.term,
        )
    return False


def _is_late(outcome: Outcome, last: Admission) -> bool:
    """Whether it is of an earlier decision. If its decision is unreadable, its time tells."""
    if outcome.term == 0:
        return outcome.at < last.decided_at
    return (outcome.term, outcome.number) < (last.term, last.number)
