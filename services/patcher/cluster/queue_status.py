"""Writes how queues stand into their status, in Kueue's words."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

import structlog

from services.patcher.cluster.cache import Mirror
from services.patcher.cluster.pacing import Backlog, Load, Pace, keep_writing
from shared.bus.port import Bus, CaughtUp
from shared.contracts import subjects
from shared.contracts.kube.conditions import Conditions, timestamp
from shared.contracts.kube.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, Object
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.queues import FlavorUsage, QueueStatus
from shared.kube.port import ConflictError, Kube, NotFoundError

__all__ = ["Queues", "status_of"]

log = structlog.get_logger(__name__)

ACTIVE: Final = "Active"
BURST: Final = 20


def status_of(obj: Object, queue: QueueStatus, *, at: datetime) -> Object:
    """The part of the status that is ours; what others put beside it stays."""
    conditions = Conditions.of(obj, at=at)
    conditions.set(ACTIVE, queue.active, queue.reason, queue.message)
    used = {} if queue.consumed is None else {"fairSharing": _used(queue.consumed, queue)}
    return {
        **used,
        "pendingWorkloads": queue.pending,
        "reservingWorkloads": queue.reserving,
        "admittedWorkloads": queue.admitted,
        "flavorsReservation": [_flavor(f, queue) for f in queue.reservation],
        "flavorsUsage": [_flavor(f, queue) for f in queue.usage],
        "conditions": conditions.items,
    }


def _used(consumed: dict[str, str], queue: QueueStatus) -> dict[str, Any]:
    """Where quota reads it again after a restart, and whoever decides in its place."""
    return {
        "weightedShare": 0,
        "admissionFairSharingStatus": {
            "consumedResources": consumed,
            "lastUpdate": timestamp(queue.consumed_at or queue.at),
        },
    }


def _flavor(usage: FlavorUsage, queue: QueueStatus) -> dict[str, Any]:
    def resource(total: str, borrowed: str) -> dict[str, str]:
        return {"total": total, **({"borrowed": borrowed} if queue.namespace is None else {})}

    return {
        "name": usage.name,
        "resources": [{"name": r.name, **resource(r.total, r.borrowed)} for r in usage.resources],
    }


class Queues:
    """Keeps the status of one cluster's queues: the latest wins, and nothing waits for it.

    It follows the view instead of working it off: what a restart missed is read again then.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        kube: Kube,
        mirror: Mirror,
        cluster: str,
        now: Callable[[], datetime],
        per_second: float,
        load: Load,
    ) -> None:
        self._bus = bus
        self._kube = kube
        self._mirror = mirror
        self._filter = f"{subjects.ROOT}.queue.{subjects.encode(cluster)}.>"
        self._now = now
        self._pace = Pace(per_second, burst=BURST, load=load)
        self._backlog: Backlog[str, QueueStatus] = Backlog()

    async def run(self) -> None:
        """Follow and write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            writing = keep_writing(self._backlog, self._write, self._pace, what="queue status")
            group.create_task(writing)

    async def _follow(self) -> None:
        async with aclosing(self._bus.watch("QUEUES", self._filter)) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    continue
                try:
                    queue = item.read(QueueStatus)
                except UndecodableError as error:
                    log.warning("cannot read", subject=item.subject, error=str(error))
                    continue
                self._backlog.put(queue.subject, queue)

    async def _write(self, _subject: str, queue: QueueStatus) -> None:
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
        except ConflictError:
            # The name lives again: what was known of it goes, the next attempt asks the server.
            self._mirror.vanished(kind, queue.namespace, queue.name)
            raise
        self._mirror.wrote(kind, after)
