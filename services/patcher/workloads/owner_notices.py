"""Informs the owner of a job, because its users may never see the job: a Kelos Task creates a Job.

The owner gets an event when its job is queued, admitted or evicted. If the settings name its kind, it
also has an annotation while the job is queued. A condition would be the usual place, but controllers
such as Kelos' overwrite the whole status. Best effort: nothing waits for these writes.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import Any, Final, Literal

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.events import EventRecorder, EventType
from services.patcher.cluster.pacing import Backlog, RateLimiter, drain
from shared.contracts.kube.bodies import OwnerReference
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import QUEUED
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import WorkloadState
from shared.kube.port import Kube, NotFoundError

ANNOTATIONS_PER_SECOND: Final = 20.0
PENDING_MAX: Final = 1_000
"""Annotations that wait to be written. Above it the oldest are dropped."""

REMEMBERED_MAX: Final = 5_000
"""Jobs for which the last notice is remembered."""

Notice = Literal["Queued", "Admitted", "Evicted"]
"""Reason of the event."""

_Key = tuple[str, str, str, str]
"""`<plural>.<group>`, API version, namespace and name of an owner."""


class OwnerNotices:
    """Writes events and annotations on the owners of the jobs of one cluster."""

    def __init__(
        self, *, kube: Kube, cache: ObjectCache, events: EventRecorder, annotated: tuple[str, ...]
    ) -> None:
        """`annotated`: kinds of owners that get annotations, as `<plural>.<group>`."""
        self._kube = kube
        self._cache = cache
        self._events = events
        self._annotated = annotated
        self._backlog: Backlog[_Key, tuple[str, str | None]] = Backlog(limit=PENDING_MAX)
        self._notified: OrderedDict[str, tuple[Notice, str, OwnerReference]] = OrderedDict()
        """Uid of the job to its last notice, the annotation ("" for none), and its owner."""

    def notify(self, state: WorkloadState, admission: Admission) -> None:
        """Enqueue event and annotation for an admission, where they differ from the last. Never raises."""
        owner = self._owner_of_job(state)
        if owner is None:
            return
        notice, text, annotation = _notice(state, admission)
        last = self._notified.get(state.uid)
        if last is not None and last[:2] == (notice, annotation or ""):
            return
        self._notified[state.uid] = (notice, annotation or "", owner)
        self._notified.move_to_end(state.uid)
        if len(self._notified) > REMEMBERED_MAX:
            self._notified.popitem(last=False)
        if last is None or last[0] != notice:
            if last is None and notice == "Evicted":
                return  # An earlier process wrote that event.
            group, _, version = owner["apiVersion"].rpartition("/")
            kind = Kind(group=group, version=version, plural="", kind=owner["kind"])
            reference: Any = {"metadata": {**owner, "namespace": state.namespace}}
            type_: EventType = "Warning" if notice == "Evicted" else "Normal"
            self._events.record(kind, reference, notice, text, type_=type_)
        self._annotate(state, owner, annotation)

    def forget(self, state: WorkloadState) -> None:
        """Remove the annotation of a job that has ended or is gone."""
        last = self._notified.pop(state.uid, None)
        if last is not None and last[1]:
            self._annotate(state, last[2], None)

    async def run(self) -> None:
        """Write annotations until cancelled."""
        if not self._annotated:
            await asyncio.Event().wait()
        limiter = RateLimiter(ANNOTATIONS_PER_SECOND)
        await drain(self._backlog, self._write, limiter, what="annotation")

    def _owner_of_job(self, state: WorkloadState) -> OwnerReference | None:
        """The controller of the job; None if it has none, or the job is not cached."""
        if state.owner is None:
            return None
        job = self._cache.object(state.owner.as_kind(), state.namespace, state.owner.name)
        if job is None or job["metadata"]["uid"] != state.owner.uid:
            return None
        references = job["metadata"].get("ownerReferences") or []
        return next((one for one in references if one.get("controller")), None)

    def _annotate(
        self, state: WorkloadState, owner: OwnerReference, annotation: str | None
    ) -> None:
        group = owner["apiVersion"].rpartition("/")[0]
        singular = owner["kind"].lower()
        plurals = {f"{singular}s", f"{singular}es", f"{singular[:-1]}ies"}
        for resource in self._annotated:
            plural, _, resource_group = resource.partition(".")
            if resource_group == group and plural in plurals:
                key = (resource, owner["apiVersion"], state.namespace, owner["name"])
                self._backlog.put(key, (owner["uid"], annotation))

    async def _write(self, key: _Key, value: tuple[str, str | None]) -> None:
        resource, api_version, namespace, name = key
        uid, annotation = value
        plural, _, group = resource.partition(".")
        version = api_version.rpartition("/")[2]
        kind = Kind(group=group, version=version, plural=plural, kind="")
        patch = {"metadata": {"uid": uid, "annotations": {QUEUED: annotation}}}
        with suppress(NotFoundError):  # The owner is gone, and its job goes with it.
            await self._kube.patch(kind, namespace, name, patch)


def _notice(state: WorkloadState, admission: Admission) -> tuple[Notice, str, str | None]:
    """Reason and message of the event, and the annotation; None for no annotation."""
    assert state.owner is not None, "only jobs have owners"
    job = f"{state.owner.kind} {state.owner.name}"
    if admission.state == "admitted":
        return "Admitted", f"{job} is admitted by ClusterQueue {admission.cluster_queue}", None
    if admission.state == "evicted":
        return "Evicted", f"{job} is stopped: {admission.message or admission.reason}", None
    annotation = f"{state.queue}: {admission.reason}" if admission.reason else state.queue
    text = f'{job} is queued in LocalQueue "{state.queue}", waiting for admission'
    return "Queued", text, annotation
