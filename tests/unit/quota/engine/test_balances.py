"""Where quota is: nominal, reserved, used, borrowed and lent, of every queue and cohort."""

from typing import Any

import pytest

from services.quota.engine.facts import AdmissionCheckChanged, CheckRule
from services.quota.engine.model.amounts import INT64_MAX
from services.quota.engine.views.balances import Balance
from tests.unit.quota.builders import CLUSTER, Bench, cohort, held, queue, slots, work

PLACE = ("default", "slot")


def balances(bench: Bench) -> dict[str, Balance]:
    """By name of the queue or cohort."""
    bench.decide()
    return {node.name: node.balances[PLACE] for node in bench.engine.balances(CLUSTER)}


def told(balance: Balance) -> tuple[int, ...]:
    return (balance.nominal, balance.reserved, balance.used, balance.borrowed, balance.lent)


TWO = [queue("q", slots(10), cohort="top"), queue("r", slots(4), cohort="top")]

CASES: list[Any] = [
    pytest.param([], {"q": (10, 0, 0, 0, 0), "r": (4, 0, 0, 0, 0), "top": (14, 0, 0, 0, 0)}, id="idle"),
    pytest.param(
        [held("w1", 2), held("w2", 9, to="r")],
        # Three are free in all: of the eight that q does not use, it lacks five.
        {"q": (10, 2, 2, 0, 5), "r": (4, 9, 9, 5, 0), "top": (14, 11, 11, 5, 0)},
        id="r borrows of q",
    ),
    pytest.param(
        [queue("s", slots(10), cohort="top"), held("w1", 9, to="r")],
        # Either lender could have all of its own: the other one then lends.
        {"q": (10, 0, 0, 0, 0), "s": (10, 0, 0, 0, 0), "r": (4, 9, 9, 5, 0), "top": (24, 9, 9, 5, 0)},
        id="nobody lacks what is borrowed",
    ),
    pytest.param(
        [queue("q", slots(10, None, 3), cohort="top"), held("w1", 7, to="r")],
        {"q": (10, 0, 0, 0, 3), "r": (4, 7, 7, 3, 0), "top": (14, 7, 7, 3, 0)},
        id="no more than the lending limit",
    ),
    pytest.param(
        [cohort("top", None, slots(6)), held("w1", 9, to="r")],
        {"q": (10, 0, 0, 0, 0), "r": (4, 9, 9, 5, 0), "top": (20, 9, 9, 5, 0)},
        id="a cohort has quota of its own",
    ),
    pytest.param(
        [
            cohort("mid", "top"),
            queue("s", slots(5), cohort="mid"),
            held("w1", 14, to="r"),
            held("w2", 4),
        ],
        # Together s and mid could have one more: four of theirs are with r.
        {
            "s": (5, 0, 0, 0, 4), "mid": (5, 0, 0, 0, 4), "q": (10, 4, 4, 0, 5),
            "r": (4, 14, 14, 10, 0), "top": (19, 18, 18, 10, 0),
        },
        id="a cohort lends to its parent",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "expected"), CASES)
def test_balances_say_who_holds_whose_quota(facts: Any, expected: dict[str, Any]) -> None:
    found = balances(Bench(*TWO, *facts))
    assert {name: told(balance) for name, balance in found.items()} == expected


def test_what_waits_for_checks_is_reserved_and_not_used() -> None:
    check = AdmissionCheckChanged(cluster=CLUSTER, name="machines")
    bench = Bench(check, queue("q", slots(4), checks=(CheckRule(name="machines"),)))
    bench.decide(work("w1", 3))
    assert told(balances(bench)["q"]) == (4, 3, 0, 0, 0)


def test_parents_come_before_their_children() -> None:
    bench = Bench(cohort("mid", "top"), queue("q", slots(4), cohort="mid"))
    bench.decide()
    found = [(node.name, node.parent, node.is_queue) for node in bench.engine.balances(CLUSTER)]
    assert found == [("top", "", False), ("mid", "top", False), ("q", "mid", True)]
    assert bench.engine.balances("elsewhere") == []


def test_usage_above_a_reduced_quota_counts_as_borrowed() -> None:
    bench = Bench(queue("q", slots(4)), held("w1", 3))
    bench.decide()
    bench.take(queue("q", slots(1)))
    assert told(balances(bench)["q"]) == (1, 3, 3, 2, 0)


def test_unlimited_quota_lends_nothing() -> None:
    found = balances(
        Bench(queue("q", slots(INT64_MAX), cohort="top"), TWO[1], held("w1", 3, to="r"))
    )
    assert (found["r"].borrowed, found["q"].lent) == (0, 0)
