"""Counts and logs what quota does not believe."""

from typing import Final

import structlog

from shared.contracts.messages.base import Message
from shared.telemetry.metrics import REFUSED
from shared.telemetry.once import Once

log = structlog.get_logger(__name__)

REMEMBERED_MAX: Final = 1_000
"""Refusals that are remembered: each is logged once, and nobody floods the log with many."""

_logged: Final = Once(REMEMBERED_MAX)


def refuse(message: Message, label: str, reason: str, text: str) -> None:
    """Count a message that changes nothing; log it once for each subject and reason.

    `label` and `reason` are labels of the counter: few values, no names of objects.
    """
    REFUSED.labels(message=label, reason=reason).inc()
    if _logged.is_new((message.subject, reason)):
        log.warning("a message is refused", subject=message.subject, reason=reason, error=text)
