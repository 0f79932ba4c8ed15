"""Refusals of messages of the bus: their rules, and how they are counted."""

from prometheus_client import Counter

from shared.contracts.reasons import RefusalRule
from shared.telemetry.metrics import REFUSED


class MessageRule(RefusalRule):
    """Rules by which a message of the bus is refused."""

    def __init__(self, message: str, label: str, text: str, remedy: str) -> None:
        """`message`: what was refused, as the label of the counter says it."""
        super().__init__(label, text, remedy)
        self.message = message

    @property
    def series(self) -> str:
        """The time series in which a refusal is counted."""
        return series_name(REFUSED, message=self.message, reason=self.label)

    def count(self) -> None:
        """Count a refusal."""
        REFUSED.labels(message=self.message, reason=self.label).inc()


def series_name(counter: Counter, **labels: str) -> str:
    """A counter's time series as a query names it."""
    [family] = counter.describe()
    pairs = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{family.name}_total{{{pairs}}}"
