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
from shared.bus.port import LaterError, NeverError
from shared.contracts.controllers import OWN_CONTROLLERS
from shared.contracts.kube.bodies import Body, spec_of, status_of
from shared.contracts.kube.conditions import ACTIVE, Conditions, is_reason
from shared.contracts.kube.kinds import ADMISSION_CHECK, MULTIKUEUE_CLUSTER, WORKLOAD, Kind
from shared.contracts.kube.names import may_be_of
from shared.contracts.messages.spokes import (
    CheckCondition,
    HubStatus,
    SpokeState,
)
from shared.kube.port import Kube, NotFoundError, Patch, RefusedError

REFUSED_SECONDS: Final = 60.0
"""Delay before a refused condition is written again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubStatusWriter:
    """Writes at the hub what happens on its spokes."""

    kube: Kube
    writer: Writer
    cache: ObjectCache
    now: Callable[[], datetime]

    async def write_workload(self, update: HubStatus) -> None:
        """Write where a workload runs, and its copy's status on the job. Can be repeated.

        Raises `LaterError`, and `NeverError` if the API server refuses the status of the copy.
        """
        with retry_later():
            try:
                await self._write_cluster_name(update)
                if update.status is not None:
                    await self._write_job_status(update, update.status)
            except NotFoundError:
                return  # The job was deleted meanwhile, and its copy will be withdrawn.
            except RefusedError as error:
                if is_transient_refusal(error):
                    raise LaterError(str(error)) from error
                raise NeverError(f"the hub does not take the status of a copy: {error}") from error

    async def _write_cluster_name(self, update: HubStatus) -> None:
        """Write `clusterName` or `nominatedClusterNames`: only one of them is set, as in Kueue."""
        obj = self.cache.object(WORKLOAD, update.namespace, update.name)
        if obj is None:
            obj = await self.writer.get(WORKLOAD, update.namespace, update.name)
        if obj is None:
            if self.cache.workload(update.namespace, update.name) is None:
                return
            raise LaterError("its Workload is not made yet", delay_seconds=1.0)
        if not may_be_of(obj, update.target.uid):
            raise refused(HubStatusRule.TARGET, of=update.ref.path)

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

    async def _write_job_status(self, update: HubStatus, status: dict[str, Any]) -> None:
        target = update.target
        integration = self.cache.integrations.find(group=target.group, plural=target.plural)
        if integration is None:
            return
        job = self.cache.object(integration.kind, update.namespace, target.name)
        if job is None:
            job = await self.writer.get(integration.kind, update.namespace, target.name)
        if job is None or job["metadata"]["uid"] != target.uid:
            return
        if not integration.runs_elsewhere(job) and not integration.held(job):
            raise refused(HubStatusRule.RUNS_HERE, of=update.ref.path, job=target.name)

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
                if kind == ADMISSION_CHECK and controller not in OWN_CONTROLLERS:
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
