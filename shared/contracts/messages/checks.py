"""Answers of the services that own admission checks."""

from datetime import datetime
from typing import ClassVar, Literal

from shared.contracts import subjects
from shared.contracts.controllers import CheckService, CheckStatus
from shared.contracts.kube.moments import Moment
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import WorkloadMessage
from shared.contracts.subjects import Stream


class CheckState(WorkloadMessage):
    """The state of one admission check for one workload, as the check's owner publishes it."""

    stream: ClassVar[Stream] = Stream.CHECKS
    type: ClassVar[str] = "dev.sluicegate.check.v1"

    uid: str
    check: str
    service: CheckService | Literal[""] = ""
    """Who answers; part of the subject. Empty in answers of earlier releases."""

    state: CheckStatus
    message: str = ""
    requeue_after_seconds: float | None = None
    spoke: str | None = None
    """MultiKueue only: the cluster that won. It goes into `status.clusterName` of the Workload."""

    attempt: int = 0
    """The reservation of the workload that is answered; not an older one."""

    at: Moment

    @classmethod
    def answer(
        cls,
        admission: Admission,
        check: str,
        state: CheckStatus,
        message: str,
        *,
        service: CheckService,
        now: datetime,
        spoke: str | None = None,
        requeue_after_seconds: float | None = None,
    ) -> "CheckState":
        """The answer of `check` to a reservation."""
        return cls(
            cluster=admission.cluster,
            namespace=admission.namespace,
            name=admission.name,
            uid=admission.uid,
            check=check,
            service=service,
            state=state,
            message=message,
            requeue_after_seconds=requeue_after_seconds,
            spoke=spoke,
            attempt=admission.number,
            # Quota ignores answers that are older than the reservation, and this clock may be behind.
            at=max(now, admission.decided_at),
            traceparent=admission.traceparent,
        )

    def answers(self, admission: Admission) -> bool:
        """Whether this answers the reservation, and not an earlier one."""
        return (
            self.uid == admission.uid
            and self.attempt == admission.number
            and self.at >= admission.decided_at
        )

    @property
    def subject(self) -> str:
        """``sluice.check.<cluster>.<namespace>.<workload>.<check>.<service>``."""
        names = (self.cluster, self.namespace, self.name, self.check)
        return subjects.join("check", *names, detail=self.service or None)
