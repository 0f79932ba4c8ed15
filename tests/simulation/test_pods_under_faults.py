"""Pods that wait and are preempted, while services are killed and the API server and the bus fail.

`test_kinds` plays such worlds in `make test`.
"""

import asyncio
from random import Random

import pytest

from services.simulator.judge import checks
from services.simulator.scenarios.basic import faults_of
from services.simulator.scenarios.system import System
from shared.contracts.kube.kinds import POD, Object
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL
from shared.settings.configuration import Configuration
from shared.testing.world.world import World
from tests.conformance.seeds.stage import SERVICES, Stage, priority
from tests.simulation.hostile_input import used
from tests.simulation.long import long
from tests.simulation.pods import PODS, is_gated, opened, pod

QUOTA = 3
END_SECONDS = 3600.0


async def pods_of(stage: Stage) -> list[Object]:
    return (await stage.kube.list(POD, namespace="team-a")).items


def uses_quota(obj: Object) -> bool:
    if "deletionTimestamp" in obj["metadata"] and not obj["metadata"]["deletionGracePeriodSeconds"]:
        return False  # Its kubelet has stopped it; a finalizer keeps it.
    return not is_gated(obj) and obj["status"].get("phase") not in {"Succeeded", "Failed"}


async def watch_quota(stage: Stage, problems: list[str]) -> None:
    while True:
        running = [one["metadata"]["name"] for one in await pods_of(stage) if uses_quota(one)]
        if len(running) > QUOTA:
            problems.append(f"{', '.join(running)} run at once")
        await asyncio.sleep(0.2)


async def drive(stage: Stage, random: Random, problems: list[str]) -> None:
    for service in SERVICES:
        stage.system.serve(service)
    await stage.create(priority("low", 1), priority("high", 100))
    await opened(stage, cpu=QUOTA, preemption={"withinClusterQueue": "LowerPriority"})
    stage.system.start_faults()
    watching = asyncio.create_task(watch_quota(stage, problems))
    for number in range(10):
        class_ = random.choice(("low", "high"))
        labels = {PRIORITY_CLASS_LABEL: class_}
        await stage.create(pod(f"{class_}-{number}", labels=labels, seconds=random.randint(5, 60)))
        await asyncio.sleep(random.uniform(0, 10))

    def has_ended(one: Object) -> bool:
        ended = one["status"].get("phase") in {"Succeeded", "Failed"}
        return ended and not one["metadata"].get("finalizers")

    while stage.now() < END_SECONDS:
        if stage.system.world.calm and all(has_ended(one) for one in await pods_of(stage)):
            break
        await asyncio.sleep(1.0)
    await stage.settle(60)
    watching.cancel()
    left = [one for one in await pods_of(stage) if not has_ended(one)]
    problems += [f"{one['metadata']['name']} has not ended" for one in left]
    if await used(stage, "q") != "0":
        problems.append("quota was not given back")
    logs = stage.system.message_logs()
    for check in (*checks.ALWAYS, checks.quota_given_back):
        problems += check(logs)


SEEDS = [long(seed) for seed in range(1, 21)]


@pytest.mark.parametrize("seed", SEEDS)
def test_pods_keep_within_quota_and_all_end(seed: int) -> None:
    random = Random(f"pods/{seed}")
    problems: list[str] = []
    with World(seed, faults=faults_of(random)) as world:
        system = System(world, configuration=Configuration.model_validate(PODS))
        world.run(lambda: drive(Stage(system), random, problems))
        assert problems + world.failures == []
