"""Plays one world of the swarm with pods, groups, what makes pods, and the kinds of documents."""

from dataclasses import replace
from random import Random
from typing import Any, Final

from services.simulator.judge.cluster_history import SharedQuota
from services.simulator.scenarios.kinds import load
from services.simulator.scenarios.kinds.users import OtherKinds
from services.simulator.scenarios.port import Verdict
from services.simulator.scenarios.swarm.features import Features, drawn
from services.simulator.scenarios.swarm.scenario import ExtraKinds, play_with
from services.simulator.scenarios.system import WATCHED
from services.watcher.scopes import resource_name
from shared.settings.configuration import Configuration

EXTRA_KINDS: Final = ExtraKinds(
    join=OtherKinds,
    configuration=Configuration.model_validate({"integrations": {"frameworks": load.FRAMEWORKS}}),
    watched=(
        *WATCHED["kinds"],
        *map(resource_name, (load.TRAINING, load.WORKFLOW, load.WRAPPER)),
    ),
    pools={load.FLOWS_QUEUE: SharedQuota(load.FLOWS, load.PLACES)},
)


def play(seed: int) -> Verdict:
    """Run the world of `seed`; return its verdict."""
    random = Random(f"kinds/{seed}")
    return play_with(seed, _features(random, seed), random, EXTRA_KINDS)


_OFF: Final = (
    "truncation",
    "garbage",
    "foreign_decisions",
    "replicated",
    "elections",
    "stale_reads",
    "late_observations",
    "two_leaders",
)
"""What the swarm tries with Jobs: it hides what happens to the kinds, or is about the logs only."""


def _features(random: Random, seed: int) -> Features:
    features = drawn(random, Random(f"later/kinds/{seed}"))
    off: dict[str, Any] = dict.fromkeys(_OFF, False)
    return replace(features, backlog=0, history=0, **off)
