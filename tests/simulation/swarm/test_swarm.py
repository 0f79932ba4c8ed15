"""A few worlds of the swarm on every run; `make simulate SCENARIO=swarm SEEDS=2000` plays more."""

from dataclasses import replace
from random import Random

import pytest

from services.simulator.scenarios.swarm import load
from services.simulator.scenarios.swarm.disturbances import Disturbances
from services.simulator.scenarios.swarm.features import FOCUSES, Features, drawn, focused
from services.simulator.scenarios.swarm.scenario import play, play_focused, play_with
from services.simulator.scenarios.system import System
from shared.contracts.kube.kinds import JOB
from shared.testing.world.world import Faults, World
from tests.simulation.long import long

SEEDS = [1, 2, long(3), 4, long(5), 6, 7, 8, 9, 10, 11, 12]
"""The long ones are as long as ten others; in the tenth a watcher is deposed at the worst moment."""

PLAIN = Features(
    faults=Faults(),
    replicas=dict.fromkeys(
        ("watcher", "classifier", "quota", "patcher", "dispatcher", "provisioner"), 1
    ),
)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_world_loses_repeats_or_exceeds_anything(seed: int) -> None:
    assert play(seed).problems == []


@pytest.mark.parametrize(
    ("focus", "seed"),
    [
        ("power-cuts", 4),
        ("elections", 4),
        ("downgrades", 2),
        ("revivals", 23),
        ("revivals", 163),
        *(pytest.param(focus, 1, marks=pytest.mark.long) for focus in FOCUSES),
    ],
)
def test_world_of_a_focus_loses_repeats_and_exceeds_nothing(focus: str, seed: int) -> None:
    assert play_focused(focus, seed).problems == []


def test_world_of_a_seed_repeats_itself() -> None:
    assert play(2).log == play(2).log


def test_every_feature_is_on_in_some_world_and_off_in_another() -> None:
    worlds = [drawn(Random(f"swarm/{seed}"), Random(f"later/{seed}")) for seed in range(200)]
    worlds += [focused(worlds[0], focus) for focus in FOCUSES]
    for name in Features.__dataclass_fields__:
        assert len({str(getattr(world, name)) for world in worlds}) > 1, name


def test_user_deletes_no_job_that_was_created_under_its_name_since() -> None:
    with World(1) as world:
        system = System(world)
        users = Disturbances(system, PLAIN, Random(1))

        async def drive() -> None:
            for kind, obj in load.queues(PLAIN, Random(1)):
                await system.kube.create(kind, obj)
            first = await system.kube.create(JOB, load.burst_job(1, Random(1)))
            await users.delete_job(first["metadata"])
            second = await system.kube.create(JOB, load.burst_job(1, Random(1)))
            await users.delete_job(first["metadata"])
            jobs = (await system.kube.list(JOB)).items
            assert [job["metadata"]["uid"] for job in jobs] == [second["metadata"]["uid"]]
            assert users.deleted == {first["metadata"]["uid"]}

        world.run(drive)


def test_job_that_another_replica_of_the_patcher_saw_first_is_started() -> None:
    """Each of three patchers reads the streams at its own time, and a decision comes to any of them."""
    faults = Faults(until_seconds=100.0, hold_every_seconds=4.0, delay=0.1)
    features = replace(PLAIN, faults=faults, replicas=PLAIN.replicas | {"patcher": 3})
    problems = [play_with(s, features, Random(s)).problems for s in range(1, 6)]
    assert problems == [[]] * 5


def test_workload_of_a_job_that_was_deleted_during_a_restart_of_the_patcher_goes() -> None:
    faults = Faults(until_seconds=100.0, kill_every_seconds=4.0, down_seconds=(1.0, 6.0))
    features = replace(PLAIN, faults=faults, recreation=True)
    problems = [play_with(s, features, Random(s)).problems for s in range(1, 6)]
    assert problems == [[]] * 5
