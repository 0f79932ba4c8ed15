"""Tells people what happened, as Kubernetes events. Nothing waits for them, and none is worth a retry storm.

Types, reasons and texts are Kueue's (`research/kueue.md` 1.8).
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from services.patcher.cluster.pacing import Backlog, Pace, keep_writing
from shared.contracts.kube.conditions import timestamp
from shared.contracts.kube.kinds import EVENT, Kind, Object
from shared.kube.port import AlreadyExistsError, Kube, NotFoundError

__all__ = ["Events"]

COMPONENT: Final = "sluicegate"
MESSAGE_MAX: Final = 1024
"""What Kubernetes takes in an event."""

WAITING_MAX: Final = 1_000
"""Events that wait to be written. Beyond it the oldest are lost: they are news, not records."""

REMEMBERED_MAX: Final = 2_000
"""Events that a repetition is counted on, instead of making another one."""

BURST: Final = 20

_Key = tuple[str, str, str]
"""Uid of the object, type, reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _News:
    about: Object
    """`ObjectReference`."""

    message: str
    at: datetime
    times: int = 1


@dataclass(slots=True, kw_only=True)
class _Told:
    name: str
    message: str
    times: int


class Events:
    """Writes events of one cluster, at a bounded rate. `run` must run for anything to be written."""

    def __init__(self, *, kube: Kube, now: Callable[[], datetime], per_second: float) -> None:
        """`per_second` 0 writes none."""
        self._kube = kube
        self._now = now
        self._per_second = per_second
        self._backlog: Backlog[_Key, _News] = Backlog(most=WAITING_MAX)
        self._told: OrderedDict[_Key, _Told] = OrderedDict()

    @property
    def dropped(self) -> int:
        """How many were let go because too many waited."""
        return self._backlog.dropped

    def say(
        self,
        kind: Kind,
        obj: Object,
        reason: str,
        message: str,
        *,
        type_: Literal["Normal", "Warning"] = "Normal",
    ) -> None:
        """Tell something about `obj`. Never waits, never fails."""
        if self._per_second <= 0:
            return
        metadata = obj["metadata"]
        key = (metadata["uid"], type_, reason)
        waiting = self._backlog.get(key)
        about = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": str(metadata.get("resourceVersion", "")),
        }
        times = 1 if waiting is None else waiting.times + 1
        news = _News(about=about, message=message[:MESSAGE_MAX], at=self._now(), times=times)
        self._backlog.put(key, news)

    async def run(self) -> None:
        """Write what was said, until cancelled."""
        # Where none are wanted, `say` leaves nothing to write.
        pace = Pace(self._per_second or 1.0, burst=BURST)
        await keep_writing(self._backlog, self._write, pace, what="event")

    async def _write(self, key: _Key, news: _News) -> None:
        told = self._told.get(key)
        if told is None or told.message != news.message or not await self._again(told, news):
            self._told[key] = await self._new(key, news)
        self._told.move_to_end(key)
        if len(self._told) > REMEMBERED_MAX:
            self._told.popitem(last=False)

    async def _again(self, told: _Told, news: _News) -> bool:
        """Count it on the event that says the same; False if that is gone."""
        times = told.times + news.times
        patch = {"count": times, "lastTimestamp": timestamp(news.at)}
        try:
            await self._kube.patch(EVENT, news.about["namespace"], told.name, patch)
        except NotFoundError:
            return False
        told.times = times
        return True

    async def _new(self, key: _Key, news: _News) -> _Told:
        _, type_, reason = key
        name = _name(key, news)
        at = timestamp(news.at)
        body = {
            "metadata": {"name": name, "namespace": news.about["namespace"]},
            "involvedObject": news.about,
            "type": type_,
            "reason": reason,
            "message": news.message,
            "count": news.times,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": "",
        }
        with suppress(AlreadyExistsError):  # An earlier attempt was done; its answer was lost.
            await self._kube.create(EVENT, body)
        return _Told(name=name, message=news.message, times=news.times)


def _name(key: _Key, news: _News) -> str:
    """The same for the same news, so that a repeated attempt makes no second event."""
    said = "\n".join((*key, news.message, news.at.isoformat()))
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    return f"{news.about['name'][:230]}.{digest}"
