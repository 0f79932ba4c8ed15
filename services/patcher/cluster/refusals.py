"""How the patcher refuses a message that asks for what its sender may not ask (ADR 73)."""

from shared.bus.port import NeverError
from shared.telemetry.metrics import REFUSED


def refused(message: str, reason: str, text: str) -> NeverError:
    """Count a refusal; return the error by which the message becomes a dead letter.

    `message` and `reason` are labels: few values, no names of objects.
    """
    REFUSED.labels(message=message, reason=reason).inc()
    return NeverError(text)
