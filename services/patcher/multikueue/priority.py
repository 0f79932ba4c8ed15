"""Lets a copy on this cluster follow the priority class that its job has at the hub."""

from typing import Final

import structlog

from services.patcher.cluster.writer import may_pass
from shared.bus.port import Bus, BusError, LaterError
from shared.contracts.kube.conditions import FINISHED, is_true
from shared.contracts.kube.kinds import WORKLOAD, Kind, Object
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.effects import Dispatch
from shared.contracts.messages.spokes import ORDER
from shared.integrations import Integrations
from shared.kube.port import Kube, NotFoundError, RefusedError

__all__ = ["Ranks"]

log = structlog.get_logger(__name__)

_OF_WORKLOAD: Final = ("priority", "priorityClassRef")


class Ranks:
    """Writes it on the job, and where a Kueue of its own admits on the Workload, as MultiKueue does."""

    def __init__(self, *, kube: Kube, bus: Bus, integrations: Integrations) -> None:
        self._kube = kube
        self._bus = bus
        self._integrations = integrations

    async def follow(self, dispatch: Dispatch) -> None:
        """Write the class that an order says, unless a later one does. Raises `LaterError`, `KubeError`."""
        if not await self._is_latest(dispatch):
            return
        # The job first: the Kueue of this cluster compares its Workload with it.
        await self._relabel(dispatch)
        if dispatch.workload is not None:
            await self._reprioritize(dispatch, dispatch.workload["spec"])

    async def _is_latest(self, dispatch: Dispatch) -> bool:
        """Asked of the log itself: what comes late, or twice, does not take a newer class back."""
        try:
            entry = await self._bus.latest("DISPATCHES", dispatch.subject)
            return entry is not None and entry.read(Dispatch) == dispatch
        except BusError as error:
            raise LaterError(f"cannot ask for the order: {error}") from error
        except UndecodableError as error:
            log.warning("an order that cannot be read changes nothing", error=str(error))
            return False

    async def _relabel(self, dispatch: Dispatch) -> None:
        target = dispatch.target
        group = "" if target is None else target.api_version.rpartition("/")[0]
        plural = "" if target is None else target.plural
        integration = self._integrations.find(group=group, plural=plural)
        if target is None or integration is None:
            return
        found = await self._made_by(dispatch, integration.kind, target.name)
        if found is None or integration.finish(found) is not None:
            return
        labels = {PRIORITY_CLASS_LABEL: dispatch.priority_class}
        if not labels.items() <= (found["metadata"].get("labels") or {}).items():
            await self._patch(integration.kind, found, {"metadata": {"labels": labels}})

    async def _reprioritize(self, dispatch: Dispatch, wanted: Object) -> None:
        found = await self._made_by(dispatch, WORKLOAD, dispatch.name)
        if found is None or _has_finished(found):
            return
        spec = found["spec"]
        changed = {name: wanted[name] for name in _OF_WORKLOAD if spec.get(name) != wanted[name]}
        if changed:
            await self._patch(WORKLOAD, found, {"spec": changed})

    async def _made_by(self, dispatch: Dispatch, kind: Kind, name: str) -> Object | None:
        """What is there by this very order, and not on its way out."""
        try:
            found = await self._kube.get(kind, dispatch.namespace, name)
        except NotFoundError:
            return None
        metadata = found["metadata"]
        of = (metadata.get("annotations") or {}).get(ORDER)
        ours = of == f"{dispatch.cluster}/{dispatch.number}"
        return found if ours and not metadata.get("deletionTimestamp") else None

    async def _patch(self, kind: Kind, found: Object, change: Object) -> None:
        metadata = found["metadata"]
        # With its uid it is refused for another object of that name.
        change = {**change, "metadata": {**change.get("metadata", {}), "uid": metadata["uid"]}}
        try:
            await self._kube.patch(kind, metadata["namespace"], metadata["name"], change)
        except NotFoundError:
            return
        except RefusedError as error:
            if may_pass(error):
                raise LaterError(str(error)) from error
            name = metadata["name"]
            log.warning("the cluster does not take a priority class", name=name, error=str(error))


def _has_finished(workload: Object) -> bool:
    return is_true(workload, FINISHED)
