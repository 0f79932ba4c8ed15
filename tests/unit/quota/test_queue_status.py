"""How often it is told how the queues stand: at least a second apart, more where very many change."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import nan
from typing import Any

import pytest

from services.quota.engine import Policy
from services.quota.engine.facts import WEIGHT_ONE, ClusterQueueGone, CohortGone
from services.quota.engine.views.queues import precise_share
from services.quota.publishing.queue_status import (
    QueueStatusPublisher,
    cohort_shares,
    queue_statuses,
)
from shared.contracts.messages.queues import CohortShare, QueueStatus
from tests.unit.quota.builders import CLUSTER, Bench, cohort, local, queue, slots, work

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

CHANGING: dict[str, tuple[int, int]] = {
    "one queue, that is two objects: every second": (1, 1),
    "ten queues are twenty objects: still every second": (10, 1),
    "thirty queues are told every three seconds": (30, 3),
    "no number of queues waits longer than five": (80, 5),
}


def told(queues: int) -> Iterator[float]:
    """Something happens in every queue all the time: the seconds between two tellings."""
    names = [f"q{n}" for n in range(queues)]
    facts = [fact for name in names for fact in (queue(name, slots(0)), local(name))]
    bench, publisher = Bench(*facts), QueueStatusPublisher()
    now = last = NOON
    for turn in range(120):
        bench.decide(*(work(f"{name}-{turn}", to=name) for name in names) if turn % 5 == 0 else ())
        publisher.schedule(now)
        if list(publisher.changed_statuses(bench.engine, [CLUSTER], now)):
            yield (now - last).total_seconds()
            last = now
        now += timedelta(seconds=0.1)


@pytest.mark.parametrize(("queues", "seconds"), CHANGING.values(), ids=list(CHANGING))
def test_publication_interval_grows_with_changed_queues(queues: int, seconds: int) -> None:
    _, *apart = told(queues)
    assert {round(one) for one in apart} == {seconds}


GONE = ClusterQueueGone(cluster=CLUSTER, name="q")

AGAIN: dict[str, list[Any]] = {
    "its deletion was seen": [GONE, queue("q", slots(0), uid="u-1")],
    "only the object of another uid was seen": [queue("q", slots(0), uid="u-2")],
}


@pytest.mark.parametrize("facts", AGAIN.values(), ids=AGAIN)
def test_queue_that_is_made_again_gets_its_status(facts: list[Any]) -> None:
    bench, publisher = Bench(queue("q", slots(0), uid="u-1"), local("q")), QueueStatusPublisher()
    told: list[QueueStatus | CohortShare] = []
    for turn, fact in enumerate([None, *facts]):
        bench.decide(*() if fact is None else (fact,))
        publisher.schedule(NOON + timedelta(seconds=10 * turn))
        due = NOON + timedelta(seconds=10 * turn + 5)
        told = list(publisher.changed_statuses(bench.engine, [CLUSTER], due))
    queues = [one for one in told if isinstance(one, QueueStatus)]
    assert [one.uid for one in queues if one.kind == "ClusterQueue"] == [facts[-1].uid]


def test_clock_that_is_set_back_does_not_keep_a_status_from_being_told() -> None:
    bench, publisher = Bench(queue("q", slots(0)), local("q")), QueueStatusPublisher()
    publisher.schedule(NOON)
    back = NOON - timedelta(minutes=10)
    assert publisher.next_at(back) == back
    assert len(list(publisher.changed_statuses(bench.engine, [CLUSTER], back))) == 2
    assert publisher.next_at(back) is None


def test_unchanged_status_is_not_published_again() -> None:
    bench, publisher = Bench(queue("q", slots(0)), local("q")), QueueStatusPublisher()
    for seconds, expected in ((0, 2), (10, 0)):
        publisher.schedule(NOON + timedelta(seconds=seconds))
        due = NOON + timedelta(seconds=seconds + 1)
        assert len(list(publisher.changed_statuses(bench.engine, [CLUSTER], due))) == expected


@pytest.mark.parametrize(
    ("policy", "share"),
    [(Policy(fair_sharing=True), 200), (Policy(), None)],
    ids=["fair sharing", "classical preemption"],
)
def test_status_of_a_queue_has_its_share_under_fair_sharing_only(
    policy: Policy, share: int | None
) -> None:
    bench = Bench(
        cohort("all"), queue("a", slots(5), cohort="all"), queue("b", slots(5), cohort="all"),
        policy=policy,
    )  # fmt: skip
    bench.decide(work("w1", 7, to="a"))
    told = queue_statuses(bench.engine, CLUSTER, NOON)
    shares = {s.name: s.weighted_share for s in told if s.kind == "ClusterQueue"}
    assert shares == {"a": share, "b": None if share is None else 0}


@pytest.mark.parametrize(
    ("policy", "shares"),
    [
        # "left" borrows 2 of the 10 that its parent's children could share; "right" borrows nothing.
        (Policy(fair_sharing=True), {"left": 200, "right": 0, "root": 0, "empty": 0}),
        (Policy(), {"left": None, "right": None, "root": None, "empty": None}),
    ],
    ids=["fair sharing", "classical preemption"],
)
def test_status_of_each_cohort_object_has_its_share(
    policy: Policy, shares: dict[str, int | None]
) -> None:
    bench = Bench(
        cohort("root"), cohort("left", "root"), cohort("right", "root"), cohort("empty"),
        queue("a", slots(5), cohort="left"), queue("b", slots(5), cohort="right"),
        queue("c", slots(5), cohort="named by a queue only"),
        policy=policy,
    )  # fmt: skip
    bench.decide(work("w1", 7, to="a"))
    told = cohort_shares(bench.engine, CLUSTER, NOON)
    assert {one.name: one.weighted_share for one in told} == shares


@pytest.mark.parametrize(("weight", "shown"), [(1.0, 2000 / 9), (0.5, 4000 / 9), (0, nan)])
def test_metrics_show_a_share_with_its_fraction(weight: float, shown: float) -> None:
    weighted = int(weight * WEIGHT_ONE)
    policy = Policy(fair_sharing=True)
    bench = Bench(queue("a", slots(5), cohort="all", weight=weighted), policy=policy)
    bench.decide(queue("b", slots(4), cohort="all"), work("w1", 7, to="a"))
    (shard,) = bench.engine.shards()
    assert precise_share(shard.queues["a"].node) == pytest.approx(shown, nan_ok=True)


@pytest.mark.parametrize("is_deletion_seen", [True, False])
def test_cohort_that_is_made_again_gets_its_share(is_deletion_seen: bool) -> None:
    bench, publisher = Bench(cohort("c", uid="u-1")), QueueStatusPublisher()
    gone = [CohortGone(cluster=CLUSTER, name="c")] if is_deletion_seen else []
    told: list[str] = []
    for turn, facts in enumerate([[], [*gone, cohort("c", uid="u-2")], []]):
        bench.decide(*facts)
        publisher.schedule(NOON + timedelta(seconds=10 * turn))
        due = NOON + timedelta(seconds=10 * turn + 5)
        statuses = publisher.changed_statuses(bench.engine, [CLUSTER], due)
        told += [one.uid for one in statuses if isinstance(one, CohortShare)]
    assert told == ["u-1", "u-2"]
