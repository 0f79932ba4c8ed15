"""Whoever was the head of a strict queue, or had a claim, lets the others pass when it leaves the queue."""

from typing import Any

import pytest

from services.quota.engine.facts import LocalQueueGone
from tests.unit.quota.builders import (
    CLUSTER,
    LOWER,
    Bench,
    admitted,
    drained,
    local,
    preempted,
    queue,
    slots,
    work,
)

LEAVES: dict[str, Any] = {
    "what it refers to is gone": work("w1", 3, to="other", unresolved="its class is gone"),
    "it is put on hold": work("w1", 3, to="other", on_hold="by its user"),
    "it is gated": work("w1", 3, to="other", gated="example.com/gate"),
    "it is deactivated": work("w1", 3, to="other", active=False),
    "it has nothing to run": work("w1", 3, to="other", pod_sets=()),
    "it moves to another queue": work("w1", 3, to="elsewhere"),
    "it names a LocalQueue that is not there": work("w1", 3, to="nowhere"),
    "its LocalQueue is stopped": local("other", "q", stop="Hold"),
    "its LocalQueue is gone": LocalQueueGone(cluster=CLUSTER, namespace="ns", name="other"),
}


@pytest.mark.parametrize("leaves", LEAVES.values(), ids=LEAVES)
def test_next_of_a_strict_queue_passes_when_the_head_leaves(leaves: Any) -> None:
    bench = Bench(
        queue("q", slots(2), strategy="StrictFIFO"),
        queue("elsewhere", slots(1)),
        local("other", "q"),
    )
    assert admitted(bench.decide(work("w1", 3, to="other"), work("w2"))) == []
    assert admitted(bench.decide(leaves)) == ["w2"]


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_what_a_preemptor_claimed_is_given_to_others_when_it_is_deactivated(strategy: Any) -> None:
    bench = Bench(queue("q", slots(2), strategy=strategy, preemption=LOWER))
    bench.decide(work("w1"), work("w2"))
    assert preempted(bench.decide(work("w3", 2, priority=9))) == ["w1", "w2"]
    bench.decide(work("w4"))
    bench.decide(drained("ns/w1"))
    assert admitted(bench.decide(work("w3", 2, priority=9, active=False))) != []
