"""Pods, groups, what makes pods, and kinds of documents, over the judges of the swarm.

`make simulate SCENARIO=kinds SEEDS=500` plays more. The judges are worth what they find: each planted mistake
parts quota and pods.
"""

import pytest

from services.simulator.scenarios.kinds.scenario import play
from tests.simulation.kinds.kinds_mistakes import MISTAKES
from tests.simulation.long import long
from tests.simulation.mistakes import finds, planted

SEEDS = [seed if seed in {2, 6} else long(seed) for seed in range(1, 41)]
"""In world 6 a replica of the patcher reads a reason after another one has carried out an admission."""

OFTEN = {"a group whose pods come one after another", "a pod of what waits as a whole"}
"""Mistakes that `make test` plants, too."""

PLANTED = [label if label in OFTEN else long(label) for label in MISTAKES]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_kind_is_lost_repeated_or_beyond_its_quota(seed: int) -> None:
    assert play(seed).problems == []


@pytest.mark.parametrize("label", PLANTED)
def test_judges_find_quota_without_pods_and_pods_without_quota(label: str) -> None:
    mistake = MISTAKES[label]
    with planted(mistake):
        assert finds(play, mistake.found, mistake.seed)
