"""Every situation has one next step, and the step leads to no further one by itself."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.dispatcher.planning.nomination import (
    Candidate,
    NominationRules,
    NominationStrategy,
)
from services.dispatcher.planning.order_lifecycle import Event, OrderState, next_state
from services.dispatcher.planning.plan import Order, Plan, Situation, may_still_run, plan
from services.dispatcher.spokes.copies import CopyPhase

EAST, WEST, NORTH = "east", "west", "north"
UNSENT, OFFERED, CHOSEN, WITHDRAWN = OrderState
NOMINATED, WON, LOST, RELEASED, ORPHANED, SPEC_CHANGED, PRIORITY_CHANGED = Event
ALL = NominationRules(strategy=NominationStrategy.ALL_AT_ONCE)


def situation(**more: Any) -> Situation:
    """Reserved at the hub, two spokes to use, all at once."""
    usual: dict[str, Any] = {
        "wanted": True, "awaits_check": True, "rules": ALL,
        "candidates": (Candidate(spoke=EAST), Candidate(spoke=WEST)),
    }  # fmt: skip
    return Situation(**(usual | more))


def offered(**more: Any) -> Order:
    return Order(state=OFFERED, **more)


def chosen(**more: Any) -> Order:
    return Order(state=CHOSEN, **more)


def withdrawn(**more: Any) -> Order:
    return Order(state=WITHDRAWN, **more)


BOTH = {EAST: offered(), WEST: offered()}

CASES: dict[str, tuple[Situation, str | None, dict[str, Event]]] = {
    "nothing was said yet: all spokes are offered it": (
        situation(), "Pending", {EAST: NOMINATED, WEST: NOMINATED},
    ),
    "all wait: nothing to do": (
        situation(orders=BOTH, copies={EAST: CopyPhase.WAITING}), "Pending", {},
    ),
    "the first with quota wins": (
        situation(orders=BOTH, copies={EAST: CopyPhase.WAITING, WEST: CopyPhase.RESERVED}),
        "Ready", {EAST: LOST, WEST: WON},
    ),
    "a copy that ended before it was chosen wins too": (
        situation(orders=BOTH, copies={WEST: CopyPhase.FINISHED}), "Ready", {EAST: LOST, WEST: WON},
    ),
    "a recorded winner stays the winner": (
        situation(orders=BOTH, copies={WEST: CopyPhase.RESERVED}, recorded_winner=EAST),
        "Ready", {EAST: WON, WEST: LOST},
    ),
    "chosen and running: nothing to do": (
        situation(orders={EAST: chosen()}, copies={EAST: CopyPhase.RESERVED}), "Ready", {},
    ),
    "chosen and admitted: nobody waits for an answer": (
        situation(awaits_check=False, orders={EAST: chosen()}, copies={EAST: CopyPhase.RESERVED}), None, {},
    ),
    "chosen and done: its status comes home, nothing is taken back": (
        situation(awaits_check=False, orders={EAST: chosen()}, copies={EAST: CopyPhase.FINISHED}), None, {},
    ),
    "chosen and gone: the hub takes it back": (
        situation(awaits_check=False, orders={EAST: chosen()}), "Retry", {},
    ),
    "chosen and being deleted there: the hub takes it back": (
        situation(awaits_check=False, orders={EAST: chosen()}, copies={EAST: CopyPhase.TERMINATING}),
        "Retry", {},
    ),
    "chosen and evicted there: the hub takes it back": (
        situation(awaits_check=False, orders={EAST: chosen()}, copies={EAST: CopyPhase.EVICTED}), "Retry", {},
    ),
    "chosen on a spoke of which nothing is heard: it stays": (
        situation(orders={EAST: chosen()}, copies={EAST: CopyPhase.RESERVED}, silent=frozenset({EAST})),
        "Ready", {},
    ),
    "chosen on a spoke that an operator declared lost: the hub takes it back": (
        situation(awaits_check=False, orders={EAST: chosen()}, copies={EAST: CopyPhase.RESERVED},
                  stopped=frozenset({EAST})),
        "Retry", {},
    ),
    "the hub lets go: everything is withdrawn": (
        situation(wanted=False, orders={EAST: chosen(), WEST: offered()}), None,
        {EAST: RELEASED, WEST: RELEASED},
    ),
    "a spoke that ran it has not said that it is gone: nobody else gets it": (
        situation(orders={EAST: withdrawn(started=True)}), "Pending", {},
    ),
    "… not even one that has a copy on offer": (
        situation(orders={EAST: withdrawn(started=True), WEST: offered()},
                  copies={WEST: CopyPhase.RESERVED}),
        "Pending", {WEST: LOST},
    ),
    "… unless its lease ran out, or an operator declared it lost": (
        situation(orders={EAST: withdrawn(started=True)}, stopped=frozenset({EAST})),
        "Pending", {WEST: NOMINATED},
    ),
    "a spoke that never was chosen never ran it": (
        situation(orders={EAST: withdrawn()}), "Pending", {WEST: NOMINATED},
    ),
    "it said that it is gone: it may have it again": (
        situation(orders={EAST: withdrawn(started=True, removed=True)}), "Pending",
        {EAST: NOMINATED, WEST: NOMINATED},
    ),
    "a spoke that cannot take it is left out": (
        situation(orders={EAST: offered(refusal="taken"), WEST: offered()}), "Pending", {EAST: LOST},
    ),
    "nobody can take it": (
        situation(candidates=(Candidate(spoke=EAST),), orders={EAST: offered(refusal="the name is taken")}),
        "Retry", {EAST: LOST},
    ),
    "no spoke may be used": (situation(candidates=(), problem="none"), "Retry", {}),
    "another check is not ready: nobody is offered it": (
        situation(pending_checks=("window",)), "Pending", {},
    ),
    "… nor does a copy win that has quota": (
        situation(pending_checks=("window",), orders=BOTH, copies={EAST: CopyPhase.RESERVED}), "Pending",
        {EAST: LOST, WEST: LOST},
    ),
    "… but what was chosen stays": (
        situation(pending_checks=("window",), orders={EAST: chosen()}, copies={EAST: CopyPhase.RESERVED}),
        "Ready", {},
    ),
    "a spoke may not be used any more": (
        situation(candidates=(Candidate(spoke=WEST),), orders=BOTH), "Pending", {EAST: LOST},
    ),
    "a running copy whose order was lost is adopted, alone": (
        situation(orphans={WEST: CopyPhase.RESERVED}), "Pending", {WEST: NOMINATED},
    ),
    "it ended well as it was taken back: nobody begins again": (
        situation(orders={EAST: withdrawn(started=True, removed=True), WEST: offered()},
                  copies={WEST: CopyPhase.RESERVED}, succeeded_on=EAST),
        "Pending", {WEST: LOST},
    ),
    "a waiting copy whose order was lost is removed first": (
        situation(orphans={WEST: CopyPhase.WAITING}), "Pending", {EAST: NOMINATED, WEST: ORPHANED},
    ),
    "a copy that nobody wants is an orphan": (
        situation(wanted=False, orphans={WEST: CopyPhase.RESERVED}), None, {WEST: ORPHANED},
    ),
    "… and left alone where nobody collects them": (
        situation(wanted=False, collects_orphans=False, orphans={WEST: CopyPhase.RESERVED}), None, {},
    ),
    "… but not one that was ordered once": (
        situation(wanted=False, collects_orphans=False, orphans={WEST: CopyPhase.WAITING},
                  orders={WEST: withdrawn(started=True, removed=True)}),
        None, {WEST: ORPHANED},
    ),
    "… nor one that is in the way": (
        situation(collects_orphans=False, orphans={WEST: CopyPhase.WAITING}), "Pending",
        {EAST: NOMINATED, WEST: ORPHANED},
    ),
    "its user wants it stopped": (
        situation(awaits_check=False, orders={EAST: chosen()}, copies={EAST: CopyPhase.RESERVED},
                  spec_change_requested=True),
        None, {EAST: SPEC_CHANGED},
    ),
    "its job has another priority class: whoever has a copy is told": (
        situation(orders={EAST: offered(priority_changed=True), WEST: offered(priority_changed=True)},
                  copies={EAST: CopyPhase.WAITING}),
        "Pending", {EAST: PRIORITY_CHANGED, WEST: PRIORITY_CHANGED},
    ),
    "… also who runs it": (
        situation(awaits_check=False, orders={EAST: chosen(priority_changed=True)},
                  copies={EAST: CopyPhase.RESERVED}),
        None, {EAST: PRIORITY_CHANGED},
    ),
    "… not who has an end of it": (
        situation(awaits_check=False, orders={EAST: chosen(priority_changed=True)},
                  copies={EAST: CopyPhase.FINISHED}),
        None, {},
    ),
    "… nor who is told something else anyway": (
        situation(orders={EAST: offered(priority_changed=True), WEST: offered(priority_changed=True)},
                  copies={WEST: CopyPhase.RESERVED}),
        "Ready", {EAST: LOST, WEST: WON},
    ),
    "its user was heard": (
        situation(awaits_check=False, orders={EAST: chosen(spec_change_sent=True)},
                  copies={EAST: CopyPhase.RESERVED}, spec_change_requested=True),
        None, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("now", "answer", "events"), CASES.values(), ids=CASES.keys())
def test_plan_of_situation(now: Situation, answer: str | None, events: dict[str, Event]) -> None:
    todo = plan(now)
    assert (todo.answer.state if todo.answer else None) == answer
    assert dict(todo.events) == events


def test_message_of_answer() -> None:
    def said(**more: Any) -> str:
        answer = plan(situation(**more)).answer
        assert answer is not None
        return answer.message

    assert said() == "The workload waits for one of: east, west"
    assert said(candidates=(), problem="none") == "none"
    assert said(candidates=()) == "No usable worker cluster"
    ran = {"awaits_check": False, "orders": {EAST: chosen()}}
    assert said(**ran) == 'Admitting remote no longer exists: "east"'
    assert said(**ran, stopped=frozenset({EAST})) == 'Admitting remote lost: "east"'
    evicted = {"copies": {EAST: CopyPhase.EVICTED}, "evictions": {EAST: "Preempted to …"}}
    assert said(**ran, **evicted) == 'Workload evicted on worker cluster: "Preempted to …"'


orders = st.dictionaries(
    st.sampled_from((EAST, WEST, NORTH)),
    st.builds(
        Order,
        state=st.sampled_from((OFFERED, CHOSEN, WITHDRAWN)),
        started=st.booleans(),
        removed=st.booleans(),
        refusal=st.sampled_from(("", "taken")),
        age_seconds=st.sampled_from((0.0, 1000.0)),
        priority_changed=st.booleans(),
    ),
).filter(lambda found: sum(o.state is CHOSEN for o in found.values()) <= 1)

situations = st.builds(
    Situation,
    wanted=st.booleans(),
    awaits_check=st.booleans(),
    rules=st.builds(NominationRules, strategy=st.sampled_from(NominationStrategy)),
    candidates=st.lists(
        st.builds(Candidate, spoke=st.sampled_from((EAST, WEST, NORTH)), fits=st.booleans()),
        unique_by=lambda candidate: candidate.spoke,
    ).map(tuple),
    external=st.lists(st.sampled_from((EAST, WEST)), unique=True).map(tuple),
    orders=orders,
    copies=st.dictionaries(st.sampled_from((EAST, WEST, NORTH)), st.sampled_from(CopyPhase)),
    orphans=st.dictionaries(st.sampled_from((EAST, WEST, NORTH)), st.sampled_from(CopyPhase)),
    recorded_winner=st.sampled_from((None, EAST, WEST)),
    stopped=st.frozensets(st.sampled_from((EAST, WEST))),
    succeeded_on=st.sampled_from((None, EAST)),
)


def after(now: Situation, todo: Plan) -> dict[str, OrderState]:
    """The orders once the plan was carried out. Raises where the table has no such step."""
    states = {spoke: order.state for spoke, order in now.orders.items()}
    for spoke, event in todo.events.items():
        states[spoke] = next_state(states.get(spoke, UNSENT), event)
    return states


@given(situations)
def test_plan_has_only_possible_events_and_one_running_spoke(now: Situation) -> None:
    now_chosen = {spoke for spoke, order in now.orders.items() if order.state is CHOSEN}
    orphans = {s: w for s, w in now.orphans.items() if s not in now.orders}
    # The store reports a success only while no spoke is chosen.
    succeeded_on = None if now_chosen else now.succeeded_on
    now = replace(now, orphans=orphans, succeeded_on=succeeded_on)
    states = after(now, plan(now))
    running = {spoke for spoke, state in states.items() if state is CHOSEN}
    assert len(running) <= 1
    may_run = {s for s in may_still_run(now) if now.orders[s].state is WITHDRAWN}
    assert not (running - now_chosen and may_run), "started while it may run elsewhere"


@given(situations)
def test_plan_offers_nothing_while_a_copy_may_still_run(now: Situation) -> None:
    events = plan(now).events
    if may_still_run(now):
        assert NOMINATED not in events.values()
