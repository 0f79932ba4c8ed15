"""Makes the Workload object of a job, or takes the one that the job's user wrote before."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime

from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.writer import Writer
from services.patcher.metrics import observe_creation_latency
from services.patcher.workloads import manifest
from shared.bus.port import LaterError
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import WORKLOAD
from shared.contracts.messages.workloads import WorkloadState
from shared.integrations import Integration
from shared.kube.port import NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCreation:
    """The Workload objects of one cluster's jobs, until they exist and belong to their jobs."""

    writer: Writer
    events: EventRecorder
    now: Callable[[], datetime]
    labels_to_copy: Collection[str] = ()
    """Keys of the labels that a Workload gets from its job."""

    async def create(
        self, state: WorkloadState, job: Body, integration: Integration
    ) -> Body | None:
        """Create the Workload of a job; None if its user names one, which is not there yet."""
        if state.prebuilt:
            text = state.inadmissible or f"Workload {state.name} is not there yet"
            self.events.record(integration.kind, job, "ErrWorkloadCompose", text, type_="Warning")
            return None
        wanted = manifest.workload_object(
            state, job, integration, labels_to_copy=self.labels_to_copy
        )
        try:
            created, is_new = await self.writer.create(WORKLOAD, wanted)
        except NotFoundError as error:
            raise LaterError(f"namespace {state.namespace} is gone: {error}") from error
        is_lacking = state.unresolved not in {None, state.inadmissible}
        if is_new and is_lacking and state.priority_class:
            self.events.record(
                integration.kind,
                job,
                "WorkloadPriorityClassNotFound",
                str(state.unresolved),
                type_="Warning",
            )
        if is_new:
            observe_creation_latency(integration.kind.kind, job, self.now())
            text = f"Created Workload: {state.namespace}/{state.name}"
            self.events.record(integration.kind, job, "CreatedWorkload", text)
        return created

    async def adopt(self, obj: Body, state: WorkloadState) -> Body:
        """Let the job control the Workload that its user names; nothing for any other. Can be repeated."""
        if not state.prebuilt or "deletionTimestamp" in obj["metadata"]:
            return obj
        return await self.writer.patch(
            WORKLOAD, obj, lambda current: manifest.adoption_patch(current, state)
        )
