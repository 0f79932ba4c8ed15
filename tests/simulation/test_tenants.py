"""Honest tenants beside an adversary; `make simulate SCENARIO=tenants SEEDS=1000` plays more worlds."""

import pytest

from services.simulator.scenarios import SCENARIOS


@pytest.mark.parametrize("seed", range(1, 11))
def test_adversary_runs_nothing_uncounted_and_delays_nobody(seed: int) -> None:
    assert SCENARIOS["tenants"](seed).problems == []
