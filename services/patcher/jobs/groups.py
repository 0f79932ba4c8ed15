"""Releases and stops groups: each of their objects is written by itself, and each write can be repeated."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

import structlog

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.errors import is_transient_refusal
from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.writer import Writer
from services.patcher.jobs.gated import mark_exceeding, mark_target
from services.patcher.jobs.group_cleanup import (
    GroupCleanup,
    by_age,
    releasable_counts,
    templates_of,
)
from services.patcher.jobs.stop_marks import (
    Check,
    check_not_stopped,
    held_mark_patch,
    is_refused,
    is_stopped_later,
    mark_tests,
    was_refused,
)
from shared.bus.port import LaterError
from shared.contracts.kube.bodies import Body, map_at, spec_of
from shared.contracts.kube.conditions import (
    EVICTED,
    EXCEEDS_ADMISSION,
    find_condition,
    message_of,
)
from shared.contracts.kube.kinds import WORKLOAD, Object
from shared.contracts.kube.quantities import parse_quantity
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import WORKLOAD_DELETED
from shared.integrations import Integration, ObjectError, PodSetInfo
from shared.integrations.groups import Group, Member, beyond, grouped, member_of, too_large
from shared.kube.port import Kube, NotFoundError, Patch, RefusedError
from shared.telemetry import probes

log = structlog.get_logger(__name__)

AT_ONCE: Final = 16
"""Objects of a group that are written at the same time."""

ENDING_SECONDS: Final = 2.0
"""Pause before a group that is being stopped is looked at again."""

Step = Callable[[], Awaitable[int]]


class Released(NamedTuple):
    """What became of a release."""

    version: int = 0
    """The newest resource version that was written; 0 if nothing waited."""

    refused: RefusedError | ObjectError | None = None
    """Why one of the objects could not be let go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupController:
    """The groups of one cluster."""

    cache: ObjectCache
    kube: Kube
    writer: Writer
    events: EventRecorder
    cleanup: GroupCleanup
    now: Callable[[], datetime]
    not_seen_seconds: float
    transformed: frozenset[str] = frozenset()
    """Resources that quota counts otherwise than pods ask for them."""

    def find(self, state: WorkloadState, integration: Integration) -> tuple[Body, Integration]:
        """The group of a workload in the form of an object, and what reads it. Raises `LaterError`.

        Its metadata are those of one of its objects, so that events have something that they are about.
        """
        group = self.seen(state, integration)
        body = group.body(uid=state.uid, created="", finish=state.finish)
        first = next(iter(group.members.values()))
        body["metadata"]["name"], body["metadata"]["uid"] = first.name, first.uid
        return body, grouped(integration)

    def seen(self, state: WorkloadState, integration: Integration) -> Group:
        """The group of a workload. Raises `LaterError` while this replica has not seen what the state tells.

        If its last object is gone, a newer state will say so.
        """
        assert state.owner is not None
        assert state.members is not None
        group = self.cache.groups.find(integration.kind, state.namespace, state.owner.name)
        if group is None or not group.has_seen(state.members.latest):
            probes.NOT_YET_SEEN.fired += 1
            text = f"group {state.namespace}/{state.owner.name} was not observed as it is now"
            raise LaterError(text, delay_seconds=self.not_seen_seconds)
        return group

    def enqueue_cleanup(self, state: WorkloadState) -> None:
        """Look whether finalizers of the group's objects are to go, or objects too many."""
        if state.owner is not None and state.owner.is_group:
            self.cleanup.enqueue(state.owner.as_kind(), state.namespace, state.owner.name)

    async def release(
        self,
        group: Group,
        infos: Sequence[PodSetInfo],
        workload: Body,
        admission: Admission,
        *,
        check: Check,
    ) -> Released:
        """Let go what waits, as many as each pod set has. If one is refused, the others go nevertheless.

        One that asks for more than its role was admitted with stays at its gate, and says why.
        """
        by_role = {info.name: info for info in infos}
        templates = templates_of(workload)
        granted = self._granted(admission)
        releasable, larger = (
            releasable_counts(group, workload),
            too_large(group, templates, granted),
        )
        targets: list[tuple[Member, PodSetInfo]] = []
        kept: list[tuple[Member, str]] = []
        for member in sorted((group.members[name] for name in group.waiting), key=by_age):
            info = by_role.get(member.role)
            if info is None or member.deleted:
                continue
            if more := larger.get((member.role, member.asks)):
                kept.append((member, more))
            elif releasable.get(member.role, 0) > 0:
                releasable[member.role] -= 1
                targets.append((member, info))
        await self._keep_gated(group, workload, kept, check)
        if not targets:
            return Released()
        cached = (
            self.cache.object(group.integration.kind, group.namespace, one.name)
            for one, _ in targets
        )
        if any(obj is not None and is_refused(obj, admission) for obj in cached):
            # One that came behind the refusal has no mark of it.
            return Released(refused=was_refused(f"group {group.name}"))
        await self.cleanup.own(group, workload, [member for member, _ in targets])
        newest, refused = 0, None
        steps = [
            partial(self._release_one, group, member, info, templates[info.name], admission, check)
            for member, info in targets
        ]
        async for result in _each(steps, check):
            if isinstance(result, RefusedError | ObjectError):
                if isinstance(result, RefusedError) and is_transient_refusal(result):
                    raise result
                refused = refused or result
            elif isinstance(result, BaseException):
                raise result
            else:
                newest = max(newest, result)
        return Released(newest, refused)

    def _granted(self, admission: Admission) -> dict[str, dict[str, int]]:
        """What quota counts for one pod of each role, of resources that are counted as they are asked for."""
        if admission.unplanned:
            return {}
        return {
            one.name: {
                resource: parse_quantity(text) // one.count
                for resource, text in one.usage.items()
                if resource not in self.transformed
            }
            for one in admission.pod_sets
            if one.count > 0
        }

    async def _release_one(
        self,
        group: Group,
        member: Member,
        info: PodSetInfo,
        admitted: Object,
        admission: Admission,
        on_conflict: Check,
    ) -> int:
        integration = group.integration
        kind, here = integration.kind, (group.namespace, member.name)
        obj = self.cache.object(kind, *here) or await self.writer.get(kind, *here)
        if obj is None or obj["metadata"]["uid"] != member.uid:
            return 0

        def patch(current: Body) -> Patch | None:
            if not member_of(current, integration).waits:
                return None
            granted = self._granted(admission).get(info.name)
            if beyond(spec_of(current), map_at(admitted, "spec"), granted):
                return None  # It was changed meanwhile: the state that tells so comes.
            check_not_stopped(current, admission, known=obj)
            (own,) = integration.pod_sets(current)
            infos = [replace(info, name=own["name"])]
            return [*mark_tests(current), *integration.release(current, infos)]

        if is_stopped_later(obj, admission):
            await on_conflict()
        try:
            after = await self.writer.patch(kind, obj, patch, on_conflict=on_conflict)
        except NotFoundError:
            return 0
        if after is not obj:
            self.events.record(kind, after, "Started", f"Admitted with group {group.name}")
            await mark_exceeding(self.writer, integration, after, "", self.now())
        return int(after["metadata"].get("resourceVersion") or 0)

    async def _keep_gated(
        self, group: Group, workload: Body, kept: Sequence[tuple[Member, str]], check: Check
    ) -> None:
        """Say of objects that ask for more than their role was admitted with why they wait."""
        integration = group.integration
        kind = integration.kind

        async def tell(member: Member, more: str) -> int:
            text = (
                f"{kind.kind} {member.name} asks for more than role {member.role!r} of group {group.name} "
                f"was admitted with: {more}. It stays at its gate: delete it, and create it with what was "
                f"admitted, or in a new group"
            )
            cached = self.cache.object(kind, group.namespace, member.name)
            if message_of(find_condition(cached, EXCEEDS_ADMISSION)) == text:
                return 0  # A group is released again and again.
            obj = await self.writer.get(kind, group.namespace, member.name)
            if obj is None or obj["metadata"]["uid"] != member.uid:
                return 0
            if await mark_exceeding(self.writer, integration, obj, text, self.now()):
                for what, regarding in ((kind, obj), (WORKLOAD, workload)):
                    self.events.record(what, regarding, EXCEEDS_ADMISSION, text, type_="Warning")
            return 0

        steps = [partial(tell, member, more) for member, more in kept]
        async for result in _each(steps, check):
            if isinstance(result, BaseException):
                raise result

    async def stop(
        self,
        state: WorkloadState,
        admission: Admission,
        workload: Body | None,
        integration: Integration,
        check: Check,
    ) -> str:
        """Delete what runs, and mark what waits; return a version at which nothing of the group ran any more.

        Raises `LaterError` until then. What runs is asked of the API server: the quota of the whole group is
        free with the last of them.
        """
        assert state.owner is not None
        objs = await self._members(state.namespace, state.owner.name, integration)
        text = message_of(find_condition(workload, EVICTED)) or admission.message
        everything = admission.reason == WORKLOAD_DELETED
        ending = [obj for one, obj in objs if (one.runs or everything) and not one.deleted]

        async def end(obj: Body) -> int:
            await mark_target(self.writer, integration, obj, admission.reason, text, self.now())
            await self.writer.delete(integration.kind, obj)
            self.events.record(integration.kind, obj, "Stopped", text)
            return 0

        steps = [partial(end, obj) for obj in ending]
        waiting = [obj for one, obj in objs if one.waits and not one.deleted and not everything]
        steps += [partial(self._mark, obj, admission, integration, check) for obj in waiting]
        newest = max((one.version for one, _ in objs), default=0)
        async for result in _each(steps, check):
            if isinstance(result, BaseException):
                raise result
            newest = max(newest, result)
        running = sum(one.runs for one, _ in objs)
        if running:
            raise LaterError(
                f"{running} objects of group {state.namespace}/{state.owner.name} end",
                delay_seconds=ENDING_SECONDS,
            )
        return str(newest)

    async def forbid(self, group: Group, admission: Admission, check: Check) -> None:
        """Mark what waits, so that no release of this decision starts it. Raises `LaterError` if one has."""
        objs = await self._members(group.namespace, group.name, group.integration)
        if any(one.runs for one, _ in objs):
            raise LaterError(f"group {group.namespace}/{group.name} was released meanwhile")
        steps = [
            partial(self._mark, obj, admission, group.integration, check)
            for one, obj in objs
            if one.waits and not one.deleted
        ]
        async for result in _each(steps, check):
            if isinstance(result, BaseException):
                raise result

    async def _mark(
        self, obj: Body, admission: Admission, integration: Integration, check: Check
    ) -> int:
        """Mark an object that waits, so that no late release starts it; return its version then."""

        def patch(current: Body) -> Patch | None:
            return held_mark_patch(current, admission, integration)

        if is_stopped_later(obj, admission):
            await check()
        try:
            after = await self.writer.patch(integration.kind, obj, patch, on_conflict=check)
        except NotFoundError:
            return 0
        except RefusedError as error:
            if is_transient_refusal(error):
                raise
            after = obj  # A tenant can fill up the annotations.
        return member_of(after, integration).version

    async def _members(
        self, namespace: str, name: str, integration: Integration
    ) -> list[tuple[Member, Body]]:
        """The objects of a group, as the API server has them now."""
        group, gate = integration.group, integration.gate
        assert group is not None
        assert gate is not None
        listed = await self.kube.list(
            integration.kind, namespace=namespace, labels=f"{group.label}={name},{gate.label}=true"
        )
        return [
            (member_of(obj, integration), obj)
            for obj in listed.items
            if self.cache.is_member(obj, integration)
        ]


async def _each(steps: Sequence[Step], check: Check) -> AsyncIterator[int | BaseException]:
    """Take the steps, some at a time; a check precedes each of these."""
    for at in range(0, len(steps), AT_ONCE):
        await check()
        some = (step() for step in steps[at : at + AT_ONCE])
        for result in await asyncio.gather(*some, return_exceptions=True):
            yield result
