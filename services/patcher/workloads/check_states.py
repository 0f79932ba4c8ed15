"""What admission checks say, in the Workload's own status: `status.admissionChecks`, as Kueue keeps it.

The states come home with a decision where they were said before it, and by themselves where they
change between two decisions. Without a check nothing is asked and nothing more is written.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from services.patcher.cluster.pacing import Backlog, Pace, keep_writing
from shared.bus.port import Bus, BusError, CaughtUp, Entry
from shared.contracts import subjects
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.effects import CheckState

__all__ = ["CHECKS_MAX", "Checks", "kept", "reset"]

log = structlog.get_logger(__name__)

CHECKS_MAX: Final = 8
"""What a Workload takes; a queue may name more."""

MESSAGE_MAX: Final = 32_768
PER_SECOND: Final = 50.0
"""States written at most that come between two decisions: nobody starts later for them."""

BURST: Final = 20
_PENDING: Final = "Pending"
_READY: Final = "Ready"
_RESET: Final = "Reset to Pending after eviction. Previously: "

_Name = tuple[str, str]
"""Namespace and name of a workload."""


def kept(
    listed: Iterable[Object], admission: Admission, said: Sequence[CheckState]
) -> list[Object]:
    """The states of a workload that holds quota: one for each check that it needs, in their order.

    `listed`: what its status says now; it stays for who answers nowhere else. An answer counts if it
    was given since the reservation, by the seconds, as quota counts it.
    """
    now = {str(state.get("name")): state for state in listed}
    heard = {one.check: one for one in said if one.uid == admission.uid}
    return [
        _state(name, now.get(name), heard.get(name), admission)
        for name in admission.checks[:CHECKS_MAX]
    ]


def reset(
    listed: Iterable[Object], admission: Admission, said: Sequence[CheckState] = ()
) -> list[Object]:
    """The states once quota is lost: whoever had answered is to answer again (`kueue.md` 1.3)."""
    heard = {one.check: one for one in said if one.uid == admission.uid}
    return [_reset(dict(one), heard.get(str(one.get("name"))), admission) for one in listed]


def _state(name: str, now: Object | None, said: CheckState | None, admission: Admission) -> Object:
    since = _seconds(admission.decided_at)
    if admission.state == "admitted":
        # Else it would not be: its answer may still be on its way to us, or be older than this.
        counts = said is not None and (said.state == _READY or _seconds(said.at) >= since)
        if said is None or not counts or said.state == _PENDING:
            message = now.get("message", "") if now and now.get("state") == _READY else ""
            return _changed(now, name, _READY, str(message), since)
    elif said is None or _seconds(said.at) < since:
        return now if now is not None else _changed(None, name, _PENDING, "", since)
    state = _changed(now, name, said.state, said.message, _seconds(said.at))
    state.pop("requeueAfterSeconds", None)
    if said.requeue_after_seconds is not None and said.state == "Retry":
        state["requeueAfterSeconds"] = max(0, round(said.requeue_after_seconds))
    return state


def _changed(now: Object | None, name: str, state: str, message: str, at: datetime) -> Object:
    """A state; the time of transition moves only when it changes. What pods get stays with it."""
    same = now is not None and now.get("state") == state
    new: dict[str, Any] = dict(now) if now is not None else {"name": name}
    if not same:
        new["lastTransitionTime"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
        new.pop("podSetUpdates", None)
    new["state"], new["message"] = state, message[:MESSAGE_MAX]
    return new


def _reset(state: dict[str, Any], said: CheckState | None, admission: Admission) -> Object:
    before = str(state.get("state"))
    if before == _PENDING and said is not None and _was_not_told(state, said):
        before = said.state
    if before == _PENDING:
        return state
    retries = int(state.get("retryCount") or 0) + (before == "Retry")
    state.pop("requeueAfterSeconds", None)
    message = f"{_RESET}{before}"
    # Made Pending from whatever it was, so that the transition is this one.
    new = _changed({**state, "state": before}, str(state.get("name")), _PENDING, message,
                   _seconds(admission.decided_at))  # fmt: skip
    return {**new, "retryCount": retries} if retries else new


def _was_not_told(state: Object, said: CheckState) -> bool:
    """Whether that was said after what is written; once it was reset, what led to that counts no more."""
    written = datetime.fromisoformat(str(state.get("lastTransitionTime")))
    at = _seconds(said.at)
    return at > written or (at == written and not str(state.get("message")).startswith(_RESET))


def _seconds(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(microsecond=0)


class Checks:
    """What is said about the workloads of one cluster. Remembers nothing: the bus does."""

    def __init__(self, *, bus: Bus, cluster: str) -> None:
        self._bus = bus
        self._cluster = cluster
        self._backlog: Backlog[_Name, None] = Backlog()

    async def said(self, admission: Admission) -> list[CheckState]:
        """The last word of each check about this workload. Raises `BusError`."""
        if admission.state not in HOLDING:
            return []
        found = []
        for check in admission.checks[:CHECKS_MAX]:
            subject = subjects.join(
                "check", self._cluster, admission.namespace, admission.name, check
            )
            entry = await self._bus.latest("CHECKS", subject)
            if entry is not None and (one := _decoded(entry)) is not None:
                found.append(one)
        return found

    async def run(self, tell: Callable[[str, str], Awaitable[bool]]) -> None:
        """Have each change written, until cancelled. `tell`: whether it was; False: not yet."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            writing = keep_writing(
                self._backlog,
                lambda key, _: self._tell(tell, key),
                Pace(PER_SECOND, burst=BURST),
                what="check",
            )
            group.create_task(writing)

    async def _follow(self) -> None:
        filter_ = f"{subjects.ROOT}.check.{subjects.encode(self._cluster)}.>"
        async with aclosing(self._bus.watch("CHECKS", filter_)) as items:
            async for item in items:
                if not isinstance(item, CaughtUp) and (one := _decoded(item)) is not None:
                    self._backlog.put((one.namespace, one.name), None)

    async def _tell(self, tell: Callable[[str, str], Awaitable[bool]], key: _Name) -> None:
        try:
            told = await tell(*key)
        except BusError as error:
            log.info("later", what="check", key=str(key), error=str(error))
            told = False
        if not told:
            self._backlog.put(key, None)


def _decoded(entry: Entry) -> CheckState | None:
    try:
        return entry.read(CheckState)
    except UndecodableError as error:
        log.warning("cannot read", subject=entry.subject, error=str(error))
        return None
