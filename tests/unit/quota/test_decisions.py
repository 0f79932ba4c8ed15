"""What the engine decides, case by case."""

from typing import Any

import pytest

from services.quota.engine import Policy
from services.quota.engine.facts import (
    AdmissionCheckChanged,
    Admit,
    AssignedPodSet,
    CheckRule,
    CheckStateChanged,
    CheckStatus,
    ClusterQueueGone,
    CohortChanged,
    Evict,
    EvictionRequested,
    FlavorChanged,
    FlavorGone,
    Fungibility,
    NamespaceChanged,
    PodSet,
    Preempt,
    Preemption,
    QuotaHeld,
    Release,
    Requirement,
    Reserve,
    Selector,
    Taint,
    Toleration,
    WorkloadDrained,
    WorkloadGone,
    WorkloadRunning,
)
from tests.conformance.quota import SAMPLES, scenarios, settles
from tests.unit.quota.builders import (
    CLUSTER,
    LOWER,
    RECLAIM,
    SECOND,
    Bench,
    admitted,
    cohort,
    drained,
    finished,
    group,
    local,
    preempted,
    queue,
    quota,
    slots,
    waits,
    work,
)


def test_the_highest_priority_goes_first_then_the_oldest() -> None:
    bench = Bench(queue("q", slots(2)))
    decisions = bench.decide(work("w3"), work("w1"), work("w2", priority=5))
    assert admitted(decisions) == ["w2", "w1"]
    assert waits(decisions) == {"w3": "WaitingForQuota"}


def test_what_ends_makes_room_at_once() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2"))
    assert admitted(bench.decide(finished("w1"))) == ["w2"]


def test_a_strict_queue_waits_for_its_head_and_another_goes_round_it() -> None:
    for strategy, expected in (("StrictFIFO", ["w1"]), ("BestEffortFIFO", ["w1", "w3"])):
        bench = Bench(queue("q", slots(3), strategy=strategy))
        assert admitted(bench.decide(work("w1", 2), work("w2", 2), work("w3", 1))) == expected


@pytest.mark.parametrize(
    ("asked", "left", "right", "expected"),
    [
        pytest.param(4, slots(2), slots(3), ["w1"], id="what siblings do not use is borrowed"),
        pytest.param(4, slots(2, borrow=1), slots(3), [], id="never beyond the borrowing limit"),
        pytest.param(4, slots(2), slots(3, lend=1), [], id="never more than siblings lend"),
        pytest.param(3, slots(2), slots(3, lend=1), ["w1"], id="up to what siblings lend"),
        pytest.param(2, slots(2, borrow=0), slots(0), ["w1"], id="one's own needs no borrowing"),
    ],
)
def test_borrowing(asked: int, left: Any, right: Any, expected: list[str]) -> None:
    bench = Bench(queue("q", left, cohort="all"), queue("r", right, cohort="all"))
    assert admitted(bench.decide(work("w1", asked))) == expected


def test_a_cohort_between_limits_what_its_children_borrow_together() -> None:
    bench = Bench(
        cohort("top", None, slots(10)),
        cohort("mid", "top", slots(0, borrow=3)),
        queue("q", slots(0), cohort="mid"),
        queue("r", slots(0), cohort="mid"),
    )
    decisions = bench.decide(work("w1", 2), work("w2", 2, to="r"), work("w3", 1, to="r"))
    assert admitted(decisions) == ["w1", "w3"]


# Flavors ---------------------------------------------------------------------------------------

FAST = FlavorChanged(cluster=CLUSTER, name="fast", node_labels={"tier": "fast"})
SLOW = FlavorChanged(
    cluster=CLUSTER, name="slow", node_labels={"tier": "slow"}, node_taints=(Taint(key="spot"),)
)
TOLERATES = (Toleration(key="spot", operator="Exists"),)


def pods(**more: Any) -> tuple[PodSet, ...]:
    return (PodSet(name="main", count=1, requests={"slot": 1}, **more),)


@pytest.mark.parametrize(
    ("pod_sets", "expected"),
    [
        pytest.param(pods(), "fast", id="the first flavor that fits"),
        pytest.param(pods(tolerations=TOLERATES), "fast", id="order counts, not tolerance"),
        pytest.param(
            pods(node_selector={"tier": "slow"}, tolerations=TOLERATES), "slow", id="the selected"
        ),
        pytest.param(pods(node_selector={"tier": "slow"}), None, id="a taint keeps out"),
        pytest.param(pods(node_selector={"zone": "a"}), "fast", id="unknown keys do not matter"),
        pytest.param(
            pods(
                affinity=((Requirement(key="tier", operator="NotIn", values=("fast",)),),),
                tolerations=TOLERATES,
            ),
            "slow",
            id="affinity excludes",
        ),
        pytest.param(
            pods(
                affinity=(
                    (Requirement(key="tier", operator="In", values=("none",)),),
                    (Requirement(key="zone", operator="Exists"),),
                )
            ),
            "fast",
            id="a term of unknown keys matches everything",
        ),
    ],
)
def test_which_flavor_a_workload_gets(pod_sets: tuple[PodSet, ...], expected: str | None) -> None:
    both = group(("fast", {"slot": quota(5)}), ("slow", {"slot": quota(5)}))
    bench = Bench(FAST, SLOW, queue("q", both))
    decisions = bench.decide(work("w1", pod_sets=pod_sets))
    got = [d.pod_sets[0].flavors["slot"] for d in decisions if isinstance(d, Reserve)]
    assert got == ([] if expected is None else [expected])
    if expected is None:
        assert waits(decisions) == {"w1": "NoMatchingFlavor"}


@pytest.mark.parametrize(
    ("search", "expected"), [("MayStopSearch", "fast"), ("TryNextFlavor", "slow")]
)
def test_whether_to_borrow_or_to_try_the_next_flavor(search: Any, expected: str) -> None:
    fungibility = Fungibility(when_can_borrow=search)
    bench = Bench(
        FAST,
        FlavorChanged(cluster=CLUSTER, name="slow"),
        queue(
            "q",
            group(("fast", {"slot": quota(0)}), ("slow", {"slot": quota(5)})),
            cohort="all",
            fungibility=fungibility,
        ),
        queue("r", group(("fast", {"slot": quota(5)})), cohort="all"),
    )
    (decision,) = [d for d in bench.decide(work("w1")) if isinstance(d, Reserve)]
    assert decision.pod_sets[0].flavors == {"slot": expected}


def test_as_many_pods_as_fit_down_to_the_minimum() -> None:
    pod_sets = (PodSet(name="main", count=8, min_count=2, requests={"slot": 1}),)
    for nominal, expected in ((10, 8), (5, 5), (2, 2), (1, None)):
        bench = Bench(queue("q", slots(nominal)))
        counts = [
            d.pod_sets[0].count
            for d in bench.decide(work("w1", pod_sets=pod_sets))
            if isinstance(d, Reserve)
        ]
        assert counts == ([] if expected is None else [expected])


def test_pods_are_counted_where_a_queue_covers_them() -> None:
    both = group(("default", {"slot": quota(9), "pods": quota(3)}))
    bench = Bench(queue("q", both))
    pod_sets = (PodSet(name="main", count=2, requests={"slot": 1}),)
    decisions = bench.decide(work("w1", pod_sets=pod_sets), work("w2", pod_sets=pod_sets))
    assert admitted(decisions) == ["w1"]


# Preemption ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "priority", "expected"),
    [
        pytest.param(LOWER, 5, ["w1"], id="a higher priority takes the place"),
        pytest.param(LOWER, 0, [], id="an equal one waits"),
        pytest.param(Preemption(), 5, [], id="nobody where preemption is off"),
    ],
)
def test_preemption_in_the_queue(rules: Preemption, priority: int, expected: list[str]) -> None:
    bench = Bench(queue("q", slots(1), preemption=rules))
    bench.decide(work("w1"))
    assert preempted(bench.decide(work("w2", priority=priority))) == expected


def test_an_equal_priority_that_is_older_takes_its_place_back() -> None:
    rules = Preemption(within="LowerOrNewerEqualPriority")
    bench = Bench(queue("q", slots(1), preemption=rules))
    bench.decide(work("w5"))
    assert preempted(bench.decide(work("w1"))) == ["w5"]
    assert preempted(bench.decide(work("w9"))) == []


def test_quota_is_reclaimed_from_borrowers_only() -> None:
    bench = Bench(
        queue("q", slots(2), cohort="all", preemption=RECLAIM),
        queue("r", slots(2), cohort="all"),
    )
    bench.decide(*(work(f"w{n}", to="r", priority=9) for n in range(4)))
    (decision,) = [d for d in bench.decide(work("w9", 1)) if isinstance(d, Preempt)]
    assert decision.reason == "InCohortReclamation"
    assert decision.message.endswith("preemptor path: /all/q; preemptee path: /all/r")
    bench.settle(drained(decision.key))
    assert admitted(bench.settle(work("w10", 1))) == ["w10"]
    assert preempted(bench.settle(work("w11", 1))) == []


def test_no_more_victims_than_needed_and_the_cheapest_first() -> None:
    bench = Bench(queue("q", slots(4), preemption=LOWER))
    bench.decide(work("w1", 1, priority=1), work("w2", 2, priority=2), work("w3", 1, priority=3))
    assert preempted(bench.decide(work("w4", 2, priority=9))) == ["w2"]


def test_fair_sharing_evens_out() -> None:
    bench = Bench(
        *(queue(n, slots(2), cohort="all", preemption=RECLAIM) for n in ("q", "r", "s")),
        policy=Policy(fair_sharing=True),
    )
    bench.decide(*(work(f"w{n}", to="r") for n in range(6)))
    decisions = bench.settle(*(work(f"w{n}", to="q") for n in range(10, 16)))
    assert len(preempted(decisions)) == len(admitted(decisions)) == 3


def test_weight_zero_borrows_last() -> None:
    bench = Bench(
        queue("q", slots(0), cohort="all", weight=0),
        queue("r", slots(0), cohort="all"),
        queue("s", slots(1), cohort="all"),
        policy=Policy(fair_sharing=True),
    )
    assert admitted(bench.decide(work("w1"), work("w2", to="r"))) == ["w2"]


# Claims ----------------------------------------------------------------------------------------


def test_while_victims_drain_the_place_is_kept() -> None:
    bench = Bench(queue("q", slots(3), preemption=LOWER))
    bench.decide(work("w1", 1), work("w2", 1), work("w3", 1))
    decisions = bench.decide(work("w4", 3, priority=5))
    assert preempted(decisions) == ["w1", "w2", "w3"]
    assert (
        bench.decide(drained("ns/w1"), work("w5", 1))
        == [d for d in bench.decide() if isinstance(d, Reserve)]
        or admitted(bench.decide()) == []
    )
    assert bench.reason("w4") == "WaitingForPreemptedWorkloads"
    assert admitted(bench.decide(drained("ns/w2"))) == []
    assert admitted(bench.decide(drained("ns/w3"))) == ["w4"]


def test_a_higher_priority_may_take_what_is_claimed() -> None:
    bench = Bench(queue("q", slots(2), preemption=LOWER))
    bench.decide(work("w1", 1), work("w2", 1))
    bench.decide(work("w3", 2, priority=5))
    assert admitted(bench.decide(drained("ns/w1"), work("w4", 1, priority=9))) == ["w4"]


def test_a_claim_ends_with_its_owner() -> None:
    bench = Bench(queue("q", slots(1), preemption=LOWER))
    bench.decide(work("w1"))
    bench.decide(work("w2", priority=5))
    assert admitted(bench.decide(finished("w2"), drained("ns/w1"))) == ["w1"]


def test_a_claimer_goes_as_soon_as_it_fits() -> None:
    bench = Bench(queue("q", slots(2), preemption=LOWER))
    bench.decide(work("w1", 1, priority=1), work("w2", 1, priority=9))
    bench.decide(work("w3", 1, priority=5))
    assert admitted(bench.decide(finished("w2"))) == ["w3"]


def test_a_claim_does_not_wait_for_victims_whose_queue_was_deleted() -> None:
    bench = Bench(
        queue("q", slots(2), cohort="all"), queue("r", slots(2), cohort="all", preemption=RECLAIM)
    )
    bench.decide(work("w1", 4))
    assert preempted(bench.decide(work("w2", 2, to="r"))) == ["w1"]
    assert admitted(bench.decide(ClusterQueueGone(cluster=CLUSTER, name="q"))) == ["w2"]


# Checks, stops, life ---------------------------------------------------------------------------

CHECK = AdmissionCheckChanged(cluster=CLUSTER, name="machines")
CHECKED = (CheckRule(name="machines"),)


def says(name: str, state: CheckStatus, *, retry_after: int = 0) -> CheckStateChanged:
    return CheckStateChanged(
        cluster=CLUSTER, namespace="ns", name=name, uid=f"uid-{name}", check="machines",
        state=state, at=10_000 * SECOND, retry_after=retry_after, message="said so",
    )  # fmt: skip


def test_quota_is_reserved_until_all_checks_are_ready() -> None:
    bench = Bench(CHECK, queue("q", checks=CHECKED))
    (reserve,) = bench.decide(work("w1"))
    assert isinstance(reserve, Reserve)
    assert (reserve.checks, reserve.admitted) == (("machines",), False)
    (admit,) = bench.decide(says("w1", "Ready"))
    assert isinstance(admit, Admit)
    assert bench.decide(says("w1", "Ready")) == []


def test_a_retry_gives_the_quota_back_and_waits() -> None:
    bench = Bench(CHECK, queue("q", checks=CHECKED))
    bench.decide(work("w1"))
    (evict,) = bench.decide(says("w1", "Retry", retry_after=60 * SECOND))
    assert isinstance(evict, Evict)
    assert evict.message == 'Evicted due to AdmissionCheck in Retry state: "machines" (said so)'
    assert evict.requeue_at == 10_060 * SECOND
    assert admitted(bench.decide(drained("ns/w1"))) == []
    assert bench.engine.next_at() == 10_060 * SECOND
    bench.now = 10_060 * SECOND
    assert admitted(bench.decide()) == ["w1"]


def test_a_rejection_deactivates() -> None:
    bench = Bench(CHECK, queue("q", checks=CHECKED))
    bench.decide(work("w1"))
    (evict,) = bench.decide(says("w1", "Rejected"))
    assert isinstance(evict, Evict)
    assert evict.deactivate
    assert admitted(bench.decide(work("w1", active=False, generation=1), drained("ns/w1"))) == []
    assert bench.reason("w1") == "Deactivated"


def test_a_check_for_other_flavors_is_not_needed() -> None:
    rule = CheckRule(name="machines", on_flavors=frozenset({"other"}))
    bench = Bench(CHECK, queue("q", checks=(rule,)))
    (reserve,) = bench.decide(work("w1"))
    assert isinstance(reserve, Reserve)
    assert reserve.admitted


@pytest.mark.parametrize(
    ("stop", "checks", "expected"),
    [
        pytest.param("Hold", (), [], id="Hold lets run what runs"),
        pytest.param("Hold", CHECKED, [Release], id="Hold takes reservations back"),
        pytest.param("HoldAndDrain", (), [Evict], id="HoldAndDrain stops what runs"),
    ],
)
def test_stopping_a_queue(stop: Any, checks: Any, expected: list[type]) -> None:
    bench = Bench(CHECK, queue("q", checks=checks))
    bench.decide(work("w1"))
    decisions = bench.decide(queue("q", checks=checks, stop=stop), work("w2"))
    assert [
        type(d) for d in decisions if not hasattr(d, "requeue_at") or isinstance(d, Evict)
    ] == expected
    assert bench.reason("w2") == "Suspended"
    assert "w2" in admitted(bench.settle(queue("q", checks=checks)))


def test_stopping_a_local_queue() -> None:
    bench = Bench(queue("q"))
    bench.decide(work("w1"))
    (evict,) = bench.decide(local("q", stop="HoldAndDrain"))
    assert isinstance(evict, Evict)
    assert evict.reason == "LocalQueueStopped"
    bench.decide(drained("ns/w1"))
    assert bench.reason("w1") == "Suspended"
    assert admitted(bench.decide(local("q"))) == ["w1"]


def test_a_deactivated_workload_is_stopped_and_stays_out() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2"))
    (evict,) = bench.decide(work("w1", active=False, generation=1))
    assert isinstance(evict, Evict)
    assert evict.reason == "Deactivated"
    assert admitted(bench.decide(drained("ns/w1"))) == ["w2"]


def test_pods_that_finished_free_their_share() -> None:
    three = (PodSet(name="main", count=3, requests={"slot": 1}),)
    fewer = (PodSet(name="main", count=3, requests={"slot": 1}, reclaimable=2),)
    bench = Bench(queue("q", slots(3)))
    bench.decide(work("w1", pod_sets=three), work("w2", 2))
    assert admitted(bench.decide(work("w1", pod_sets=fewer, generation=1))) == ["w2"]


def test_what_is_given_back_while_the_rest_runs_goes_to_who_waits_for_it() -> None:
    """A machine's slot is free when its machine is gone, not when the whole run has ended."""
    machine = (PodSet(name="main", count=1, requests={"slot": 1}),)
    back = (PodSet(name="main", count=1, requests={"slot": 1}, returned={"slot": 1}),)
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1", pod_sets=machine), work("w2"))
    assert admitted(bench.decide(work("w1", pod_sets=back, generation=1))) == ["w2"]
    assert admitted(bench.decide(finished("w1"), work("w3"))) == [], "it is not given back twice"
    assert admitted(bench.decide(finished("w2"))) == ["w3"]


def test_what_runs_unasked_holds_even_above_quota_and_blocks_others() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"))
    running = WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w2", uid="uid-w2")
    (reserve,) = bench.decide(work("w2"), running)
    assert isinstance(reserve, Reserve)
    assert reserve.unplanned
    assert admitted(bench.decide(finished("w1"), work("w3"))) == []
    assert admitted(bench.decide(finished("w2"))) == ["w3"]


def test_what_runs_unasked_counts_where_it_waited_though_its_queue_leads_nowhere_now() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2"))
    bench.decide(work("w2", to="nowhere", generation=1))
    running = WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w2", uid="uid-w2")
    (reserve,) = bench.decide(running)
    assert isinstance(reserve, Reserve)
    assert (reserve.cluster_queue, reserve.unplanned) == ("q", True)
    assert admitted(bench.decide(finished("w1"), work("w3"))) == []
    assert admitted(bench.decide(finished("w2"))) == ["w3"]


def test_what_runs_unasked_and_nobody_can_count_is_stopped() -> None:
    bench = Bench(queue("q", slots(1)))
    running = WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1")
    decisions = bench.decide(work("w1", to="nowhere"), running)
    (evict,) = [one for one in decisions if isinstance(one, Evict)]
    assert evict.message == "It runs without quota: LocalQueue nowhere doesn't exist"
    assert not [one for one in bench.decide(drained("ns/w1")) if isinstance(one, Reserve)]


def test_an_eviction_by_others_loses_the_place_if_told_so() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2"))
    late = EvictionRequested(
        cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1", reason="PodsReadyTimeout",
        at=5_000 * SECOND, loses_position=True,
    )  # fmt: skip
    assert [type(d) for d in bench.decide(late)] == [Evict]
    assert admitted(bench.decide(drained("ns/w1"))) == ["w2"]


def test_a_restart_adopts_before_it_decides() -> None:
    held = QuotaHeld(
        cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1", cluster_queue="q",
        pod_sets=(AssignedPodSet(name="main", count=1, flavors={"slot": "default"}, usage={"slot": 1}),),
    )  # fmt: skip
    bench = Bench(queue("q", slots(1)))
    assert admitted(bench.decide(held, work("w1"), work("w2"))) == []
    assert admitted(bench.decide(finished("w1"))) == ["w2"]


# Bad input -------------------------------------------------------------------------------------

NO_QUEUE = ClusterQueueGone(cluster=CLUSTER, name="q")
NO_FLAVOR = FlavorGone(cluster=CLUSTER, name="default")
CIRCLE = (
    CohortChanged(cluster=CLUSTER, name="a", parent="b"),
    CohortChanged(cluster=CLUSTER, name="b", parent="a"),
)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        pytest.param([work("w1", pod_sets=())], "Misconfigured", id="no pod sets"),
        pytest.param([work("w1", to="nowhere")], "Misconfigured", id="no LocalQueue"),
        pytest.param([work("w1", inadmissible="no")], "Misconfigured", id="refused by its rules"),
        pytest.param([work("w1", gated="a,b")], "AdmissionGated", id="gated"),
        pytest.param([work("w1", on_hold="")], "OnHold", id="on hold"),
        pytest.param([work("w1", 2**70)], "ExceedsMaxQuota", id="more than there is"),
        pytest.param(
            [queue("q", namespaces=None), work("w1")], "Misconfigured", id="namespace not selected"
        ),
        pytest.param([NO_QUEUE, work("w1")], "Misconfigured", id="queue gone"),
        pytest.param([NO_FLAVOR, work("w1")], "Suspended", id="flavor gone"),
        pytest.param(
            [*CIRCLE, queue("q", cohort="a"), work("w1")], "Suspended", id="cohorts in a circle"
        ),
        pytest.param(
            [work("w1", pod_sets=(PodSet(name="m", count=1, requests={"gpu": 1}),))],
            "NoMatchingFlavor",
            id="resource not offered",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_admitted_says_why(facts: list[Any], reason: str) -> None:
    bench = Bench(queue("q"))
    decisions = bench.decide(*facts)
    assert admitted(decisions) == []
    assert waits(decisions)["w1"] == reason if "w1" in waits(decisions) else True
    assert bench.reason("w1") == reason


def test_a_quota_cut_below_use_evicts_nobody_and_admits_nobody() -> None:
    bench = Bench(queue("q", slots(4)))
    bench.decide(work("w1", 3))
    assert admitted(bench.decide(queue("q", slots(2)), work("w2", 1))) == []
    assert admitted(bench.decide(finished("w1"))) == ["w2"]


def test_a_queue_that_disappears_and_comes_back_keeps_its_holders() -> None:
    bench = Bench(queue("q", slots(2)))
    bench.decide(work("w1"), work("w2"), work("w3"))
    bench.decide(ClusterQueueGone(cluster=CLUSTER, name="q"))
    assert bench.reason("w3") == "Misconfigured"
    assert admitted(bench.decide(queue("q", slots(2)))) == []
    assert admitted(bench.decide(finished("w1"))) == ["w3"]


def test_lending_above_nominal_lends_what_there_is() -> None:
    bench = Bench(queue("q", slots(0), cohort="all"), queue("r", slots(2, lend=9), cohort="all"))
    assert admitted(bench.decide(work("w1", 3), work("w2", 2))) == ["w2"]


def test_late_facts_about_an_ended_life_do_nothing() -> None:
    bench = Bench(queue("q"))
    bench.decide(work("w1"))
    bench.decide(finished("w1"))
    late = [work("w1"), WorkloadDrained(cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1"),
            WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1")]  # fmt: skip
    assert bench.decide(*late) == []
    assert admitted(bench.decide(work("w1", uid="another"))) == ["w1"]
    stale = WorkloadGone(cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1")
    assert bench.decide(stale) == []


def test_negative_requests_never_make_room() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1", -5), work("w2", 1))
    assert admitted(bench.decide(work("w3", 1))) == []


def test_clusters_do_not_see_each_other() -> None:
    bench = Bench(queue("q", slots(1)))
    elsewhere = [
        NamespaceChanged(cluster="d", name="ns"),
        FlavorChanged(cluster="d", name="default"),
    ]
    assert admitted(bench.decide(work("w1"), *elsewhere)) == ["w1"]
    assert bench.engine.explain("d", "ns/w1") is None


# Explaining ------------------------------------------------------------------------------------


def test_an_explanation_has_numbers_names_and_a_way_out() -> None:
    bench = Bench(queue("q", slots(3), cohort="all"), queue("r", slots(2), cohort="all"))
    bench.decide(work("w1", 2), work("w2", 1, to="r"), work("w3", 4), work("w4", 4))
    found = bench.engine.explain(CLUSTER, "ns/w4")
    assert found is not None
    (binding,) = found.shortfalls
    assert (binding.asked, binding.free, binding.borrowable, binding.maximum) == (4, 2, 1, 5)
    assert binding.holders == ("ns/w1", "ns/w2")
    assert (found.reason, found.position, found.ahead) == ("WaitingForQuota", 2, ("ns/w3",))
    assert "insufficient unused quota for slot in flavor default, 2 more needed" in found.message
    assert found.remedy == "2 more slot in flavor default must become free"


def test_an_explanation_is_never_stale() -> None:
    bench = Bench(queue("q", slots(3)))
    bench.decide(work("w1", 3), work("w2", 2))
    bench.take(queue("q", slots(1)))
    assert bench.reason("w2") == "ExceedsMaxQuota"
    bench.take(queue("q", slots(9)))
    assert bench.reason("w2") == "PendingEvaluation"
    assert admitted(bench.decide()) == ["w2"]
    assert bench.reason("w2") == "Admitted"


def test_views_count_what_waits_and_what_is_used() -> None:
    bench = Bench(queue("q", slots(1), cohort="all"), queue("r", slots(2), cohort="all"))
    bench.decide(work("w1", 2), work("w2", 9))
    view = bench.engine.cluster_queue(CLUSTER, "q")
    assert view is not None
    assert (view.pending, view.reserving, view.admitted) == (1, 1, 1)
    used = view.usage["default", "slot"]
    assert (used.total, used.borrowed) == (2, 1)
    (pending,) = bench.engine.pending(CLUSTER, "q")
    assert (pending.key, pending.position) == ("ns/w2", 1)


def test_local_queues_that_used_less_go_first() -> None:
    policy = Policy(resource_weights={}, half_life=3600 * SECOND, sampling_interval=SECOND)
    bench = Bench(queue("q", slots(1), usage_based=True), local("other", "q"), policy=policy)
    bench.decide(work("w1"), work("w2"), work("w3", to="other"))
    bench.decide()
    assert admitted(bench.decide(finished("w1"))) == ["w3"]


def test_a_preemption_that_goes_round_in_a_circle_stops() -> None:
    """The preemptor counts pods that its victim search leaves out, as the reference does."""
    for document in scenarios(SAMPLES / "unsettled.jsonl.gz"):
        ok, rounds = settles(document)
        assert ok, document["scenario"]["name"]
        assert rounds < 30


def test_selectors_select() -> None:
    selector = Selector(requirements=(Requirement(key="team", operator="In", values=("a",)),))
    bench = Bench(queue("q", namespaces=selector))
    assert admitted(bench.decide(work("w1"))) == []
    labelled = NamespaceChanged(cluster=CLUSTER, name="ns", labels={"team": "a"})
    assert admitted(bench.decide(labelled)) == ["w1"]
