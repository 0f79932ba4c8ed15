"""What a group needs beside its start and stop: finalizers that go in time, and no more objects than it has.

The rules are Kueue's (kubernetes-sigs/kueue@ff69552 pkg/controller/jobs/pod/pod_controller.go,
`FindMatchingWorkloads`): an object that has failed stays until another one is there in its place, so that the
group is known as long as it waits for that.
"""

import asyncio
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from typing import Final

import structlog

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.pacing import Backlog, RateLimiter, WriteLoad, drain
from services.patcher.cluster.patches import JsonPatch, if_unchanged, remove_finalizer
from services.patcher.cluster.writer import Writer
from shared.bus.port import LaterError
from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, annotations_of, spec_of
from shared.contracts.kube.conditions import FINISHED, QUOTA_RESERVED, is_true
from shared.contracts.kube.kinds import WORKLOAD, Kind, Object
from shared.integrations.groups import Group, Member, Variant, too_large
from shared.kube.port import NotFoundError

log = structlog.get_logger(__name__)

PER_SECOND: Final = 50.0
BURST: Final = 100
"""Groups looked at per second."""

UNSYNCED_SECONDS: Final = 1.0

EXCESS: Final = "ExcessPodDeleted"
"""Reason of an event, as Kueue has it."""

_Key = tuple[Kind, str, str]


class GroupCleanup:
    """Removes finalizers and objects that are too many, of the groups of one cluster."""

    def __init__(
        self, *, writer: Writer, cache: ObjectCache, events: EventRecorder, load: WriteLoad
    ) -> None:
        self._writer = writer
        self._cache = cache
        self._events = events
        self._limiter = RateLimiter(PER_SECOND, burst=BURST, load=load)
        self._backlog: Backlog[_Key, None] = Backlog()

    def enqueue(self, kind: Kind, namespace: str, name: str) -> None:
        """Look at a group soon."""
        self._backlog.put((kind, namespace, name), None)

    async def run(self) -> None:
        """Write until cancelled."""
        await drain(self._backlog, self._clean_up, self._limiter, what="upkeep of a group")

    async def _clean_up(self, key: _Key, _value: None) -> None:
        group = self._cache.groups.find(*key)
        if self._cache.not_synced() is not None:
            # What is not read yet may be what an object is kept for.
            await asyncio.sleep(UNSYNCED_SECONDS)
            self._backlog.put(key, None)
            return
        if group is None:
            return
        workload = self._cache.object(WORKLOAD, group.namespace, group.name)
        if workload is not None and annotations_of(workload).get(names.GROUP_WORKLOAD) != "true":
            workload = None
        done, surplus = list(done_with(group, workload)), list(excess(group, workload))
        if workload is not None and done and not is_true(workload, FINISHED):
            counting = [one for one in group.members.values() if one.counts]
            try:
                await self.own(group, workload, counting)
            except NotFoundError as error:
                raise LaterError("its Workload is gone, or another one") from error
        for member in [*done, *surplus]:
            await self._let_go(group, member, delete=member in surplus)

    async def own(self, group: Group, workload: Body, members: Iterable[Member]) -> None:
        """Let these objects own the Workload: it goes with the last one that does."""
        wanted = {member.uid for member in members}

        def patch(current: Body) -> JsonPatch | None:
            owners = current["metadata"].get("ownerReferences") or []
            missing = wanted - {owner["uid"] for owner in owners}
            more = [one for one in group.owners() if one["uid"] in missing]
            if not more:
                return None
            change = {"op": "add", "path": "/metadata/ownerReferences", "value": [*owners, *more]}
            return if_unchanged(current, change)

        await self._writer.patch(WORKLOAD, workload, patch)

    async def _let_go(self, group: Group, member: Member, *, delete: bool) -> None:
        integration, gate = group.integration, group.integration.gate
        obj = self._cache.object(integration.kind, group.namespace, member.name)
        if obj is None or obj["metadata"]["uid"] != member.uid:
            obj = await self._writer.get(integration.kind, group.namespace, member.name)
        if obj is None or obj["metadata"]["uid"] != member.uid or gate is None:
            return
        try:
            after = await self._writer.patch(
                integration.kind, obj, lambda current: remove_finalizer(current, gate.finalizer)
            )
        except NotFoundError:
            return
        if delete and not member.deleted and integration.held(after):
            await self._writer.delete(integration.kind, after)
            text = f"Group {group.name} has {group.total} without it"
            self._events.record(integration.kind, after, EXCESS, text)


def by_age(member: Member) -> tuple[str, str]:
    """Sort key: the oldest first, in every replica alike."""
    return member.created, member.name


def templates_of(workload: Body | None) -> dict[str, Object]:
    """Return the pod templates of a Workload by pod set."""
    pod_sets = spec_of(workload).get("podSets") or []
    return {str(one.get("name")): one.get("template") or {} for one in pod_sets}


def _counts_of(workload: Body | None) -> dict[str, int]:
    """Return the pod sets of a Workload, and the number of their pods."""
    pod_sets = spec_of(workload).get("podSets") or []
    return {str(one.get("name")): int(one.get("count") or 0) for one in pod_sets}


def releasable_counts(group: Group, workload: Body) -> dict[str, int]:
    """Return how many objects of each pod set may still be let go."""
    released = group.released()
    return {name: count - released.get(name, 0) for name, count in _counts_of(workload).items()}


def excess(group: Group, workload: Body | None) -> Iterator[Member]:
    """Yield the objects that are too many, of those that wait: the last ones that came.

    With quota each pod set has as many as were admitted. Objects of a pod set that was not admitted wait on:
    they may be meant for later. One that asks for more than was admitted goes before any that does not.
    """
    if is_true(workload, FINISHED):
        yield from (group.members[name] for name in group.waiting)
    elif is_true(workload, QUOTA_RESERVED):
        larger = too_large(group, templates_of(workload))
        for name, count in _counts_of(workload).items():
            role = group.roles.get(name)
            if role is not None and (beyond := role.counted - count) > 0:
                yield from _last(group, beyond, name, larger)
    elif (beyond := group.counted - group.total) > 0 and group.total > 0:
        yield from _last(group, beyond)


def _last(
    group: Group, number: int, role: str | None = None, larger: Container[Variant] = ()
) -> list[Member]:
    waiting = (group.members[name] for name in group.waiting)
    found = [one for one in waiting if role is None or one.role == role]
    # Without our finalizer it may be gone at any moment.
    order = sorted(
        found, key=lambda one: ((one.role, one.asks) in larger, not one.kept, *by_age(one))
    )
    return order[-number:]


def done_with(group: Group, workload: Body | None) -> Iterator[Member]:
    """Yield the objects that lose our finalizer: nothing depends on them any more."""
    if is_true(workload, FINISHED) or group.finish() is not None or group.given_up:
        found = [*group.members.values()]
    elif workload is None:
        # None yet, or none any more: what has succeeded counts until somebody deletes it.
        found = [one for one in group.members.values() if one.deleted or not one.counts]
    elif group.serving:
        found = [one for one in group.members.values() if one.deleted]
    elif group.lost:
        found = list(_replaced(group, workload))
    else:
        return
    # What runs still keeps it: its end has to be seen.
    yield from (one for one in found if one.kept and (one.deleted or not one.runs))


def _replaced(group: Group, workload: Body) -> Iterator[Member]:
    """Yield what does not count any more and has others in its place; what was made first goes first."""
    counts = _counts_of(workload)
    lost: dict[str, list[Member]] = defaultdict(list)
    for name in group.lost:
        lost[group.members[name].role].append(group.members[name])
    for role, members in lost.items():
        known = group.roles.get(role)
        here = 0 if known is None else known.counted
        number = len(members) + here - counts.get(role, 0)
        yield from sorted(members, key=by_age)[: max(0, number)]
