"""The lifecycles of all workloads of a term: applies decisions, observations and timers to them.

Pure: `now` is a parameter, and decisions carry everything that must survive a restart.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any, Final, assert_never

from services.quota.engine.facts import (
    Admit,
    Decision,
    Evict,
    EvictionRequested,
    Preempt,
    Recheck,
    Release,
    Reserve,
    Wait,
    WorkloadChanged,
)
from services.quota.lifecycle.table import Event, State
from services.quota.lifecycle.workload import (
    LifecycleRules,
    WorkloadLifecycle,
    backoff_seconds,
)
from services.quota.wire.inbound import nanoseconds
from services.quota.wire.outbound import to_datetime
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import (
    ADMISSION_CHECK,
    CHECK_REJECTED,
    DEACTIVATED,
    DEACTIVATED_DUE_TO,
    DEACTIVATION_PREFIX,
    ENDED,
    MAXIMUM_EXECUTION_TIME_EXCEEDED,
    PODS_READY_TIMEOUT,
    REQUEUING_LIMIT_EXCEEDED,
)
from shared.contracts.refs import WorkloadRef

_CAUSES: Final = {
    Event.RETRIES_EXHAUSTED: (
        REQUEUING_LIMIT_EXCEEDED,
        "exceeding the maximum number of re-queuing retries",
    ),
    Event.EXECUTION_TIME_EXCEEDED: (
        MAXIMUM_EXECUTION_TIME_EXCEEDED,
        "exceeding the maximum execution time",
    ),
}
"""Cause token and text of deactivations by the system, as in kubernetes-sigs/kueue apis/kueue/v1beta1."""

_BY_REASON: Final = {
    PODS_READY_TIMEOUT: Event.NOT_READY_IN_TIME,
    ADMISSION_CHECK: Event.CHECK_RETRY,
    CHECK_REJECTED: Event.CHECK_REJECTED,
    DEACTIVATED: Event.DEACTIVATED,
    **{f"{DEACTIVATED_DUE_TO}{cause}": event for event, (cause, _) in _CAUSES.items()},
}
"""Reason of an eviction to its event; any other reason is `Event.EVICTED`."""


class LifecycleTimers:
    """The lifecycle of every workload of a term, and the timers that run in them."""

    def __init__(self, rules: LifecycleRules) -> None:
        self._rules = rules
        self._lifecycles: dict[WorkloadRef, WorkloadLifecycle] = {}
        self._states: dict[WorkloadRef, WorkloadState] = {}
        self._observed: dict[WorkloadRef, bool] = {}
        """Workloads observed since `apply_observations`, and whether that changed their lifecycle already."""

        self._heap: list[tuple[datetime, WorkloadRef]] = []
        self._scheduled: dict[WorkloadRef, datetime] = {}
        """When each workload's timer is due; other entries of `_heap` are void."""

    # --- in ----------------------------------------------------------------------------------------

    def restore(self, ref: WorkloadRef, admission: Admission) -> None:
        """Restore a lifecycle from the latest decision on the log."""
        if admission.state == "released":
            self._lifecycles.pop(ref, None)
        else:
            self._lifecycles[ref] = WorkloadLifecycle.from_admission(admission)

    def observe(self, ref: WorkloadRef, state: WorkloadState) -> None:
        """Note a workload's state; without a decision on the log, the state gives the lifecycle."""
        lifecycle = self._lifecycles.get(ref)
        if lifecycle is None or lifecycle.uid != state.uid:
            lifecycle = WorkloadLifecycle.from_workload_state(state)
        self._states[ref] = state
        confirmed = lifecycle.confirm_deactivation(state)
        self._lifecycles[ref] = confirmed
        self._observed[ref] = confirmed is not lifecycle or self._observed.get(ref, False)

    def forget(self, ref: WorkloadRef) -> None:
        """Forget a workload that is gone or finished."""
        self._lifecycles.pop(ref, None)
        self._states.pop(ref, None)
        self._observed.pop(ref, None)
        self._scheduled.pop(ref, None)

    def mark_on_spoke(self, ref: WorkloadRef) -> None:
        """The workload runs on a spoke."""
        if (lifecycle := self._lifecycles.get(ref)) is not None:
            self._lifecycles[ref] = replace(lifecycle, on_spoke=True)

    def apply_decision(self, ref: WorkloadRef, decision: Decision, now: datetime) -> bool:
        """Apply a decision; return whether the lifecycle changed, which is published at once."""
        event = _event_of(decision)
        state, lifecycle = self._states.get(ref), self._lifecycles.get(ref)
        if event is None:
            return False
        if lifecycle is None or lifecycle.uid != decision.uid:
            lifecycle = WorkloadLifecycle(uid=decision.uid)
        at = decision.requeue_at if isinstance(decision, Evict) else None
        after = lifecycle.apply(event, self._rules, now, requeue_at=to_datetime(at))
        if event is Event.ADMITTED and after.on_spoke:
            after = replace(after, on_spoke=False)
        if after.state is State.FINISHED:
            self.forget(ref)
            return True
        self._lifecycles[ref] = after
        if state is not None:
            self._schedule(ref, after, state)
        return after != lifecycle

    # --- out ---------------------------------------------------------------------------------------

    def complete_fact(
        self, ref: WorkloadRef, state: WorkloadState, fact: WorkloadChanged
    ) -> WorkloadChanged:
        """`fact` with what the lifecycle adds: deactivation, readiness, back-off, queue position."""
        lifecycle = self._lifecycles.get(ref)
        if lifecycle is None:
            return fact
        known: dict[str, Any] = {
            "active": state.active and not lifecycle.deactivate,
            "unready": self._blocks_admission(lifecycle, state),
            "requeue_at": None
            if lifecycle.requeue_at is None
            else nanoseconds(lifecycle.requeue_at),
            "queued_at": None if lifecycle.queued_at is None else nanoseconds(lifecycle.queued_at),
        }
        changes = {key: value for key, value in known.items() if getattr(fact, key) != value}
        return replace(fact, **changes) if changes else fact

    def admission_fields(self, ref: WorkloadRef, uid: str) -> dict[str, Any]:
        """The fields of a decision that record the lifecycle, so that it survives a restart."""
        lifecycle = self._lifecycles.get(ref)
        return {} if lifecycle is None or lifecycle.uid != uid else lifecycle.admission_fields()

    def _blocks_admission(self, lifecycle: WorkloadLifecycle, state: WorkloadState) -> bool:
        """Whether this holder blocks all other admissions (`blockAdmission`)."""
        wait = self._rules.pods_ready
        return (
            wait is not None
            and wait.block_admission
            and lifecycle.observed_readiness(state) is False
        )

    def apply_observations(self, now: datetime) -> Iterator[WorkloadRef]:
        """Apply what was observed (ready pods, reactivation); yield workloads whose lifecycle changed."""
        observed, self._observed = self._observed, {}
        for ref, changed in observed.items():
            lifecycle, state = self._lifecycles.get(ref), self._states.get(ref)
            if lifecycle is None or state is None:
                continue
            after = lifecycle
            if state.active and not lifecycle.deactivate:
                after = after.apply(Event.REACTIVATED, self._rules, now)
            if (
                self._rules.pods_ready is not None
                and (ready := lifecycle.observed_readiness(state)) is not None
            ):
                event = Event.PODS_READY if ready else Event.POD_LOST
                after = after.apply(event, self._rules, now)
            self._lifecycles[ref] = after
            self._schedule(ref, after, state)
            if changed or after is not lifecycle:
                yield ref

    def due_timers(self, now: datetime) -> Iterator[tuple[WorkloadRef, EvictionRequested | None]]:
        """Yield expired timers: with the eviction to request, or with None when a back-off ended."""
        while self._heap and self._heap[0][0] <= now:
            at, ref = heappop(self._heap)
            lifecycle, state = self._lifecycles.get(ref), self._states.get(ref)
            if self._scheduled.get(ref) != at or lifecycle is None or state is None:
                continue
            del self._scheduled[ref]
            timer = lifecycle.next_timer(self._rules, state)
            if timer is None or timer[0] > now:
                self._schedule(ref, lifecycle, state)
                continue
            _, event = timer
            if event is Event.BACKOFF_FINISHED:
                self._lifecycles[ref] = lifecycle.apply(event, self._rules, now)
                yield ref, None
            else:
                yield ref, self._eviction(lifecycle, state, event, now)

    def next_at(self) -> datetime | None:
        """When the next timer expires; None: none runs."""
        while self._heap and self._scheduled.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _schedule(
        self, ref: WorkloadRef, lifecycle: WorkloadLifecycle, state: WorkloadState
    ) -> None:
        timer = lifecycle.next_timer(self._rules, state)
        if timer is None:
            self._scheduled.pop(ref, None)
        elif self._scheduled.get(ref) != timer[0]:
            self._scheduled[ref] = timer[0]
            heappush(self._heap, (timer[0], ref))

    def _eviction(
        self, lifecycle: WorkloadLifecycle, state: WorkloadState, event: Event, now: datetime
    ) -> EvictionRequested:
        key = f"{state.namespace}/{state.name}"
        requeue_at, loses_position, deactivate = None, False, False
        if event is Event.NOT_READY_IN_TIME:
            assert self._rules.pods_ready is not None, key
            strategy = self._rules.pods_ready.requeuing_strategy
            seconds = backoff_seconds(strategy, lifecycle.uid, lifecycle.requeue_count + 1)
            requeue_at = nanoseconds(now + timedelta(seconds=seconds))
            loses_position = self._rules.loses_position
            reason, message = PODS_READY_TIMEOUT, f"Exceeded the PodsReady timeout {key}"
        else:
            cause, text = _CAUSES[event]
            reason = f"{DEACTIVATED_DUE_TO}{cause}"
            message, deactivate = f"{DEACTIVATION_PREFIX}{text}", True
        return EvictionRequested(
            cluster=state.cluster,
            namespace=state.namespace,
            name=state.name,
            uid=lifecycle.uid,
            reason=reason,
            message=message,
            at=nanoseconds(now),
            requeue_at=requeue_at,
            loses_position=loses_position,
            deactivate=deactivate,
        )


def _event_of(decision: Decision) -> Event | None:
    """The event of a decision; None: the workload goes on waiting."""
    match decision:
        case Reserve():
            return Event.ADMITTED if decision.admitted else Event.RESERVED
        case Admit():
            return Event.ADMITTED
        case Recheck():
            return None
        case Preempt():
            return Event.EVICTED
        case Evict():
            return _BY_REASON.get(decision.reason, Event.EVICTED)
        case Release():
            return Event.FINISHED if decision.reason in ENDED else Event.DRAINED
        case Wait():
            return Event.DEACTIVATED if decision.reason == DEACTIVATED else None
        case _:
            assert_never(decision)
