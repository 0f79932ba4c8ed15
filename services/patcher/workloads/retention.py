"""Deletes finished Workloads, and jobs of deactivated ones, after their retention period.

The configuration is Kueue's `objectRetentionPolicies`. The time of deletion follows from the
conditions of the Workload, so a restart loses nothing.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any, Final

import structlog

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.patches import remove_finalizer
from services.patcher.workloads.status import holds_quota
from shared.bus.follow import follow
from shared.bus.port import Bus, Entry
from shared.contracts.kube.bodies import Body, spec_of
from shared.contracts.kube.conditions import (
    EVICTED,
    FINISHED,
    Condition,
    find_condition,
    is_true,
    reason_of,
    transition_time,
)
from shared.contracts.kube.kinds import WORKLOAD, Kind
from shared.contracts.kube.names import RESOURCE_IN_USE
from shared.contracts.messages.observed import Observed
from shared.contracts.reasons import DEACTIVATED_DUE_TO
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import observed_filter
from shared.kube.port import ConflictError, Kube, KubeError, NotFoundError, RefusedError
from shared.settings.configuration import WorkloadRetention

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 5.0
"""Delay before a deletion that the API server could not do is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """An object to delete, and when."""

    at: datetime
    job: tuple[str, str] | None
    """Group and kind of the job to delete; None: the Workload is deleted."""

    metadata: dict[str, Any]
    """Namespace, name, uid and finalizers. Not the whole object, since there may be many."""

    message: str
    """Of the event."""


def deletion_of(workload: Body, policy: WorkloadRetention) -> Deletion | None:
    """What `policy` deletes because of a Workload object: it, or its job; None if nothing."""
    metadata = workload["metadata"]
    if is_true(workload, FINISHED):
        at = _after(find_condition(workload, FINISHED), policy.after_finished)
        if at is None:
            return None
        kept = {key: metadata.get(key) for key in ("namespace", "name", "uid", "finalizers")}
        text = "Deleted finished workload due to elapsed retention"
        return Deletion(at=at, job=None, metadata=kept, message=text)
    evicted = find_condition(workload, EVICTED)
    by_quota = reason_of(evicted).startswith(DEACTIVATED_DUE_TO)
    inactive = spec_of(workload).get("active", True) is False
    if not (inactive and by_quota and is_true(workload, EVICTED)) or holds_quota(workload):
        return None
    at = _after(evicted, policy.after_deactivated_by_kueue)
    owner = next((o for o in metadata.get("ownerReferences") or [] if o.get("controller")), None)
    if at is None or owner is None:
        return None
    return Deletion(
        at=at,
        job=(owner.get("apiVersion", "").rpartition("/")[0], owner.get("kind", "")),
        metadata={"namespace": metadata["namespace"], "name": owner["name"], "uid": owner["uid"]},
        message="Deleted job: deactivation retention period expired",
    )


def _after(condition: Condition | None, seconds: float | None) -> datetime | None:
    since = transition_time(condition)
    return None if since is None or seconds is None else since + timedelta(seconds=seconds)


class Retention:
    """Deletes in one cluster. Does nothing without a configured period."""

    def __init__(
        self,
        *,
        bus: Bus,
        kube: Kube,
        events: EventRecorder,
        cluster: str,
        now: Callable[[], datetime],
        policy: WorkloadRetention,
        cache: ObjectCache,
    ) -> None:
        self._bus = bus
        self._kube = kube
        self._events = events
        self._filter = observed_filter(WORKLOAD, cluster)
        self._now = now
        self._policy = policy
        self._cache = cache
        self._deletions: dict[WorkloadRef, Deletion] = {}
        self._schedule: list[tuple[datetime, WorkloadRef]] = []
        """A heap. Entries that do not match their deletion any more are skipped."""

        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Delete what is due, until cancelled."""
        if self._policy.after_finished is None and self._policy.after_deactivated_by_kueue is None:
            return
        async with asyncio.TaskGroup() as group:
            handlers = {Observed: self.observe}
            group.create_task(follow(self._bus, handlers, filters=[self._filter]))
            group.create_task(self._delete_due())

    def observe(self, observed: Observed, _entry: Entry | None = None) -> None:
        """Schedule what follows from the state of a Workload, in place of what was scheduled before."""
        workload = WorkloadRef(observed.cluster, observed.namespace or "", observed.name)
        deletion = None
        if not observed.deleted and observed.body is not None:
            deletion = deletion_of(observed.body, self._policy)
        if deletion is None:
            self._deletions.pop(workload, None)
        elif self._deletions.get(workload) != deletion:
            self._deletions[workload] = deletion
            self._schedule_at(deletion.at, workload)

    def _schedule_at(self, at: datetime, workload: WorkloadRef) -> None:
        heappush(self._schedule, (at, workload))
        self._changed.set()

    async def _delete_due(self) -> None:
        while True:
            self._changed.clear()
            now = self._now()
            while self._schedule and self._schedule[0][0] <= now:
                at, workload = heappop(self._schedule)
                deletion = self._deletions.get(workload)
                if deletion is None or (deletion.at > at and deletion.at > now):
                    continue  # It changed since: its later entry counts.
                await self._delete(workload, deletion)
            seconds = (
                (self._schedule[0][0] - self._now()).total_seconds() if self._schedule else None
            )
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _kind_of(self, deletion: Deletion) -> Kind | None:
        if deletion.job is None:
            return WORKLOAD
        group, kind = deletion.job
        integration = self._cache.integrations.find(group=group, kind=kind)
        return None if integration is None else integration.kind

    async def _delete(self, workload: WorkloadRef, deletion: Deletion) -> None:
        """Delete the object of this uid, and no other of this name."""
        metadata = deletion.metadata
        kind = self._kind_of(deletion)
        if kind is None:
            if self._cache.not_synced():
                self._schedule_at(self._now() + timedelta(seconds=RETRY_SECONDS), workload)
            else:
                self._deletions.pop(workload, None)  # Not a kind that Sluicegate manages.
            return
        where = (kind, metadata["namespace"], metadata["name"])
        obj: Any = {"metadata": metadata}
        patch = remove_finalizer(obj, RESOURCE_IN_USE)
        try:
            if patch is not None:
                await self._kube.patch(*where, patch)
            await self._kube.delete(*where, uid=metadata["uid"])
        except (NotFoundError, ConflictError) as error:
            # Deleted, or changed: then it is observed again.
            log.debug(
                "an object to delete is gone, or has changed",
                name=metadata["name"],
                error=str(error),
            )
        except RefusedError as error:
            log.warning(
                "the cluster refuses to delete an object", name=metadata["name"], error=str(error)
            )
        except KubeError as error:
            log.info(
                "cannot delete an object; trying again later",
                name=metadata["name"],
                error=str(error),
            )
            self._schedule_at(self._now() + timedelta(seconds=RETRY_SECONDS), workload)
            return
        else:
            self._events.record(kind, obj, "Deleted", deletion.message)
        self._deletions.pop(workload, None)
