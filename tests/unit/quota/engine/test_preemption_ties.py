"""Who gives way to whom: edges and ties of preemption, fair sharing, claims."""

from typing import Any

import pytest

from services.quota.engine import Policy
from services.quota.engine.facts import (
    FlavorChanged,
    Fungibility,
    PodSet,
    Preempt,
    Preemption,
    Reserve,
)
from services.quota.engine.model.shares import NEGATIVE, Share, compare
from services.quota.engine.types import SharingStrategy
from tests.unit.quota.builders import (
    CLUSTER,
    LOWER,
    RECLAIM,
    Bench,
    admitted,
    cohort,
    drained,
    finished,
    group,
    held,
    preempted,
    queue,
    quota,
    slots,
    work,
)

# Preemption ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategies", "held_by_r", "asked", "expected"),
    [
        pytest.param(None, [1, 1, 1, 1], 1, 1, id="equal shares after it are even"),
        pytest.param(None, [4], 2, 0, id="nor may the share before be equal"),
        pytest.param(None, [4], 1, 1, id="a share that was higher before gives way at last"),
        pytest.param(("LessThanOrEqualToFinalShare",), [4], 1, 0, id="not if that is not asked"),
        pytest.param(("LessThanInitialShare",), [1, 1, 1, 1], 2, 0, id="equal shares stay"),
        pytest.param(("LessThanInitialShare",), [2, 2], 2, 0, id="even if one were enough"),
        pytest.param(("LessThanInitialShare",), [1, 1, 1, 1], 1, 1, id="a lower share gets in"),
    ],
)
def test_fair_sharing_selects_victims_by_share(
    strategies: tuple[SharingStrategy, ...] | None, held_by_r: list[int], asked: int, expected: int
) -> None:
    policy = Policy(fair_sharing=True)
    if strategies is not None:
        policy = Policy(fair_sharing=True, strategies=strategies)
    bench = Bench(
        *(queue(n, slots(2), cohort="all", preemption=RECLAIM) for n in ("q", "r", "s")),
        policy=policy,
    )
    bench.decide(work("w90", 2), *(work(f"w{i}", n, to="r") for i, n in enumerate(held_by_r)))
    decisions = bench.decide(work("w91", asked))
    assert len(preempted(decisions)) == expected
    assert {d.reason for d in decisions if isinstance(d, Preempt)} <= {"InCohortFairSharing"}


def fair(*queues: Any, reclaim: Any = "Any") -> Bench:
    rules = Preemption(within="LowerPriority", reclaim=reclaim)
    return Bench(
        *(queue(n, slots(2), cohort="all", preemption=rules) for n in queues),
        policy=Policy(fair_sharing=True),
    )


def test_queue_reclaims_its_whole_nominal_quota() -> None:
    for asked, reason in ((2, "InCohortReclamation"), (3, "InCohortFairSharing")):
        bench = fair("q", "r", "s")
        bench.decide(*(work(f"w{n}", to="r") for n in range(6)))
        decisions = bench.decide(work("w9", asked))
        assert {d.reason for d in decisions if isinstance(d, Preempt)} == {reason}
        assert len(preempted(decisions)) == asked


def test_fair_sharing_respects_priority_policy() -> None:
    bench = fair("q", "r", reclaim="LowerPriority")
    bench.decide(*(work(f"w{n}", to="r", priority=n) for n in range(4)))
    assert preempted(bench.decide(work("w9", 2, priority=2))) == ["w0", "w1"]
    bench = fair("q", "r", reclaim="LowerPriority")
    bench.decide(*(work(f"w{n}", to="r", priority=9) for n in range(4)))
    assert preempted(bench.decide(work("w9", 2, priority=2))) == []


@pytest.mark.parametrize(
    ("in_r", "in_s", "expected"),
    [
        pytest.param(1, 0, "w4", id="the lower of the second queue"),
        pytest.param(0, 1, "w1", id="the lower of the first queue"),
    ],
)
def test_lower_priority_is_preempted_at_equal_shares(in_r: int, in_s: int, expected: str) -> None:
    bench = fair("q", "r", "s")
    mine = [work(f"w{n}", to="r", priority=in_r) for n in (1, 2, 3)]
    bench.decide(*mine, *(work(f"w{n}", to="s", priority=in_s) for n in (4, 5, 6)))
    assert preempted(bench.decide(work("w9", 1, priority=5))) == [expected]


@pytest.mark.parametrize(
    ("r_in", "s_in", "expected"),
    [
        pytest.param("all", "b", "s", id="a cohort before a queue"),
        pytest.param("b", "all", "r", id="wherever the queue stands"),
        pytest.param("a", "b", "s", id="the later of two cohorts"),
    ],
)
def test_victim_at_equal_shares_in_hierarchy(r_in: str, s_in: str, expected: str) -> None:
    bench = Bench(
        *(cohort(n, "all") for n in ("a", "b")),
        queue("q", slots(2), cohort="all", preemption=RECLAIM),
        queue("r", slots(2), cohort=r_in),
        queue("s", slots(2), cohort=s_in),
        policy=Policy(fair_sharing=True),
    )
    bench.decide(*(work(f"w{n}", to="r") for n in (1, 2, 3)))
    bench.decide(*(work(f"w{n}", to="s") for n in (4, 5, 6)))
    decisions = bench.decide(work("w9"))
    assert [d.cluster_queue for d in decisions if isinstance(d, Preempt)] == [expected]


@pytest.mark.parametrize(
    ("preference", "given", "victims"),
    [
        pytest.param("BorrowingOverPreemption", ["a"], [], id="borrow rather than preempt"),
        pytest.param("PreemptionOverBorrowing", [], ["w2"], id="preempt rather than borrow"),
    ],
)
def test_choice_between_borrowing_one_flavor_and_preempting_in_other(
    preference: Any, given: list[str], victims: list[str]
) -> None:
    rules = Fungibility(
        when_can_borrow="TryNextFlavor", when_can_preempt="TryNextFlavor", preference=preference
    )
    pair = group(("a", {"slot": quota(1)}), ("b", {"slot": quota(1)}))
    bench = Bench(
        *(FlavorChanged(cluster=CLUSTER, name=name) for name in "ab"),
        queue("q", pair, cohort="all", preemption=LOWER, fungibility=rules),
        queue("r", group(("a", {"slot": quota(2)})), cohort="all"),
    )
    bench.decide(work("w1", priority=9), work("w2"))
    decisions = bench.decide(work("w3", priority=5))
    assert preempted(decisions) == victims
    assert [d.pod_sets[0].flavors["slot"] for d in decisions if isinstance(d, Reserve)] == given


def test_reservations_within_one_second_are_equally_late() -> None:
    bench = Bench(queue("q", slots(2), preemption=LOWER))
    for name, now in (("w1", 999_200_000_000), ("w5", 999_900_000_000)):
        bench.now = now
        bench.decide(work(name))
    assert preempted(bench.decide(work("w9", priority=5))) == ["w1"]


def test_workload_with_lowered_priority_becomes_candidate() -> None:
    bench = Bench(queue("q", slots(1), preemption=LOWER))
    bench.decide(work("w1", priority=5), work("w2", priority=3))
    assert preempted(bench.decide(work("w1", priority=0, generation=1))) == ["w1"]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param(Share(1, 1), Share(2, 1), -1, id="less"),
        pytest.param(Share(2, 1), Share(2, 1), 0, id="equal"),
        pytest.param(Share(2, 2), Share(2, 1), -1, id="weight divides"),
        pytest.param(Share(1, 0), Share(9, 1), 1, id="weight 0 is more than any"),
        pytest.param(Share(9, 1), Share(1, 0), -1, id="any is less than weight 0"),
        pytest.param(Share(1, 0), Share(2, 0), -1, id="both of weight 0 by what they borrow"),
        pytest.param(
            Share(0, 0), Share(0, 1), 0, id="nothing borrowed is nothing, at weight 0 too"
        ),
        pytest.param(NEGATIVE, Share(0, 1), -1, id="nobody is less than nothing"),
    ],
)
def test_share_that_borrows_more_for_its_weight_is_greater(
    a: Share, b: Share, expected: int
) -> None:
    assert compare(a, b) == expected


def test_higher_priority_then_age_wins_at_equal_shares() -> None:
    for facts, expected in (
        ((work("w1", to="q"), work("w2", to="r", priority=1)), ["w2"]),
        ((work("w1", to="r"), work("w2", to="q")), ["w1"]),
        ((work("w1", to="q"), work("w2", to="r")), ["w1"]),
    ):
        bench = Bench(
            *(queue(n, slots(0), cohort="all") for n in ("q", "r")),
            queue("s", slots(1), cohort="all"),
            policy=Policy(fair_sharing=True),
        )
        assert admitted(bench.decide(*facts)) == expected


BORROW = Preemption(reclaim="Any", borrow="LowerPriority", borrow_threshold=3)


@pytest.mark.parametrize(
    ("rules", "priority", "expected", "reason"),
    [
        pytest.param(BORROW, 3, 1, "InCohortReclaimWhileBorrowing", id="up to the threshold"),
        pytest.param(BORROW, 4, 0, None, id="nobody above the threshold"),
        pytest.param(BORROW, 9, 0, None, id="nobody of equal priority"),
        pytest.param(RECLAIM, 1, 0, None, id="nobody while borrowing is not allowed to"),
    ],
)
def test_preemption_while_borrowing_follows_its_policy(
    rules: Preemption, priority: int, expected: int, reason: str | None
) -> None:
    bench = Bench(
        queue("q", slots(1), cohort="all", preemption=rules),
        queue("r", slots(1), cohort="all"),
        queue("s", slots(1), cohort="all"),
    )
    bench.decide(work("w1", 3, to="r", priority=priority))
    decisions = bench.decide(work("w2", 2, priority=9))
    assert [d.reason for d in decisions if isinstance(d, Preempt)] == [reason] * expected


def test_victims_are_other_queues_lowest_priority_latest_reservation_first() -> None:
    bench = Bench(
        queue("q", slots(2), cohort="all", preemption=RECLAIM),
        queue("r", slots(2), cohort="all"),
    )
    bench.decide(work("w1", to="r"), work("w2", to="q"))
    bench.decide(work("w3", to="r"))
    bench.decide(work("w4", to="r"))
    assert preempted(bench.decide(work("w5", priority=5))) == ["w4"]
    assert preempted(bench.decide(work("w6", priority=5))) == ["w2"]


def test_preemption_within_nominal_quota_comes_before_borrowing() -> None:
    bench = Bench(
        queue("q", slots(4), cohort="all", preemption=RECLAIM),
        queue("r", slots(2), cohort="all"),
    )
    bench.decide(work("w1", 1), work("w2", 2), *(work(f"w{n}", to="r") for n in (3, 4, 5)))
    assert preempted(bench.decide(work("w9", 2, priority=5))) == ["w1", "w3"]


@pytest.mark.parametrize(
    ("quotas", "used", "asked", "expected"),
    [
        pytest.param(slots(2), (0, 3), 2, [], id="what is its own is kept from borrowers"),
        pytest.param(slots(1), (0, 3), 3, [], id="what it would borrow is kept as well"),
        pytest.param(slots(1, borrow=1), (0, 3), 2, [], id="within its borrowing limit"),
        pytest.param(slots(1, borrow=1), (1, 1), 2, ["w4"], id="but not beyond that limit"),
    ],
)
def test_workload_that_must_not_preempt_stays_head_of_strict_queue(
    quotas: Any, used: tuple[int, int], asked: int, expected: list[str]
) -> None:
    rules = Preemption(reclaim="LowerPriority", borrow="LowerPriority")
    bench = Bench(
        cohort("all", None, slots(4 - quotas.flavors[0].quotas["slot"].nominal)),
        queue("q", quotas, cohort="all", preemption=rules, strategy="StrictFIFO"),
        queue("r", slots(0), cohort="all"),
    )
    bench.decide(*(held(f"w{i}", n, to=q) for i, n, q in zip((1, 2), used, "qr", strict=True)))
    bench.decide(work("w1", used[0], priority=9), work("w2", used[1], to="r", priority=9))
    assert admitted(bench.decide(work("w3", asked), work("w4", 1, to="r"))) == expected


@pytest.mark.parametrize(
    ("free", "expected"), [(2, None), (3, 3), (4, 4), (7, 7), (9, 9), (10, 10), (12, 10)]
)
def test_partial_admission_finds_largest_count(free: int, expected: int | None) -> None:
    bench = Bench(queue("q", slots(12), preemption=LOWER))
    bench.decide(work("w1", 12 - free, priority=9))
    some = PodSet(name="main", count=10, min_count=3, requests={"slot": 1})
    reserved = [d for d in bench.decide(work("w2", pod_sets=(some,))) if isinstance(d, Reserve)]
    assert [d.pod_sets[0].count for d in reserved] == ([] if expected is None else [expected])


def test_partial_admission_preempts_only_as_needed() -> None:
    bench = Bench(queue("q", slots(6), preemption=LOWER))
    bench.decide(work("w1", 3, priority=9), *(work(f"w{n}", priority=n) for n in (2, 3, 4)))
    some = PodSet(name="main", count=5, min_count=2, requests={"slot": 1})
    assert preempted(bench.decide(work("w9", priority=4, pod_sets=(some,)))) == ["w2", "w3"]


# Claims ----------------------------------------------------------------------------------------


def claiming() -> Bench:
    """`w2` waits for `w1` to leave `q`; `r` has room."""
    bench = Bench(queue("q", slots(1), preemption=LOWER), queue("r", slots(5)))
    bench.decide(work("w1"))
    assert preempted(bench.decide(work("w2", priority=5))) == ["w1"]
    return bench


def test_claim_ends_when_workload_moves_to_another_queue() -> None:
    bench = claiming()
    assert admitted(bench.decide(work("w2", priority=5, to="r", generation=1))) == ["w2"]
    assert admitted(bench.decide(drained("ns/w1"))) == ["w1"]


def test_claim_survives_change_with_same_requests() -> None:
    bench = claiming()
    assert bench.decide(work("w2", priority=5, generation=1)) == []
    (shard,) = bench.engine.shards()
    assert list(shard.claims) == ["ns/w2"]
    assert admitted(bench.decide(drained("ns/w1"))) == ["w2"]


def test_claim_ends_when_requests_change() -> None:
    bench = claiming()
    assert admitted(bench.decide(work("w2", 9, priority=5, generation=1))) == []
    assert bench.reason("w2") == "ExceedsMaxQuota"


def test_strict_queue_forgets_deleted_claimer() -> None:
    bench = Bench(queue("q", slots(1), preemption=LOWER, strategy="StrictFIFO"))
    bench.decide(work("w1"))
    bench.decide(work("w2", priority=5), work("w3"))
    assert admitted(bench.decide(finished("w2"), drained("ns/w1"))) == ["w1"]


def test_no_workload_of_strict_queue_overtakes_claimer() -> None:
    bench = Bench(queue("q", slots(2), preemption=LOWER, strategy="StrictFIFO"))
    bench.decide(work("w1", 2))
    bench.decide(work("w2", 1, priority=5))
    assert admitted(bench.decide(work("w3", 1, priority=1))) == []
    assert admitted(bench.decide(drained("ns/w1"))) == ["w2", "w3"]


def test_higher_priority_does_not_borrow_quota_freed_for_owner() -> None:
    bench = Bench(
        queue("q", slots(2), cohort="all", preemption=RECLAIM),
        queue("r", slots(2), cohort="all"),
    )
    bench.decide(work("w1", 2, to="r"), work("w2", 1))
    bench.decide(work("w3", 1, to="r"))
    assert preempted(bench.decide(work("w4", 1, priority=5))) == ["w3"]
    assert admitted(bench.decide(work("w5", 1, to="r", priority=9), drained("ns/w3"))) == ["w4"]


def test_equal_priority_does_not_take_claimed_quota() -> None:
    bench = Bench(queue("q", slots(2), preemption=LOWER))
    bench.decide(work("w1", 1), work("w2", 1))
    bench.decide(work("w3", 2, priority=5))
    assert admitted(bench.decide(drained("ns/w1"), work("w0", 1, priority=5))) == []
    assert admitted(bench.decide(drained("ns/w2"))) == ["w3"]


def test_surplus_of_victims_stays_reserved_until_they_are_gone() -> None:
    names = {"q": 5, "r": 1, "s": 1, "t": 0}
    bench = Bench(
        *(queue(n, slots(own), cohort="all", preemption=LOWER) for n, own in names.items())
    )
    bench.decide(work("large", 5))
    assert preempted(bench.decide(work("urgent", 3, priority=5))) == ["large"]
    smalls = [work(f"in-{name}", to=name) for name in ("r", "s", "t")]
    assert admitted(bench.decide(*smalls)) == ["in-r", "in-s"]
    assert admitted(bench.decide(drained("ns/large"))) == ["urgent", "in-t"]


@pytest.mark.parametrize("fair", [False, True], ids=["classical", "fair sharing"])
def test_quota_is_not_lent_in_cycle_in_which_owner_uses_it(fair: bool) -> None:
    """Each queue gives one head a round: what its next one needs is not reclaimed from a beginner."""
    owns = {"q": 2, "r": 6}
    bench = Bench(
        *(queue(n, slots(own), cohort="all", preemption=RECLAIM) for n, own in owns.items()),
        policy=Policy(fair_sharing=fair),
    )
    mine = [work(f"w{n}", 2) for n in (1, 2)]
    yours = [work(f"w{n}", 1, to="r") for n in range(3, 9)]
    decisions = bench.decide(*mine, *yours)
    assert admitted(decisions) == ["w1", "w3", "w4", "w5", "w6", "w7", "w8"]
    assert preempted(decisions) == []
    assert admitted(bench.decide(finished("w3"), finished("w4"))) == ["w2"]
