"""What worlds of pods under faults have in common: how they begin, what is watched, and how they end."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from random import Random
from typing import Any, Final

from services.simulator.judge import checks
from services.simulator.scenarios.basic import faults_of
from services.simulator.scenarios.system import System
from shared.contracts.kube.kinds import POD, Object
from shared.settings.configuration import Configuration
from shared.testing.world.world import World
from tests.conformance.seeds.stage import SERVICES, Stage, priority
from tests.simulation.kinds.pods import PODS, is_gated, opened
from tests.simulation.tenants.hostile_input import used

QUOTA: Final = 3
END_SECONDS: Final = 3600.0

Drive = Callable[[Stage, Random, list[str]], Coroutine[Any, Any, None]]


def play(name: str, seed: int, drive: Drive) -> list[str]:
    """Drive a world of that seed; return what was wrong."""
    random = Random(f"{name}/{seed}")
    problems: list[str] = []
    with World(seed, faults=faults_of(random)) as world:
        system = System(world, configuration=Configuration.model_validate(PODS))
        world.run(lambda: drive(Stage(system), random, problems))
        return problems + world.failures


async def begin(stage: Stage, problems: list[str]) -> asyncio.Task[None]:
    """Start services, a queue and faults; return the task that watches the quota."""
    for service in SERVICES:
        stage.system.serve(service)
    await stage.create(priority("low", 1), priority("high", 100))
    await opened(stage, cpu=QUOTA, preemption={"withinClusterQueue": "LowerPriority"})
    stage.system.start_faults()
    return asyncio.create_task(watch_quota(stage, problems))


async def wait_for_the_end(
    stage: Stage, all_ended: Callable[[], Awaitable[bool]], tasks: Iterable[asyncio.Task[None]]
) -> None:
    """Return when all have ended and the world has settled. The tasks are cancelled."""
    while stage.now() < END_SECONDS:
        if stage.system.world.calm and await all_ended():
            break
        await asyncio.sleep(1.0)
    await stage.settle(60)
    for task in tasks:
        task.cancel()


async def quota_problems(stage: Stage) -> list[str]:
    """What is wrong with the quota at the end."""
    found = [] if await used(stage, "q") == "0" else ["quota was not given back"]
    logs = stage.system.message_logs()
    for check in (*checks.ALWAYS, checks.quota_given_back):
        found += check(logs)
    return found


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
