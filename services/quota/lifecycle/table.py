"""The lifecycle of a workload as a table: (state, event) to the next state and its effects.

A pair that is not in the table is late or repeated and changes nothing.
`docs/reference/lifecycle.md` is generated from this module.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a workload stands."""

    PENDING = "pending"
    """It waits for quota, and may have it at any time."""

    QUOTA_RESERVED = "quota reserved"
    """It has quota; admission checks are not ready."""

    ADMITTED = "admitted"
    """It may run. Not all of its pods are ready, or nothing waits for pods."""

    READY = "ready"
    """It runs, and all of its pods are ready or have succeeded."""

    EVICTED = "evicted"
    """It was told to stop. It holds its quota until its pods are gone."""

    REQUEUED = "requeued"
    """It was evicted, holds nothing, and may have to back off before it waits again."""

    DEACTIVATED = "deactivated"
    """`spec.active` is false, or about to be: it waits for nothing until a user activates it."""

    FINISHED = "finished"
    """It ended. Nothing follows."""


class Event(StrEnum):
    """What happens to a workload."""

    RESERVED = "quota reserved"
    """Quota was found; its admission checks are not ready yet."""

    ADMITTED = "admitted"
    """Quota reserved and no check open; or the last check became ready; or it runs without admission."""

    PODS_READY = "pods ready"
    """All of its pods are ready or have succeeded."""

    POD_LOST = "pod lost"
    """It was ready, and is not any more."""

    NOT_READY_IN_TIME = "not ready in time"
    """The timeout, or the recovery timeout, of `waitForPodsReady` ran out."""

    RETRIES_EXHAUSTED = "not ready in time, once too often"
    """The same, and it was requeued `backoffLimitCount` times before."""

    EXECUTION_TIME_EXCEEDED = "execution time is up"
    """It was admitted for `maximumExecutionTimeSeconds`, all its admissions together."""

    CHECK_RETRY = "a check asks for another try"
    """An admission check says `Retry`."""

    CHECK_REJECTED = "a check rejected it"
    """An admission check says `Rejected`."""

    EVICTED = "evicted"
    """It was preempted, its queue was stopped, or the API server refused to start it."""

    DRAINED = "drained"
    """Its pods are gone, or it had none: its quota is free."""

    BACKOFF_FINISHED = "back-off finished"
    """`requeueAt` has come, or there was nothing to wait for."""

    DEACTIVATED = "deactivated"
    """A user set `spec.active` to false."""

    REACTIVATED = "reactivated"
    """A user set `spec.active` to true."""

    FINISHED = "finished"
    """Its job has ended, well or not."""


class Effect(StrEnum):
    """What a transition does besides."""

    START_CLOCKS = "the execution time and the readiness timeout count from now"
    SET_PODS_READY = "`PodsReady=True`"
    START_RECOVERY = "`PodsReady=False (WaitForRecovery)`; the recovery timeout counts from now"
    COUNT_REQUEUE = "`requeueState.count` grows by one"
    BACK_OFF = "`requeueState.requeueAt` is set"
    MOVE_TO_BACK = "its place in the queue is that of its eviction"
    MOVE_BACK_IF_CONFIGURED = "its place is that of its eviction, or of its creation, as configured"
    RESET_POSITION = "its place in the queue is that of its creation again"
    STOP_CLOCKS = "its execution time is added up; `PodsReady=False (WaitForStart)`"
    END_BACKOFF = "`requeueState.requeueAt` is cleared"
    FORGET_REQUEUES = "`requeueState` is cleared"
    FORGET_EXECUTION = "`accumulatedPastExecutionTimeSeconds` is cleared"
    SET_INACTIVE = "`spec.active` is set to false"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The next state and the effects of an event."""

    state: State
    effects: tuple[Effect, ...] = ()


def _to(state: State, *effects: Effect) -> Transition:
    return Transition(state=state, effects=effects)


_RESERVED: Final = _to(State.QUOTA_RESERVED, Effect.END_BACKOFF, Effect.RESET_POSITION)
_ADMITTED: Final = _to(
    State.ADMITTED, Effect.END_BACKOFF, Effect.RESET_POSITION, Effect.START_CLOCKS
)
_OUT: Final = _to(State.DEACTIVATED, Effect.FORGET_REQUEUES, Effect.RESET_POSITION)
_STOPPED: Final = _to(State.EVICTED)
_STOPPED_FOR_GOOD: Final = _to(State.EVICTED, Effect.FORGET_REQUEUES)
_PUT_OUT: Final = _to(State.EVICTED, Effect.FORGET_REQUEUES, Effect.SET_INACTIVE)
_LATER: Final = _to(
    State.EVICTED, Effect.COUNT_REQUEUE, Effect.BACK_OFF, Effect.MOVE_BACK_IF_CONFIGURED
)
_RETRY: Final = _to(State.EVICTED, Effect.BACK_OFF, Effect.MOVE_TO_BACK)
_UP: Final = _to(
    State.EVICTED, Effect.FORGET_REQUEUES, Effect.FORGET_EXECUTION, Effect.SET_INACTIVE
)
_END: Final = _to(State.FINISHED)

TRANSITIONS: Final[Mapping[tuple[State, Event], Transition]] = {
    (State.PENDING, Event.RESERVED): _to(State.QUOTA_RESERVED, Effect.RESET_POSITION),
    (State.PENDING, Event.ADMITTED): _to(
        State.ADMITTED, Effect.RESET_POSITION, Effect.START_CLOCKS
    ),
    (State.PENDING, Event.DEACTIVATED): _OUT,
    (State.PENDING, Event.FINISHED): _END,
    (State.QUOTA_RESERVED, Event.ADMITTED): _to(State.ADMITTED, Effect.START_CLOCKS),
    (State.QUOTA_RESERVED, Event.CHECK_RETRY): _RETRY,
    (State.QUOTA_RESERVED, Event.CHECK_REJECTED): _PUT_OUT,
    (State.QUOTA_RESERVED, Event.EVICTED): _STOPPED,
    (State.QUOTA_RESERVED, Event.DEACTIVATED): _STOPPED_FOR_GOOD,
    # A queue that is held takes reservations back at once: nothing of theirs runs.
    (State.QUOTA_RESERVED, Event.DRAINED): _to(State.PENDING),
    (State.QUOTA_RESERVED, Event.FINISHED): _END,
    (State.ADMITTED, Event.PODS_READY): _to(State.READY, Effect.SET_PODS_READY),
    (State.ADMITTED, Event.NOT_READY_IN_TIME): _LATER,
    (State.ADMITTED, Event.RETRIES_EXHAUSTED): _PUT_OUT,
    (State.ADMITTED, Event.EXECUTION_TIME_EXCEEDED): _UP,
    (State.ADMITTED, Event.CHECK_RETRY): _RETRY,
    (State.ADMITTED, Event.CHECK_REJECTED): _PUT_OUT,
    (State.ADMITTED, Event.EVICTED): _STOPPED,
    (State.ADMITTED, Event.DEACTIVATED): _STOPPED_FOR_GOOD,
    # What ran unasked and was stopped by somebody else.
    (State.ADMITTED, Event.DRAINED): _to(State.PENDING, Effect.STOP_CLOCKS),
    (State.ADMITTED, Event.FINISHED): _END,
    (State.READY, Event.POD_LOST): _to(State.ADMITTED, Effect.START_RECOVERY),
    (State.READY, Event.EXECUTION_TIME_EXCEEDED): _UP,
    (State.READY, Event.CHECK_RETRY): _RETRY,
    (State.READY, Event.CHECK_REJECTED): _PUT_OUT,
    (State.READY, Event.EVICTED): _STOPPED,
    (State.READY, Event.DEACTIVATED): _STOPPED_FOR_GOOD,
    (State.READY, Event.DRAINED): _to(State.PENDING, Effect.STOP_CLOCKS),
    (State.READY, Event.FINISHED): _END,
    (State.EVICTED, Event.DRAINED): _to(State.REQUEUED, Effect.STOP_CLOCKS),
    # Its pods end later than its back-off, and whoever stopped it waits for that: Kueue's controllers do.
    (State.EVICTED, Event.BACKOFF_FINISHED): _to(State.EVICTED, Effect.END_BACKOFF),
    (State.EVICTED, Event.FINISHED): _END,
    (State.REQUEUED, Event.RESERVED): _RESERVED,
    (State.REQUEUED, Event.ADMITTED): _ADMITTED,
    (State.REQUEUED, Event.BACKOFF_FINISHED): _to(State.PENDING, Effect.END_BACKOFF),
    (State.REQUEUED, Event.DEACTIVATED): _OUT,
    (State.REQUEUED, Event.FINISHED): _END,
    (State.DEACTIVATED, Event.REACTIVATED): _to(State.PENDING, Effect.FORGET_REQUEUES),
    # It was started past us.
    (State.DEACTIVATED, Event.ADMITTED): _to(State.ADMITTED, Effect.START_CLOCKS),
    (State.DEACTIVATED, Event.FINISHED): _END,
}


def transition_for(state: State, event: Event) -> Transition | None:
    """The transition of `event` in `state`; None: the event is late and changes nothing."""
    return TRANSITIONS.get((state, event))
