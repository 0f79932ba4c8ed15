"""The lifecycle of one workload: what must be remembered of it, and its timers. Pure.

The workload's latest message in `ADMISSIONS` holds all of it, so that it survives a restart.
"""

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from services.quota.lifecycle.table import Effect, Event, State, transition_for
from shared.contracts.messages.admissions import READY, Admission, Readiness
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import ADMISSION_CHECK, DEACTIVATED, PODS_READY_TIMEOUT
from shared.settings.configuration import RequeuingStrategy, WaitForPodsReady

JITTER: Final = 0.0001
"""A delay grows by up to this share of it, as in Kueue, so that equal workloads do not return at once."""

_EXPONENT_MAX: Final = 40
"""2**40 seconds exceed any maximum, so greater powers are not computed."""

_DRAWS: Final = 2**32


def backoff_seconds(strategy: RequeuingStrategy, uid: str, count: int) -> float:
    """Seconds that the workload `uid` backs off after its eviction number `count` (from 1).

    The jitter depends on uid and count alone, so that a restart computes the same delay. Formula of
    kubernetes-sigs/kueue pkg/controller/core/workload_controller.go.
    """
    exponent = min(max(count, 1) - 1, _EXPONENT_MAX)
    seconds = float(strategy.backoff_base_seconds * 2**exponent)
    digest = hashlib.sha256(f"{uid}:{count}".encode()).digest()
    jitter = JITTER * int.from_bytes(digest[:4], "big") / _DRAWS
    return min(seconds * (1 + jitter), float(strategy.backoff_max_seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleRules:
    """The configuration of lifecycles."""

    pods_ready: WaitForPodsReady | None = None
    """None: pods need not become ready."""

    @property
    def loses_position(self) -> bool:
        """Whether a readiness timeout moves a workload behind those that came meanwhile."""
        wait = self.pods_ready
        return wait is not None and wait.requeuing_strategy.timestamp == "Eviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLifecycle:
    """One workload from its creation until it ends. A workload of another uid is another one."""

    uid: str
    state: State = State.PENDING
    requeue_count: int = 0
    """`requeueState.count`."""

    requeue_at: datetime | None = None
    queued_at: datetime | None = None
    """Its position in the queue; None: that of its creation."""

    admitted_at: datetime | None = None
    executed_seconds: int = 0
    """Seconds of execution in earlier admissions."""

    readiness: Readiness = ""
    readiness_at: datetime | None = None
    deactivate: bool = False
    """Quota has decided to deactivate it; `spec.active` is not False yet."""

    on_spoke: bool = False
    """It runs on a spoke, so that the readiness of pods in this cluster means nothing."""

    # --- from and to the wire ------------------------------------------------------------------------

    @classmethod
    def from_admission(cls, admission: Admission) -> "WorkloadLifecycle":
        """The lifecycle in the latest decision on the log."""
        return cls(
            uid=admission.uid,
            state=_state_of(admission),
            requeue_count=admission.requeue_count,
            requeue_at=admission.requeue_at,
            queued_at=admission.queued_at,
            # Messages of older versions have no `admitted_at`.
            admitted_at=admission.admitted_at
            or (admission.decided_at if admission.state == "admitted" else None),
            executed_seconds=admission.executed_seconds,
            readiness=admission.pods_ready,
            readiness_at=admission.pods_ready_at,
            deactivate=admission.deactivate,
            on_spoke=admission.spoke is not None,
        )

    @classmethod
    def from_workload_state(cls, state: WorkloadState) -> "WorkloadLifecycle":
        """The lifecycle that the cluster records, for a workload without a decision on the log."""
        timed_out = state.evicted_reason in {PODS_READY_TIMEOUT, ADMISSION_CHECK}
        reserved = state.admission is not None
        lifecycle = cls(
            uid=state.uid,
            requeue_count=state.requeue_count,
            requeue_at=state.requeue_at,
            queued_at=state.evicted_at if timed_out and not reserved else None,
            admitted_at=state.admitted_at,
            executed_seconds=state.executed_seconds,
            readiness=_readiness(state.pods_ready_reason),
            readiness_at=state.pods_ready_at,
            deactivate=state.deactivating,
        )
        if reserved:
            where = State.EVICTED if state.evicted else State.ADMITTED
            if where is State.ADMITTED and lifecycle.readiness in READY:
                where = State.READY
        elif not state.active or state.deactivating:
            where = State.DEACTIVATED
        else:
            where = State.PENDING if state.requeue_at is None else State.REQUEUED
        return replace(lifecycle, state=where)

    def admission_fields(self) -> dict[str, Any]:
        """The fields of an `Admission` that record the lifecycle."""
        return {
            "requeue_count": self.requeue_count,
            "requeue_at": self.requeue_at,
            "queued_at": self.queued_at,
            "admitted_at": self.admitted_at,
            "executed_seconds": self.executed_seconds,
            "pods_ready": self.readiness,
            "pods_ready_at": self.readiness_at,
            "deactivate": self.deactivate,
        }

    # --- what happens to it --------------------------------------------------------------------------

    def apply(
        self,
        event: Event,
        rules: LifecycleRules,
        now: datetime,
        *,
        requeue_at: datetime | None = None,
    ) -> "WorkloadLifecycle":
        """The lifecycle after `event`; itself if the event is late. `requeue_at` ends a back-off."""
        transition = transition_for(self.state, event)
        if transition is None:
            return self
        changes: dict[str, Any] = {"state": transition.state}
        for effect in transition.effects:
            changes |= _changes(self, effect, rules, now, requeue_at)
        return replace(self, **changes)

    def confirm_deactivation(self, state: WorkloadState) -> "WorkloadLifecycle":
        """The lifecycle once `spec.active` is False, or was False and a user has reactivated it."""
        if not self.deactivate:
            return self
        reactivated = state.evicted_reason.startswith(DEACTIVATED) and not state.deactivating
        if not state.active or reactivated:
            return replace(self, deactivate=False)
        return self

    def observed_readiness(self, state: WorkloadState) -> bool | None:
        """Whether all its pods are ready; None: they are on a spoke, or the job does not report that."""
        if self.on_spoke or state.pods_ready is None:
            return None
        # While it is held nothing of it runs: what is ready then is from an earlier admission.
        return state.pods_ready and not state.held

    # --- its clocks ----------------------------------------------------------------------------------

    def next_timer(
        self, rules: LifecycleRules, state: WorkloadState
    ) -> tuple[datetime, Event] | None:
        """What happens next if nothing else does, and when; None: no clock runs."""
        if self.state is State.REQUEUED:
            return (self.requeue_at or state.created_at, Event.BACKOFF_FINISHED)
        if self.state is State.EVICTED and self.requeue_at is not None and state.requeue_awaited:
            return (self.requeue_at, Event.BACKOFF_FINISHED)
        clocks = [
            c for c in (self._readiness_timer(rules, state), self._execution_limit(state)) if c
        ]
        return min(clocks, default=None)

    def _readiness_timer(
        self, rules: LifecycleRules, state: WorkloadState
    ) -> tuple[datetime, Event] | None:
        wait = rules.pods_ready
        if (
            wait is None
            or self.state is not State.ADMITTED
            or self.observed_readiness(state) is None
        ):
            return None
        if self.readiness == "WaitForRecovery":
            since, seconds = self.readiness_at, wait.recovery_seconds
        else:
            since, seconds = self.admitted_at, wait.timeout
        if since is None or seconds is None:
            return None
        limit = wait.requeuing_strategy.backoff_limit_count
        exhausted = limit is not None and self.requeue_count + 1 > limit
        event = Event.RETRIES_EXHAUSTED if exhausted else Event.NOT_READY_IN_TIME
        return (since + timedelta(seconds=seconds), event)

    def _execution_limit(self, state: WorkloadState) -> tuple[datetime, Event] | None:
        seconds = state.max_execution_seconds
        if seconds is None or self.admitted_at is None:
            return None
        if self.state not in {State.ADMITTED, State.READY}:
            return None
        try:
            ends = self.admitted_at + timedelta(seconds=seconds - self.executed_seconds)
        except OverflowError:
            return None  # Past the end of the calendar: such a limit never expires.
        return (ends, Event.EXECUTION_TIME_EXCEEDED)


def _changes(
    lifecycle: WorkloadLifecycle,
    effect: Effect,
    rules: LifecycleRules,
    now: datetime,
    requeue_at: datetime | None,
) -> dict[str, Any]:
    match effect:
        case Effect.START_CLOCKS:
            waits: Readiness = "WaitForStart" if rules.pods_ready else ""
            return {
                "admitted_at": now,
                "readiness": waits,
                "readiness_at": now if waits else None,
            }
        case Effect.SET_PODS_READY:
            again = lifecycle.readiness == "WaitForRecovery"
            return {"readiness": "Recovered" if again else "Started", "readiness_at": now}
        case Effect.START_RECOVERY:
            return {"readiness": "WaitForRecovery", "readiness_at": now}
        case Effect.COUNT_REQUEUE:
            return {"requeue_count": lifecycle.requeue_count + 1}
        case Effect.BACK_OFF:
            return {"requeue_at": _later(lifecycle.requeue_at, requeue_at)}
        case Effect.MOVE_TO_BACK:
            return {"queued_at": now}
        case Effect.MOVE_BACK_IF_CONFIGURED:
            return {"queued_at": now if rules.loses_position else None}
        case Effect.RESET_POSITION:
            return {"queued_at": None}
        case Effect.STOP_CLOCKS:
            return _stopped(lifecycle, now)
        case Effect.END_BACKOFF:
            return {"requeue_at": None}
        case Effect.FORGET_REQUEUES:
            return {"requeue_count": 0, "requeue_at": None}
        case Effect.FORGET_EXECUTION:
            return {"executed_seconds": 0, "admitted_at": None}
        case Effect.SET_INACTIVE:
            return {"deactivate": True}


def _stopped(lifecycle: WorkloadLifecycle, now: datetime) -> dict[str, Any]:
    executed = lifecycle.executed_seconds
    if lifecycle.admitted_at is not None:
        executed += max(0, int((now - lifecycle.admitted_at).total_seconds()))
    changes: dict[str, Any] = {"admitted_at": None, "executed_seconds": executed}
    if lifecycle.readiness:
        changes |= {"readiness": "WaitForStart", "readiness_at": now}
    return changes


def _later(a: datetime | None, b: datetime | None) -> datetime | None:
    """The later of two back-offs: a back-off never becomes shorter."""
    return max((at for at in (a, b) if at is not None), default=None)


def _state_of(admission: Admission) -> State:
    match admission.state:
        case "reserved":
            return State.QUOTA_RESERVED
        case "admitted":
            ready = admission.pods_ready in READY
            return State.READY if ready else State.ADMITTED
        case "evicted":
            return State.EVICTED
        case "released":
            return State.FINISHED
        case "waiting":
            if admission.reason == DEACTIVATED:
                return State.DEACTIVATED
            return State.PENDING if admission.requeue_at is None else State.REQUEUED


def _readiness(reason: str) -> Readiness:
    match reason:
        case "WaitForStart" | "Started" | "WaitForRecovery" | "Recovered":
            return reason
        case _:
            return ""
