"""Worlds find mistakes, and nothing else; the seed of a failure repeats it."""

from tests.simulation.planted import play

SEEDS = range(1, 16)


def test_a_service_that_acts_before_it_acknowledges_loses_nothing_in_any_world() -> None:
    assert [play(seed, careless=False).problems for seed in SEEDS] == [[] for _ in SEEDS]


def test_a_service_that_acknowledges_before_it_acts_is_found_out() -> None:
    assert any(play(seed, careless=True).problems for seed in SEEDS)


def test_the_seed_of_a_failure_repeats_it_to_the_last_line() -> None:
    failed = next(verdict for seed in SEEDS if (verdict := play(seed, careless=True)).problems)

    again = play(failed.seed, careless=True)

    assert again.problems == failed.problems
    assert again.log == failed.log
