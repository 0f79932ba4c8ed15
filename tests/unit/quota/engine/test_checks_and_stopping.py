"""Admission checks, stopped queues, deactivation and workloads that run unplanned."""

from dataclasses import replace
from typing import Any

import pytest

from services.quota.engine.facts import (
    AdmissionCheckChanged,
    Admit,
    CheckRule,
    CheckStateChanged,
    CheckStatus,
    Evict,
    EvictionRequested,
    PodSet,
    Release,
    Reserve,
    WorkloadRunning,
)
from tests.unit.quota.builders import (
    CLUSTER,
    SECOND,
    Bench,
    admitted,
    drained,
    finished,
    held,
    local,
    queue,
    slots,
    work,
)

# Checks, stops, life ---------------------------------------------------------------------------

CHECK = AdmissionCheckChanged(cluster=CLUSTER, name="machines")


CHECKED = (CheckRule(name="machines"),)


def says(name: str, state: CheckStatus, *, retry_after: int = 0) -> CheckStateChanged:
    return CheckStateChanged(
        cluster=CLUSTER, namespace="ns", name=name, uid=f"uid-{name}", check="machines",
        state=state, at=10_000 * SECOND, retry_after=retry_after, message="said so",
    )  # fmt: skip


def test_quota_stays_reserved_until_all_checks_are_ready() -> None:
    bench = Bench(CHECK, queue("q", checks=CHECKED))
    (reserve,) = bench.decide(work("w1"))
    assert isinstance(reserve, Reserve)
    assert (reserve.checks, reserve.admitted) == (("machines",), False)
    (admit,) = bench.decide(says("w1", "Ready"))
    assert isinstance(admit, Admit)
    assert bench.decide(says("w1", "Ready")) == []


def test_check_retry_releases_quota_and_backs_off() -> None:
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


def test_check_rejection_deactivates_workload() -> None:
    bench = Bench(CHECK, queue("q", checks=CHECKED))
    bench.decide(work("w1"))
    (evict,) = bench.decide(says("w1", "Rejected"))
    assert isinstance(evict, Evict)
    assert evict.deactivate
    assert admitted(bench.decide(work("w1", active=False, generation=1), drained("ns/w1"))) == []
    assert bench.reason("w1") == "Deactivated"


def test_check_on_other_flavors_is_not_required() -> None:
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
def test_stop_policy_of_cluster_queue_releases_or_evicts_holders(
    stop: Any, checks: Any, expected: list[type]
) -> None:
    bench = Bench(CHECK, queue("q", checks=checks))
    bench.decide(work("w1"))
    decisions = bench.decide(queue("q", checks=checks, stop=stop), work("w2"))
    assert [
        type(d) for d in decisions if not hasattr(d, "requeue_at") or isinstance(d, Evict)
    ] == expected
    assert bench.reason("w2") == "Suspended"
    assert "w2" in admitted(bench.settle(queue("q", checks=checks)))


def test_stop_policy_of_local_queue_evicts_its_workloads() -> None:
    bench = Bench(queue("q"))
    bench.decide(work("w1"))
    (evict,) = bench.decide(local("q", stop="HoldAndDrain"))
    assert isinstance(evict, Evict)
    assert evict.reason == "LocalQueueStopped"
    bench.decide(drained("ns/w1"))
    assert bench.reason("w1") == "Suspended"
    assert admitted(bench.decide(local("q"))) == ["w1"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("checks", "ends", "counted"),
    [
        ((), [], (1, 1)),
        ((), [local("q", stop="HoldAndDrain")], (1, 1)),
        ((), [work("w1", active=False, generation=1)], (1, 1)),
        (CHECKED, [], (1, 0)),
        (CHECKED, [work("w1", active=False, generation=1)], (1, 0)),
    ],
)
def test_evicted_workload_counts_as_it_did_until_it_gives_its_quota_back(
    checks: Any, ends: list[Any], counted: tuple[int, int], restarts: bool
) -> None:
    bench = Bench(CHECK, queue("q", slots(1), checks=checks))
    if restarts:
        state: Any = "evicted" if ends else "reserved" if checks else "admitted"
        names = tuple(rule.name for rule in checks)
        bench.decide(replace(held("w1"), state=state, checks=names), work("w1"))
    else:
        bench.decide(work("w1"))
        bench.decide(*ends)
    for view in (
        bench.engine.cluster_queue(CLUSTER, "q"),
        bench.engine.local_queue(CLUSTER, "ns/q"),
    ):
        assert view is not None
        assert (view.reserving, view.admitted) == counted
        assert view.reservation["default", "slot"].total == counted[0]
        assert view.usage["default", "slot"].total == counted[1]
    if ends and not restarts:
        bench.decide(drained("ns/w1"))
        after = bench.engine.cluster_queue(CLUSTER, "q")
        assert after is not None
        assert (after.reserving, after.admitted) == (0, 0)


def test_deactivated_workload_is_evicted_and_not_queued() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2"))
    (evict,) = bench.decide(work("w1", active=False, generation=1))
    assert isinstance(evict, Evict)
    assert evict.reason == "Deactivated"
    assert admitted(bench.decide(drained("ns/w1"))) == ["w2"]


def test_reclaimable_pods_free_their_quota() -> None:
    three = (PodSet(name="main", count=3, requests={"slot": 1}),)
    fewer = (PodSet(name="main", count=3, requests={"slot": 1}, reclaimable=2),)
    bench = Bench(queue("q", slots(3)))
    bench.decide(work("w1", pod_sets=three), work("w2", 2))
    assert admitted(bench.decide(work("w1", pod_sets=fewer, generation=1))) == ["w2"]


def test_pods_that_a_holder_no_longer_asks_for_free_nothing() -> None:
    """Its user writes that number, and may write the old one again while others have the quota."""
    three = (PodSet(name="main", count=3, requests={"slot": 1}),)
    none = (PodSet(name="main", count=0, requests={"slot": 1}),)
    bench = Bench(queue("q", slots(3)))
    bench.decide(work("w1", pod_sets=three), work("w2", 2))
    assert admitted(bench.decide(work("w1", pod_sets=none, generation=1))) == []


def test_returned_quota_of_running_workload_admits_waiting_one() -> None:
    """A machine's slot is free when its machine is gone, not when the whole run has ended."""
    machine = (PodSet(name="main", count=1, requests={"slot": 1}),)
    back = (PodSet(name="main", count=1, requests={"slot": 1}, returned={"slot": 1}),)
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1", pod_sets=machine), work("w2"))
    assert admitted(bench.decide(work("w1", pod_sets=back, generation=1))) == ["w2"]
    assert admitted(bench.decide(finished("w1"), work("w3"))) == [], "it is not given back twice"
    assert admitted(bench.decide(finished("w2"))) == ["w3"]


def test_unplanned_workload_holds_quota_above_nominal_and_blocks_others() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"))
    running = WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w2", uid="uid-w2")
    (reserve,) = bench.decide(work("w2"), running)
    assert isinstance(reserve, Reserve)
    assert reserve.unplanned
    assert admitted(bench.decide(finished("w1"), work("w3"))) == []
    assert admitted(bench.decide(finished("w2"))) == ["w3"]


@pytest.mark.parametrize("runs", [True, False])
def test_workload_that_has_finished_counts_once_more_only_if_it_runs_again(*, runs: bool) -> None:
    bench = Bench(queue("q", slots(1)), work("w1"))
    bench.decide()
    bench.decide(finished("w1"))
    running = WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1")
    decided = bench.decide(work("w1", generation=1, runs=runs), running)
    assert [d.unplanned for d in decided if isinstance(d, Reserve)] == [True] * runs
    assert admitted(bench.decide(work("w2"))) == ([] if runs else ["w2"])
    bench.decide(finished("w1"))
    assert bench.reason("w2") == "Admitted"


def test_unplanned_workload_counts_in_last_queue_if_local_queue_leads_nowhere() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2"))
    bench.decide(work("w2", to="nowhere", generation=1))
    running = WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w2", uid="uid-w2")
    (reserve,) = bench.decide(running)
    assert isinstance(reserve, Reserve)
    assert (reserve.cluster_queue, reserve.unplanned) == ("q", True)
    assert admitted(bench.decide(finished("w1"), work("w3"))) == []
    assert admitted(bench.decide(finished("w2"))) == ["w3"]


def test_unplanned_workload_without_any_queue_is_evicted() -> None:
    bench = Bench(queue("q", slots(1)))
    running = WorkloadRunning(cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1")
    decisions = bench.decide(work("w1", to="nowhere"), running)
    (evict,) = [one for one in decisions if isinstance(one, Evict)]
    assert evict.message == "It runs without quota: LocalQueue nowhere doesn't exist"
    assert not [one for one in bench.decide(drained("ns/w1")) if isinstance(one, Reserve)]


def test_requested_eviction_moves_workload_to_back_if_asked() -> None:
    bench = Bench(queue("q", slots(1)))
    bench.decide(work("w1"), work("w2"))
    late = EvictionRequested(
        cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1", reason="PodsReadyTimeout",
        at=5_000 * SECOND, loses_position=True,
    )  # fmt: skip
    assert [type(d) for d in bench.decide(late)] == [Evict]
    assert admitted(bench.decide(drained("ns/w1"))) == ["w2"]
