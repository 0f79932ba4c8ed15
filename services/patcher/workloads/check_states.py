"""The states of admission checks in `status.admissionChecks` of a Workload, as Kueue keeps them.

A state is written with the next decision, or on its own if it changes between two decisions. A
workload without checks costs no read and no write.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from services.patcher.cluster.pacing import Backlog, RateLimiter, drain
from shared.bus.follow import follow, read
from shared.bus.port import Bus, BusError, Entry
from shared.contracts import subjects
from shared.contracts.controllers import ANSWERED_BY, may_answer
from shared.contracts.kube.conditions import MESSAGE_MAX, timestamp
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.checks import CheckState
from shared.contracts.reasons import CHECK_RESET
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import Stream

log = structlog.get_logger(__name__)

CHECKS_MAX: Final = 8
"""Checks that a Workload can list; a queue may name more."""

PER_SECOND: Final = 50.0
"""States written per second between decisions. No job starts later because of them."""

BURST: Final = 20

_State = dict[str, Any]
"""An entry of `status.admissionChecks`."""


def held_states(
    listed: Iterable[_State],
    admission: Admission,
    answers: Sequence[CheckState],
    foreign: Collection[str] = (),
) -> list[_State]:
    """The states of a workload that holds quota: one for each check of the admission, in its order.

    `listed` are the present entries of the status; the entry of a check without an answer stays. An
    answer counts if it is not older than the reservation, compared in whole seconds as the quota
    service does. The entries of `foreign` checks belong to their controllers: a missing one is Pending.
    """
    present = {str(state.get("name")): state for state in listed}
    by_check = {one.check: one for one in answers if one.uid == admission.uid}
    return [
        _pending_or(name, present.get(name), admission)
        if name in foreign
        else _held_state(name, present.get(name), by_check.get(name), admission)
        for name in admission.checks[:CHECKS_MAX]
    ]


def _pending_or(name: str, present: _State | None, admission: Admission) -> _State:
    if present is not None:
        return present
    return _updated(None, name, "Pending", "", _whole_seconds(admission.decided_at))


def reset_states(
    listed: Iterable[_State], admission: Admission, answers: Sequence[CheckState] = ()
) -> list[_State]:
    """The states after quota is lost: each check that had answered is Pending again.

    Its delay stays until its next answer, as with Kueue: it says for how long the workload backs off.
    """
    by_check = {one.check: one for one in answers if one.uid == admission.uid}
    return [
        _reset_state(dict(one), by_check.get(str(one.get("name"))), admission) for one in listed
    ]


def _held_state(
    name: str, present: _State | None, answer: CheckState | None, admission: Admission
) -> _State:
    since = _whole_seconds(admission.decided_at)
    if admission.state == "admitted":
        # All checks were Ready, or it would not be admitted. The answer may not have arrived here yet,
        # or may be older than this decision.
        counts = answer is not None and (
            answer.state == "Ready" or _whole_seconds(answer.at) >= since
        )
        if answer is None or not counts or answer.state == "Pending":
            is_ready = present is not None and present.get("state") == "Ready"
            message = present.get("message", "") if present and is_ready else ""
            return _updated(present, name, "Ready", str(message), since)
    elif answer is None or _whole_seconds(answer.at) < since:
        return _pending_or(name, present, admission)
    state = _updated(present, name, answer.state, answer.message, _whole_seconds(answer.at))
    return _with_delay(state, answer)


def _with_delay(state: _State, answer: CheckState) -> _State:
    """The entry with the delay of this answer, and of no earlier one."""
    without = {key: value for key, value in state.items() if key != "requeueAfterSeconds"}
    if answer.requeue_after_seconds is None or answer.state != "Retry":
        return without
    return {**without, "requeueAfterSeconds": max(0, round(answer.requeue_after_seconds))}


def _updated(present: _State | None, name: str, state: str, message: str, at: datetime) -> _State:
    """Set state and message. `lastTransitionTime` and `podSetUpdates` change only with the state."""
    new: _State = dict(present) if present is not None else {"name": name}
    if present is None or present.get("state") != state:
        new["lastTransitionTime"] = timestamp(at)
        new.pop("podSetUpdates", None)
    new["state"], new["message"] = state, message[:MESSAGE_MAX]
    return new


def _reset_state(state: _State, answer: CheckState | None, admission: Admission) -> _State:
    before = str(state.get("state"))
    if before == "Pending" and answer is not None and _is_unwritten(state, answer):
        before, state = answer.state, _with_delay(state, answer)
    if before == "Pending":
        return state
    retries = int(state.get("retryCount") or 0) + (before == "Retry")
    # From the answered state, also if it was never written, so that the transition time moves.
    answered = {**state, "state": before}
    at = _whole_seconds(admission.decided_at)
    new = _updated(answered, str(state.get("name")), "Pending", f"{CHECK_RESET}{before}", at)
    return {**new, "retryCount": retries} if retries else new


def _is_unwritten(state: _State, answer: CheckState) -> bool:
    """True if the answer is newer than the entry, and was not the cause of an earlier reset."""
    written = datetime.fromisoformat(str(state.get("lastTransitionTime")))
    at = _whole_seconds(answer.at)
    return at > written or (at == written and not str(state.get("message")).startswith(CHECK_RESET))


def _whole_seconds(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(microsecond=0)


class CheckStates:
    """Reads the answers of the checks of one cluster's workloads. Keeps none: the bus does."""

    def __init__(
        self, *, bus: Bus, cluster: str, controller_of: Callable[[str], str | None]
    ) -> None:
        """`controller_of`: the controller that an AdmissionCheck names, None if it is not known."""
        self._bus = bus
        self._controller_of = controller_of
        self._cluster = cluster
        self._filter = subjects.subject_filter("check", cluster)
        self._backlog: Backlog[WorkloadRef, None] = Backlog()

    async def latest(self, admission: Admission) -> list[CheckState]:
        """The latest answer of each check of this workload; none without quota. Raises `BusError`."""
        if admission.state not in HOLDING:
            return []
        latest = [await self._latest(admission, check) for check in admission.checks[:CHECKS_MAX]]
        return [answer for answer in latest if answer is not None]

    async def _latest(self, admission: Admission, check: str) -> CheckState | None:
        """The latest answer of the service that answers the check; None: none of our services has answered.

        Before its AdmissionCheck is known, the answer of any service counts.
        """
        controller = self._controller_of(check)
        names = (self._cluster, admission.namespace, admission.name, check)
        for service in (*dict.fromkeys(ANSWERED_BY.values()), ""):
            if controller is None or may_answer(controller, service):
                subject = subjects.join("check", *names, detail=service or None)
                if (entry := await self._bus.latest(Stream.CHECKS, subject)) is not None:
                    return read(entry, CheckState)
        return None

    async def run(self, write: Callable[[str, str], Awaitable[bool]]) -> None:
        """Call `write` for each workload with a new answer, until cancelled.

        `write` returns False if it cannot write yet: the workload is enqueued again.
        """

        async def write_one(workload: WorkloadRef, _value: None) -> None:
            try:
                written = await write(workload.namespace, workload.name)
            except BusError as error:
                log.info(
                    "cannot write to the cluster; trying again later",
                    what="check",
                    key=workload.path,
                    error=str(error),
                )
                written = False
            if not written:
                self._backlog.put(workload, None)

        async with asyncio.TaskGroup() as group:
            handlers = {CheckState: self._enqueue}
            group.create_task(follow(self._bus, handlers, filters=[self._filter]))
            limiter = RateLimiter(PER_SECOND, burst=BURST)
            group.create_task(drain(self._backlog, write_one, limiter, what="check"))

    def _enqueue(self, answer: CheckState, _entry: Entry) -> None:
        self._backlog.put(answer.ref, None)
