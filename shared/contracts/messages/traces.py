"""The progress of the tracer: which traces a collector has accepted."""

from typing import ClassVar

from shared.contracts import subjects
from shared.contracts.kube.moments import Moment
from shared.contracts.messages.base import Message
from shared.contracts.subjects import Stream


class Traced(Message):
    """What a collector has accepted. The next tracer continues from here."""

    stream: ClassVar[Stream] = Stream.TRACES
    type: ClassVar[str] = "dev.sluicegate.traced.v1"

    ended: int
    """Last sequence of `WORKLOADS` up to which the traces of all ended workloads were accepted."""

    batches: int
    """The same for `ADMISSIONS`, for the traces of decisions that were published together."""

    since: dict[str, int] = {}
    """Log to the first sequence that a workload whose trace is still open may need."""

    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.traced.all``."""
        return subjects.join("traced", "all")
