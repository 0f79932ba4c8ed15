"""Answers admission checks by the clock: a workload starts only while a window of its check is open.

Outside of them the answer is `Retry` until the next one opens, so that nobody's quota is held for a
night: the workload queues again, and comes back when it may start. What runs already runs on.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Final

import structlog

from shared.bus.port import Bus, CaughtUp, Entry, FencedError
from shared.contracts import subjects
from shared.contracts.kube.kinds import ADMISSION_CHECK
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.effects import CheckState
from shared.contracts.messages.observed import Observed
from shared.contracts.subjects import observed_filter
from shared.contracts.windows import CONTROLLER, Windows, WindowsError, read_windows

__all__ = ["Answer", "WindowChecks", "answer"]

log = structlog.get_logger(__name__)

UNREADABLE_SECONDS: Final = 300.0
"""A check whose windows cannot be read is asked again after this long."""

_Key = tuple[str, str]
"""Namespace and name of a workload."""

Answer = tuple[str, str, float | None]
"""State, message, and after how many seconds to ask again."""


def answer(windows: Windows | str, now: datetime) -> Answer:
    """What a check says now; its windows, or why they cannot be read."""
    if isinstance(windows, str):
        return "Retry", windows, UNREADABLE_SECONDS
    stand = windows.stand(now)
    if stand.open:
        return "Ready", f"The window is open until {_text(stand.changes_at)}", None
    if stand.changes_at is None:
        return "Rejected", "No window ever opens", None
    # A clock that is a little behind must not find it closed still.
    wait = (stand.changes_at - now + timedelta(seconds=1)).total_seconds()
    return "Retry", f"The next window opens at {_text(stand.changes_at)}", wait


def _text(at: datetime | None) -> str:
    return "" if at is None else at.strftime("%Y-%m-%dT%H:%M:%SZ")


class WindowChecks:
    """The writer of these checks of one cluster, from taking the lease to losing it."""

    def __init__(self, *, cluster: str, bus: Bus, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._bus = bus
        self._now = now
        self._windows: dict[str, Windows | str] = {}
        self._reserved: dict[_Key, Admission] = {}
        self._said: dict[tuple[_Key, str], tuple[CheckState, int]] = {}
        self._unread = {"OBSERVED", "CHECKS"}
        self._concerned = asyncio.Event()
        """There is a check of ours; until then, nobody has to read what was decided."""

        self._unanswered: dict[_Key, None] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled. Raises `BusError` where the views have to be read again."""
        token, root = subjects.encode(self._cluster), subjects.ROOT
        async with asyncio.TaskGroup() as group:
            for stream, filter_, take in (
                ("OBSERVED", observed_filter(ADMISSION_CHECK, self._cluster), self._take_object),
                ("CHECKS", f"{root}.check.{token}.>", self._take_said),
            ):
                group.create_task(self._follow(stream, filter_, take))
            group.create_task(self._follow_decisions(f"{root}.admission.{token}.>"))
            group.create_task(self._answer())

    async def _follow_decisions(self, filter_: str) -> None:
        await self._concerned.wait()
        await self._follow("ADMISSIONS", filter_, self._take_admission)

    async def _follow(self, stream: str, filter_: str, take: Callable[[Entry], None]) -> None:
        async with aclosing(self._bus.watch(stream, filter_)) as entries:
            async for entry in entries:
                if isinstance(entry, CaughtUp):
                    self._unread.discard(stream)
                else:
                    try:
                        take(entry)
                    except UndecodableError as error:
                        log.warning("skipping what is unreadable", why=str(error))
                self._wake.set()

    def _take_object(self, entry: Entry) -> None:
        observed = entry.read(Observed)
        obj = observed.object or {}
        ours = (obj.get("spec") or {}).get("controllerName") == CONTROLLER
        if observed.deleted or not ours:
            self._windows.pop(observed.name, None)
            return
        try:
            said: Windows | str = read_windows(obj["metadata"].get("annotations") or {})
        except WindowsError as error:
            log.warning("a check has no windows", check=observed.name, error=str(error))
            said = str(error)
        self._windows[observed.name] = said
        if not self._concerned.is_set():
            self._unread.add("ADMISSIONS")
            self._concerned.set()
        self._unanswered.update(dict.fromkeys(self._reserved))

    def _take_admission(self, entry: Entry) -> None:
        admission = entry.read(Admission)
        key = (admission.namespace, admission.name)
        if admission.state == "reserved" and admission.checks:
            self._reserved[key] = admission
            self._unanswered[key] = None
        else:
            self._reserved.pop(key, None)
            self._unanswered.pop(key, None)

    def _take_said(self, entry: Entry) -> None:
        said = entry.read(CheckState)
        self._said[(said.namespace, said.name), said.check] = (said, entry.sequence)

    async def _answer(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._unread:
                continue
            while self._unanswered:
                key = next(iter(self._unanswered))
                del self._unanswered[key]
                for admission, check in self._asked(key):
                    await self._say(admission, check)

    def _asked(self, key: _Key) -> Iterator[tuple[Admission, str]]:
        """Checks of ours that have not answered this reservation."""
        admission = self._reserved.get(key)
        for check in admission.checks if admission is not None else ():
            assert admission is not None, "there are checks"
            if check not in self._windows:
                continue
            said, _ = self._said.get((key, check), (None, 0))
            answered = said is not None and (said.uid, said.attempt) == (
                admission.uid,
                admission.number,
            )
            if not answered or said is None or said.state == "Pending":
                yield admission, check

    async def _say(self, admission: Admission, check: str) -> None:
        # Quota ignores what is older than its reservation, and our clock may be behind.
        now = max(self._now(), admission.decided_at)
        state, message, wait = answer(self._windows[check], now)
        said = CheckState.model_validate(
            {
                "cluster": self._cluster,
                "namespace": admission.namespace,
                "name": admission.name,
                "uid": admission.uid,
                "check": check,
                "state": state,
                "message": message,
                "requeue_after_seconds": wait,
                "attempt": admission.number,
                "at": now,
                "traceparent": admission.traceparent,
            }
        )
        key = ((said.namespace, said.name), check)
        # The fence is on the log, which may have dropped what the view still has.
        latest = await self._bus.latest("CHECKS", said.subject)
        known = self._said[key][1] if key in self._said else 0
        if latest is not None and known < latest.sequence:
            raise FencedError(f"{said.subject}: somebody else has answered")
        sequence = await self._bus.publish(
            said, expect_subject=latest.sequence if latest is not None else 0
        )
        self._said[key] = (said, sequence)
        log.info("check", workload=said.name, check=check, state=state, message=message)
