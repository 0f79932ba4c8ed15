"""Publishes the answers of MultiKueue checks.

An answer is published before any order, and only if nobody else has answered since. So after a restart, and
with a second dispatcher, the recorded answer decides.
"""

from collections.abc import Callable
from datetime import datetime

from services.dispatcher.planning.plan import Answer
from services.dispatcher.store import Store
from shared.bus.fencing import Fence
from shared.bus.port import Bus
from shared.contracts.controllers import ANSWERED_BY, MULTIKUEUE, CheckStatus
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.checks import CheckState


class CheckStatePublisher:
    """The only writer of the hub's MultiKueue check states in one term."""

    def __init__(
        self,
        *,
        store: Store,
        bus: Bus,
        now: Callable[[], datetime],
        retry_seconds: float,
    ) -> None:
        self._store = store
        self._fence = Fence(bus)
        self._now = now
        self._retry_seconds = retry_seconds

    def mark_read(self, sequence: int) -> None:
        """Record that all check states up to a sequence were read, even those that the store dropped."""
        self._fence.mark_read(sequence)

    async def answer(self, admission: Admission, answer: Answer) -> None:
        """Publish an answer, unless it is the recorded one of this reservation."""
        delay = 0.0 if answer.requeues_immediately else self._retry_seconds
        await self._publish(
            admission,
            answer.state,
            answer.message,
            spoke=answer.spoke,
            requeue_after_seconds=delay if answer.state == "Retry" else None,
        )

    async def reject(self, admission: Admission, message: str) -> None:
        """Reject a workload that can run on no spoke, now or later."""
        await self._publish(admission, "Rejected", message, spoke=None, requeue_after_seconds=None)

    async def _publish(
        self,
        admission: Admission,
        state: CheckStatus,
        message: str,
        *,
        spoke: str | None,
        requeue_after_seconds: float | None,
    ) -> None:
        name = self._store.multikueue_check(admission)
        assert name is not None, "only workloads with a MultiKueue check are planned"
        known = self._store.answers.get(admission.ref)
        if (
            known is not None
            and known.message.answers(admission)
            and (known.message.state, known.message.message) == (state, message)
        ):
            return
        check = CheckState.answer(
            admission,
            name,
            state,
            message,
            service=ANSWERED_BY[MULTIKUEUE],
            now=self._now(),
            spoke=spoke,
            requeue_after_seconds=requeue_after_seconds,
        )
        last = 0 if known is None else known.sequence
        sequence = await self._fence.publish_check(check, known=last)
        self._store.record_answer(check, sequence)
