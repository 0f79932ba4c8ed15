"""The plan of each situation, and properties that hold for all plans."""

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
    "no orders: all spokes get an offer": (
        situation(), "Pending", {EAST: NOMINATED, WEST: NOMINATED},
    ),
    "all copies wait: no events": (
        situation(orders=BOTH, copies={EAST: CopyPhase.WAITING}), "Pending", {},
    ),
    "first copy with quota wins": (
        situation(orders=BOTH, copies={EAST: CopyPhase.WAITING, WEST: CopyPhase.RESERVED}),
        "Ready", {EAST: LOST, WEST: WON},
    ),
    "copy that finished before it was chosen wins": (
        situation(orders=BOTH, copies={WEST: CopyPhase.FINISHED}), "Ready", {EAST: LOST, WEST: WON},
    ),
    "recorded winner stays the winner": (
        situation(orders=BOTH, copies={WEST: CopyPhase.RESERVED}, recorded_winner=EAST),
        "Ready", {EAST: WON, WEST: LOST},
    ),
    "chosen and running: no events": (
        situation(orders={EAST: chosen()}, copies={EAST: CopyPhase.RESERVED}), "Ready", {},
    ),
    "chosen and admitted: no answer": (
        situation(awaits_check=False, orders={EAST: chosen()}, copies={EAST: CopyPhase.RESERVED}), None, {},
    ),
    "chosen and finished: no retry": (
        situation(awaits_check=False, orders={EAST: chosen()}, copies={EAST: CopyPhase.FINISHED}), None, {},
    ),
    "chosen and gone: retry": (
        situation(awaits_check=False, orders={EAST: chosen()}), "Retry", {},
    ),
    "chosen and terminating: retry": (
        situation(awaits_check=False, orders={EAST: chosen()}, copies={EAST: CopyPhase.TERMINATING}),
        "Retry", {},
    ),
    "chosen and evicted on spoke: retry": (
        situation(awaits_check=False, orders={EAST: chosen()}, copies={EAST: CopyPhase.EVICTED}), "Retry", {},
    ),
    "chosen on silent spoke: stays": (
        situation(orders={EAST: chosen()}, copies={EAST: CopyPhase.RESERVED}, silent=frozenset({EAST})),
        "Ready", {},
    ),
    "chosen on spoke declared lost: retry": (
        situation(awaits_check=False, orders={EAST: chosen()}, copies={EAST: CopyPhase.RESERVED},
                  stopped=frozenset({EAST})),
        "Retry", {},
    ),
    "not wanted any more: all orders are withdrawn": (
        situation(wanted=False, orders={EAST: chosen(), WEST: offered()}), None,
        {EAST: RELEASED, WEST: RELEASED},
    ),
    "removal on started spoke not confirmed: no offers": (
        situation(orders={EAST: withdrawn(started=True)}), "Pending", {},
    ),
    "removal not confirmed: other offers are withdrawn": (
        situation(orders={EAST: withdrawn(started=True), WEST: offered()},
                  copies={WEST: CopyPhase.RESERVED}),
        "Pending", {WEST: LOST},
    ),
    "removal not confirmed but spoke stopped: new offer": (
        situation(orders={EAST: withdrawn(started=True)}, stopped=frozenset({EAST})),
        "Pending", {WEST: NOMINATED},
    ),
    "withdrawn offer that was never started: new offer elsewhere": (
        situation(orders={EAST: withdrawn()}), "Pending", {WEST: NOMINATED},
    ),
    "removal confirmed: the spoke gets a new offer": (
        situation(orders={EAST: withdrawn(started=True, removed=True)}), "Pending",
        {EAST: NOMINATED, WEST: NOMINATED},
    ),
    "spoke that refuses loses its offer": (
        situation(orders={EAST: offered(refusal="taken"), WEST: offered()}), "Pending", {EAST: LOST},
    ),
    "all spokes refuse: retry": (
        situation(candidates=(Candidate(spoke=EAST),), orders={EAST: offered(refusal="the name is taken")}),
        "Retry", {EAST: LOST},
    ),
    "no usable spoke: retry": (situation(candidates=(), problem="none"), "Retry", {}),
    "other check pending: no offers": (
        situation(pending_checks=("window",)), "Pending", {},
    ),
    "other check pending: copy with quota does not win": (
        situation(pending_checks=("window",), orders=BOTH, copies={EAST: CopyPhase.RESERVED}), "Pending",
        {EAST: LOST, WEST: LOST},
    ),
    "other check pending: chosen spoke stays": (
        situation(pending_checks=("window",), orders={EAST: chosen()}, copies={EAST: CopyPhase.RESERVED}),
        "Ready", {},
    ),
    "spoke not usable any more loses its offer": (
        situation(candidates=(Candidate(spoke=WEST),), orders=BOTH), "Pending", {EAST: LOST},
    ),
    "orphan with quota is adopted, other spokes get no offer": (
        situation(orphans={WEST: CopyPhase.RESERVED}), "Pending", {WEST: NOMINATED},
    ),
    "succeeded during withdrawal: no new offers": (
        situation(orders={EAST: withdrawn(started=True, removed=True), WEST: offered()},
                  copies={WEST: CopyPhase.RESERVED}, succeeded_on=EAST),
        "Pending", {WEST: LOST},
    ),
    "waiting orphan is deleted": (
        situation(orphans={WEST: CopyPhase.WAITING}), "Pending", {EAST: NOMINATED, WEST: ORPHANED},
    ),
    "orphan of unwanted workload is deleted": (
        situation(wanted=False, orphans={WEST: CopyPhase.RESERVED}), None, {WEST: ORPHANED},
    ),
    "orphan of unwanted workload stays without collection": (
        situation(wanted=False, collects_orphans=False, orphans={WEST: CopyPhase.RESERVED}), None, {},
    ),
    "orphan with an order is deleted without collection": (
        situation(wanted=False, collects_orphans=False, orphans={WEST: CopyPhase.WAITING},
                  orders={WEST: withdrawn(started=True, removed=True)}),
        None, {WEST: ORPHANED},
    ),
    "orphan of wanted workload is deleted without collection": (
        situation(collects_orphans=False, orphans={WEST: CopyPhase.WAITING}), "Pending",
        {EAST: NOMINATED, WEST: ORPHANED},
    ),
    "spec changed by user: chosen spoke gets the change": (
        situation(awaits_check=False, orders={EAST: chosen()}, copies={EAST: CopyPhase.RESERVED},
                  spec_change_requested=True),
        None, {EAST: SPEC_CHANGED},
    ),
    "priority changed: spokes with offers get it": (
        situation(orders={EAST: offered(priority_changed=True), WEST: offered(priority_changed=True)},
                  copies={EAST: CopyPhase.WAITING}),
        "Pending", {EAST: PRIORITY_CHANGED, WEST: PRIORITY_CHANGED},
    ),
    "priority changed: chosen spoke gets it": (
        situation(awaits_check=False, orders={EAST: chosen(priority_changed=True)},
                  copies={EAST: CopyPhase.RESERVED}),
        None, {EAST: PRIORITY_CHANGED},
    ),
    "priority changed: finished copy does not get it": (
        situation(awaits_check=False, orders={EAST: chosen(priority_changed=True)},
                  copies={EAST: CopyPhase.FINISHED}),
        None, {},
    ),
    "priority changed: other event replaces it": (
        situation(orders={EAST: offered(priority_changed=True), WEST: offered(priority_changed=True)},
                  copies={WEST: CopyPhase.RESERVED}),
        "Ready", {EAST: LOST, WEST: WON},
    ),
    "spec change already sent: no events": (
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
    def message(**more: Any) -> str:
        answer = plan(situation(**more)).answer
        assert answer is not None
        return answer.message

    assert message() == "The workload waits for one of: east, west"
    assert message(candidates=(), problem="none") == "none"
    assert message(candidates=()) == "No usable worker cluster"
    ran = {"awaits_check": False, "orders": {EAST: chosen()}}
    assert message(**ran) == 'Admitting remote no longer exists: "east"'
    assert message(**ran, stopped=frozenset({EAST})) == 'Admitting remote lost: "east"'
    evicted = {"copies": {EAST: CopyPhase.EVICTED}, "evictions": {EAST: "Preempted to …"}}
    assert message(**ran, **evicted) == 'Workload evicted on worker cluster: "Preempted to …"'


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
    assert not (running - now_chosen and may_run), "started while an earlier copy may still run"


@given(situations)
def test_plan_offers_nothing_while_a_copy_may_still_run(now: Situation) -> None:
    events = plan(now).events
    if may_still_run(now):
        assert NOMINATED not in events.values()
