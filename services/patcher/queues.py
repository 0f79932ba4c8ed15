"""Writes how queues stand into their status, in Kueue's words."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from services.patcher.mirror import Mirror
from services.patcher.status import Conditions
from shared.bus.port import LaterError
from shared.contracts.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, Object
from shared.contracts.queues import FlavorUsage, QueueStatus
from shared.kube.port import ConflictError, Kube, NotFoundError, ThrottledError, UnavailableError

__all__ = ["Queues", "status_of"]

ACTIVE = "Active"


def status_of(obj: Object, queue: QueueStatus, *, at: datetime) -> Object:
    """The part of the status that is ours; what others put beside it stays."""
    conditions = Conditions.of(obj, at=at)
    conditions.set(ACTIVE, queue.active, queue.reason, queue.message)
    return {
        "pendingWorkloads": queue.pending,
        "reservingWorkloads": queue.reserving,
        "admittedWorkloads": queue.admitted,
        "flavorsReservation": [_flavor(f, queue) for f in queue.reservation],
        "flavorsUsage": [_flavor(f, queue) for f in queue.usage],
        "conditions": conditions.items,
    }


def _flavor(usage: FlavorUsage, queue: QueueStatus) -> dict[str, Any]:
    def resource(total: str, borrowed: str) -> dict[str, str]:
        return {"total": total, **({"borrowed": borrowed} if queue.namespace is None else {})}

    return {
        "name": usage.name,
        "resources": [{"name": r.name, **resource(r.total, r.borrowed)} for r in usage.resources],
    }


class Queues:
    """Keeps the status of one cluster's queues. The latest wins; a lost one is followed by the next."""

    def __init__(self, *, kube: Kube, mirror: Mirror, now: Callable[[], datetime]) -> None:
        self._kube = kube
        self._mirror = mirror
        self._now = now

    async def apply(self, queue: QueueStatus) -> None:
        """Write the status if it says something new. May be repeated."""
        kind = CLUSTER_QUEUE if queue.kind == "ClusterQueue" else LOCAL_QUEUE
        obj = self._mirror.object(kind, queue.namespace, queue.name)
        try:
            if obj is None:
                obj = await self._kube.get(kind, queue.namespace, queue.name)
            wanted = status_of(obj, queue, at=self._now())
            status = obj.get("status") or {}
            if all(status.get(key) == value for key, value in wanted.items()):
                return
            patch = {"metadata": {"uid": obj["metadata"]["uid"]}, "status": wanted}
            after = await self._kube.patch(
                kind, queue.namespace, queue.name, patch, subresource="status"
            )
        except NotFoundError:
            return  # It was deleted meanwhile; nobody reads its status any more.
        except ThrottledError as error:
            raise LaterError(str(error), delay_seconds=error.retry_after_seconds) from error
        except (ConflictError, UnavailableError) as error:
            raise LaterError(str(error)) from error
        self._mirror.wrote(kind, after)
