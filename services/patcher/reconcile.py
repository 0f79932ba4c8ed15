"""Brings one workload in line with what was decided about it. Every step may be repeated.

The order of writes matters: the Workload object's status is durable before its job is released, so
that whoever finds a running job also finds the admission that let it run.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final, Literal

import structlog

from services.patcher import objects, status
from services.patcher.mirror import Mirror
from shared.bus.port import Bus, LaterError
from shared.contracts import kinds
from shared.contracts.admissions import Admission
from shared.contracts.effects import Outcome
from shared.contracts.integrations import Integration, PodSetInfo, integration_for
from shared.contracts.kinds import WORKLOAD, Object
from shared.contracts.workloads import WorkloadState
from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    Kube,
    NotFoundError,
    Patch,
    RefusedError,
    ThrottledError,
    UnavailableError,
)
from shared.telemetry.tracing import Tracing

__all__ = ["Reconciler"]

log = structlog.get_logger(__name__)

CONFLICTS_MAX: Final = 5
"""How often one write is tried on a fresh state before the message is given back."""


class Reconciler:
    """One cluster's workloads: reads the mirror, writes the cluster, reports outcomes."""

    def __init__(
        self,
        *,
        bus: Bus,
        kube: Kube,
        mirror: Mirror,
        now: Callable[[], datetime],
        tracing: Tracing,
        not_seen_seconds: float,
    ) -> None:
        self._bus = bus
        self._kube = kube
        self._mirror = mirror
        self._now = now
        self._tracing = tracing
        self._not_seen_seconds = not_seen_seconds

    async def reconcile(self, namespace: str, name: str) -> None:
        """Do what is left to do for one workload. Raises `LaterError` where the cluster says not now."""
        try:
            await self._reconcile(namespace, name)
        except ThrottledError as error:
            raise LaterError(str(error), delay_seconds=error.retry_after_seconds) from error
        except (ConflictError, UnavailableError) as error:
            raise LaterError(str(error)) from error

    async def _reconcile(self, namespace: str, name: str) -> None:
        state = self._mirror.workload(namespace, name)
        admission = self._mirror.admission(namespace, name)
        if state is None:
            if self._mirror.not_synced() is not None:
                raise self._not_seen(f"workload {namespace}/{name}")
            # A decision was read before the workload that it is about: that is on its way to
            # `on_workload`, which then finds the decision.
            return
        if state.phase == "gone":
            await self._gone(state)
            return
        if admission is not None and admission.uid != state.uid:
            admission = None  # It is about an earlier life of that name.
        obj = await self._workload_object(state)
        if obj is None:
            return
        if state.finish is not None:
            await self._finish(obj, state)
            return
        if admission is not None:
            obj = await self._write_status(obj, admission)
        if state.owner is not None:
            await self._move_job(state, admission)
        elif admission is not None and admission.state == "evicted":
            # Its own controller gives the reservation back; from this version on that counts.
            await self._report(state, admission, "applied", "suspend", after=obj)

    # --- the Workload object -----------------------------------------------------------------------

    async def _workload_object(self, state: WorkloadState) -> Object | None:
        """The Workload object, created or brought up to date; None where there can be none."""
        obj = self._mirror.object(WORKLOAD, state.namespace, state.name)
        if state.owner is None:
            return obj or await self._get(WORKLOAD, state.namespace, state.name)
        job, integration = await self._job(state)
        if job is None:
            return obj
        try:
            if obj is None:
                if state.finish is not None:
                    return None
                return await self._create(objects.workload_object(state, job, integration))
            if status.Conditions.of(obj, at=self._now()).is_true(status.QUOTA_RESERVED):
                return obj
            patch = objects.spec_patch(obj, state, job, integration)
        except ValueError as error:
            # Its own annotations make no sense: quota keeps it waiting with that reason.
            log.info("no Workload for a job that cannot be read", job=state.name, error=str(error))
            return None
        return obj if patch is None else await self._patch(WORKLOAD, obj, lambda _obj: patch)

    async def _create(self, obj: Object) -> Object:
        metadata = obj["metadata"]
        try:
            created = await self._kube.create(WORKLOAD, obj)
        except AlreadyExistsError:
            # An earlier attempt of ours was done, and its answer was lost.
            created = await self._kube.get(WORKLOAD, metadata["namespace"], metadata["name"])
        except NotFoundError as error:
            raise LaterError(f"namespace {metadata['namespace']} is gone: {error}") from error
        self._mirror.wrote(WORKLOAD, created)
        return created

    async def _write_status(self, obj: Object, admission: Admission) -> Object:
        """One write for one decision; none if the object says it already."""

        def patch(current: Object) -> Patch | None:
            wanted = status.status_for(current, admission)
            return (
                None if wanted == (current.get("status") or {}) else _status_patch(current, wanted)
            )

        return await self._patch(WORKLOAD, obj, patch, subresource="status")

    async def _finish(self, obj: Object, state: WorkloadState) -> None:
        finish = state.finish
        assert finish is not None
        if state.owner is None:
            return  # Its own controller finished it.

        def patch(current: Object) -> Patch | None:
            wanted = status.finished_status(current, finish, at=self._now())
            return (
                None if wanted == (current.get("status") or {}) else _status_patch(current, wanted)
            )

        obj = await self._patch(WORKLOAD, obj, patch, subresource="status")
        await self._patch(WORKLOAD, obj, objects.finalizer_patch)

    async def _gone(self, state: WorkloadState) -> None:
        """Its job was deleted: let the garbage collector have the Workload object."""
        obj = self._mirror.object(WORKLOAD, state.namespace, state.name)
        if obj is not None and state.owner is not None:
            await self._patch(WORKLOAD, obj, objects.finalizer_patch)
        self._mirror.forget(state.namespace, state.name)

    # --- the job -----------------------------------------------------------------------------------

    async def _move_job(self, state: WorkloadState, admission: Admission | None) -> None:
        decided = admission.state if admission is not None else "waiting"
        if decided == "admitted":
            assert admission is not None
            if state.on_hold is None:
                await self._release(state, admission)
        elif decided == "evicted":
            assert admission is not None
            await self._stop(state, admission)
        else:
            await self._hold(state, admission)

    async def _release(self, state: WorkloadState, admission: Admission) -> None:
        job, integration = await self._job(state)
        if job is None:
            return
        infos = self._pod_set_infos(admission)

        def patch(current: Object) -> Patch | None:
            return integration.release(current, infos) if integration.held(current) else None

        try:
            after = await self._patch(integration.kind, job, patch)
        except RefusedError as error:
            log.warning("the cluster refuses a release", workload=state.name, error=str(error))
            await self._report(state, admission, "refused", "release", message=str(error))
            return
        except NotFoundError:
            return
        if after is not job:
            await self._report(state, admission, "applied", "release", after=after)
            self._tracing.span(
                "release",
                parent=state.traceparent,
                start=admission.decided_at,
                end=self._now(),
                attributes={"sluicegate.workload": state.name, "sluicegate.term": admission.term},
            )

    async def _stop(self, state: WorkloadState, admission: Admission) -> None:
        """Take the job off the cluster; its quota is free once its pods are gone."""
        job, integration = await self._job(state)
        if job is None:
            return

        def patch(current: Object) -> Patch | None:
            return None if integration.held(current) else integration.stop(current)

        try:
            after = await self._patch(integration.kind, job, patch)
        except NotFoundError:
            return
        if integration.held(after):
            await self._report(state, admission, "applied", "suspend", after=after)
        else:
            text = f"a started {integration.kind.kind} cannot be stopped and resumed"
            await self._report(state, admission, "refused", "suspend", message=text, after=after)

    async def _hold(self, state: WorkloadState, admission: Admission | None) -> None:
        """A job that slipped past the webhook and did not start yet is made to wait."""
        if state.held or state.pods_active:
            return
        if admission is not None and admission.state == "released":
            return
        job, integration = await self._job(state)
        if job is None:
            return

        def patch(current: Object) -> Patch | None:
            started = integration.held(current) or integration.active(current)
            done = integration.finish(current) is not None
            return None if started or done else integration.hold(current)

        try:
            after = await self._patch(integration.kind, job, patch)
        except (NotFoundError, RefusedError) as error:
            log.info("could not hold a job back", workload=state.name, error=str(error))
            return
        if after is not job:
            log.warning("held a job back that the webhook had not seen", workload=state.name)

    async def _job(self, state: WorkloadState) -> tuple[Object | None, Integration]:
        assert state.owner is not None
        group = state.owner.api_version.rpartition("/")[0]
        integration = integration_for(group=group, plural=state.owner.plural)
        assert integration is not None, f"no integration for {state.owner}"
        job = self._mirror.object(integration.kind, state.namespace, state.owner.name)
        if job is None or job["metadata"]["uid"] != state.owner.uid:
            job = await self._get(integration.kind, state.namespace, state.owner.name)
        if job is not None and job["metadata"]["uid"] != state.owner.uid:
            job = None  # The name lives again; its own workload will come.
        return job, integration

    def _pod_set_infos(self, admission: Admission) -> tuple[PodSetInfo, ...]:
        infos = []
        for assigned in admission.pod_sets:
            selector: dict[str, str] = {}
            tolerations: list[Object] = []
            for flavor_name in dict.fromkeys(assigned.flavors.values()):
                flavor = self._mirror.object(kinds.RESOURCE_FLAVOR, None, flavor_name)
                if flavor is None:
                    raise self._not_seen(f"ResourceFlavor {flavor_name}")
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

    # --- writes ------------------------------------------------------------------------------------

    async def _get(self, kind: kinds.Kind, namespace: str, name: str) -> Object | None:
        try:
            obj = await self._kube.get(kind, namespace, name)
        except NotFoundError:
            self._mirror.vanished(kind, namespace, name)
            return None
        self._mirror.wrote(kind, obj)
        return obj

    async def _patch(
        self,
        kind: kinds.Kind,
        obj: Object,
        patch_for: Callable[[Object], Patch | None],
        *,
        subresource: str | None = None,
    ) -> Object:
        """Patch from the state known, and from a fresh one where that was stale. `obj` itself: no write."""
        namespace, name, uid = (obj["metadata"][key] for key in ("namespace", "name", "uid"))
        for _ in range(CONFLICTS_MAX):
            patch = patch_for(obj)
            if patch is None:
                return obj
            try:
                after = await self._kube.patch(
                    kind, namespace, name, patch, subresource=subresource
                )
            except ConflictError:
                obj = await self._kube.get(kind, namespace, name)
                if obj["metadata"]["uid"] != uid:
                    raise NotFoundError(
                        f"{kind.kind} {namespace}/{name} is another one now"
                    ) from None
                self._mirror.wrote(kind, obj)
                await asyncio.sleep(0)
                continue
            self._mirror.wrote(kind, after)
            return after
        raise LaterError(f"{kind.kind} {namespace}/{name} keeps changing")

    async def _report(
        self,
        state: WorkloadState,
        admission: Admission,
        result: Literal["applied", "refused", "gone"],
        action: str,
        *,
        after: Object | None = None,
        message: str = "",
    ) -> None:
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

    def _not_seen(self, what: str) -> LaterError:
        return LaterError(f"{what} was not observed yet", delay_seconds=self._not_seen_seconds)


def _status_patch(obj: Object, wanted: Object) -> list[Object]:
    """Replace the status if nobody changed the object since it was read."""
    metadata = obj["metadata"]
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "add", "path": "/status", "value": wanted},
    ]
