"""Counts and logs what quota does not believe."""

from typing import Final

import structlog

from shared.contracts.messages.base import Message, WorkloadMessage
from shared.telemetry.log_context import about
from shared.telemetry.once import Once
from shared.telemetry.refusals import MessageRule

log = structlog.get_logger(__name__)

REMEMBERED_MAX: Final = 1_000
"""Refusals that are remembered: each is logged once, and nobody floods the log with many."""

_logged: Final = Once(REMEMBERED_MAX)


class AnswerRule(MessageRule):
    """An answer of an admission check to quota. The check stays as it was."""

    UNKNOWN_CHECK = (
        "unknown-check",
        "AdmissionCheck {check}: there is none of that name",
        "Create the AdmissionCheck, or remove it from the ClusterQueue.",
    )
    ANSWERER = (
        "answerer",
        (
            "AdmissionCheck {check}: spec.controllerName: {controller!r}: {service} does not answer it "
            "on the bus"
        ),
        "Correct `spec.controllerName` of the check; if it is right, rotate the key of that service.",
    )
    SPOKE = (
        "spoke",
        (
            "AdmissionCheck {check}: spec.controllerName: {controller!r}: it sends no work to "
            "spokes, and names "
            "{spoke!r}"
        ),
        "Rotate the key of the service that said so.",
    )

    def __init__(self, label: str, text: str, remedy: str) -> None:
        super().__init__("check", label, text, remedy)


class OutcomeRule(MessageRule):
    """What a patcher reports about a decision of quota. Quota stays held."""

    NO_DECISION = (
        "no-decision",
        "term: 0: {action} {result} must name the decision that it is about",
        "Upgrade the patcher of that cluster, or rotate its key.",
    )
    UNKNOWN_DECISION = (
        "unknown-decision",
        "term, number: {term}, {number}: the last decision about {of} is {last_number} of term {last_term}",
        "`sluice doctor` says whether the log lost decisions; otherwise rotate the key of that patcher.",
    )
    TERM_AHEAD = (
        "term-ahead",
        (
            "term: {term}: more than {seconds} s above the clock ({present}): compare the clocks of quota's "
            "replicas if none of the patchers lies"
        ),
        "Correct the clocks.",
    )

    def __init__(self, label: str, text: str, remedy: str) -> None:
        super().__init__("outcome", label, text, remedy)


def refuse(message: Message, rule: MessageRule, **values: object) -> None:
    """Count a message that changes nothing; log it once for each subject and reason."""
    rule.count()
    if _logged.is_new((message.subject, rule.label)):
        text = rule.says(**values)
        of = message.ref.path if isinstance(message, WorkloadMessage) else ""
        with about(of, message.traceparent):
            log.warning(
                "a message is refused", subject=message.subject, reason=rule.label, error=text
            )
