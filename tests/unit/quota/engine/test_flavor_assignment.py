"""Which flavors a workload gets, and for how many pods."""

from typing import Any

import pytest

from services.quota.engine.facts import (
    FlavorChanged,
    Fungibility,
    PodSet,
    Requirement,
    Reserve,
    Taint,
    Toleration,
)
from tests.unit.quota.builders import (
    CLUSTER,
    Bench,
    admitted,
    group,
    queue,
    quota,
    slots,
    waits,
    work,
)

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
def test_first_matching_flavor_is_assigned(
    pod_sets: tuple[PodSet, ...], expected: str | None
) -> None:
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
def test_flavor_fungibility_decides_between_borrowing_and_next_flavor(
    search: Any, expected: str
) -> None:
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


def test_partial_admission_reduces_pods_down_to_minimum() -> None:
    pod_sets = (PodSet(name="main", count=8, min_count=2, requests={"slot": 1}),)
    for nominal, expected in ((10, 8), (5, 5), (2, 2), (1, None)):
        bench = Bench(queue("q", slots(nominal)))
        counts = [
            d.pod_sets[0].count
            for d in bench.decide(work("w1", pod_sets=pod_sets))
            if isinstance(d, Reserve)
        ]
        assert counts == ([] if expected is None else [expected])


def test_pods_resource_is_counted_in_queue_that_covers_it() -> None:
    both = group(("default", {"slot": quota(9), "pods": quota(3)}))
    bench = Bench(queue("q", both))
    pod_sets = (PodSet(name="main", count=2, requests={"slot": 1}),)
    decisions = bench.decide(work("w1", pod_sets=pod_sets), work("w2", pod_sets=pod_sets))
    assert admitted(decisions) == ["w1"]
