"""Deletes what has ended, after the time for which it is to be kept (`objectRetentionPolicies`).

When that is up follows from the Workload's own conditions, so a restart forgets nothing.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Final

import structlog

from services.patcher.cluster.cache import Mirror
from services.patcher.cluster.events import Events
from services.patcher.workloads import manifest
from services.patcher.workloads.status import DEACTIVATED, reserves
from shared.bus.port import Bus, CaughtUp
from shared.contracts.kube.conditions import (
    EVICTED,
    FINISHED,
    Condition,
    find_condition,
    is_true,
    reason_of,
    transition_time,
)
from shared.contracts.kube.kinds import WORKLOAD, Kind, Object
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.observed import Observed
from shared.contracts.subjects import observed_filter
from shared.kube.port import ConflictError, Kube, KubeError, NotFoundError, RefusedError
from shared.settings.configuration import WorkloadRetention

__all__ = ["Doomed", "Retention", "doomed"]

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 5.0
"""Until a deletion that the cluster could not do is tried again."""

_Name = tuple[str, str]
"""Namespace and name of a Workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """What is to be deleted, and when."""

    at: datetime
    job: tuple[str, str] | None
    """Group and kind, where the job is meant; None: the Workload."""

    metadata: Object
    """Of the object: no more of it is needed, and there may be many."""

    message: str


def doomed(workload: Object, policy: WorkloadRetention) -> Doomed | None:
    """What `policy` has in store for a Workload object, or for its job; None: it is kept."""
    metadata = workload["metadata"]
    if is_true(workload, FINISHED):
        at = _after(find_condition(workload, FINISHED), policy.after_finished)
        if at is None:
            return None
        kept = {key: metadata.get(key) for key in ("namespace", "name", "uid", "finalizers")}
        text = "Deleted finished workload due to elapsed retention"
        return Doomed(at=at, job=None, metadata=kept, message=text)
    evicted = find_condition(workload, EVICTED)
    by_us = reason_of(evicted).startswith(f"{DEACTIVATED}DueTo")
    inactive = (workload.get("spec") or {}).get("active", True) is False
    if not (inactive and by_us and is_true(workload, EVICTED)) or reserves(workload):
        return None
    at = _after(evicted, policy.after_deactivated_by_kueue)
    job = _job_of(metadata)
    if at is None or job is None:
        return None
    kind, reference = job
    text = "Deleted job: deactivation retention period expired"
    return Doomed(at=at, job=kind, metadata=reference, message=text)


def _after(condition: Condition | None, seconds: float | None) -> datetime | None:
    since = transition_time(condition)
    return None if since is None or seconds is None else since + timedelta(seconds=seconds)


def _job_of(metadata: Object) -> tuple[tuple[str, str], Object] | None:
    """Group, kind and metadata of the job that owns a Workload."""
    for owner in metadata.get("ownerReferences") or []:
        if owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            job = {"namespace": metadata["namespace"], "name": owner["name"], "uid": owner["uid"]}
            return (group, str(owner.get("kind", ""))), job
    return None


class Retention:
    """Follows one cluster's Workloads; idle where nothing is configured."""

    def __init__(
        self,
        *,
        bus: Bus,
        kube: Kube,
        events: Events,
        cluster: str,
        now: Callable[[], datetime],
        policy: WorkloadRetention,
        mirror: Mirror,
    ) -> None:
        self._bus = bus
        self._kube = kube
        self._events = events
        self._filter = observed_filter(WORKLOAD, cluster)
        self._now = now
        self._policy = policy
        self._mirror = mirror
        self._doomed: dict[_Name, Doomed] = {}
        self._times: list[tuple[datetime, _Name]] = []
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Delete what is due, until cancelled."""
        if self._policy.after_finished is None and self._policy.after_deactivated_by_kueue is None:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._care())

    async def _follow(self) -> None:
        async with aclosing(self._bus.watch("OBSERVED", self._filter)) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    continue
                try:
                    self.take(item.read(Observed))
                except UndecodableError as error:
                    log.warning("cannot read", subject=item.subject, error=str(error))

    def take(self, observed: Observed) -> None:
        """Take in how a Workload looks now."""
        name = (observed.namespace or "", observed.name)
        fate = None
        if not observed.deleted and observed.object is not None:
            fate = doomed(observed.object, self._policy)
        if fate is None:
            self._doomed.pop(name, None)
        elif self._doomed.get(name) != fate:
            self._doomed[name] = fate
            heappush(self._times, (fate.at, name))
            self._news.set()

    async def _care(self) -> None:
        while True:
            self._news.clear()
            now = self._now()
            while self._times and self._times[0][0] <= now:
                at, name = heappop(self._times)
                fate = self._doomed.get(name)
                if fate is None or (fate.at > at and fate.at > now):
                    continue  # It changed since; its later entry counts.
                await self._delete(name, fate)
            seconds = (self._times[0][0] - self._now()).total_seconds() if self._times else None
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _kind(self, fate: Doomed) -> Kind | None:
        if fate.job is None:
            return WORKLOAD
        group, kind = fate.job
        integration = self._mirror.integrations.find(group=group, kind=kind)
        return None if integration is None else integration.kind

    async def _delete(self, name: _Name, fate: Doomed) -> None:
        """Delete that life of it, and no other."""
        metadata = fate.metadata
        kind = self._kind(fate)
        if kind is None:
            if self._mirror.not_synced():
                heappush(self._times, (self._now() + timedelta(seconds=RETRY_SECONDS), name))
            else:
                self._doomed.pop(name, None)  # Of a kind that is not ours to delete.
            return
        where = (kind, metadata["namespace"], metadata["name"])
        patch = manifest.finalizer_patch({"metadata": metadata})
        try:
            if patch is not None:
                await self._kube.patch(*where, patch)
            await self._kube.delete(*where, uid=metadata["uid"])
        except (NotFoundError, ConflictError) as error:
            # Gone, or changed: then it is observed again.
            log.debug("not deleted", name=metadata["name"], error=str(error))
        except RefusedError as error:
            log.warning("the cluster refuses to delete", name=metadata["name"], error=str(error))
        except KubeError as error:
            log.info("deleting again later", name=metadata["name"], error=str(error))
            heappush(self._times, (self._now() + timedelta(seconds=RETRY_SECONDS), name))
            return
        else:
            self._events.say(kind, {"metadata": metadata}, "Deleted", fate.message)
        self._doomed.pop(name, None)
