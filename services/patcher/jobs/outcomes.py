"""Reports to the quota service what became of its decisions."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from services.patcher.cluster.cache import ObjectCache
from shared.bus.headers import EVENT_ID
from shared.bus.port import Bus, Entry, LaterError
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.numbers import whole_number
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.subjects import decode

UNREADABLE_DELIVERIES_MAX: Final = 5
"""Attempts after which the workload of an unreadable decision counts as gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """The outcomes of one cluster."""

    bus: Bus
    cache: ObjectCache
    now: Callable[[], datetime]

    async def report(
        self,
        state: WorkloadState,
        admission: Admission,
        result: Literal["applied", "refused", "gone"],
        action: str,
        *,
        after: Body | None = None,
        version: str = "",
        message: str = "",
    ) -> None:
        """Publish the outcome of an admission. `after`: the job as it was written, or else its `version`."""
        if after is not None:
            version = str(after["metadata"].get("resourceVersion", ""))
        outcome = Outcome(
            cluster=state.cluster,
            namespace=state.namespace,
            name=state.name,
            uid=state.uid,
            result=result,
            action=action,
            term=admission.term,
            number=admission.number,
            version=version,
            message=message,
            at=self.now(),
            traceparent=state.traceparent,
        )
        await self.bus.publish(outcome)

    async def report_unreadable(self, entry: Entry, why: str) -> None:
        """Publish that a decision cannot be read: quota lets go of a job that has not started.

        Raises `LaterError` while the workload is not known yet.
        """
        namespace, name = _names_in(entry.subject)
        state = self.cache.workload(namespace, name)
        if state is None:
            if entry.deliveries < UNREADABLE_DELIVERIES_MAX:
                raise LaterError(f"the workload of an unreadable decision is unknown: {why}")
            return
        text = f"its decision (ADMISSIONS {entry.sequence}) cannot be read: {why}"
        waits = state.held and not state.pods_active
        _, term, number = (entry.headers.get(EVENT_ID, "") + "::").split(":")[:3]
        outcome = Outcome(
            cluster=state.cluster,
            namespace=namespace,
            name=name,
            uid=state.uid,
            result="refused",
            action="release" if waits else "hold",
            term=whole_number(term) or 0,
            number=whole_number(number) or 0,
            message=text,
            at=self.now(),
            traceparent=state.traceparent,
        )
        await self.bus.publish(outcome)

    async def report_readable(self, admission: Admission) -> None:
        """Publish that a decision can be read after all: quota no longer holds the workload back."""
        state = self.cache.workload(admission.namespace, admission.name)
        if state is not None and state.uid == admission.uid:
            await self.report(state, admission, "applied", "hold")


def _names_in(subject: str) -> tuple[str, str]:
    """Namespace and name of the workload in a subject; empty for what is no name."""
    try:
        namespace, name = (decode(token) or "" for token in subject.split(".")[3:5])
    except ValueError:
        return "", ""
    return namespace, name
