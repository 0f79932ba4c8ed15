"""Says, as the admission check, how far the machines of each reservation are."""

from collections.abc import Callable
from datetime import datetime

import structlog

from services.provisioner.checks.reservations import Answer, Reservations
from services.provisioner.config.host_config import HostConfig
from shared.bus.port import Bus, FencedError
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.effects import CheckState

__all__ = ["Checks"]

log = structlog.get_logger(__name__)


class Checks:
    """The writer of our checks. What they say is `Reservations`' to know."""

    def __init__(
        self,
        *,
        cluster: str,
        bus: Bus,
        reservations: Reservations,
        retry_seconds: float,
        now: Callable[[], datetime],
    ) -> None:
        """`retry_seconds`: how long a run waits that could not have its machines."""
        self._cluster = cluster
        self._bus = bus
        self._reservations = reservations
        self._retry_seconds = retry_seconds
        self._now = now

    async def answer(self, config: HostConfig) -> None:
        """Say what was not said yet. Raises `BusError` where somebody else has answered."""
        for admission in self._reservations.take_unanswered():
            answer = self._reservations.answer(admission, config)
            for check in self._reservations.checks_of(admission):
                if not self._reservations.is_said(admission, check, answer):
                    await self._say(admission, check, answer)

    async def _say(self, admission: Admission, check: str, answer: Answer) -> None:
        said = CheckState(
            cluster=self._cluster,
            namespace=admission.namespace,
            name=admission.name,
            uid=admission.uid,
            check=check,
            state=answer.state,
            message=answer.message,
            requeue_after_seconds=self._retry_seconds if answer.state == "Retry" else None,
            attempt=admission.number,
            # Quota ignores what is older than its reservation, and our clock may be behind.
            at=max(self._now(), admission.decided_at),
            traceparent=admission.traceparent,
        )
        latest = await self._bus.latest("CHECKS", said.subject)
        known = self._reservations.sequence_of(admission, check)
        if latest is not None and known < latest.sequence:
            raise FencedError(f"{said.subject}: somebody else has answered")
        sequence = await self._bus.publish(
            said, expect_subject=latest.sequence if latest is not None else 0
        )
        self._reservations.remember(said, sequence)
        log.info("check", workload=said.name, state=said.state, message=said.message)
