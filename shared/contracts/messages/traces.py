"""How far the traces are that a collector was given."""

from datetime import datetime
from typing import ClassVar

from shared.contracts import subjects
from shared.contracts.messages.base import Message


class Traced(Message):
    """What a collector has taken. Nobody else knows it: whoever traces next goes on from here."""

    stream: ClassVar[str] = "TRACES"
    type: ClassVar[str] = "dev.sluicegate.traced.v1"

    ended: int
    """The last sequence of `WORKLOADS` up to which the trace of every workload that ended was taken."""

    batches: int
    """Likewise of `ADMISSIONS`, for the traces of decisions that were published together."""

    since: dict[str, int] = {}
    """Log to the first sequence of it that a workload whose trace is still open may need."""

    at: datetime

    @property
    def subject(self) -> str:
        """``sluice.traced.all``."""
        return subjects.join("traced", "all")
