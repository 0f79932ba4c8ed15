"""Writes Kubernetes events at a bounded rate. Best effort: nothing waits for them.

Types, reasons and messages are Kueue's.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from services.patcher.cluster.pacing import Backlog, RateLimiter, drain
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.conditions import timestamp
from shared.contracts.kube.kinds import EVENT, Kind
from shared.kube.port import AlreadyExistsError, Kube, NotFoundError

COMPONENT: Final = "sluicegate"
MESSAGE_MAX: Final = 1024
"""Characters that Kubernetes takes in the message of an event."""

PENDING_MAX: Final = 1_000
"""Events that wait to be written. Above it the oldest are dropped."""

WRITTEN_MAX: Final = 2_000
"""Written events that are remembered, so that a repetition raises their `count`."""

BURST: Final = 20

EventType = Literal["Normal", "Warning"]

_Key = tuple[str, str, str]
"""Uid of the object, type, reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingEvent:
    involved_object: dict[str, Any]
    """`ObjectReference`."""

    message: str
    at: datetime
    count: int = 1


@dataclass(slots=True, kw_only=True)
class _WrittenEvent:
    name: str
    message: str
    count: int


class EventRecorder:
    """Writes the events of one cluster, at a bounded rate, while `run` runs."""

    def __init__(self, *, kube: Kube, now: Callable[[], datetime], per_second: float) -> None:
        """`per_second` 0 writes no events."""
        self._kube = kube
        self._now = now
        self._per_second = per_second
        self._backlog: Backlog[_Key, _PendingEvent] = Backlog(limit=PENDING_MAX)
        self._written: OrderedDict[_Key, _WrittenEvent] = OrderedDict()

    def record(
        self, kind: Kind, obj: Body, reason: str, message: str, *, type_: EventType = "Normal"
    ) -> None:
        """Enqueue an event about `obj`. Never waits and never raises."""
        if self._per_second <= 0:
            return
        metadata = obj["metadata"]
        key = (metadata["uid"], type_, reason)
        waiting = self._backlog.get(key)
        involved_object = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": str(metadata.get("resourceVersion", "")),
        }
        pending = _PendingEvent(
            involved_object=involved_object,
            message=message[:MESSAGE_MAX],
            at=self._now(),
            count=1 if waiting is None else waiting.count + 1,
        )
        self._backlog.put(key, pending)

    async def run(self) -> None:
        """Write the recorded events until cancelled."""
        # With a rate of 0 `record` enqueues nothing, so this only waits.
        limiter = RateLimiter(self._per_second or 1.0, burst=BURST)
        await drain(self._backlog, self._write, limiter, what="event")

    async def _write(self, key: _Key, pending: _PendingEvent) -> None:
        written = self._written.get(key)
        if (
            written is None
            or written.message != pending.message
            or not await self._raise_count(written, pending)
        ):
            self._written[key] = await self._create(key, pending)
        self._written.move_to_end(key)
        if len(self._written) > WRITTEN_MAX:
            self._written.popitem(last=False)

    async def _raise_count(self, written: _WrittenEvent, pending: _PendingEvent) -> bool:
        """Raise `count` of the event with the same message; False if that event was deleted."""
        count = written.count + pending.count
        patch = {"count": count, "lastTimestamp": timestamp(pending.at)}
        try:
            await self._kube.patch(EVENT, pending.involved_object["namespace"], written.name, patch)
        except NotFoundError:
            return False
        written.count = count
        return True

    async def _create(self, key: _Key, pending: _PendingEvent) -> _WrittenEvent:
        _, type_, reason = key
        name = _event_name(key, pending)
        at = timestamp(pending.at)
        event: Any = {
            "metadata": {"name": name, "namespace": pending.involved_object["namespace"]},
            "involvedObject": pending.involved_object,
            "type": type_,
            "reason": reason,
            "message": pending.message,
            "count": pending.count,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": "",
        }
        with suppress(AlreadyExistsError):  # An earlier attempt succeeded; its answer was lost.
            await self._kube.create(EVENT, event)
        return _WrittenEvent(name=name, message=pending.message, count=pending.count)


def _event_name(key: _Key, pending: _PendingEvent) -> str:
    """The same name for the same event, so that a repeated attempt creates no second one."""
    content = "\n".join((*key, pending.message, pending.at.isoformat()))
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return f"{pending.involved_object['name'][:230]}.{digest}"
