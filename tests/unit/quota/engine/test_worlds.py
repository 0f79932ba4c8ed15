"""One seed, one world: long random histories, deeper than hypothesis goes in the time."""

from random import Random

import pytest

from services.quota.engine.facts import (
    ClusterQueueChanged,
    Fungibility,
    Preemption,
)
from tests.unit.quota.builders import drained, group, local, queue, quota
from tests.unit.quota.engine.test_properties import NAMES, QUEUES, QuotaLedger

STEPS = 150


def random_queue(random: Random, name: str) -> ClusterQueueChanged:
    limits = [None, None, 0, 2, 5]

    def amount(most: int) -> object:
        return quota(random.randint(0, most), random.choice(limits), random.choice(limits))

    return queue(
        name,
        group(("default", {"slot": amount(6)}), ("spare", {"slot": amount(3)})),  # type: ignore[dict-item]
        cohort=random.choice(["left", "left", "right", None]),
        strategy=random.choice(["BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"]),
        preemption=Preemption(
            within=random.choice(["LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority"]),
            reclaim=random.choice(["Any", "Any", "LowerPriority", "Never"]),
            borrow=random.choice(["Never", "LowerPriority"]),
        ),
        fungibility=Fungibility(
            when_can_borrow=random.choice(["MayStopSearch", "TryNextFlavor"]),
            when_can_preempt=random.choice(["MayStopSearch", "TryNextFlavor"]),
        ),
        weight=random.choice([10**9, 2 * 10**9, 0]),
    )


def make(random: Random) -> QuotaLedger:
    books = QuotaLedger()
    books.begin(fair_sharing=random.random() < 0.4)
    for name in QUEUES:
        books.take(random_queue(random, name), local(name))
    return books


def step(books: QuotaLedger, random: Random) -> None:
    what = random.random()
    name = random.choice(NAMES)
    if what < 0.35:
        books.submit(
            [
                (
                    random.choice(NAMES),
                    random.choice(QUEUES),
                    random.randint(0, 3),
                    random.randint(1, 3),
                    random.randint(1, 2),
                    random.choice([None, None, 1]),
                )
                for _ in range(random.randint(1, 5))
            ],
            False,
        )
    elif what < 0.55:
        if books.draining:
            gone = random.choice(sorted(books.draining))
            del books.draining[gone]
            books.take(drained(gone))
    elif what < 0.67:
        books.end(name, random.random() < 0.5)
    elif what < 0.71:
        books.change(name, random.choice(QUEUES), random.randint(0, 3), random.randint(0, 3))
    elif what < 0.73:
        books.disturbed = True
        books.take(random_queue(random, random.choice(QUEUES)))
    elif what < 0.76:
        books.pods_finish(name)
    elif what < 0.78:
        books.started_by_hand(name)
    elif what < 0.82:
        books.ask_why(name)
    elif what < 0.84:
        books.start_again()
    elif what < 0.86:
        books.repeat()
    books.invariants_hold()
    if random.random() < 0.7:
        books.decide()
        books.invariants_hold()


@pytest.mark.parametrize("seed", range(25))
def test_long_random_history_keeps_invariants(seed: int) -> None:
    random = Random(seed)
    books = make(random)
    for _ in range(STEPS):
        step(books, random)
