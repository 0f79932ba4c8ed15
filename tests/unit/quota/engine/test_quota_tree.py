"""Arithmetic of quota trees, flavor scans, and label matching."""

from typing import Any

import pytest

from services.quota.engine.facts import (
    FlavorChanged,
    PodSet,
    Quota,
    Requirement,
    Reserve,
    Taint,
    Toleration,
)
from services.quota.engine.model.matching import flavor_mismatch, requirement_holds
from services.quota.engine.model.state import Node
from services.quota.engine.model.tree import available, fits_in_quota, lowest_height_that_fits
from tests.unit.quota.builders import (
    CLUSTER,
    Bench,
    admitted,
    cohort,
    group,
    held,
    queue,
    quota,
    slots,
    work,
)


def node(bench: Bench, name: str) -> Node:
    (shard,) = bench.engine.shards()
    return next(n for t in shard.trees.values() for n in t.nodes if n.name == name)


# The tree --------------------------------------------------------------------------------------


def family(**left: Any) -> Bench:
    """`q` and `r` below `mid`, `s` beside it below `top`."""
    bench = Bench(
        cohort("top", None, slots(1)),
        cohort("mid", "top", slots(2, left.pop("mid_borrow", None), left.pop("mid_lend", None))),
        queue("q", slots(4, left.pop("borrow", None), left.pop("lend", None)), cohort="mid"),
        queue("r", slots(3), cohort="mid"),
        queue("s", slots(5), cohort="top"),
    )
    bench.decide(*left.pop("facts", ()))
    return bench


@pytest.mark.parametrize(
    ("left", "free", "potential"),
    [
        pytest.param({}, 15, 15, id="all of the tree"),
        pytest.param({"borrow": 2}, 6, 6, id="its own and the borrowing limit"),
        pytest.param({"borrow": 2, "lend": 1}, 6, 6, id="what it keeps is not borrowed"),
        pytest.param({"mid_borrow": 1}, 10, 10, id="the limit of the cohort above"),
        pytest.param({"lend": 0, "mid_borrow": 1}, 10, 10, id="what is kept comes on top"),
        pytest.param({"facts": [held("w1", 6)]}, 9, 15, id="less what it uses"),
        pytest.param({"facts": [held("w1", 6)], "borrow": 2}, 0, 6, id="nothing at the limit"),
        pytest.param(
            {"facts": [held("w1", 6)], "borrow": 2, "lend": 1}, 0, 6, id="nor if it keeps some"
        ),
        pytest.param({"facts": [held("w1", 8)], "borrow": 2}, -2, 6, id="negative above it"),
        pytest.param({"facts": [held("w1", 14, to="s")]}, 1, 15, id="less what others took"),
        pytest.param({"facts": [held("w1", 14, to="s")], "lend": 1}, 1, 15, id="but not its own"),
        pytest.param({"facts": [held("w1", 8, to="r")], "mid_borrow": 1}, 2, 10, id="nor cousins"),
        pytest.param({"facts": [held("w1", 6, to="s")], "mid_lend": 4}, 9, 15, id="kept by mid"),
    ],
)
def test_available_quota_respects_limits_of_the_whole_path(
    left: Any, free: int, potential: int
) -> None:
    q = node(family(**left), "q")
    assert (available(q, 0), q.potential_available[0]) == (free, potential)


@pytest.mark.parametrize(
    ("left", "amount", "expected"),
    [
        pytest.param({}, 4, (0, True), id="its own quota is at height 0"),
        pytest.param({}, 5, (1, True), id="its cohort is at height 1"),
        pytest.param({}, 9, (1, True), id="up to all that the cohort owns"),
        pytest.param({}, 10, (2, False), id="the root is at height 2"),
        pytest.param({}, 16, (2, False), id="what fits nowhere is asked of the root"),
        pytest.param({"facts": [held("w1", 1)]}, 4, (1, True), id="use counts"),
        pytest.param({"lend": 1}, 9, (1, True), id="what it keeps is not asked above"),
        pytest.param({"lend": 1}, 10, (2, False), id="nor found there"),
        pytest.param({"mid_lend": 4}, 15, (2, False), id="what the cohort keeps neither"),
    ],
)
def test_borrowing_height_is_that_of_lowest_subtree_that_fits(
    left: Any, amount: int, expected: tuple[int, bool]
) -> None:
    assert lowest_height_that_fits(node(family(**left), "q"), 0, amount) == expected


def test_height_counts_levels_of_cohorts_below() -> None:
    bench = family()
    assert [node(bench, n).height for n in ("q", "mid", "top")] == [0, 1, 2]
    alone = Bench(queue("q"))
    alone.decide()
    assert lowest_height_that_fits(node(alone, "q"), 0, 99) == (0, False)


@pytest.mark.parametrize(
    ("lend", "used", "asked", "expected"),
    [
        pytest.param(None, 0, 4, (True, 4), id="all that it lends is asked above"),
        pytest.param(1, 0, 4, (True, 1), id="less what it keeps"),
        pytest.param(1, 0, 2, (True, 0), id="never less than nothing"),
        pytest.param(1, 2, 2, (True, 1), id="what it keeps may be used"),
        pytest.param(1, 4, 2, (False, 2), id="all of it"),
        pytest.param(None, 0, 5, (False, 5), id="more than it owns"),
    ],
)
def test_request_to_parent_is_what_local_quota_does_not_cover(
    lend: int | None, used: int, asked: int, expected: tuple[bool, int]
) -> None:
    q = node(family(lend=lend, facts=[held("w1", used)]), "q")
    fits, ((_, rest),) = fits_in_quota(q, ((0, asked),))
    assert (fits, rest) == expected


def test_local_quota_of_cohort_is_not_requested_from_its_ancestors() -> None:
    bench = Bench(
        cohort("root", None, slots(9)),
        cohort("mid", "root", slots(1)),
        cohort("low", "mid", slots(2, lend=3)),
        queue("q", slots(4), cohort="low"),
    )
    bench.decide()
    q = node(bench, "q")
    assert [lowest_height_that_fits(q, 0, amount) for amount in (6, 7, 8)] == [
        (1, True),
        (2, True),
        (3, False),
    ]


# Flavors ---------------------------------------------------------------------------------------

THREE = [FlavorChanged(cluster=CLUSTER, name=name) for name in "abc"]


def test_overtaken_workload_continues_with_next_flavor() -> None:
    three = group(*((name, {"slot": quota(1)}) for name in "abc"))
    bench = Bench(*THREE, *(queue(n, three, cohort="all") for n in ("q", "r", "s")))
    bench.decide(held("w1", 2, to="s", flavor="a"), work("w1", 2, to="s"))
    decisions = bench.decide(work("w2"), work("w3", to="r"))
    given = {d.key: d.pod_sets[0].flavors["slot"] for d in decisions if isinstance(d, Reserve)}
    assert given == {"ns/w2": "a", "ns/w3": "b"}


def test_reason_is_least_severe_of_all_flavors() -> None:
    for first, second in ((2, 1), (1, 2)):
        pair = group(("a", {"slot": quota(first)}), ("b", {"slot": quota(second)}))
        bench = Bench(*THREE, queue("q", pair))
        bench.decide(held("w1", 2, flavor="a" if first == 2 else "b"))
        bench.decide(work("w2", 2))
        assert bench.reason("w2") == "WaitingForQuota"


def test_resource_that_queue_does_not_offer_is_refused() -> None:
    some = PodSet(name="main", count=1, requests={"slot": 1, "zoom": 1})
    bench = Bench(queue("q", slots(1)))
    assert admitted(bench.decide(work("w1", pod_sets=(some,)))) == []
    assert bench.reason("w1") == "NoMatchingFlavor"


@pytest.mark.parametrize(
    ("operator", "values", "label", "expected"),
    [
        ("In", ("a", "b"), "b", True),
        ("In", ("a",), "c", False),
        ("In", ("a",), None, False),
        ("NotIn", ("a",), "a", False),
        ("NotIn", ("a",), "b", True),
        ("NotIn", ("a",), None, True),
        ("Exists", (), "a", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), "a", False),
        ("DoesNotExist", (), None, True),
        ("Gt", ("5",), "6", True),
        ("Gt", ("5",), "5", False),
        ("Gt", ("5",), None, False),
        ("Gt", ("5", "6"), "7", False),
        ("Gt", ("x",), "7", False),
        ("Lt", ("5",), "4", True),
        ("Lt", ("5",), "5", False),
        ("Lt", ("5",), "y", False),
    ],
)
def test_selector_operator_matches_as_in_kubernetes(
    operator: Any, values: tuple[str, ...], label: str | None, expected: bool
) -> None:
    labels = {} if label is None else {"key": label}
    requirement = Requirement(key="key", operator=operator, values=values)
    assert requirement_holds(requirement, labels) is expected


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param({"operator": "Exists"}, True, id="no key and Exists tolerate everything"),
        pytest.param({"operator": "Exists", "key": "size"}, True, id="the key"),
        pytest.param({"operator": "Exists", "key": "other"}, False, id="another key"),
        pytest.param({"key": "size", "value": "5"}, True, id="the value"),
        pytest.param({"key": "size", "value": "6"}, False, id="another value"),
        pytest.param({"value": "5"}, False, id="a value without a key"),
        pytest.param({"key": "size", "operator": "", "value": "5"}, True, id="Equal by default"),
        pytest.param({"operator": "Exists", "effect": "NoSchedule"}, True, id="the effect"),
        pytest.param({"operator": "Exists", "effect": "NoExecute"}, False, id="another effect"),
        pytest.param({"key": "size", "operator": "Lt", "value": "6"}, True, id="less"),
        pytest.param({"key": "size", "operator": "Lt", "value": "5"}, False, id="not less"),
        pytest.param({"key": "size", "operator": "Gt", "value": "4"}, True, id="greater"),
        pytest.param({"key": "size", "operator": "Gt", "value": "5"}, False, id="not greater"),
        pytest.param({"operator": "Gt", "value": "4"}, False, id="greater, without a key"),
        pytest.param({"key": "size", "operator": "Like", "value": "5"}, False, id="no operator"),
    ],
)
def test_toleration_matches_taint_as_in_kubernetes(toleration: Any, expected: bool) -> None:
    taint = Taint(key="size", value="5", effect="NoSchedule")
    flavor = FlavorChanged(cluster=CLUSTER, name="f", node_taints=(taint,))
    ps = PodSet(name="main", count=1, requests={}, tolerations=(Toleration(**toleration),))
    why = flavor_mismatch(ps, "f", {"f": flavor})
    assert why == (None if expected else "untolerated taint size=5:NoSchedule in flavor f")


def test_only_no_schedule_and_no_execute_taints_matter() -> None:
    for effect, expected in (("PreferNoSchedule", True), ("NoExecute", False)):
        taint = Taint(key="size", effect=effect)
        flavor = FlavorChanged(cluster=CLUSTER, name="f", node_taints=(taint,))
        ps = PodSet(name="main", count=1, requests={})
        assert (flavor_mismatch(ps, "f", {"f": flavor}) is None) is expected


def test_quota_is_not_borrowed_across_flavors() -> None:
    pair = group(("default", {"slot": quota(1)}), ("other", {"slot": Quota(nominal=1)}))
    bench = Bench(FlavorChanged(cluster=CLUSTER, name="other"), queue("q", pair))
    decisions = bench.decide(work("w1"), work("w2"), work("w3"), work("w4", 2))
    given = [d.pod_sets[0].flavors["slot"] for d in decisions if isinstance(d, Reserve)]
    assert given == ["default", "other"]
