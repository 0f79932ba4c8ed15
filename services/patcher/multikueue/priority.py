"""Updates the priority class of a copy when the class of the hub's job changes."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import structlog

from services.patcher.cluster.errors import is_transient_refusal
from services.patcher.cluster.writer import get_or_none
from services.patcher.multikueue.orders import is_copy_of_order
from shared.bus.follow import read
from shared.bus.port import Bus, BusError, LaterError
from shared.contracts.kube.bodies import Body, labels_of
from shared.contracts.kube.conditions import FINISHED, is_true
from shared.contracts.kube.kinds import WORKLOAD, Kind
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.subjects import Stream
from shared.integrations import Integrations
from shared.kube.port import Kube, NotFoundError, RefusedError

log = structlog.get_logger(__name__)

_SPEC_FIELDS: Final = ("priority", "priorityClassRef")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityUpdater:
    """Writes the class on the copy, and on its Workload if a Kueue of this cluster admits it."""

    kube: Kube
    bus: Bus
    integrations: Integrations

    async def update(self, dispatch: Dispatch) -> None:
        """Write the class that an order names, if it is the latest. Raises `LaterError`, `KubeError`."""
        if not await self._is_latest(dispatch):
            return
        # The job first: this cluster's Kueue compares the Workload with its job.
        await self._update_job(dispatch)
        if dispatch.workload is not None:
            await self._update_workload(dispatch, dispatch.workload["spec"])

    async def _is_latest(self, dispatch: Dispatch) -> bool:
        """Compare with the log: a late or repeated order must not replace a newer class."""
        try:
            return (
                read(await self.bus.latest(Stream.DISPATCHES, dispatch.subject), Dispatch)
                == dispatch
            )
        except BusError as error:
            raise LaterError(f"cannot ask for the order: {error}") from error

    async def _update_job(self, dispatch: Dispatch) -> None:
        target = dispatch.target
        if target is None:
            return
        integration = self.integrations.find(group=target.group, plural=target.plural)
        if integration is None:
            return
        found = await self._read_copy(dispatch, integration.kind, target.name)
        if found is None or integration.finish(found) is not None:
            return
        labels = {PRIORITY_CLASS_LABEL: dispatch.priority_class}
        if not labels.items() <= labels_of(found).items():
            await self._patch(integration.kind, found, {"metadata": {"labels": labels}})

    async def _update_workload(self, dispatch: Dispatch, wanted: dict[str, Any]) -> None:
        found = await self._read_copy(dispatch, WORKLOAD, dispatch.name)
        if found is None or is_true(found, FINISHED):
            return
        spec = found["spec"]
        changed = {name: wanted[name] for name in _SPEC_FIELDS if spec.get(name) != wanted[name]}
        if changed:
            await self._patch(WORKLOAD, found, {"spec": changed})

    async def _read_copy(self, dispatch: Dispatch, kind: Kind, name: str) -> Body | None:
        """The object that this order created; None if it is gone or being deleted."""
        found = await get_or_none(self.kube, kind, dispatch.namespace, name)
        if found is None:
            return None
        is_ours = is_copy_of_order(kind, found, dispatch)
        return found if is_ours and not found["metadata"].get("deletionTimestamp") else None

    async def _patch(self, kind: Kind, found: Body, change: dict[str, Any]) -> None:
        metadata = found["metadata"]
        # With the uid, the API server refuses it for another object of that name.
        change = {**change, "metadata": {**change.get("metadata", {}), "uid": metadata["uid"]}}
        name = metadata["name"]
        try:
            with suppress(NotFoundError):
                await self.kube.patch(kind, metadata["namespace"], name, change)
        except RefusedError as error:
            if is_transient_refusal(error):
                raise LaterError(str(error)) from error
            log.warning("the cluster does not take a priority class", name=name, error=str(error))
