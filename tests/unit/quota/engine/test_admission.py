"""Who is admitted in which order, and what a workload learns that is not."""

from typing import Any

import pytest

from services.quota.engine import Policy
from services.quota.engine.facts import (
    AssignedPodSet,
    ClusterQueueGone,
    CohortChanged,
    FlavorChanged,
    FlavorGone,
    NamespaceChanged,
    PodSet,
    QuotaHeld,
    Requirement,
    Selector,
    WorkloadDrained,
    WorkloadGone,
    WorkloadRunning,
)
from tests.unit.quota.builders import (
    CLUSTER,
    SECOND,
    Bench,
    admitted,
    cohort,
    finished,
    local,
    queue,
    slots,
    waits,
    work,
)


def test_higher_priority_is_admitted_first_then_older_workload() -> None:
    bench = Bench(queue("q", slots(2)))
    decisions = bench.decide(work("w3"), work("w1"), work("w2", priority=5))
    assert admitted(decisions) == ["w2", "w1"]
    assert waits(decisions) == {"w3": "WaitingForQuota"}


def test_finished_workload_frees_quota_at_once() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2"))
    assert admitted(bench.decide(finished("w1"))) == ["w2"]


def test_strict_queue_waits_for_its_head_but_best_effort_queue_does_not() -> None:
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
def test_queue_borrows_within_borrowing_and_lending_limits(
    asked: int, left: Any, right: Any, expected: list[str]
) -> None:
    bench = Bench(queue("q", left, cohort="all"), queue("r", right, cohort="all"))
    assert admitted(bench.decide(work("w1", asked))) == expected


def test_borrowing_limit_of_inner_cohort_caps_all_its_queues_together() -> None:
    bench = Bench(
        cohort("top", None, slots(10)),
        cohort("mid", "top", slots(0, borrow=3)),
        queue("q", slots(0), cohort="mid"),
        queue("r", slots(0), cohort="mid"),
    )
    decisions = bench.decide(work("w1", 2), work("w2", 2, to="r"), work("w3", 1, to="r"))
    assert admitted(decisions) == ["w1", "w3"]


def test_restart_restores_admissions_before_deciding() -> None:
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
def test_inadmissible_workload_has_its_reason(facts: list[Any], reason: str) -> None:
    bench = Bench(queue("q"))
    decisions = bench.decide(*facts)
    assert admitted(decisions) == []
    assert waits(decisions)["w1"] == reason if "w1" in waits(decisions) else True
    assert bench.reason("w1") == reason


def test_quota_cut_below_usage_evicts_and_admits_no_workload() -> None:
    bench = Bench(queue("q", slots(4)))
    bench.decide(work("w1", 3))
    assert admitted(bench.decide(queue("q", slots(2)), work("w2", 1))) == []
    assert admitted(bench.decide(finished("w1"))) == ["w2"]


def test_recreated_queue_keeps_its_holders() -> None:
    bench = Bench(queue("q", slots(2)))
    bench.decide(work("w1"), work("w2"), work("w3"))
    bench.decide(ClusterQueueGone(cluster=CLUSTER, name="q"))
    assert bench.reason("w3") == "Misconfigured"
    assert admitted(bench.decide(queue("q", slots(2)))) == []
    assert admitted(bench.decide(finished("w1"))) == ["w3"]


def test_lending_limit_above_nominal_lends_nominal_quota() -> None:
    bench = Bench(queue("q", slots(0), cohort="all"), queue("r", slots(2, lend=9), cohort="all"))
    assert admitted(bench.decide(work("w1", 3), work("w2", 2))) == ["w2"]


def test_late_facts_about_ended_workload_are_ignored() -> None:
    bench = Bench(queue("q"))
    bench.decide(work("w1"))
    bench.decide(finished("w1"))
    late = [work("w1"), WorkloadDrained(cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1"),
            WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1")]  # fmt: skip
    assert bench.decide(*late) == []
    assert admitted(bench.decide(work("w1", uid="another"))) == ["w1"]
    stale = WorkloadGone(cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1")
    assert bench.decide(stale) == []


def test_negative_requests_never_add_quota() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1", -5), work("w2", 1))
    assert admitted(bench.decide(work("w3", 1))) == []


def test_clusters_are_independent() -> None:
    bench = Bench(queue("q", slots(1)))
    elsewhere = [
        NamespaceChanged(cluster="d", name="ns"),
        FlavorChanged(cluster="d", name="default"),
    ]
    assert admitted(bench.decide(work("w1"), *elsewhere)) == ["w1"]
    assert bench.engine.explain("d", "ns/w1") is None


# Explaining ------------------------------------------------------------------------------------


def test_explanation_has_amounts_holders_and_remedy() -> None:
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


def test_explanation_follows_present_state() -> None:
    bench = Bench(queue("q", slots(3)))
    bench.decide(work("w1", 3), work("w2", 2))
    bench.take(queue("q", slots(1)))
    assert bench.reason("w2") == "ExceedsMaxQuota"
    bench.take(queue("q", slots(9)))
    assert bench.reason("w2") == "PendingEvaluation"
    assert admitted(bench.decide()) == ["w2"]
    assert bench.reason("w2") == "Admitted"


def test_views_count_waiting_workloads_and_usage() -> None:
    bench = Bench(queue("q", slots(1), cohort="all"), queue("r", slots(2), cohort="all"))
    bench.decide(work("w1", 2), work("w2", 9))
    view = bench.engine.cluster_queue(CLUSTER, "q")
    assert view is not None
    assert (view.pending, view.reserving, view.admitted) == (1, 1, 1)
    used = view.usage["default", "slot"]
    assert (used.total, used.borrowed) == (2, 1)
    (pending,) = bench.engine.pending(CLUSTER, "q")
    assert (pending.key, pending.position) == ("ns/w2", 1)


def test_local_queue_with_less_past_usage_is_admitted_first() -> None:
    policy = Policy(resource_weights={}, half_life=3600 * SECOND, sampling_interval=SECOND)
    bench = Bench(queue("q", slots(1), usage_based=True), local("other", "q"), policy=policy)
    bench.decide(work("w1"), work("w2"), work("w3", to="other"))
    bench.decide()
    assert admitted(bench.decide(finished("w1"))) == ["w3"]


def test_namespace_selector_filters_workloads() -> None:
    selector = Selector(requirements=(Requirement(key="team", operator="In", values=("a",)),))
    bench = Bench(queue("q", namespaces=selector))
    assert admitted(bench.decide(work("w1"))) == []
    labelled = NamespaceChanged(cluster=CLUSTER, name="ns", labels={"team": "a"})
    assert admitted(bench.decide(labelled)) == ["w1"]
