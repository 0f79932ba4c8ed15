"""While somebody's pods are not ready nobody else is admitted; and what the engine is asked to evict."""

from dataclasses import replace
from typing import Any

from services.quota.engine.facts import Evict, EvictionRequested, WorkloadChanged
from tests.unit.quota.builders import (
    CLUSTER,
    LOWER,
    SECOND,
    Bench,
    admitted,
    drained,
    finished,
    held,
    preempted,
    queue,
    slots,
    waits,
    work,
)


def unready(name: str, **more: Any) -> WorkloadChanged:
    return work(name, unready=True, **more)


def ready(fact: WorkloadChanged) -> WorkloadChanged:
    return replace(fact, unready=False)


def test_next_admission_waits_until_previous_workload_is_ready() -> None:
    bench = Bench(queue("a"), queue("b"))
    facts = [unready("w1", to="a"), unready("w2", to="b"), unready("w3", to="a")]
    decisions = bench.decide(*facts)
    assert admitted(decisions) == ["w1"]
    assert waits(decisions) == {"w2": "WaitingForPodsReady", "w3": "WaitingForPodsReady"}
    assert admitted(bench.decide(ready(facts[0]))) == ["w2"]
    assert admitted(bench.decide(ready(facts[1]))) == ["w3"]


def test_first_workload_of_whole_cluster_is_admitted_first_after_block() -> None:
    bench = Bench(queue("a"), queue("b"))
    first = unready("w1", to="a")
    bench.decide(first)
    bench.decide(unready("w5", to="a"), unready("w4", to="b"), unready("w3", to="a", priority=9))
    assert admitted(bench.decide(ready(first))) == ["w3"]
    assert admitted(bench.decide(finished("w3"))) == ["w4"]


def test_workload_that_loses_readiness_blocks_again_until_it_ends() -> None:
    bench = Bench(queue("a"))
    first = unready("w1", to="a")
    bench.decide(first)
    bench.decide(ready(first))
    bench.decide(first)
    assert admitted(bench.decide(work("w2", to="a"))) == []
    assert admitted(bench.decide(finished("w1"))) == ["w2"]


def test_restored_admission_blocks_once_its_state_is_known() -> None:
    bench = Bench(queue("a"))
    bench.take(held("w1", to="a"), unready("w1", to="a"))
    assert admitted(bench.decide(work("w2", to="a"))) == []
    assert admitted(bench.decide(ready(unready("w1", to="a")))) == ["w2"]


def test_preemption_is_not_blocked_but_its_preemptor_is() -> None:
    bench = Bench(queue("a", slots(2), preemption=LOWER))
    assert admitted(bench.decide(work("w1", to="a"))) == ["w1"]
    assert admitted(bench.decide(unready("w0", to="a"))) == ["w0"]
    assert preempted(bench.decide(work("w2", to="a", priority=9))) == ["w0"]
    # The victim's end unblocks and frees at once.
    assert admitted(bench.decide(drained("ns/w0"))) == ["w2"]


def test_claim_is_kept_while_admissions_are_blocked() -> None:
    bench = Bench(queue("a", slots(2), preemption=LOWER), queue("b"))
    bench.decide(work("w0", to="a"), work("w1", to="a"))
    assert preempted(bench.decide(work("w2", to="a", priority=9))) == ["w0"]
    other = unready("w3", to="b")
    bench.decide(other)
    assert admitted(bench.decide(drained("ns/w0"))) == []
    assert admitted(bench.decide(ready(other))) == ["w2"]


def request(**more: Any) -> EvictionRequested:
    return EvictionRequested(
        cluster=CLUSTER, namespace="ns", name="w1", uid="uid-w1", reason="PodsReadyTimeout", **more
    )


def test_requested_eviction_carries_its_reason_and_back_off() -> None:
    bench = Bench(queue("a", slots(1)))
    bench.decide(work("w1", to="a"), work("w2", to="a"))
    at = bench.now
    asked = request(at=at, requeue_at=at + 60 * SECOND, loses_position=True)
    [eviction] = [d for d in bench.decide(asked) if isinstance(d, Evict)]
    assert (eviction.reason, eviction.requeue_at) == ("PodsReadyTimeout", at + 60 * SECOND)
    assert not eviction.deactivate
    assert bench.decide(request(at=at, deactivate=True)) == [], "it is on its way out already"


def test_position_lost_by_timeout_is_restored_by_next_admission() -> None:
    bench = Bench(queue("a", slots(1), preemption=LOWER))
    bench.decide(work("w1", to="a"))
    bench.decide(request(at=bench.now, loses_position=True))
    assert admitted(bench.decide(drained("ns/w1"))) == ["w1"]
    bench.decide(work("w5", to="a"), work("w9", to="a", priority=9))
    bench.decide(drained("ns/w1"))
    assert admitted(bench.decide(finished("w9"))) == ["w1"]
