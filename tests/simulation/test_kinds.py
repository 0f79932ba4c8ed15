"""Pods, groups, what makes pods, and kinds of documents, over the judges of the swarm.

`make simulate SCENARIO=kinds SEEDS=500` plays more.
"""

import pytest

from services.simulator.scenarios.kinds.scenario import play
from tests.simulation.long import long

SEEDS = [seed if seed <= 2 else long(seed) for seed in range(1, 41)]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_kind_is_lost_repeated_or_beyond_its_quota(seed: int) -> None:
    assert play(seed).problems == []
