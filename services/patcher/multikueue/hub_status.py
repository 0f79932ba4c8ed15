"""Writes at the hub what becomes of what it sent away: the copy's whole status, and where it is."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

import structlog

from services.patcher.cluster.cache import Mirror
from services.patcher.cluster.writer import Writer, may_pass, status_patch
from shared.bus.port import LaterError, NeverError
from shared.contracts.kube.conditions import Conditions
from shared.contracts.kube.kinds import ADMISSION_CHECK, MULTIKUEUE_CLUSTER, WORKLOAD, Kind, Object
from shared.contracts.messages.spokes import CheckStanding, Homecoming, SpokeState
from shared.kube.port import (
    ConflictError,
    Kube,
    NotFoundError,
    Patch,
    RefusedError,
    ThrottledError,
    UnavailableError,
)

__all__ = ["Home"]

log = structlog.get_logger(__name__)


class Home:
    """The hub's side of what runs elsewhere."""

    def __init__(
        self, *, kube: Kube, writer: Writer, mirror: Mirror, now: Callable[[], datetime]
    ) -> None:
        self._kube = kube
        self._writer = writer
        self._mirror = mirror
        self._now = now

    async def apply(self, home: Homecoming) -> None:
        """Write it. May be repeated. Raises `LaterError`, `NeverError`."""
        try:
            await self._workload(home)
            if home.status is not None:
                await self._job(home, home.status)
        except NotFoundError:
            return  # It went meanwhile, and what was sent away will be withdrawn.
        except ThrottledError as error:
            raise LaterError(str(error), delay_seconds=error.retry_after_seconds) from error
        except (ConflictError, UnavailableError) as error:
            raise LaterError(str(error)) from error
        except RefusedError as error:
            if may_pass(error):
                raise LaterError(str(error)) from error
            raise NeverError(f"the hub does not take the status of a copy: {error}") from error

    async def _workload(self, home: Homecoming) -> None:
        """`nominatedClusterNames` and `clusterName`: one of the two, as in Kueue."""
        obj = self._mirror.object(WORKLOAD, home.namespace, home.name)
        if obj is None:
            obj = await self._writer.get(WORKLOAD, home.namespace, home.name)
        if obj is None:
            if self._mirror.workload(home.namespace, home.name) is None:
                return
            raise LaterError("its Workload is not made yet", delay_seconds=1.0)

        if home.spoke is not None:
            obj = await self._writer.patch(
                WORKLOAD, obj, partial(_nominate, home.spoke), subresource="status"
            )

        def patch(current: Object) -> Patch | None:
            status = dict(current.get("status") or {})
            status.pop("clusterName", None)
            if home.spoke is not None:
                status["clusterName"] = home.spoke
                status.pop("nominatedClusterNames", None)
            elif home.nominated is not None:
                status.pop("nominatedClusterNames", None)
                if home.nominated:
                    status["nominatedClusterNames"] = home.nominated
            return status_patch(current, status)

        await self._writer.patch(WORKLOAD, obj, patch, subresource="status")

    async def _job(self, home: Homecoming, status: Object) -> None:
        target = home.target
        group = target.api_version.rpartition("/")[0]
        integration = self._mirror.integrations.find(group=group, plural=target.plural)
        if integration is None:
            return
        job = self._mirror.object(integration.kind, home.namespace, target.name)
        if job is None:
            job = await self._writer.get(integration.kind, home.namespace, target.name)
        if job is None or job["metadata"]["uid"] != target.uid:
            return

        def patch(current: Object) -> Patch | None:
            if integration.finish(current) is not None:
                return None  # What has ended stays as it is.
            return status_patch(current, status)

        await self._writer.patch(integration.kind, job, patch, subresource="status")

    async def apply_spoke(self, state: SpokeState) -> None:
        """Write the condition `Active` of a MultiKueueCluster."""
        await self._active(MULTIKUEUE_CLUSTER, state.spoke, state)

    async def apply_check(self, standing: CheckStanding) -> None:
        """Write the condition `Active` of an AdmissionCheck."""
        await self._active(ADMISSION_CHECK, standing.check, standing)

    async def _active(self, kind: Kind, name: str, said: SpokeState | CheckStanding) -> None:
        try:
            obj = await self._kube.get(kind, None, name)
            conditions = Conditions.of(obj, at=self._now())
            conditions.set("Active", said.active, said.reason, said.message)
            status = {**(obj.get("status") or {}), "conditions": conditions.items}
            patch = status_patch(obj, status)
            if patch is not None:
                await self._kube.patch(kind, None, name, patch, subresource="status")
        except NotFoundError:
            return
        except ThrottledError as error:
            raise LaterError(str(error), delay_seconds=error.retry_after_seconds) from error
        except (ConflictError, UnavailableError) as error:
            raise LaterError(str(error)) from error
        except RefusedError as error:
            raise LaterError(str(error), delay_seconds=60.0) from error


def _nominate(spoke: str, current: Object) -> Patch | None:
    """Where it was not: a webhook takes a `clusterName` only of who was nominated, and never another's.

    What was said between two looks is left out on the bus: the nomination, or the end of another choice.
    """
    status = dict(current.get("status") or {})
    nominated = status.get("nominatedClusterNames") or []
    if status.get("clusterName") == spoke or spoke in nominated:
        return None
    status.pop("clusterName", None)
    status["nominatedClusterNames"] = [*nominated, spoke]
    return status_patch(current, status)
