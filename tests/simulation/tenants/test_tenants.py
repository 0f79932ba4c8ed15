"""Honest tenants beside an adversary; `make simulate SCENARIO=tenants SEEDS=1000` plays more worlds.

The judge is worth what it finds: each planted mistake lets a tenant run without quota.
"""

import pytest

from services.simulator.scenarios import SCENARIOS
from tests.simulation.long import long
from tests.simulation.mistakes import Mistake, finds, planted
from tests.simulation.tenants.tenant_mistakes import MISTAKES

SEEDS = {259, 844, *(mistake.seed for mistake in MISTAKES.values())}
"""In world 259 a pod that has succeeded names a running Job as an owner that is not its controller. In
844 a JobSet makes a Job in the moment in which it is deleted, and orphans it."""


@pytest.mark.parametrize("seed", [*SEEDS, *(long(seed) for seed in {*range(1, 41)} - SEEDS)])
def test_adversary_runs_nothing_uncounted_and_delays_no_other_tenant(seed: int) -> None:
    assert SCENARIOS["tenants"](seed).problems == []


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_judge_finds_what_runs_without_quota(mistake: Mistake) -> None:
    with planted(mistake):
        assert finds(SCENARIOS["tenants"], mistake.found, mistake.seed)
