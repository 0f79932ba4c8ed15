"""The life of a workload: the table is whole, and nothing late or repeated moves it backwards."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.quota.lifecycle.table import (
    TRANSITIONS,
    Effect,
    Event,
    State,
    transition_for,
)
from services.quota.lifecycle.workload import LifecycleRules, WorkloadLifecycle, backoff_seconds
from shared.contracts.messages.admissions import Admission, AdmissionState
from shared.contracts.messages.workloads import WorkloadState
from shared.settings.configuration import RequeuingStrategy, WaitForPodsReady

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
WAIT: Final = WaitForPodsReady(
    timeout="300s",
    recovery_timeout="100s",
    requeuing_strategy=RequeuingStrategy(backoff_limit_count=2),
)
RULES: Final = LifecycleRules(pods_ready=WAIT)
HOLDING: Final = {State.QUOTA_RESERVED, State.ADMITTED, State.READY, State.EVICTED}
STATES: Final[dict[State, AdmissionState]] = {
    State.PENDING: "waiting",
    State.REQUEUED: "waiting",
    State.DEACTIVATED: "waiting",
    State.QUOTA_RESERVED: "reserved",
    State.ADMITTED: "admitted",
    State.READY: "admitted",
    State.EVICTED: "evicted",
}


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def workload(**more: object) -> WorkloadState:
    fields = {"phase": "running", "held": False, "pods_ready": False, **more}
    return WorkloadState.model_validate(
        {"cluster": "c", "namespace": "n", "name": "w", "uid": "u", "created_at": NOON, **fields}
    )


def lived(*events: Event, uid: str = "u", rules: LifecycleRules = RULES) -> WorkloadLifecycle:
    """A life in which these happened, ten seconds apart."""
    life = WorkloadLifecycle(uid=uid)
    for number, event in enumerate(events):
        now = after(10 * number)
        life = life.apply(event, rules, now, requeue_at=now + timedelta(seconds=60))
    return life


# The table -----------------------------------------------------------------------------------------


def test_every_state_is_reachable_and_only_finished_is_final() -> None:
    assert {t.state for t in TRANSITIONS.values()} == set(State)
    assert {state for state, _ in TRANSITIONS} == set(State) - {State.FINISHED}


def test_every_event_and_every_effect_occurs() -> None:
    assert {event for _, event in TRANSITIONS} == set(Event)
    assert {e for t in TRANSITIONS.values() for e in t.effects} == set(Effect)


@pytest.mark.parametrize(("state", "event"), sorted(TRANSITIONS), ids=str)
def test_a_repeated_event_changes_nothing(state: State, event: Event) -> None:
    transition = transition_for(state, event)
    assert transition is not None
    again = transition_for(transition.state, event)
    assert again is None or again.effects == (Effect.END_BACKOFF,), "which clears what is clear"


@pytest.mark.parametrize(("state", "event"), sorted(TRANSITIONS), ids=str)
def test_quota_is_released_only_by_drain_or_end(state: State, event: Event) -> None:
    transition = transition_for(state, event)
    assert transition is not None
    if state in HOLDING and transition.state not in HOLDING:
        assert event in {Event.DRAINED, Event.FINISHED}


def test_finished_state_ignores_all_events() -> None:
    assert all(transition_for(State.FINISHED, event) is None for event in Event)


# Lives ---------------------------------------------------------------------------------------------

Step = tuple[int, Event]
"""Which of the possible events happens, and which late one is delivered after it."""

steps = st.lists(
    st.tuples(st.integers(0, 99), st.sampled_from(list(Event))), min_size=15, max_size=40
)


def walked(
    choices: Sequence[Step],
) -> Iterator[tuple[WorkloadLifecycle, WorkloadLifecycle, Event, Event, datetime]]:
    """A life that goes on and on: before and after each event, the event, a late one, and the time."""
    life = WorkloadLifecycle(uid="u")
    for number, (choice, late) in enumerate(choices):
        possible = [e for e in Event if e is not Event.FINISHED and transition_for(life.state, e)]
        event, now = possible[choice % len(possible)], after(10 * number)
        before = life
        life = life.apply(event, RULES, now, requeue_at=now + timedelta(seconds=60))
        yield before, life, event, late, now


@given(steps)
def test_late_or_repeated_event_changes_nothing(choices: Sequence[Step]) -> None:
    for _, life, event, late, now in walked(choices):
        later = {"now": now + timedelta(seconds=5), "requeue_at": now + timedelta(seconds=999)}
        assert life.apply(event, RULES, **later) == life
        if transition_for(life.state, late) is None:
            assert life.apply(late, RULES, **later) == life


@given(steps)
def test_any_sequence_of_events_keeps_record_valid(choices: Sequence[Step]) -> None:
    for before, life, event, _, _ in walked(choices):
        assert (life.admitted_at is not None) <= (life.state in HOLDING)
        assert (life.requeue_at is not None) <= (life.state in {State.EVICTED, State.REQUEUED})
        assert (life.state is State.READY) <= (life.readiness in {"Started", "Recovered"})
        assert (life.readiness in {"Started", "Recovered"}) <= (life.state in HOLDING)
        assert (event is Event.NOT_READY_IN_TIME) == (
            life.requeue_count == before.requeue_count + 1
        )
        assert life.requeue_count in {before.requeue_count, before.requeue_count + 1, 0}
        assert (
            life.executed_seconds >= before.executed_seconds
            or event is Event.EXECUTION_TIME_EXCEEDED
        )


@given(steps)
def test_restart_after_each_event_changes_nothing(choices: Sequence[Step]) -> None:
    for before, life, event, _, now in walked(choices):
        restarted = WorkloadLifecycle.from_admission(on_log(before))
        if before.state is State.REQUEUED and before.requeue_at is None:
            # To everybody it is PENDING, and the next look makes it so.
            before = before.apply(Event.BACKOFF_FINISHED, RULES, now)  # noqa: PLW2901 - as said
        assert restarted == before
        requeue_at = now + timedelta(seconds=60)
        if event is not Event.BACKOFF_FINISHED:
            assert restarted.apply(event, RULES, now, requeue_at=requeue_at) == life


@given(steps)
def test_effects_of_each_event_are_recorded(choices: Sequence[Step]) -> None:
    for before, life, event, _, now in walked(choices):
        match event:
            case Event.RESERVED:
                assert (life.requeue_at, life.queued_at) == (None, None)
            case Event.NOT_READY_IN_TIME | Event.CHECK_RETRY:
                assert (life.requeue_at, life.queued_at) == (now + timedelta(seconds=60), now)
            case Event.RETRIES_EXHAUSTED | Event.CHECK_REJECTED:
                assert (life.deactivate, life.requeue_count, life.requeue_at) == (True, 0, None)
            case Event.EXECUTION_TIME_EXCEEDED:
                assert (life.deactivate, life.requeue_count, life.executed_seconds) == (True, 0, 0)
                assert life.admitted_at is None, (
                    "what it still runs is not counted for the next time"
                )
            case Event.DEACTIVATED:
                assert (life.requeue_count, life.requeue_at) == (0, None)
            case Event.DRAINED:
                counted = before.admitted_at is not None
                assert (life.executed_seconds > before.executed_seconds) == counted
            case _:
                pass


def test_reactivation_clears_record_of_cluster_only() -> None:
    out = WorkloadLifecycle(uid="u", state=State.DEACTIVATED, requeue_count=3)
    assert out.apply(Event.REACTIVATED, RULES, NOON).requeue_count == 0


@given(steps)
def test_each_admission_starts_timers_anew_but_keeps_counts(choices: Sequence[Step]) -> None:
    for before, life, event, _, now in walked(choices):
        if event is Event.ADMITTED:
            assert (life.admitted_at, life.readiness) == (now, "WaitForStart")
            assert (life.requeue_at, life.queued_at) == (None, None)
            assert life.requeue_count == before.requeue_count


def on_log(life: WorkloadLifecycle) -> Admission:
    """The message by which a life is remembered, as it comes back from the log."""
    admission = Admission(
        cluster="c", namespace="n", name="w", uid=life.uid, state=STATES[life.state], term=1,
        number=1, decided_at=NOON,
        reason="Deactivated" if life.state is State.DEACTIVATED else "",
    ).model_copy(update=life.admission_fields())  # fmt: skip
    return Admission.decode(admission.encode())


def test_execution_time_adds_up_over_admissions() -> None:
    life = lived(Event.ADMITTED, Event.EVICTED, Event.DRAINED, Event.ADMITTED)
    assert (life.executed_seconds, life.admitted_at) == (20, after(30))
    clock = life.next_timer(RULES, workload(pods_ready=True, max_execution_seconds=25))
    assert clock == (after(35), Event.EXECUTION_TIME_EXCEEDED)


def test_limit_past_end_of_calendar_never_expires() -> None:
    life = lived(Event.ADMITTED)
    for seconds in (10**11 * 4, 10**18):
        state = workload(pods_ready=True, max_execution_seconds=seconds)
        assert life.next_timer(LifecycleRules(), state) is None


def test_timeout_counts_from_admission_and_recovery_from_loss() -> None:
    assert lived(Event.ADMITTED).next_timer(RULES, workload()) == (
        after(300),
        Event.NOT_READY_IN_TIME,
    )
    ready = lived(Event.ADMITTED, Event.PODS_READY)
    assert ready.next_timer(RULES, workload(pods_ready=True)) is None
    lost = lived(Event.ADMITTED, Event.PODS_READY, Event.POD_LOST)
    assert lost.next_timer(RULES, workload()) == (after(120), Event.NOT_READY_IN_TIME)
    assert lost.readiness == "WaitForRecovery"
    back = lived(Event.ADMITTED, Event.PODS_READY, Event.POD_LOST, Event.PODS_READY)
    assert back.readiness == "Recovered"


def test_no_recovery_timeout_lets_once_ready_workload_wait() -> None:
    rules = LifecycleRules(pods_ready=WAIT.model_copy(update={"recovery_timeout": 0.0}))
    lost = lived(Event.ADMITTED, Event.PODS_READY, Event.POD_LOST, rules=rules)
    assert lost.next_timer(rules, workload()) is None


NO_CLOCK = {
    "a kind that cannot tell whether its pods are ready": (RULES, {"pods_ready": None}),
    "nobody waits for pods": (LifecycleRules(), {}),
}


@pytest.mark.parametrize(("rules", "more"), NO_CLOCK.values(), ids=NO_CLOCK.keys())
def test_no_timer_runs_for(rules: LifecycleRules, more: dict[str, object]) -> None:
    assert lived(Event.ADMITTED, rules=rules).next_timer(rules, workload(**more)) is None


def test_workload_on_spoke_has_no_readiness_timer() -> None:
    admission = on_log(lived(Event.ADMITTED)).model_copy(update={"spoke": "west"})
    assert (
        WorkloadLifecycle.from_admission(admission).next_timer(RULES, workload(held=True)) is None
    )


def test_readiness_of_held_job_is_ignored() -> None:
    life = lived(Event.ADMITTED)
    assert life.observed_readiness(workload(held=True, pods_ready=True)) is False
    assert life.observed_readiness(workload(pods_ready=True)) is True


def test_timeout_beyond_backoff_limit_deactivates() -> None:
    once = (Event.ADMITTED, Event.NOT_READY_IN_TIME, Event.DRAINED, Event.BACKOFF_FINISHED)
    life = lived(*once, *once, Event.ADMITTED)
    assert life.requeue_count == 2
    clock = life.next_timer(RULES, workload())
    assert clock is not None
    assert clock[1] is Event.RETRIES_EXHAUSTED
    out = life.apply(Event.RETRIES_EXHAUSTED, RULES, after(500))
    assert (out.deactivate, out.requeue_count, out.requeue_at) == (True, 0, None)


def test_no_backoff_limit_never_deactivates() -> None:
    rules = LifecycleRules(pods_ready=WaitForPodsReady(timeout="300s"))
    once = (Event.ADMITTED, Event.NOT_READY_IN_TIME, Event.DRAINED, Event.BACKOFF_FINISHED)
    clock = lived(*once * 50, Event.ADMITTED, rules=rules).next_timer(rules, workload())
    assert clock is not None
    assert clock[1] is Event.NOT_READY_IN_TIME


def test_timeout_moves_to_back_only_if_configured() -> None:
    assert lived(Event.ADMITTED, Event.NOT_READY_IN_TIME).queued_at == after(10)
    strategy = RequeuingStrategy(timestamp="Creation")
    rules = LifecycleRules(pods_ready=WaitForPodsReady(timeout="300s", requeuing_strategy=strategy))
    assert lived(Event.ADMITTED, Event.NOT_READY_IN_TIME, rules=rules).queued_at is None


def test_lost_position_is_restored_after_next_admission() -> None:
    timed_out = (Event.ADMITTED, Event.NOT_READY_IN_TIME, Event.DRAINED, Event.BACKOFF_FINISHED)
    preempted = lived(*timed_out, Event.ADMITTED, Event.EVICTED, Event.DRAINED)
    assert preempted.queued_at is None


def test_back_off_never_becomes_shorter() -> None:
    life = WorkloadLifecycle(uid="u", state=State.ADMITTED, requeue_at=after(500))
    assert life.apply(Event.CHECK_RETRY, RULES, NOON, requeue_at=after(60)).requeue_at == after(500)


def test_reactivation_resets_requeue_count() -> None:
    once = (Event.ADMITTED, Event.NOT_READY_IN_TIME, Event.DRAINED)
    life = lived(*once, Event.DEACTIVATED, Event.REACTIVATED)
    assert (life.state, life.requeue_count, life.requeue_at) == (State.PENDING, 0, None)


CONFIRMED = {
    "until spec.active was seen to be false it stays put out": ({}, True),
    "while the mark is on the object it does, too": (
        {"evicted_reason": "DeactivatedDueToRequeuingLimitExceeded", "deactivating": True}, True,
    ),
    "then nothing more is to be written": ({"active": False}, False),
    "a user who sets it back at once is heard, though false was never seen": (
        {"evicted_reason": "DeactivatedDueToRequeuingLimitExceeded"}, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("more", "still"), CONFIRMED.values(), ids=CONFIRMED.keys())
def test_deactivation_by_quota(more: dict[str, object], still: bool) -> None:
    life = lived(Event.ADMITTED, Event.EXECUTION_TIME_EXCEEDED)
    assert life.confirm_deactivation(workload(**more)).deactivate is still


# Delays --------------------------------------------------------------------------------------------


def test_back_off_doubles_up_to_maximum() -> None:
    strategy = RequeuingStrategy()
    delays = [round(backoff_seconds(strategy, "u", count)) for count in range(1, 10)]
    assert delays == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


@given(st.text(min_size=1), st.integers(min_value=1, max_value=10**9))
def test_jitter_is_small_and_same_after_restart(uid: str, count: int) -> None:
    strategy = RequeuingStrategy()
    exact = min(60.0 * 2 ** min(count - 1, 20), 3600.0)
    delay = backoff_seconds(strategy, uid, count)
    assert exact <= delay <= min(exact * 1.0001, 3600.0)
    assert delay == backoff_seconds(strategy, uid, count)


def test_equal_timeouts_back_off_for_different_times() -> None:
    delays = {backoff_seconds(RequeuingStrategy(), f"u-{n}", 1) for n in range(100)}
    assert len(delays) == 100
