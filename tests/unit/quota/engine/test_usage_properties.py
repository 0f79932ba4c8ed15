"""Properties of usage: trials are undone, and quota is never given out twice."""

from random import Random

import pytest

from services.quota.engine.facts import (
    Fact,
    Preempt,
    Preemption,
    Quota,
    Reserve,
)
from services.quota.engine.model.state import Node
from services.quota.engine.model.tree import add_usage, available, build_tree, remove_usage
from tests.unit.quota.builders import (
    Bench,
    drained,
    finished,
    queue,
    slots,
    work,
)


def test_removing_usage_undoes_adding_it() -> None:
    """Adding and removing are inverses whatever the limits, also beyond quota."""
    root = Node("root", queue=None, quotas={("f", "r"): Quota(nominal=3)}, weight=1)
    leaf = Node(
        "leaf", queue=None, quotas={("f", "r"): Quota(nominal=5, lending_limit=2)}, weight=1
    )
    root.cohorts.append(leaf)
    tree = build_tree(root)
    for start in range(9):
        for more in range(9):
            add_usage(leaf, ((0, start),))
            before = [list(n.usage) for n in tree.nodes]
            add_usage(leaf, ((0, more),))
            remove_usage(leaf, ((0, more),))
            assert [list(n.usage) for n in tree.nodes] == before
            remove_usage(leaf, ((0, start),))
            assert [n.usage for n in tree.nodes] == [[0], [0]]


@pytest.mark.parametrize("seed", range(20))
def test_admissions_never_exceed_quota_that_victims_still_hold(seed: int) -> None:
    """Quotas that nobody lowers and jobs that nobody starts by hand: no more is ever held than there is."""
    random = Random(seed)
    rules = Preemption(within="LowerPriority", reclaim="Any")
    names = ("a", "b", "c", "d")
    bench = Bench(*(queue(n, slots(5), cohort="all", preemption=rules) for n in names))
    holding: dict[str, None] = {}
    draining: dict[str, None] = {}
    for number in range(120):
        facts: list[Fact] = []
        for which in range(random.randrange(4)):
            asks, to = random.choice((1, 1, 1, 3, 7)), random.choice(names)
            one = work(f"w{number}-{which}", asks, to=to, priority=asks)
            facts.append(one)
        for left in random.sample(sorted(draining), min(len(draining), random.randrange(3))):
            del draining[left]
            facts.append(drained(left))
        if holding and random.random() < 0.3:
            ended = random.choice(sorted(holding))
            del holding[ended]
            facts.append(finished(ended.removeprefix("ns/")))
        for decision in bench.decide(*facts):
            if isinstance(decision, Reserve):
                holding[decision.key] = None
            elif isinstance(decision, Preempt):
                holding.pop(decision.key, None)
                draining[decision.key] = None
        (shard,) = bench.engine.shards()
        free = [available(shard.queues[name].node, 0) for name in names]
        assert min(free) >= 0, f"{number}: {free}"
