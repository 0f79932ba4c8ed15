"""What is done to the job behind a workload: released, stopped, restored, held back. Repeatable."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, Literal

import structlog

from services.patcher.cluster.cache import Mirror
from services.patcher.cluster.events import Events
from services.patcher.cluster.writer import Writer, may_pass
from services.patcher.coscheduling.plan import is_marked
from services.patcher.coscheduling.reconciler import Placeholders
from services.patcher.jobs.recreation import Recreation
from shared.bus.port import Bus, LaterError
from shared.contracts.kube import kinds
from shared.contracts.kube.conditions import EVICTED, find_condition, message_of
from shared.contracts.kube.kinds import WORKLOAD, Object
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.effects import Outcome
from shared.contracts.messages.spokes import is_managed_elsewhere
from shared.contracts.messages.workloads import OwnerReference, WorkloadState
from shared.integrations import Integration, ObjectError, PodSetInfo
from shared.integrations.pointers import found
from shared.kube.port import NotFoundError, Patch, RefusedError
from shared.telemetry.tracing import Tracing

__all__ = ["Jobs"]

log = structlog.get_logger(__name__)

RELEASE_REFUSED: Final = "ReleaseRefused"
UNKNOWN_KIND_SECONDS: Final = 5.0
"""How long until a job is tried again whose Integration is not known, or was deleted too early."""

STOP_REFUSED: Final = "StopRefused"
DEACTIVATED: Final = "Deactivated"
"""Reasons of an eviction begin with it after which the job is not to run again."""


class Jobs:
    """The jobs of one cluster, and the outcomes of what was done to them."""

    def __init__(
        self,
        *,
        bus: Bus,
        mirror: Mirror,
        writer: Writer,
        events: Events,
        placeholders: Placeholders,
        now: Callable[[], datetime],
        tracing: Tracing,
        not_seen_seconds: float,
        may_start: Callable[[Object], Awaitable[bool]],
    ) -> None:
        self._may_start = may_start
        self._bus = bus
        self._mirror = mirror
        self._writer = writer
        self._events = events
        self._placeholders = placeholders
        self._now = now
        self._tracing = tracing
        self._not_seen_seconds = not_seen_seconds
        self._recreation = Recreation(writer=writer, events=events)

    async def find(self, state: WorkloadState) -> tuple[Object | None, Integration]:
        """The job of that life, and how its kind is treated; None if it is gone."""
        assert state.owner is not None
        group = state.owner.api_version.rpartition("/")[0]
        integration = self._mirror.integrations.find(group=group, plural=state.owner.plural)
        if integration is None:
            text = f"no Integration for {state.owner.plural}.{group} was observed yet"
            raise LaterError(text, delay_seconds=UNKNOWN_KIND_SECONDS)
        job = self._mirror.object(integration.kind, state.namespace, state.owner.name)
        if job is None or job["metadata"]["uid"] != state.owner.uid:
            job = await self._writer.get(integration.kind, state.namespace, state.owner.name)
        if job is not None and job["metadata"]["uid"] != state.owner.uid:
            job = None  # The name lives again; its own workload will come.
        return job, integration

    async def release(self, state: WorkloadState, admission: Admission, workload: Object) -> None:
        """Let it run where its flavors are. What the cluster will never take is reported back."""
        job, integration = await self.find(state)
        if job is None:
            return
        if not integration.held(job) or not await self._may_start(job):
            return
        infos = self._pod_set_infos(admission)

        def patch(current: Object) -> Patch | None:
            return integration.release(current, infos) if integration.held(current) else None

        try:
            selector = {key: value for info in infos for key, value in info.node_selector.items()}
            await self._placeholders.prepare(job, workload, admission, selector)
            after = await self._writer.patch(integration.kind, job, patch)
        except (RefusedError, ObjectError) as error:
            if isinstance(error, RefusedError) and may_pass(error):
                raise
            log.warning("the cluster refuses a release", workload=state.name, error=str(error))
            for kind, obj in ((integration.kind, job), (WORKLOAD, workload)):
                self._events.say(kind, obj, RELEASE_REFUSED, str(error), type_="Warning")
            await self.report(state, admission, "refused", "release", message=str(error))
            return
        except NotFoundError:
            return
        if after is job or integration.held(after):
            return
        text = f"Admitted by clusterQueue {admission.cluster_queue}"
        self._events.say(integration.kind, after, "Started", text)
        await self.report(state, admission, "applied", "release", after=after)
        self._tracing.span(
            "release",
            parent=state.traceparent,
            start=admission.decided_at,
            end=self._now(),
            attributes={"sluicegate.workload": state.name, "sluicegate.term": admission.term},
        )

    async def withdraw(self, state: WorkloadState, workload: Object) -> Object:
        """Take away what was prepared for a start that does not come; the Workload as it then is."""
        if not is_marked(workload):
            return workload
        job, _ = await self.find(state)
        return workload if job is None else await self._placeholders.withdraw(job, workload)

    async def clean_up(self, owner: OwnerReference, workload: Object) -> None:
        """Take away what was made for a job that has ended."""
        await self._placeholders.clean_up(owner.name, owner.uid, workload)

    async def stop(self, state: WorkloadState, admission: Admission, workload: Object) -> None:
        """Take the job off the cluster; its quota is free once its pods are gone."""
        job, integration = await self.find(state)
        if job is None:
            return
        elsewhere = is_managed_elsewhere(job)
        if integration.stop(job) is None and not integration.held(job) and not elsewhere:
            await self._end(state, admission, job, integration)
            return

        def patch(current: Object) -> Patch | None:
            return None if integration.held(current) or elsewhere else integration.stop(current)

        try:
            after = await self._writer.patch(integration.kind, job, patch)
        except NotFoundError:
            return
        if not integration.held(after) and integration.stop(after) is None and not elsewhere:
            raise LaterError(f"{integration.kind.kind} {state.name} started meanwhile")
        if after is not job:
            text = message_of(find_condition(workload, EVICTED)) or admission.message
            self._events.say(integration.kind, after, "Stopped", text)
        await self.report(state, admission, "applied", "suspend", after=after)

    async def _end(
        self, state: WorkloadState, admission: Admission, job: Object, integration: Integration
    ) -> None:
        """Its kind cannot be suspended. Where nobody wants it ended, it runs on, and holds its quota."""
        for_good = admission.reason.startswith(DEACTIVATED)
        if integration.finish(job) is not None:
            return  # Its end is on its way.
        if not for_good and state.on_eviction != "recreate":
            text = f"a started {integration.kind.kind} cannot be stopped and resumed"
            await self.report(state, admission, "refused", "suspend", message=text, after=job)
            return
        try:
            after = await self._recreation.end(
                job, integration, why=admission.message, anew=not for_good
            )
        except RefusedError as error:
            if may_pass(error):
                raise
            self._events.say(integration.kind, job, STOP_REFUSED, str(error), type_="Warning")
            await self.report(state, admission, "refused", "suspend", message=str(error), after=job)
            return
        if after is not None:
            await self.report(state, admission, "applied", "suspend", after=after)

    async def restore(self, state: WorkloadState, workload: Object) -> None:
        """Give a stopped job back what its flavors and a partial admission had changed.

        How it was is in the Workload's pod sets, which nobody changes while it has quota. This goes
        before QuotaReserved=False: from then on the job itself says what it asks.
        """
        job, integration = await self.find(state)
        if job is None:
            return
        original = (workload.get("spec") or {}).get("podSets") or []

        def patch(current: Object) -> Patch | None:
            return integration.restore(current, original) if integration.held(current) else None

        if patch(job) is None:
            return
        if found(job, ("status", "startTime")):
            # The API server lets a template change only where nothing ever started.
            uid = job["metadata"]["uid"]
            reset = {"metadata": {"uid": uid}, "status": {"startTime": None}}
            await self._tried(state, integration, job, lambda _job: reset, subresource="status")
            job, _ = await self.find(state)
        if job is not None:
            await self._tried(state, integration, job, patch)

    async def hold(self, state: WorkloadState, admission: Admission | None) -> None:
        """A job that slipped past the webhook and did not start yet is made to wait."""
        if state.held or state.pods_active:
            return
        if admission is not None and admission.state == "released":
            return
        job, integration = await self.find(state)
        if job is None:
            return

        def patch(current: Object) -> Patch | None:
            started = integration.held(current) or integration.active(current)
            done = integration.finish(current) is not None
            return None if started or done else integration.hold(current)

        after = await self._tried(state, integration, job, patch)
        if after is not None and after is not job:
            log.warning("held a job back that the webhook had not seen", workload=state.name)
            text = "Kept suspended until its workload is admitted"
            self._events.say(integration.kind, after, "Suspended", text)

    async def report(
        self,
        state: WorkloadState,
        admission: Admission,
        result: Literal["applied", "refused", "gone"],
        action: str,
        *,
        after: Object | None = None,
        message: str = "",
    ) -> None:
        """Tell quota what became of its decision."""
        version = "" if after is None else str(after["metadata"].get("resourceVersion", ""))
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
            at=self._now(),
            traceparent=state.traceparent,
        )
        await self._bus.publish(outcome)

    async def _tried(
        self,
        state: WorkloadState,
        integration: Integration,
        job: Object,
        patch: Callable[[Object], Patch | None],
        *,
        subresource: str | None = None,
    ) -> Object | None:
        """Patch it if the cluster takes that: what it refuses here must not hold anything up."""
        try:
            return await self._writer.patch(integration.kind, job, patch, subresource=subresource)
        except (NotFoundError, RefusedError) as error:
            log.info("the cluster does not take a change", job=state.name, error=str(error))
            return None

    def _pod_set_infos(self, admission: Admission) -> tuple[PodSetInfo, ...]:
        infos = []
        for assigned in admission.pod_sets:
            selector: dict[str, str] = {}
            tolerations: list[Object] = []
            for flavor_name in dict.fromkeys(assigned.flavors.values()):
                flavor = self._mirror.object(kinds.RESOURCE_FLAVOR, None, flavor_name)
                if flavor is None:
                    text = f"ResourceFlavor {flavor_name} was not observed yet"
                    raise LaterError(text, delay_seconds=self._not_seen_seconds)
                spec = flavor.get("spec") or {}
                selector.update(spec.get("nodeLabels") or {})
                tolerations.extend(spec.get("tolerations") or [])
            infos.append(
                PodSetInfo(
                    name=assigned.name,
                    count=assigned.count,
                    node_selector=selector,
                    tolerations=tuple(tolerations),
                )
            )
        return tuple(infos)
