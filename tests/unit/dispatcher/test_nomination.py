"""The spokes that each strategy nominates."""

from typing import Any

import pytest

from services.dispatcher.planning.nomination import (
    Candidate,
    Nomination,
    NominationRules,
    NominationStrategy,
    Offer,
    nominate,
)

ALL, ROUNDS, BEST, EXTERNAL = NominationStrategy


def spokes(*names: str, **more: Any) -> tuple[Candidate, ...]:
    return tuple(Candidate(spoke=name, **more) for name in names)


ROUND = NominationRules(strategy=ROUNDS, step_size=2, round_seconds=300)
FIT = NominationRules(strategy=BEST, fallback_seconds=10)
FIVE = spokes("a", "b", "c", "d", "e")
FULL, FREE = Candidate(spoke="full", fits=False), Candidate(spoke="free", load=0.9)

CASES: dict[
    str,
    tuple[NominationRules, tuple[Candidate, ...], dict[str, float], tuple[str, ...], float | None],
] = {
    "all at once: all": (NominationRules(strategy=ALL), FIVE, {}, ("a", "b", "c", "d", "e"), None),
    "all at once: no candidates": (NominationRules(strategy=ALL), (), {}, (), None),
    "incremental: first round": (ROUND, FIVE, {}, ("a", "b"), 300),
    "incremental: round not over": (ROUND, FIVE, {"a": 100, "b": 100}, ("a", "b"), 200),
    "incremental: second round": (ROUND, FIVE, {"a": 300, "b": 300}, ("a", "b", "c", "d"), 300),
    "incremental: last round": (
        ROUND, FIVE, {"a": 600, "b": 600, "c": 300, "d": 300}, ("a", "b", "c", "d", "e"), None,
    ),
    "incremental: no spokes left": (ROUND, spokes("a"), {"a": 900}, ("a",), None),
    "best fit: spoke with free quota": (FIT, (FULL, FREE), {}, ("free",), 10),
    "best fit: all full, order of configuration": (
        FIT, spokes("a", "b", fits=False), {}, ("a",), 1,
    ),
    "best fit: lowest load": (
        FIT, (Candidate(spoke="a", load=0.5), Candidate(spoke="b", load=0.2)), {}, ("b",), 10,
    ),
    "best fit: nearly same load, order of configuration": (
        FIT, (Candidate(spoke="a", load=0.201), Candidate(spoke="b", load=0.2)), {}, ("a",), 10,
    ),
    "best fit: failed spoke comes last": (
        FIT, (Candidate(spoke="a", failures=1), Candidate(spoke="b", load=0.9)), {}, ("b",), 10,
    ),
    "best fit: slow spoke comes later": (
        FIT, (Candidate(spoke="a", latency_seconds=5), Candidate(spoke="b", load=0.9)), {}, ("b",), 10,
    ),
    "best fit: young offer on spoke that fits stays": (
        FIT, spokes("a", "b"), {"a": 4}, ("a",), 6,
    ),
    "best fit: old offer without quota moves": (FIT, spokes("a", "b"), {"a": 10}, ("b",), 10),
    "best fit: offer on full spoke moves to free spoke": (
        FIT, (FULL, FREE), {"full": 1}, ("free",), 10,
    ),
    "best fit: young offer on full spoke stays": (FIT, (FULL, FREE), {"full": 0.5}, ("full",), 0.5),
    "best fit: all full, offer stays": (
        FIT, spokes("a", "b", fits=False), {"b": 1000}, ("b",), 1,
    ),
    "best fit: no candidates": (FIT, (), {}, (), None),
}  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "candidates", "offers", "nominated", "again"), CASES.values(), ids=CASES.keys()
)
def test_nominated_spokes(
    rules: NominationRules,
    candidates: tuple[Candidate, ...],
    offers: dict[str, float],
    nominated: tuple[str, ...],
    again: float | None,
) -> None:
    standing = {spoke: Offer(age_seconds=age) for spoke, age in offers.items()}
    expected = Nomination(spokes=nominated, recheck_seconds=again)
    assert nominate(rules, candidates, standing) == expected


def test_best_fit_keeps_offer_whose_copy_has_quota() -> None:
    offers = {"full": Offer(age_seconds=1000, reserved=True)}
    assert nominate(FIT, (FULL, FREE), offers) == Nomination(spokes=("full",))


def test_external_nomination_is_limited_to_usable_spokes() -> None:
    rules = NominationRules(strategy=EXTERNAL)
    assert nominate(rules, spokes("a", "b"), {}, ("b", "z")) == Nomination(spokes=("b",))
    assert nominate(rules, spokes("a", "b"), {}) == Nomination(spokes=())


@pytest.mark.parametrize(
    ("name", "strategy"),
    {
        "all-at-once": ALL,
        "kueue.x-k8s.io/multikueue-dispatcher-all-at-once": ALL,
        "kueue.x-k8s.io/multikueue-dispatcher-incremental": ROUNDS,
        "best-fit": BEST,
        "acme.com/cheapest": EXTERNAL,
    }.items(),
)
def test_strategy_from_own_or_kueue_name(name: str, strategy: NominationStrategy) -> None:
    assert NominationStrategy.from_name(name) is strategy
