"""Writes the status of remote copies, spokes and checks on the hub's objects."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.errors import is_transient_refusal, retry_later
from services.patcher.cluster.patches import status_patch
from services.patcher.cluster.refusals import HubStatusRule, refused
from services.patcher.cluster.writer import Writer
from services.patcher.multikueue.placement import Placement
from shared.bus.port import LaterError, NeverError
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube.bodies import Body, spec_of, status_of
from shared.contracts.kube.conditions import ACTIVE, Conditions, is_reason
from shared.contracts.kube.kinds import ADMISSION_CHECK, MULTIKUEUE_CLUSTER, WORKLOAD, Kind
from shared.contracts.kube.names import may_be_of
from shared.contracts.messages.spokes import (
    CheckCondition,
    HubStatus,
    SpokeState,
)
from shared.integrations import Integration
from shared.kube.port import Kube, NotFoundError, Patch, RefusedError

REFUSED_SECONDS: Final = 60.0
"""Delay before a refused condition is written again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubStatusWriter:
    """Writes at the hub what happens on its spokes."""

    kube: Kube
    writer: Writer
    cache: ObjectCache
    placement: Placement
    now: Callable[[], datetime]

    async def write_workload(self, update: HubStatus) -> None:
        """Write where a workload runs, and its copy's status on the job. Can be repeated.

        Raises `LaterError`, and `NeverError` if the API server refuses the status of the copy, or quota
        never sent the workload to a spoke.
        """
        with retry_later():
            try:
                workload = await self._workload(update)
                if workload is None or await self.placement.is_elsewhere(update):
                    return
                job = await self._job(update)
                if not await self._may_write(update, workload, job):
                    return
                await self._write_cluster_name(update, workload)
                if update.status is not None and job is not None:
                    await self._write_job_status(update.status, *job)
            except NotFoundError:
                return  # The job was deleted meanwhile, and its copy will be withdrawn.
            except RefusedError as error:
                if is_transient_refusal(error):
                    raise LaterError(str(error)) from error
                raise NeverError(f"the hub does not take the status of a copy: {error}") from error

    async def _workload(self, update: HubStatus) -> Body | None:
        """The Workload of the job that the message names; None if it is gone."""
        obj = self.cache.object(WORKLOAD, update.namespace, update.name)
        if obj is None:
            obj = await self.writer.get(WORKLOAD, update.namespace, update.name)
        if obj is None:
            if self.cache.workload(update.namespace, update.name) is None:
                return None
            raise LaterError("its Workload is not made yet", delay_seconds=1.0)
        if not may_be_of(obj, update.target.uid):
            raise refused(HubStatusRule.TARGET, of=update.ref.path)
        return obj

    async def _job(self, update: HubStatus) -> tuple[Integration, Body] | None:
        """The job that the message names; None if it is gone, or cannot wait here."""
        target = update.target
        integration = self.cache.integrations.find(group=target.group, plural=target.plural)
        if integration is None:
            return None
        job = self.cache.object(integration.kind, update.namespace, target.name)
        if job is None or job["metadata"]["uid"] != target.uid:
            job = await self.writer.get(integration.kind, update.namespace, target.name)
        if job is None or job["metadata"]["uid"] != target.uid:
            return None
        return integration, job

    async def _may_write(
        self, update: HubStatus, workload: Body, found: tuple[Integration, Body] | None
    ) -> bool:
        """Whether there is still something to write.

        Raises `NeverError` unless the workload may be on a spoke, and its job does not run here.
        """
        if _only_clears(update):
            return True
        if found is not None:
            integration, job = found
            if integration.runs_elsewhere(job):
                return True
            if update.status is not None and not integration.held(job):
                raise refused(HubStatusRule.RUNS_HERE, of=update.ref.path, job=update.target.name)
        if await self.placement.may_run_elsewhere(workload, update):
            return True
        if found is None and await self.placement.is_over(update):
            return False
        raise refused(HubStatusRule.NOT_PLACED, of=update.ref.path)

    async def _write_cluster_name(self, update: HubStatus, obj: Body) -> None:
        """Write `clusterName` or `nominatedClusterNames`: only one of them is set, as in Kueue."""
        if update.spoke is not None:
            obj = await self.writer.patch(
                WORKLOAD, obj, partial(_nominate, update.spoke), subresource="status"
            )

        def patch(current: Body) -> Patch | None:
            status = dict(status_of(current))
            status.pop("clusterName", None)
            if update.spoke is not None:
                status["clusterName"] = update.spoke
                status.pop("nominatedClusterNames", None)
            elif update.nominated is not None:
                status.pop("nominatedClusterNames", None)
                if update.nominated:
                    status["nominatedClusterNames"] = update.nominated
            return status_patch(current, status)

        await self.writer.patch(WORKLOAD, obj, patch, subresource="status")

    async def _write_job_status(
        self, status: dict[str, Any], integration: Integration, job: Body
    ) -> None:
        def patch(current: Body) -> Patch | None:
            if integration.finish(current) is not None:
                return None  # The status of an ended job does not change.
            return status_patch(current, status)

        await self.writer.patch(integration.kind, job, patch, subresource="status")

    async def write_spoke(self, state: SpokeState) -> None:
        """Write the condition `Active` of a MultiKueueCluster. Raises `LaterError`."""
        await self._write_active(
            HubStatusRule.SPOKE_INVALID, MULTIKUEUE_CLUSTER, state.spoke, state
        )

    async def write_check(self, standing: CheckCondition) -> None:
        """Write the condition `Active` of an AdmissionCheck. Raises `LaterError`."""
        await self._write_active(
            HubStatusRule.CHECK_INVALID, ADMISSION_CHECK, standing.check, standing
        )

    async def _write_active(
        self, invalid: HubStatusRule, kind: Kind, name: str, new: SpokeState | CheckCondition
    ) -> None:
        if not is_reason(new.reason):
            problem = f"reason: {new.reason[:80]!r}: must be a CamelCase word"
            raise refused(invalid, of=f"{kind.kind} {name}", problem=problem)
        with retry_later():
            try:
                obj: Body = await self.kube.get(kind, None, name)
                controller = spec_of(obj).get("controllerName")
                if kind == ADMISSION_CHECK and controller != MULTIKUEUE:
                    of = f"{kind.kind} {name}"
                    raise refused(HubStatusRule.CHECK_OF_OTHERS, of=of, controller=controller)
                conditions = Conditions.of(obj, at=self.now())
                conditions.set(ACTIVE, new.active, new.reason, new.message)
                patch = status_patch(obj, {**status_of(obj), "conditions": conditions.items})
                if patch is not None:
                    await self.kube.patch(kind, None, name, patch, subresource="status")
            except NotFoundError:
                return
            except RefusedError as error:
                if not is_transient_refusal(error):
                    raise refused(invalid, of=f"{kind.kind} {name}", problem=error) from error
                raise LaterError(str(error), delay_seconds=REFUSED_SECONDS) from error


def _only_clears(update: HubStatus) -> bool:
    """True if nothing is said but that the workload is on no spoke."""
    return update.spoke is None and not update.nominated and update.status is None


def _nominate(spoke: str, workload: Body) -> Patch | None:
    """Add `spoke` to `nominatedClusterNames`, unless it is there or in `clusterName`.

    Kueue's webhook accepts as `clusterName` only a nominated cluster, and only where none is set. The
    bus keeps the latest message of a workload, so an earlier nomination may never have been written.
    """
    status = dict(status_of(workload))
    nominated = status.get("nominatedClusterNames") or []
    if status.get("clusterName") == spoke or spoke in nominated:
        return None
    status.pop("clusterName", None)
    status["nominatedClusterNames"] = [*nominated, spoke]
    return status_patch(workload, status)
