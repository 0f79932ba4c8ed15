"""Answers admission checks by the clock: a workload starts only while a time window of its check is open.

While no window is open the answer is `Retry` until the next one opens. So the workload gives its quota back
and queues again when it may start. A workload that runs is not stopped when the window closes.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Literal, NamedTuple

import structlog

from shared.bus.fencing import Fence
from shared.bus.follow import follow
from shared.bus.port import Bus, Entry
from shared.contracts import subjects
from shared.contracts.controllers import ANSWERED_BY, WINDOW
from shared.contracts.kube.bodies import annotations_of, spec_of
from shared.contracts.kube.kinds import ADMISSION_CHECK
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.observed import Observed
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import Stream, observed_filter
from shared.contracts.windows import Windows, WindowsError, read_windows

log = structlog.get_logger(__name__)

SERVICE: Final = ANSWERED_BY[WINDOW]
UNREADABLE_SECONDS: Final = 300.0
"""Delay of the Retry of a check whose windows cannot be read."""


class WindowAnswer(NamedTuple):
    """What a window check answers."""

    state: Literal["Ready", "Retry", "Rejected"]
    message: str
    requeue_after_seconds: float | None
    """None unless the state is Retry."""


def window_answer(windows: Windows | str, now: datetime) -> WindowAnswer:
    """The answer at a time. `windows` are the windows of the check, or why they cannot be read."""
    if isinstance(windows, str):
        return WindowAnswer("Retry", windows, UNREADABLE_SECONDS)
    stand = windows.stand(now)
    if stand.open:
        return WindowAnswer("Ready", f"The window is open until {_text(stand.changes_at)}", None)
    if stand.changes_at is None:
        return WindowAnswer("Rejected", "No window ever opens", None)
    # One second more: the clock that is asked next may be a little behind.
    delay = (stand.changes_at - now + timedelta(seconds=1)).total_seconds()
    return WindowAnswer("Retry", f"The next window opens at {_text(stand.changes_at)}", delay)


def _text(at: datetime | None) -> str:
    return "" if at is None else at.strftime("%Y-%m-%dT%H:%M:%SZ")


class WindowChecks:
    """The only writer of the check states of one cluster's window checks, in one term."""

    def __init__(self, *, cluster: str, bus: Bus, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._bus = bus
        self._fence = Fence(bus)
        self._now = now
        self._windows: dict[str, Windows | str] = {}
        """By AdmissionCheck: its windows, or why they cannot be read."""

        self._reserved: dict[WorkloadRef, Admission] = {}
        self._answers: dict[tuple[WorkloadRef, str], tuple[CheckState, int]] = {}
        """By workload and check: the last check state of the dispatcher, also of a MultiKueue check, and
        its sequence, until `forget`."""

        self._unread = {Stream.OBSERVED, Stream.CHECKS}
        self._has_checks = asyncio.Event()
        """Set once there is a window check: until then, `ADMISSIONS` is not read."""

        self._unanswered: dict[WorkloadRef, None] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled. Raises `BusError` if everything has to be read again."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                follow(
                    self._bus,
                    {Observed: self._on_check_object},
                    filters=[observed_filter(ADMISSION_CHECK, self._cluster)],
                    on_caught_up=partial(self._mark_read, Stream.OBSERVED),
                )
            )
            group.create_task(
                follow(
                    self._bus,
                    {CheckState: self._on_check_state},
                    filters=subjects.check_filters(self._cluster, SERVICE),
                    on_caught_up=partial(self._mark_read, Stream.CHECKS),
                    on_read_up_to=self._fence.mark_read,
                )
            )
            group.create_task(
                self._follow_admissions(subjects.subject_filter("admission", self._cluster))
            )
            group.create_task(self._answer_all())

    async def _follow_admissions(self, filter_: str) -> None:
        await self._has_checks.wait()
        await follow(
            self._bus,
            {Admission: self._on_admission},
            filters=[filter_],
            on_caught_up=partial(self._mark_read, Stream.ADMISSIONS),
        )

    def _mark_read(self, stream: str) -> None:
        self._unread.discard(stream)
        self._wake.set()

    def _on_check_object(self, observed: Observed, _entry: Entry) -> None:
        ours = spec_of(observed.object).get("controllerName") == WINDOW
        if observed.deleted or not ours:
            self._windows.pop(observed.name, None)
            return
        try:
            windows: Windows | str = read_windows(annotations_of(observed.object))
        except WindowsError as error:
            log.warning("a check has no windows", check=observed.name, error=str(error))
            windows = str(error)
        self._windows[observed.name] = windows
        if not self._has_checks.is_set():
            self._unread.add(Stream.ADMISSIONS)
            self._has_checks.set()
        self._unanswered.update(dict.fromkeys(self._reserved))
        self._wake.set()

    def _on_admission(self, admission: Admission, _entry: Entry) -> None:
        if admission.state == "reserved" and admission.checks:
            self._reserved[admission.ref] = admission
            self._unanswered[admission.ref] = None
        else:
            self._reserved.pop(admission.ref, None)
            self._unanswered.pop(admission.ref, None)
        self._wake.set()

    def forget(self, workload: WorkloadRef, check: str, sequence: int) -> None:
        """Forget an answer that has left the view, unless there is a newer one."""
        self._fence.mark_read(sequence)
        _, known = self._answers.get((workload, check), (None, 0))
        if known <= sequence:
            self._answers.pop((workload, check), None)

    def _on_check_state(self, state: CheckState, entry: Entry) -> None:
        self._answers[state.ref, state.check] = (state, entry.sequence)

    async def _answer_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._unread:
                continue
            while self._unanswered:
                workload = next(iter(self._unanswered))
                del self._unanswered[workload]
                admission = self._reserved.get(workload)
                if admission is not None:
                    for check in self._unanswered_checks(admission):
                        await self._answer(admission, check)

    def _unanswered_checks(self, admission: Admission) -> Iterator[str]:
        """Window checks of a reservation without an answer, or with the answer `Pending`."""
        for check in admission.checks:
            if check not in self._windows:
                continue
            known, _ = self._answers.get((admission.ref, check), (None, 0))
            if (
                known is None
                or (known.uid, known.attempt) != (admission.uid, admission.number)
                or known.state == "Pending"
            ):
                yield check

    async def _answer(self, admission: Admission, check: str) -> None:
        now = max(self._now(), admission.decided_at)
        answer = window_answer(self._windows[check], now)
        state = CheckState.answer(
            admission,
            check,
            answer.state,
            answer.message,
            service=SERVICE,
            now=now,
            requeue_after_seconds=answer.requeue_after_seconds,
        )
        _, known = self._answers.get((state.ref, check), (None, 0))
        sequence = await self._fence.publish_check(state, known=known)
        self._answers[state.ref, check] = (state, sequence)
