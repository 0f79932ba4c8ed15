"""Worlds find mistakes, and nothing else; the seed of a failure repeats it."""

from tests.simulation.swarm.planted import play

SEEDS = range(1, 16)


def test_service_that_acts_before_acknowledging_loses_nothing_with_any_seed() -> None:
    assert [play(seed, careless=False).problems for seed in SEEDS] == [[] for _ in SEEDS]


def test_service_that_acknowledges_before_acting_is_detected() -> None:
    assert any(play(seed, careless=True).problems for seed in SEEDS)


def test_seed_of_a_failure_repeats_the_whole_log() -> None:
    failed = next(verdict for seed in SEEDS if (verdict := play(seed, careless=True)).problems)

    again = play(failed.seed, careless=True)

    assert again.problems == failed.problems
    assert again.log == failed.log
