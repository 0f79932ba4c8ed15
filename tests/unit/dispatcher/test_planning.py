"""Each rule of dispatching, one case each, and what holds for all situations."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.dispatcher.lifecycle import Event, OrderState, follow
from services.dispatcher.planning import Answer, Plan, Situation, Standing, plan

UNSENT, OFFERED, CHOSEN, WITHDRAWN = OrderState
ABSENT, WAITING, RESERVED, ENDING = Standing


def ready(spoke: str) -> Answer:
    return Answer(state="Ready", message=f'The workload was admitted on "{spoke}"', spoke=spoke)


def pending(*spokes: str) -> Answer:
    return Answer(state="Pending", message=f"The workload waits for one of: {', '.join(spokes)}")


@dataclass(frozen=True, kw_only=True)
class Case:
    wanted: bool = True
    undecided: bool = True
    usable: tuple[str, ...] = ("east", "west")
    problem: str = ""
    orders: dict[str, OrderState] = field(default_factory=dict)
    copies: dict[str, Standing] = field(default_factory=dict)
    choice: str | None = None
    answer: Answer | None = None
    events: dict[str, Event] = field(default_factory=dict)

    @property
    def situation(self) -> Situation:
        return Situation(
            wanted=self.wanted,
            undecided=self.undecided,
            usable=self.usable,
            problem=self.problem,
            orders=self.orders,
            copies=self.copies,
            choice=self.choice,
        )


CASES = {
    "every usable spoke is offered the workload at once": Case(
        answer=pending("east", "west"), events={"east": Event.NOMINATED, "west": Event.NOMINATED},
    ),
    "while nobody has quota for it, all wait": Case(
        orders={"east": OFFERED, "west": OFFERED}, copies={"east": WAITING}, answer=pending("east", "west"),
    ),
    "the first copy with quota wins, the others are withdrawn": Case(
        orders={"east": OFFERED, "west": OFFERED}, copies={"east": WAITING, "west": RESERVED},
        answer=ready("west"), events={"west": Event.WON, "east": Event.LOST},
    ),
    "of two with quota the one that was seen first wins": Case(
        orders={"east": OFFERED, "west": OFFERED}, copies={"west": RESERVED, "east": RESERVED},
        answer=ready("west"), events={"west": Event.WON, "east": Event.LOST},
    ),
    "a copy that is being deleted does not win": Case(
        orders={"east": OFFERED, "west": OFFERED}, copies={"west": ENDING}, answer=pending("east", "west"),
    ),
    "a choice that was recorded is carried out, whatever is seen since": Case(
        orders={"east": OFFERED, "west": OFFERED}, copies={"west": RESERVED}, choice="east",
        answer=ready("east"), events={"east": Event.WON, "west": Event.LOST},
    ),
    "a winner stays the winner": Case(
        undecided=False, orders={"east": WITHDRAWN, "west": CHOSEN}, copies={"west": RESERVED},
    ),
    "a winner whose copy is gone is not replaced: it may have run": Case(
        undecided=False, orders={"east": WITHDRAWN, "west": CHOSEN},
    ),
    "a new leader's question about the same reservation gets the same answer": Case(
        orders={"east": WITHDRAWN, "west": CHOSEN}, answer=ready("west"),
    ),
    "a loser that was not withdrawn yet is": Case(
        undecided=False, orders={"east": OFFERED, "west": CHOSEN}, events={"east": Event.LOST},
    ),
    "when the hub lets go, everything is withdrawn": Case(
        wanted=False, undecided=False, orders={"east": OFFERED, "west": CHOSEN},
        events={"east": Event.LET_GO, "west": Event.LET_GO},
    ),
    "what was withdrawn is not withdrawn again": Case(
        wanted=False, undecided=False, orders={"east": WITHDRAWN},
    ),
    "a spoke is not offered it again before the copy of the last time is gone": Case(
        orders={"east": WITHDRAWN, "west": WITHDRAWN}, copies={"east": ENDING},
        answer=pending("east", "west"), events={"west": Event.NOMINATED},
    ),
    "a spoke that left the configuration loses what was offered": Case(
        usable=("west",), orders={"east": OFFERED, "west": OFFERED}, answer=pending("west"),
        events={"east": Event.LOST},
    ),
    "without a usable spoke it is tried again later, with the reason": Case(
        usable=(), problem="Inactive clusters: east",
        answer=Answer(state="Retry", message="Inactive clusters: east"),
    ),
    "without a reason the usual one is given": Case(
        usable=(), answer=Answer(state="Retry", message="No usable worker cluster"),
    ),
    "an admitted workload whose orders were lost goes to the spoke where it runs, and only there": Case(
        undecided=False, copies={"west": RESERVED}, events={"west": Event.NOMINATED},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_plan(case: Case) -> None:
    assert plan(case.situation) == Plan(answer=case.answer, events=case.events)


def after(situation: Situation, todo: Plan) -> Situation:
    """The situation when the plan was carried out, and nothing else happened."""
    orders = dict(situation.orders)
    for spoke, event in todo.events.items():
        orders[spoke] = follow(orders.get(spoke, UNSENT), event)
    choice = todo.answer.spoke if todo.answer is not None else situation.choice
    return Situation(
        wanted=situation.wanted,
        undecided=situation.undecided,
        usable=situation.usable,
        problem=situation.problem,
        orders=orders,
        copies=situation.copies,
        choice=choice,
    )


spokes = st.sampled_from(["a", "b", "c"])


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    orders: Mapping[str, OrderState] = draw(
        st.dictionaries(spokes, st.sampled_from([OFFERED, WITHDRAWN]), max_size=3)
    )
    if draw(st.booleans()) and orders:
        orders = {**orders, draw(st.sampled_from(sorted(orders))): CHOSEN}
    wanted = draw(st.booleans())
    return Situation(
        wanted=wanted,
        undecided=wanted and draw(st.booleans()),
        usable=tuple(draw(st.lists(spokes, unique=True, max_size=3))),
        orders=orders,
        copies=draw(st.dictionaries(spokes, st.sampled_from(list(Standing)), max_size=3)),
        choice=draw(st.none() | spokes),
    )


@given(situations())
def test_a_plan_asks_for_nothing_impossible_and_settles(situation: Situation) -> None:
    for _ in range(4):
        todo = plan(situation)
        before, situation = situation, after(situation, todo)
        assert list(situation.orders.values()).count(CHOSEN) <= 1, "one winner at most"
        if not situation.wanted:
            assert set(situation.orders.values()) <= {WITHDRAWN}
    assert before.orders == situation.orders, "it settles"
    assert plan(situation).events == {}


@given(situations())
def test_a_workload_with_a_winner_is_offered_to_nobody(situation: Situation) -> None:
    if CHOSEN in situation.orders.values():
        assert Event.NOMINATED not in plan(situation).events.values()
