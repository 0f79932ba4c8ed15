"""The rules that tables of whole decisions pass by: edges, ties, and what must be forgotten."""

from dataclasses import replace
from typing import Any

import pytest

from services.quota.engine import Policy
from services.quota.engine.facts import (
    AdmissionCheckChanged,
    Admit,
    CheckRule,
    CheckStateChanged,
    ClusterQueueGone,
    Evict,
    EvictionRequested,
    FlavorChanged,
    LocalQueueGone,
    NamespaceChanged,
    PodSet,
    Quota,
    Release,
    Requirement,
    Reserve,
    Selector,
    Taint,
    Toleration,
    WorkloadRunning,
)
from services.quota.engine.model.matching import flavor_mismatch, requirement_holds
from services.quota.engine.model.state import Node
from services.quota.engine.model.tree import available, fits_in_quota, lowest_height_that_fits
from tests.unit.quota.builders import (
    CLUSTER,
    LOWER,
    SECOND,
    Bench,
    admitted,
    cohort,
    drained,
    finished,
    group,
    held,
    local,
    preempted,
    queue,
    quota,
    slots,
    waits,
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
def test_what_a_queue_can_still_take(left: Any, free: int, potential: int) -> None:
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
def test_where_a_workload_would_borrow(left: Any, amount: int, expected: tuple[int, bool]) -> None:
    assert lowest_height_that_fits(node(family(**left), "q"), 0, amount) == expected


def test_heights_count_cohorts_below_and_queues_as_one() -> None:
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
def test_what_is_asked_of_the_parent(
    lend: int | None, used: int, asked: int, expected: tuple[bool, int]
) -> None:
    q = node(family(lend=lend, facts=[held("w1", used)]), "q")
    fits, ((_, rest),) = fits_in_quota(q, ((0, asked),))
    assert (fits, rest) == expected


def test_what_a_cohort_keeps_is_not_asked_of_those_above_it() -> None:
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


def test_who_was_overtaken_goes_on_with_the_next_flavor() -> None:
    three = group(*((name, {"slot": quota(1)}) for name in "abc"))
    bench = Bench(*THREE, *(queue(n, three, cohort="all") for n in ("q", "r", "s")))
    bench.decide(held("w1", 2, to="s", flavor="a"), work("w1", 2, to="s"))
    decisions = bench.decide(work("w2"), work("w3", to="r"))
    given = {d.key: d.pod_sets[0].flavors["slot"] for d in decisions if isinstance(d, Reserve)}
    assert given == {"ns/w2": "a", "ns/w3": "b"}


def test_the_reason_is_that_of_the_flavor_that_comes_nearest() -> None:
    for first, second in ((2, 1), (1, 2)):
        pair = group(("a", {"slot": quota(first)}), ("b", {"slot": quota(second)}))
        bench = Bench(*THREE, queue("q", pair))
        bench.decide(held("w1", 2, flavor="a" if first == 2 else "b"))
        bench.decide(work("w2", 2))
        assert bench.reason("w2") == "WaitingForQuota"


def test_what_is_not_offered_is_not_left_out() -> None:
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
def test_operators_of_selectors(
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
def test_which_taints_are_tolerated(toleration: Any, expected: bool) -> None:
    taint = Taint(key="size", value="5", effect="NoSchedule")
    flavor = FlavorChanged(cluster=CLUSTER, name="f", node_taints=(taint,))
    ps = PodSet(name="main", count=1, requests={}, tolerations=(Toleration(**toleration),))
    why = flavor_mismatch(ps, "f", {"f": flavor})
    assert why == (None if expected else "untolerated taint size=5:NoSchedule in flavor f")


def test_only_taints_that_keep_pods_off_matter() -> None:
    for effect, expected in (("PreferNoSchedule", True), ("NoExecute", False)):
        taint = Taint(key="size", effect=effect)
        flavor = FlavorChanged(cluster=CLUSTER, name="f", node_taints=(taint,))
        ps = PodSet(name="main", count=1, requests={})
        assert (flavor_mismatch(ps, "f", {"f": flavor}) is None) is expected


# Order -----------------------------------------------------------------------------------------


def test_who_lost_its_place_in_the_queue_does_not_go_first() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2"), work("w3"))
    late = work("w2", queued_at=500 * SECOND, generation=1)
    assert admitted(bench.decide(late, finished("w1"))) == ["w3"]


@pytest.mark.parametrize("usage_based", [False, True])
def test_who_preempted_before_a_restart_goes_before_those_of_its_queue(usage_based: bool) -> None:
    policy = Policy(resource_weights={}, half_life=3600 * SECOND, sampling_interval=SECOND)
    bench = Bench(queue("q", slots(1), usage_based=usage_based), policy=policy)
    before = replace(held("w1"), state="evicted", preempted_by="ns/w5", reason="Preempted")
    bench.decide(before, work("w1"), work("w2"), work("w5"))
    assert admitted(bench.decide(finished("w1"))) == ["w5"]


def test_a_local_queue_whose_workload_is_too_large_does_not_block_the_others() -> None:
    policy = Policy(resource_weights={}, half_life=3600 * SECOND, sampling_interval=SECOND)
    bench = Bench(queue("q", slots(1), usage_based=True), local("other", "q"), policy=policy)
    assert admitted(bench.decide(work("w1", 5))) == []
    assert admitted(bench.decide(work("w2", to="other"))) == ["w2"]


def test_of_the_local_queue_that_used_more_a_victim_is_taken_first() -> None:
    policy = Policy(resource_weights={}, half_life=3600 * SECOND, sampling_interval=SECOND)
    bench = Bench(
        queue("q", slots(3), usage_based=True, preemption=LOWER),
        local("other", "q"),
        policy=policy,
    )
    bench.decide(work("w1"), work("w2"))
    bench.decide(work("w3", to="other"))
    assert preempted(bench.decide(work("w4", to="other", priority=5))) in (["w1"], ["w2"])


def test_workloads_that_back_off_or_may_not_come_block_nobody_who_wakes() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2", requeue_at=9_000 * SECOND), work("w3", 1, inadmissible="x"))
    again = work("w3", 1, generation=1)
    assert admitted(bench.decide(again, finished("w1"))) == ["w3"]


def test_who_backs_off_does_not_keep_those_behind_it_asleep() -> None:
    selector = Selector(requirements=(Requirement(key="team", operator="In", values=("a",)),))
    bench = Bench(
        NamespaceChanged(cluster=CLUSTER, name="ns", labels={"team": "a"}),
        NamespaceChanged(cluster=CLUSTER, name="other"),
        queue("q", slots(1), namespaces=selector),
        replace(local("q"), namespace="other"),
    )
    bench.decide(work("w1", requeue_at=9_000 * SECOND), replace(work("w2"), namespace="other"))
    labelled = NamespaceChanged(cluster=CLUSTER, name="other", labels={"team": "a"})
    (reserve,) = bench.decide(labelled)
    assert reserve.key == "other/w2"


def test_who_waits_goes_on_waiting_when_the_rules_of_order_change() -> None:
    policy = Policy(resource_weights={}, half_life=3600 * SECOND, sampling_interval=SECOND)
    bench = Bench(queue("q", slots(1)), policy=policy)
    bench.decide(work("w1"), work("w2"), work("w3"))
    bench.decide(queue("q", slots(1), usage_based=True))
    assert admitted(bench.decide(finished("w1"))) == ["w2"]
    bench.decide(queue("q", slots(1)))
    assert admitted(bench.decide(finished("w2"))) == ["w3"]


def test_a_strict_queue_keeps_what_its_rules_refuse_as_its_head() -> None:
    for strategy, expected in (("StrictFIFO", []), ("BestEffortFIFO", ["w2"])):
        bench = Bench(queue("q", slots(2), strategy=strategy))
        assert admitted(bench.decide(work("w1", inadmissible="x"), work("w2"))) == expected


# Life ------------------------------------------------------------------------------------------

CHECK = AdmissionCheckChanged(cluster=CLUSTER, name="machines")
CHECKED = (CheckRule(name="machines"),)


def says(state: Any, at: int, **more: Any) -> CheckStateChanged:
    return CheckStateChanged(
        cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1", check="machines",
        state=state, at=at, **more,
    )  # fmt: skip


def test_what_a_check_said_before_the_reservation_does_not_count() -> None:
    bench = Bench(CHECK, queue("q", checks=CHECKED))
    bench.decide(work("w1"))
    assert bench.decide(says("Rejected", bench.now - SECOND)) == []
    assert [type(d).__name__ for d in bench.decide(says("Ready", bench.now))] == ["Admit"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param((), 0, id="nothing said"),
        pytest.param((("machines", "Pending"), ("budget", "Pending")), 0, id="both pending"),
        pytest.param((("machines", "Ready"),), 0, id="one of two"),
        pytest.param((("machines", "Ready"), ("budget", "Pending")), 0, id="one pending"),
        pytest.param((("machines", "Ready"), ("budget", "Ready")), 1, id="both ready"),
        pytest.param((("machines", "Ready"), ("other", "Ready")), 0, id="one that is not asked"),
    ],
)
def test_all_checks_must_be_ready(said: Any, expected: int) -> None:
    rules = (*CHECKED, CheckRule(name="budget"))
    more = AdmissionCheckChanged(cluster=CLUSTER, name="budget")
    bench = Bench(CHECK, more, queue("q", checks=rules))
    bench.decide(work("w1"))
    facts = [replace(says(state, bench.now), check=name) for name, state in said]
    assert [type(d) for d in bench.decide(*facts)] == [Admit] * expected


@pytest.mark.parametrize(
    ("pause", "expected"),
    [
        pytest.param(0, False, id="a retry without a pause may queue again at once"),
        pytest.param(30 * SECOND, True, id="a pause is told"),
    ],
)
def test_a_retry(pause: int, expected: bool) -> None:
    bench = Bench(CHECK, queue("q", checks=CHECKED))
    bench.decide(work("w1"))
    at = bench.now + 60 * SECOND
    (evict,) = bench.decide(says("Retry", at, retry_after=pause))
    assert isinstance(evict, Evict)
    assert evict.requeue_at == (at + pause if expected else None)


def test_who_is_kept_out_is_told_so_once() -> None:
    bench = Bench(queue("q"))
    assert waits(bench.decide(work("w1", gated="a"))) == {"w1": "AdmissionGated"}
    assert waits(bench.decide(work("w1", gated="a", generation=1))) == {}
    assert waits(bench.decide(work("w1", gated="a,b", generation=2))) == {"w1": "AdmissionGated"}
    assert waits(bench.decide(work("w1", on_hold="x", generation=3))) == {"w1": "OnHold"}


def test_nothing_is_said_of_who_has_gone() -> None:
    bench = Bench(queue("q"))
    assert waits(bench.decide(work("w1", gated="a"), finished("w1"))) == {}


def test_who_is_refused_by_its_rules_is_told_so() -> None:
    bench = Bench(queue("q"))
    assert waits(bench.decide(work("w1", inadmissible="no"))) == {"w1": "Misconfigured"}


@pytest.mark.parametrize("later", [False, True], ids=["from the beginning", "later"])
def test_who_is_refused_by_its_rules_is_told_so_though_others_alike_wait_for_quota(
    later: bool,
) -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1", 1), work("w2", 1))
    if later:
        bench.decide(work("w3", 1))
    told = bench.decide(work("w3", 1, inadmissible="no", generation=1))
    assert waits(told) == {"w3": "Misconfigured"}


def test_what_is_held_on_a_flavor_that_no_queue_has_still_counts() -> None:
    bench = Bench(queue("q", slots(2)))
    bench.decide()
    assert bench.decide(held("w1", 2, flavor="gone")) == []
    assert node(bench, "q").usage == [0, 2]
    bench.decide(held("w2", 1))
    assert node(bench, "q").usage == [1, 2]


def test_a_queue_that_comes_back_counts_those_who_stayed() -> None:
    bench = Bench(queue("q", slots(2)))
    bench.decide(work("w1"), work("w2"))
    bench.decide(ClusterQueueGone(cluster=CLUSTER, name="q"))
    bench.decide(finished("w1"))
    assert admitted(bench.decide(queue("q", slots(2)), work("w3"), work("w4"))) == ["w3"]


def test_a_late_word_about_another_life_changes_nothing() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1", generation=2))
    assert bench.decide(work("w1", 5, generation=1)) == []
    told = WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w1", uid="another")
    assert bench.decide(told) == []
    assert [type(d) for d in bench.decide(finished("w1"))] == [Release]


def test_what_ran_once_admitted_is_not_counted_twice() -> None:
    bench = Bench(queue("q", slots(2)))
    bench.decide(work("w1"))
    running = WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1")
    assert bench.decide(running) == []
    assert bench.decide(drained("ns/w1")) == []
    assert node(bench, "q").usage == [1]


def test_an_unplanned_one_that_drained_waits_its_turn() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2"))
    (found,) = bench.decide(
        WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w2", uid="uid-w2")
    )
    assert isinstance(found, Reserve)
    assert found.unplanned
    decisions = bench.decide(drained("ns/w2"))
    assert [type(d) for d in decisions if not isinstance(d, Reserve)][:1] == [Release]
    assert node(bench, "q").usage == [1]


def test_an_eviction_asked_for_twice_is_told_once() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"))
    asked = EvictionRequested(
        cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1", reason="PodsReadyTimeout"
    )
    assert [type(d) for d in bench.decide(asked)] == [Evict]
    assert bench.decide(asked) == []


def test_a_held_one_that_is_deactivated_is_stopped_once() -> None:
    bench = Bench(queue("q", slots(1)))
    decisions = bench.decide(work("w1", active=False), held("w1"))
    assert [d.reason for d in decisions if isinstance(d, Evict)] == ["Deactivated"]
    assert bench.decide(held("w1")) == []


def test_a_local_queue_that_comes_back_brings_its_workloads() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2"))
    bench.decide(LocalQueueGone(cluster=CLUSTER, namespace="ns", name="q"))
    assert bench.reason("w2") == "Misconfigured"
    assert admitted(bench.decide(finished("w1"))) == []
    assert admitted(bench.decide(local("q"))) == ["w2"]


def test_quota_cannot_be_borrowed_across_flavors() -> None:
    pair = group(("default", {"slot": quota(1)}), ("other", {"slot": Quota(nominal=1)}))
    bench = Bench(FlavorChanged(cluster=CLUSTER, name="other"), queue("q", pair))
    decisions = bench.decide(work("w1"), work("w2"), work("w3"), work("w4", 2))
    given = [d.pod_sets[0].flavors["slot"] for d in decisions if isinstance(d, Reserve)]
    assert given == ["default", "other"]


def test_of_several_alike_one_is_looked_at_and_the_others_are_told_its_reason_later() -> None:
    bench = Bench(queue("q", slots(1)))
    jobs = [work(f"w{n}", created_at=n) for n in range(4)]
    assert set(waits(bench.decide(*jobs))) == {"w1"}

    late = bench.engine.unpublished_reasons(2)
    assert [wait.key.partition("/")[2] for wait in late] == ["w2", "w3"]
    assert {wait.reason for wait in late} == {"WaitingForQuota"}
    assert not bench.engine.has_unpublished_reasons
    assert bench.engine.unpublished_reasons(2) == []


def test_who_waits_in_a_queue_that_admits_nobody_is_told_so_and_told_anew_when_it_does() -> None:
    bench = Bench(queue("q", slots(1), stop="Hold"))
    assert waits(bench.decide(work("w1"), work("w2"))) == {}
    assert {(one.reason, one.message) for one in bench.engine.unpublished_reasons(5)} == {
        ("Suspended", "ClusterQueue q is inactive")
    }
    decisions = bench.decide(queue("q", slots(1)))
    assert admitted(decisions) == ["w1"]
    assert set(waits(decisions)) == {"w2"}
