"""Objects with a scheduling gate: why one is deleted, and when its finalizer goes."""

from datetime import datetime
from typing import Final

import structlog

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.pacing import Backlog, RateLimiter, WriteLoad, drain
from services.patcher.cluster.patches import JsonPatch, remove_finalizer
from services.patcher.cluster.writer import Writer
from services.patcher.jobs.group_cleanup import GroupCleanup
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.conditions import (
    EXCEEDS_ADMISSION,
    TERMINATION_TARGET,
    Conditions,
    conditions_of,
    find_condition,
    message_of,
)
from shared.contracts.kube.kinds import Kind
from shared.contracts.reasons import NO_MATCHING_WORKLOAD, NOT_ADMITTED, WORKLOAD_DELETED
from shared.integrations import Integration
from shared.integrations.groups import group_of
from shared.kube.port import NotFoundError, RefusedError

log = structlog.get_logger(__name__)

_REASONS: Final = {
    NOT_ADMITTED: NOT_ADMITTED,
    NO_MATCHING_WORKLOAD: NO_MATCHING_WORKLOAD,
    WORKLOAD_DELETED: WORKLOAD_DELETED,
}
"""Reason of a decision to that of the condition; `WorkloadEvicted` for all others."""

PER_SECOND: Final = 50.0
"""Finalizers removed per second. One delays nothing, unless its pod is being deleted."""

BURST: Final = 100

_Key = tuple[Kind, str, str]


async def mark_target(
    writer: Writer, integration: Integration, job: Body, reason: str, message: str, at: datetime
) -> None:
    """Write into a pod why it is about to be deleted. It is deleted also where that is refused."""
    written = (True, _REASONS.get(reason, "WorkloadEvicted"), message)
    await _set_condition(writer, integration, job, TERMINATION_TARGET, written, at)


async def mark_exceeding(
    writer: Writer, integration: Integration, pod: Body, message: str, at: datetime
) -> bool:
    """Write into a pod why it stays at its gate, or with an empty message that it does not any more.

    False if it says so already, or never said otherwise.
    """
    known = find_condition(pod, EXCEEDS_ADMISSION)
    if message_of(known) == message:
        return False
    written = (bool(message), "AsksForMore" if message else "AsksForNoMore", message)
    await _set_condition(writer, integration, pod, EXCEEDS_ADMISSION, written, at)
    return True


async def _set_condition(
    writer: Writer,
    integration: Integration,
    job: Body,
    type_: str,
    written: tuple[bool, str, str],
    at: datetime,
) -> None:
    """Set one condition of a pod. Others write others at the same time."""
    conditions, had = Conditions.of(job, at=at), [one["type"] for one in conditions_of(job)]
    conditions.set(type_, *written)
    value = conditions.get(type_)
    patch: JsonPatch = [{"op": "test", "path": "/metadata/uid", "value": job["metadata"]["uid"]}]
    if type_ in had:
        path = f"/status/conditions/{had.index(type_)}"
        patch += [
            {"op": "test", "path": f"{path}/type", "value": type_},
            {"op": "replace", "path": path, "value": value},
        ]
    elif had:
        patch.append({"op": "add", "path": "/status/conditions/-", "value": value})
    else:
        patch.append({"op": "add", "path": "/status/conditions", "value": [value]})
    try:
        await writer.patch(integration.kind, job, lambda _job: patch, subresource="status")
    except (NotFoundError, RefusedError) as error:
        log.info(
            "cannot write the condition of a gated pod",
            pod=job["metadata"]["name"],
            error=str(error),
        )


class GateFinalizers:
    """Removes the finalizers of objects that have ended or are being deleted."""

    def __init__(
        self, *, writer: Writer, cache: ObjectCache, load: WriteLoad, groups: GroupCleanup
    ) -> None:
        self._writer = writer
        self._limiter = RateLimiter(PER_SECOND, burst=BURST, load=load)
        self._backlog: Backlog[_Key, tuple[Integration, Body]] = Backlog()
        self._groups = groups
        self._is_member = cache.is_member
        cache.on_gated = self._observe

    async def run(self) -> None:
        """Write until cancelled."""
        await drain(self._backlog, self._write, self._limiter, what="finalizer of a pod")

    def _observe(self, integration: Integration, obj: Body) -> None:
        metadata = obj["metadata"]
        if (name := group_of(obj, integration)) and self._is_member(obj, integration):
            self._groups.enqueue(integration.kind, metadata["namespace"], name)
        elif _without_finalizer(integration, obj) is not None:
            key = (integration.kind, metadata["namespace"], metadata["name"])
            self._backlog.put(key, (integration, obj))

    async def _write(self, key: _Key, what: tuple[Integration, Body]) -> None:
        integration, obj = what
        try:
            await self._writer.patch(
                key[0], obj, lambda current: _without_finalizer(integration, current)
            )
        except NotFoundError:
            return  # It is gone.


def _without_finalizer(integration: Integration, obj: Body) -> JsonPatch | None:
    """A patch that lets an object go; None if it has no finalizer of ours, or is still needed."""
    is_done = "deletionTimestamp" in obj["metadata"] or integration.finish(obj) is not None
    if integration.gate is None or not is_done:
        return None
    return remove_finalizer(obj, integration.gate.finalizer)
