"""Writes the status of queues and cohorts in Kueue's form: counts, usage, shares, and `Active`."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeAlias

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.pacing import Backlog, RateLimiter, WriteLoad, drain
from services.patcher.cluster.patches import remove_finalizer
from shared.bus.follow import follow
from shared.bus.port import Bus, Entry
from shared.contracts.kube.bodies import Body, status_of
from shared.contracts.kube.conditions import ACTIVE, Conditions, timestamp
from shared.contracts.kube.kinds import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, Kind
from shared.contracts.kube.names import RESOURCE_IN_USE
from shared.contracts.messages.queues import CohortShare, FlavorUsage, QueueStatus
from shared.contracts.reasons import TERMINATING
from shared.contracts.subjects import subject_filter
from shared.kube.port import ConflictError, Kube, NotFoundError

BURST: Final = 20

Status: TypeAlias = QueueStatus | CohortShare


def queue_status(obj: Body, queue: QueueStatus, *, at: datetime) -> dict[str, Any]:
    """The fields of the status that Sluicegate writes, None to remove one; others stay as they are."""
    conditions = Conditions.of(obj, at=at)
    conditions.set(ACTIVE, queue.active, queue.reason, queue.message)
    fair_sharing: dict[str, Any] = {}
    if queue.consumed is not None:
        fair_sharing = {"fairSharing": _fair_sharing(queue.consumed, queue)}
    elif queue.kind == "ClusterQueue":
        fair_sharing = {"fairSharing": _share(queue.weighted_share)}
    return {
        **fair_sharing,
        "pendingWorkloads": queue.pending,
        "reservingWorkloads": queue.reserving,
        "admittedWorkloads": queue.admitted,
        "flavorsReservation": [_flavor(f, queue) for f in queue.reservation] or None,
        "flavorsUsage": [_flavor(f, queue) for f in queue.usage] or None,
        "conditions": conditions.items,
    }


def _cohort_status(cohort: CohortShare) -> dict[str, Any]:
    """The fields of the status of a Cohort, None to remove one."""
    return {"fairSharing": _share(cohort.weighted_share)}


def _share(weighted_share: int | None) -> dict[str, Any] | None:
    """Kueue removes the share where fair sharing is off."""
    return None if weighted_share is None else {"weightedShare": weighted_share}


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


def _place(message: Status) -> tuple[Kind, str | None]:
    """Kind and namespace of the object that a status is about."""
    if isinstance(message, CohortShare):
        return COHORT, None
    return CLUSTER_QUEUE if message.kind == "ClusterQueue" else LOCAL_QUEUE, message.namespace


def _is_of(message: Status, obj: Body) -> bool:
    return message.uid in {"", obj["metadata"]["uid"]}


def _is_terminating(message: Status) -> bool:
    return isinstance(message, QueueStatus) and message.reason == TERMINATING


def _is_drained(message: Status, obj: Body) -> bool:
    """True if quota has seen that a ClusterQueue is being deleted, and nothing holds quota in it."""
    if not isinstance(message, QueueStatus) or "deletionTimestamp" not in obj["metadata"]:
        return False
    return _is_terminating(message) and message.kind == "ClusterQueue" and message.reserving == 0


class QueueStatusWriter:
    """Writes the latest status of each queue and cohort of one cluster, at a bounded rate.

    It has no durable consumer: after a restart it reads the latest status of each of them again.
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
        self._filters = [subject_filter(what, cluster) for what in ("queue", "cohort")]
        self._now = now
        self._limiter = RateLimiter(per_second, burst=BURST, load=load)
        self._backlog: Backlog[str, Status] = Backlog()

    async def run(self) -> None:
        """Follow and write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                follow(
                    self._bus,
                    {QueueStatus: self._enqueue, CohortShare: self._enqueue},
                    filters=self._filters,
                )
            )
            group.create_task(drain(self._backlog, self._write, self._limiter, what="queue status"))

    def _enqueue(self, message: Status, _entry: Entry) -> None:
        self._backlog.put(message.subject, message)

    async def _write(self, _subject: str, message: Status) -> None:
        """Write the status of one queue or cohort if it differs. Can be repeated."""
        kind, namespace = _place(message)
        obj = self._cache.object(kind, namespace, message.name)
        try:
            if obj is None or not _is_of(message, obj) or _is_terminating(message):
                obj = await self._kube.get(kind, namespace, message.name)
            if not _is_of(message, obj):
                return  # Of an object that was deleted: quota publishes that of the present one.
            if _is_drained(message, obj):
                await self._release(obj)
                return
            wanted = self._wanted(obj, message)
            status = status_of(obj)
            if all(status.get(key) == value for key, value in wanted.items()):
                return
            patch = {"metadata": {"uid": obj["metadata"]["uid"]}, "status": wanted}
            after = await self._kube.patch(
                kind, namespace, message.name, patch, subresource="status"
            )
        except NotFoundError:
            return  # It was deleted meanwhile.
        except ConflictError:
            # The cached object has another uid: the next attempt reads it from the API server.
            self._cache.remove(kind, namespace, message.name)
            raise
        self._cache.store(kind, after)

    def _wanted(self, obj: Body, message: Status) -> dict[str, Any]:
        if isinstance(message, CohortShare):
            return _cohort_status(message)
        return queue_status(obj, message, at=self._now())

    async def _release(self, obj: Body) -> None:
        """Remove the finalizer from a ClusterQueue that nobody uses any more."""
        name = obj["metadata"]["name"]
        patch = remove_finalizer(obj, RESOURCE_IN_USE)
        if patch is not None:
            await self._kube.patch(CLUSTER_QUEUE, None, name, patch)
        self._cache.remove(CLUSTER_QUEUE, None, name)
