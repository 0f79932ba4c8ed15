"""Who is preempted for whom, and what a claim keeps."""

import pytest

from services.quota.engine import Policy
from services.quota.engine.facts import (
    ClusterQueueGone,
    Preempt,
    Preemption,
    Reserve,
)
from tests.conformance.quota import SAMPLES, scenarios, settles
from tests.unit.quota.builders import (
    CLUSTER,
    LOWER,
    RECLAIM,
    Bench,
    admitted,
    cohort,
    drained,
    finished,
    preempted,
    queue,
    slots,
    work,
)

# Preemption ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "priority", "expected"),
    [
        pytest.param(LOWER, 5, ["w1"], id="a higher priority takes the place"),
        pytest.param(LOWER, 0, [], id="an equal one waits"),
        pytest.param(Preemption(), 5, [], id="nobody where preemption is off"),
    ],
)
def test_preemption_within_queue_follows_its_policy(
    rules: Preemption, priority: int, expected: list[str]
) -> None:
    bench = Bench(queue("q", slots(1), preemption=rules))
    bench.decide(work("w1"))
    assert preempted(bench.decide(work("w2", priority=priority))) == expected


def test_older_workload_of_equal_priority_preempts_newer_one() -> None:
    rules = Preemption(within="LowerOrNewerEqualPriority")
    bench = Bench(queue("q", slots(1), preemption=rules))
    bench.decide(work("w5"))
    assert preempted(bench.decide(work("w1"))) == ["w5"]
    assert preempted(bench.decide(work("w9"))) == []


def test_reclaim_preempts_borrowing_queues_only() -> None:
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


def test_preemption_takes_as_few_victims_as_needed_lowest_priority_first() -> None:
    bench = Bench(queue("q", slots(4), preemption=LOWER))
    bench.decide(work("w1", 1, priority=1), work("w2", 2, priority=2), work("w3", 1, priority=3))
    assert preempted(bench.decide(work("w4", 2, priority=9))) == ["w2"]


def test_fair_sharing_preempts_until_shares_are_even() -> None:
    bench = Bench(
        *(queue(n, slots(2), cohort="all", preemption=RECLAIM) for n in ("q", "r", "s")),
        policy=Policy(fair_sharing=True),
    )
    bench.decide(*(work(f"w{n}", to="r") for n in range(6)))
    decisions = bench.settle(*(work(f"w{n}", to="q") for n in range(10, 16)))
    assert len(preempted(decisions)) == len(admitted(decisions)) == 3


def test_queue_of_weight_zero_borrows_last() -> None:
    bench = Bench(
        queue("q", slots(0), cohort="all", weight=0),
        queue("r", slots(0), cohort="all"),
        queue("s", slots(1), cohort="all"),
        policy=Policy(fair_sharing=True),
    )
    assert admitted(bench.decide(work("w1"), work("w2", to="r"))) == ["w2"]


# Claims ----------------------------------------------------------------------------------------


def test_claim_keeps_quota_of_draining_victims_for_preemptor() -> None:
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


def test_workload_of_higher_priority_overtakes_claim() -> None:
    bench = Bench(queue("q", slots(2), preemption=LOWER))
    bench.decide(work("w1", 1), work("w2", 1))
    bench.decide(work("w3", 2, priority=5))
    assert admitted(bench.decide(drained("ns/w1"), work("w4", 1, priority=9))) == ["w4"]


def test_deleting_preemptor_ends_its_claim() -> None:
    bench = Bench(queue("q", slots(1), preemption=LOWER))
    bench.decide(work("w1"))
    bench.decide(work("w2", priority=5))
    assert admitted(bench.decide(finished("w2"), drained("ns/w1"))) == ["w1"]


def test_claimer_is_admitted_as_soon_as_it_fits() -> None:
    bench = Bench(queue("q", slots(2), preemption=LOWER))
    bench.decide(work("w1", 1, priority=1), work("w2", 1, priority=9))
    bench.decide(work("w3", 1, priority=5))
    assert admitted(bench.decide(finished("w2"))) == ["w3"]


def test_claim_ignores_victims_of_deleted_queue() -> None:
    bench = Bench(
        queue("q", slots(2), cohort="all"), queue("r", slots(2), cohort="all", preemption=RECLAIM)
    )
    bench.decide(work("w1", 4))
    assert preempted(bench.decide(work("w2", 2, to="r"))) == ["w1"]
    assert admitted(bench.decide(ClusterQueueGone(cluster=CLUSTER, name="q"))) == ["w2"]


def test_preemption_loop_stops() -> None:
    """The preemptor counts pods that its victim search leaves out, as the reference does."""
    for document in scenarios(SAMPLES / "unsettled.jsonl.gz"):
        ok, rounds = settles(document)
        assert ok, document["scenario"]["name"]
        assert rounds < 30


@pytest.mark.parametrize("victims_end_first", [False, True])
def test_preemptor_that_fits_no_more_lets_the_next_workload_have_what_its_victims_free(
    victims_end_first: bool,
) -> None:
    bench = Bench(
        queue("a", slots(0), cohort="all", preemption=RECLAIM),
        queue("b", slots(0), cohort="root", preemption=RECLAIM),
        cohort("root"), cohort("all", "root", slots(3)),
    )  # fmt: skip
    bench.decide(work("w1", to="b"), work("w2", to="b"))
    assert preempted(bench.decide(work("w9", 3, to="a", priority=99))) == ["w1", "w2"]
    assert admitted(bench.decide(work("w3", 2, to="a", priority=9))) == []
    ends = (drained("ns/w1"), drained("ns/w2"))
    shrinks = cohort("all", "root", slots(2))
    if victims_end_first:
        assert admitted(bench.decide(shrinks, *ends)) == ["w3"]
        return
    bench.decide(shrinks)
    assert bench.reason("w9") == "ExceedsMaxQuota"
    assert admitted(bench.decide(*ends)) == ["w3"]
