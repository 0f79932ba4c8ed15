"""Order and wake-up of queues, and late, repeated or contradicting facts."""

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
    LocalQueueGone,
    NamespaceChanged,
    Release,
    Requirement,
    Reserve,
    Selector,
    Wait,
    WorkloadRunning,
)
from services.quota.engine.model.state import Node
from tests.unit.quota.builders import (
    CLUSTER,
    LOWER,
    SECOND,
    Bench,
    admitted,
    drained,
    finished,
    held,
    local,
    preempted,
    queue,
    slots,
    waits,
    work,
)


def node(bench: Bench, name: str) -> Node:
    (shard,) = bench.engine.shards()
    return next(n for t in shard.trees.values() for n in t.nodes if n.name == name)


# Order -----------------------------------------------------------------------------------------


def test_two_names_of_one_job_wait_beside_each_other() -> None:
    """A job that takes another Workload is told under its new name before the old one ends."""
    bench = Bench(queue())
    bench.decide(held("w0", 10))
    names = [work(name, uid="u", created_at=SECOND) for name in ("new", "old")]
    assert admitted(bench.decide(*names)) == []
    assert admitted(bench.settle(finished("w0"))) == ["new", "old"]


@pytest.mark.parametrize("fair_sharing", [False, True])
def test_heads_of_two_queues_made_in_one_second_go_as_they_arrived(fair_sharing: bool) -> None:
    queues = (queue("a", slots(1), cohort="co"), queue("z", slots(1), cohort="co"))
    bench = Bench(*queues, policy=Policy(fair_sharing=fair_sharing))
    bench.decide(held("w0", 2, to="a"))
    later = work("w1", 2, to="a", uid="1")
    assert admitted(bench.decide(work("w1b", 2, to="z", uid="2"), later)) == []
    assert admitted(bench.settle(finished("w0"))) == ["w1b"]


def test_workload_moved_to_back_is_not_admitted_first() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2"), work("w3"))
    late = work("w2", queued_at=500 * SECOND, generation=1)
    assert admitted(bench.decide(late, finished("w1"))) == ["w3"]


@pytest.mark.parametrize("usage_based", [False, True])
def test_restored_preemptor_goes_first_in_its_queue(usage_based: bool) -> None:
    policy = Policy(resource_weights={}, half_life=3600 * SECOND, sampling_interval=SECOND)
    bench = Bench(queue("q", slots(1), usage_based=usage_based), policy=policy)
    before = replace(held("w1"), state="evicted", preempted_by="ns/w5", reason="Preempted")
    bench.decide(before, work("w1"), work("w2"), work("w5"))
    assert admitted(bench.decide(finished("w1"))) == ["w5"]


def test_too_large_workload_does_not_block_other_local_queues() -> None:
    policy = Policy(resource_weights={}, half_life=3600 * SECOND, sampling_interval=SECOND)
    bench = Bench(queue("q", slots(1), usage_based=True), local("other", "q"), policy=policy)
    assert admitted(bench.decide(work("w1", 5))) == []
    assert admitted(bench.decide(work("w2", to="other"))) == ["w2"]


def test_victim_comes_from_local_queue_with_more_past_usage() -> None:
    policy = Policy(resource_weights={}, half_life=3600 * SECOND, sampling_interval=SECOND)
    bench = Bench(
        queue("q", slots(3), usage_based=True, preemption=LOWER),
        local("other", "q"),
        policy=policy,
    )
    bench.decide(work("w1"), work("w2"))
    bench.decide(work("w3", to="other"))
    assert preempted(bench.decide(work("w4", to="other", priority=5))) in (["w1"], ["w2"])


def test_parked_workloads_do_not_block_woken_ones() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2", requeue_at=9_000 * SECOND), work("w3", 1, inadmissible="x"))
    again = work("w3", 1, generation=1)
    assert admitted(bench.decide(again, finished("w1"))) == ["w3"]


def test_workload_in_back_off_does_not_block_those_behind_it() -> None:
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


def test_waiting_workloads_survive_change_of_queue_order() -> None:
    policy = Policy(resource_weights={}, half_life=3600 * SECOND, sampling_interval=SECOND)
    bench = Bench(queue("q", slots(1)), policy=policy)
    bench.decide(work("w1"), work("w2"), work("w3"))
    bench.decide(queue("q", slots(1), usage_based=True))
    assert admitted(bench.decide(finished("w1"))) == ["w2"]
    bench.decide(queue("q", slots(1)))
    assert admitted(bench.decide(finished("w2"))) == ["w3"]


def test_strict_queue_keeps_inadmissible_workload_as_head() -> None:
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


def test_check_state_from_before_reservation_is_ignored() -> None:
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
def test_workload_is_admitted_when_all_checks_are_ready(said: Any, expected: int) -> None:
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
def test_check_retry_backs_off_only_until_its_time(pause: int, expected: bool) -> None:
    bench = Bench(CHECK, queue("q", checks=CHECKED))
    bench.decide(work("w1"))
    at = bench.now + 60 * SECOND
    (evict,) = bench.decide(says("Retry", at, retry_after=pause))
    assert isinstance(evict, Evict)
    assert evict.requeue_at == (at + pause if expected else None)


def test_rejected_workload_gets_its_reason_once() -> None:
    bench = Bench(queue("q"))
    assert waits(bench.decide(work("w1", gated="a"))) == {"w1": "AdmissionGated"}
    assert waits(bench.decide(work("w1", gated="a", generation=1))) == {}
    assert waits(bench.decide(work("w1", gated="a,b", generation=2))) == {"w1": "AdmissionGated"}
    assert waits(bench.decide(work("w1", on_hold="x", generation=3))) == {"w1": "OnHold"}


def test_deleted_workload_gets_no_reason() -> None:
    bench = Bench(queue("q"))
    assert waits(bench.decide(work("w1", gated="a"), finished("w1"))) == {}


def test_inadmissible_workload_gets_its_own_reason() -> None:
    bench = Bench(queue("q"))
    assert waits(bench.decide(work("w1", inadmissible="no"))) == {"w1": "Misconfigured"}


@pytest.mark.parametrize("later", [False, True], ids=["from the beginning", "later"])
def test_inadmissible_workload_gets_its_own_reason_among_equal_waiting_ones(
    later: bool,
) -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1", 1), work("w2", 1))
    if later:
        bench.decide(work("w3", 1))
    told = bench.decide(work("w3", 1, inadmissible="no", generation=1))
    assert waits(told) == {"w3": "Misconfigured"}


def test_usage_on_flavor_without_owner_still_counts() -> None:
    bench = Bench(queue("q", slots(2)))
    bench.decide()
    assert bench.decide(held("w1", 2, flavor="gone")) == []
    assert node(bench, "q").usage == [0, 2]
    bench.decide(held("w2", 1))
    assert node(bench, "q").usage == [1, 2]


def test_recreated_queue_counts_remaining_holders() -> None:
    bench = Bench(queue("q", slots(2)))
    bench.decide(work("w1"), work("w2"))
    bench.decide(ClusterQueueGone(cluster=CLUSTER, name="q"))
    bench.decide(finished("w1"))
    assert admitted(bench.decide(queue("q", slots(2)), work("w3"), work("w4"))) == ["w3"]


def test_late_fact_about_other_uid_is_ignored() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1", generation=2))
    assert bench.decide(work("w1", 5, generation=1)) == []
    told = WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w1", uid="another")
    assert bench.decide(told) == []
    assert [type(d) for d in bench.decide(finished("w1"))] == [Release]


def test_admitted_workload_that_runs_is_not_counted_twice() -> None:
    bench = Bench(queue("q", slots(2)))
    bench.decide(work("w1"))
    running = WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1")
    assert bench.decide(running) == []
    assert bench.decide(drained("ns/w1")) == []
    assert node(bench, "q").usage == [1]


def test_drained_unplanned_workload_queues_again() -> None:
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


def test_repeated_eviction_request_evicts_once() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"))
    asked = EvictionRequested(
        cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1", reason="PodsReadyTimeout"
    )
    assert [type(d) for d in bench.decide(asked)] == [Evict]
    assert bench.decide(asked) == []


def test_deactivated_holder_is_evicted_once() -> None:
    bench = Bench(queue("q", slots(1)))
    decisions = bench.decide(work("w1", active=False), held("w1"))
    assert [d.reason for d in decisions if isinstance(d, Evict)] == ["Deactivated"]
    assert bench.decide(held("w1")) == []


def test_recreated_local_queue_queues_its_workloads_again() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2"))
    bench.decide(LocalQueueGone(cluster=CLUSTER, namespace="ns", name="q"))
    assert bench.reason("w2") == "Misconfigured"
    assert admitted(bench.decide(finished("w1"))) == []
    assert admitted(bench.decide(local("q"))) == ["w2"]


def test_equal_workloads_get_reason_of_the_evaluated_one_later() -> None:
    bench = Bench(queue("q", slots(1)))
    jobs = [work(f"w{n}", created_at=n) for n in range(4)]
    assert set(waits(bench.decide(*jobs))) == {"w1"}

    late = bench.engine.unpublished_reasons(2)
    assert [wait.key.partition("/")[2] for wait in late] == ["w2", "w3"]
    assert {wait.reason for wait in late} == {"WaitingForQuota"}
    assert not bench.engine.has_unpublished_reasons
    assert bench.engine.unpublished_reasons(2) == []


def test_workload_in_inactive_queue_gets_reason_and_new_one_after_activation() -> None:
    bench = Bench(queue("q", slots(1), stop="Hold"))
    assert waits(bench.decide(work("w1"), work("w2"))) == {}
    assert {(one.reason, one.message) for one in bench.engine.unpublished_reasons(5)} == {
        ("Suspended", "ClusterQueue q is inactive")
    }
    decisions = bench.decide(queue("q", slots(1)))
    assert admitted(decisions) == ["w1"]
    assert set(waits(decisions)) == {"w2"}


@pytest.mark.parametrize("explains", [True, False])
def test_simulation_gives_the_waiting_reason_without_its_message(explains: bool) -> None:
    """It is as long as there are flavors and pod sets, for each workload."""
    bench = Bench(queue("q", slots(1)), explains=explains)
    told = [one for one in bench.decide(work("large", 2)) if isinstance(one, Wait)]
    assert [(one.reason, bool(one.message)) for one in told] == [("ExceedsMaxQuota", explains)]
