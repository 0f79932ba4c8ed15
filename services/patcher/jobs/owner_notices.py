"""Lets who looks at the creator of a job see that it waits: a user of Kelos sees a Task, not its Job.

The creator gets an event when its job is queued, admitted or put out, and, where its kind is named in
the settings, an annotation for as long as the job is queued. A condition would be the natural place,
but its own controller writes the status whole (`research/tekton.md` 6.3). Nothing waits for it.
"""

import asyncio
from collections import OrderedDict
from typing import Final, Literal

from services.patcher.cluster.cache import Mirror
from services.patcher.cluster.events import Events
from services.patcher.cluster.pacing import Backlog, Pace, keep_writing
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import QUEUED
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import WorkloadState
from shared.kube.port import Kube, NotFoundError

__all__ = ["Onlookers"]

ANNOTATIONS_PER_SECOND: Final = 20.0
WAITING_MAX: Final = 1_000
"""Annotations that wait to be written. Beyond it the oldest are lost: they are news, not records."""

REMEMBERED_MAX: Final = 5_000
"""Jobs of which it is remembered what their creators were told last."""

Told = Literal["Queued", "Admitted", "Evicted"]

_Key = tuple[str, str, str, str]
"""Plural and group, API version, namespace, name."""


class Onlookers:
    """The creators of the jobs of one cluster."""

    def __init__(
        self, *, kube: Kube, mirror: Mirror, events: Events, annotated: tuple[str, ...]
    ) -> None:
        """`annotated`: kinds that get annotations, as `<plural>.<group>`."""
        self._kube = kube
        self._mirror = mirror
        self._events = events
        self._annotated = annotated
        self._backlog: Backlog[_Key, tuple[str, str | None]] = Backlog(most=WAITING_MAX)
        self._told: OrderedDict[str, tuple[Told, str, Object]] = OrderedDict()
        """By the job's uid: event and annotation that its creator had last, and who that is."""

    def hear(self, state: WorkloadState, admission: Admission) -> None:
        """A decision about a job was written: tell its creator what is new to it. Never fails."""
        creator = self._creator(state)
        if creator is None:
            return
        told, text, note = _news(state, admission)
        last = self._told.get(state.uid)
        if last is not None and last[:2] == (told, note or ""):
            return
        self._told[state.uid] = (told, note or "", creator)
        self._told.move_to_end(state.uid)
        if len(self._told) > REMEMBERED_MAX:
            self._told.popitem(last=False)
        if last is None or last[0] != told:
            if last is None and told == "Evicted":
                return  # It was told by the one before us.
            group, _, version = str(creator["apiVersion"]).rpartition("/")
            kind = Kind(group=group, version=version, plural="", kind=str(creator["kind"]))
            about = {"metadata": {**creator, "namespace": state.namespace}}
            type_: Literal["Normal", "Warning"] = "Warning" if told == "Evicted" else "Normal"
            self._events.say(kind, about, told, text, type_=type_)
        self._note(state, creator, note)

    def forget(self, state: WorkloadState) -> None:
        """Its job has ended, or is gone: no annotation says any more that it waits."""
        last = self._told.pop(state.uid, None)
        if last is not None and last[1]:
            self._note(state, last[2], None)

    async def run(self) -> None:
        """Write annotations until cancelled."""
        if not self._annotated:
            await asyncio.Event().wait()
        pace = Pace(ANNOTATIONS_PER_SECOND)
        await keep_writing(self._backlog, self._write, pace, what="annotation")

    def _creator(self, state: WorkloadState) -> Object | None:
        owner = state.owner
        if owner is None:
            return None
        group, _, version = owner.api_version.rpartition("/")
        kind = Kind(group=group, version=version, plural=owner.plural, kind=owner.kind)
        job = self._mirror.object(kind, state.namespace, owner.name)
        if job is None or job["metadata"]["uid"] != owner.uid:
            return None
        references = job["metadata"].get("ownerReferences") or []
        return next((one for one in references if one.get("controller")), None)

    def _note(self, state: WorkloadState, creator: Object, note: str | None) -> None:
        group = str(creator["apiVersion"]).rpartition("/")[0]
        singular = str(creator["kind"]).lower()
        for name in self._annotated:
            plural, _, of = name.partition(".")
            if of == group and plural in {f"{singular}s", f"{singular}es", f"{singular[:-1]}ies"}:
                key = (name, str(creator["apiVersion"]), state.namespace, str(creator["name"]))
                self._backlog.put(key, (str(creator["uid"]), note))

    async def _write(self, key: _Key, value: tuple[str, str | None]) -> None:
        resource, api_version, namespace, name = key
        uid, note = value
        plural, _, group = resource.partition(".")
        version = api_version.rpartition("/")[2]
        kind = Kind(group=group, version=version, plural=plural, kind="")
        patch = {"metadata": {"uid": uid, "annotations": {QUEUED: note}}}
        try:
            await self._kube.patch(kind, namespace, name, patch)
        except NotFoundError:
            return  # It is gone, and its job will be.


def _news(state: WorkloadState, admission: Admission) -> tuple[Told, str, str | None]:
    """What its creator is told: reason and text of an event, and what the annotation says."""
    assert state.owner is not None, "creators are those of jobs"
    job = f"{state.owner.kind} {state.owner.name}"
    if admission.state == "admitted":
        return "Admitted", f"{job} is admitted by ClusterQueue {admission.cluster_queue}", None
    if admission.state == "evicted":
        return "Evicted", f"{job} is stopped: {admission.message or admission.reason}", None
    why = f"{state.queue}: {admission.reason}" if admission.reason else state.queue
    text = f'{job} is queued in LocalQueue "{state.queue}", waiting for admission'
    return "Queued", text, why
