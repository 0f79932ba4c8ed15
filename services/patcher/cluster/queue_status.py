"""Writes counts, usage and the condition `Active` of queues into their status, in Kueue's form."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.pacing import Backlog, RateLimiter, WriteLoad, drain
from services.patcher.cluster.patches import remove_finalizer
from shared.bus.follow import follow
from shared.bus.port import Bus, Entry
from shared.contracts.kube.bodies import Body, status_of
from shared.contracts.kube.conditions import ACTIVE, Conditions, timestamp
from shared.contracts.kube.kinds import CLUSTER_QUEUE, LOCAL_QUEUE
from shared.contracts.kube.names import RESOURCE_IN_USE
from shared.contracts.messages.queues import FlavorUsage, QueueStatus
from shared.contracts.reasons import TERMINATING
from shared.contracts.subjects import subject_filter
from shared.kube.port import ConflictError, Kube, NotFoundError

BURST: Final = 20


def queue_status(obj: Body, queue: QueueStatus, *, at: datetime) -> dict[str, Any]:
    """The fields of the status that Sluicegate writes, None to remove one; others stay as they are."""
    conditions = Conditions.of(obj, at=at)
    conditions.set(ACTIVE, queue.active, queue.reason, queue.message)
    fair_sharing = {}
    if queue.consumed is not None:
        fair_sharing = {"fairSharing": _fair_sharing(queue.consumed, queue)}
    elif queue.weighted_share is not None:
        fair_sharing = {"fairSharing": {"weightedShare": queue.weighted_share}}
    return {
        **fair_sharing,
        "pendingWorkloads": queue.pending,
        "reservingWorkloads": queue.reserving,
        "admittedWorkloads": queue.admitted,
        "flavorsReservation": [_flavor(f, queue) for f in queue.reservation] or None,
        "flavorsUsage": [_flavor(f, queue) for f in queue.usage] or None,
        "conditions": conditions.items,
    }


def _fair_sharing(consumed: dict[str, str], queue: QueueStatus) -> dict[str, Any]:
    """Past usage. The quota service reads it after a restart, and so does Kueue in its place."""
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


def _is_of(queue: QueueStatus, obj: Body) -> bool:
    return queue.uid in {"", obj["metadata"]["uid"]}


def _is_drained(queue: QueueStatus, obj: Body) -> bool:
    """True if quota has seen that a ClusterQueue is being deleted, and nothing holds quota in it."""
    terminating = queue.reason == TERMINATING and "deletionTimestamp" in obj["metadata"]
    return terminating and queue.kind == "ClusterQueue" and queue.reserving == 0


class QueueStatusWriter:
    """Writes the latest status of each queue of one cluster, at a bounded rate.

    It has no durable consumer: after a restart it reads the latest status of each queue again.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        kube: Kube,
        cache: ObjectCache,
        cluster: str,
        now: Callable[[], datetime],
        per_second: float,
        load: WriteLoad,
    ) -> None:
        self._bus = bus
        self._kube = kube
        self._cache = cache
        self._filter = subject_filter("queue", cluster)
        self._now = now
        self._limiter = RateLimiter(per_second, burst=BURST, load=load)
        self._backlog: Backlog[str, QueueStatus] = Backlog()

    async def run(self) -> None:
        """Follow and write until cancelled."""
        async with asyncio.TaskGroup() as group:
            handlers = {QueueStatus: self._enqueue}
            group.create_task(follow(self._bus, handlers, filters=[self._filter]))
            group.create_task(drain(self._backlog, self._write, self._limiter, what="queue status"))

    def _enqueue(self, queue: QueueStatus, _entry: Entry) -> None:
        self._backlog.put(queue.subject, queue)

    async def _write(self, _subject: str, queue: QueueStatus) -> None:
        """Write the status of one queue if it differs. Can be repeated."""
        kind = CLUSTER_QUEUE if queue.kind == "ClusterQueue" else LOCAL_QUEUE
        obj = self._cache.object(kind, queue.namespace, queue.name)
        try:
            if obj is None or not _is_of(queue, obj) or queue.reason == TERMINATING:
                obj = await self._kube.get(kind, queue.namespace, queue.name)
            if not _is_of(queue, obj):
                return  # Of a queue that was deleted: quota publishes that of the present one.
            if _is_drained(queue, obj):
                await self._release(obj)
                return
            wanted = queue_status(obj, queue, at=self._now())
            status = status_of(obj)
            if all(status.get(key) == value for key, value in wanted.items()):
                return
            patch = {"metadata": {"uid": obj["metadata"]["uid"]}, "status": wanted}
            after = await self._kube.patch(
                kind, queue.namespace, queue.name, patch, subresource="status"
            )
        except NotFoundError:
            return  # The queue was deleted meanwhile.
        except ConflictError:
            # The cached object has another uid: the next attempt reads it from the API server.
            self._cache.remove(kind, queue.namespace, queue.name)
            raise
        self._cache.store(kind, after)

    async def _release(self, obj: Body) -> None:
        """Remove the finalizer from a ClusterQueue that nobody uses any more."""
        name = obj["metadata"]["name"]
        patch = remove_finalizer(obj, RESOURCE_IN_USE)
        if patch is not None:
            await self._kube.patch(CLUSTER_QUEUE, None, name, patch)
        self._cache.remove(CLUSTER_QUEUE, None, name)
