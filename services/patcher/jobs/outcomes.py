"""Reports to the quota service what became of its decisions."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from services.patcher.cluster.cache import ObjectCache
from shared.bus.port import Bus
from shared.contracts.kube.bodies import Body
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import WorkloadState


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

    async def report_readable(self, admission: Admission) -> None:
        """Publish that a decision can be read after all: quota no longer holds the workload back."""
        state = self.cache.workload(admission.namespace, admission.name)
        if state is not None and state.uid == admission.uid:
            await self.report(state, admission, "applied", "hold")
