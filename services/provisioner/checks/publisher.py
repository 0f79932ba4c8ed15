"""Publishes the answers of the admission check `sluicegate.dev/machines`."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from services.provisioner.checks.reservations import CheckAnswer, Reservations
from services.provisioner.config.host_config import HostConfig
from shared.bus.fencing import Fence
from shared.contracts.controllers import ANSWERED_BY, MACHINES
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.checks import CheckState


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPublisher:
    """The only writer of the provisioner's checks. `Reservations` knows the answers."""

    fence: Fence
    reservations: Reservations
    retry_seconds: float
    """How long a run waits after it could not get its machines."""

    now: Callable[[], datetime]

    async def publish_changed(self, config: HostConfig) -> None:
        """Publish the answers that changed. Raises `FencedError` if another replica has answered."""
        for admission in self.reservations.pop_unanswered():
            answer = self.reservations.answer(admission, config)
            for check in self.reservations.checks_of(admission):
                if not self.reservations.is_published(admission, check, answer):
                    await self._publish(admission, check, answer)

    async def _publish(self, admission: Admission, check: str, answer: CheckAnswer) -> None:
        state = CheckState.answer(
            admission,
            check,
            answer.state,
            answer.message,
            service=ANSWERED_BY[MACHINES],
            now=self.now(),
            requeue_after_seconds=self.retry_seconds if answer.state == "Retry" else None,
        )
        known = self.reservations.sequence_of(admission, check)
        sequence = await self.fence.publish_check(state, known=known)
        self.reservations.apply_check_state(state, sequence)
