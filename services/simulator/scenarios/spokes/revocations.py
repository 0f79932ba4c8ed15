"""An operator revokes the quota of a job that runs on a spoke, and grants it again."""

import asyncio
from contextlib import suppress
from random import Random
from typing import Final

from services.simulator.scenarios.spokes.clusters import MultiClusterSystem
from services.simulator.scenarios.spokes.judge import Name, PodObserver
from shared.contracts.kube import kinds
from shared.kube.port import NotFoundError

NAMESPACE: Final = "team-a"
FIRST_SECONDS: Final = (5.0, 40.0)
"""When the first quota is revoked."""

EVERY_SECONDS: Final = 15.0
"""Mean time until the next one is."""


async def revoke(system: MultiClusterSystem, observer: PodObserver, held: set[str]) -> None:
    """Revoke the quota of jobs that run, one after the other, until the world is calm.

    Their pods may end well while they are to stop: the job must not run again.
    """
    random = Random(f"revoke/{system.world.seed}")
    await asyncio.sleep(random.uniform(*FIRST_SECONDS))
    while not system.world.calm:
        await revoke_one(system, [job for job, _ in observer.at_work()], held, random)
        await asyncio.sleep(random.expovariate(1 / EVERY_SECONDS))


async def revoke_one(
    system: MultiClusterSystem, jobs: list[Name], held: set[str], random: Random
) -> None:
    """Revoke the quota of one of these jobs, and grant it again.

    Adds its name to `held`: with leases a stopped job may run twice.
    """
    found = [
        (workload["metadata"]["name"], owner["name"])
        for workload in (await system.hub.kube.list(kinds.WORKLOAD)).items
        for owner in workload["metadata"].get("ownerReferences") or []
        if owner["kind"] == kinds.JOB.kind and (NAMESPACE, owner["name"]) in jobs
    ]
    if not found:
        return
    name, job = random.choice(found)
    held.add(job)
    for active, pause in ((False, random.uniform(1, 10)), (True, 0.0)):
        system.world.note(f"set {name} active: {active}")
        with suppress(NotFoundError):
            patch = {"spec": {"active": active}}
            await system.hub.kube.patch(kinds.WORKLOAD, NAMESPACE, name, patch)
        await asyncio.sleep(pause)
