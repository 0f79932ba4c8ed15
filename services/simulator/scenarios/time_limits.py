"""Jobs that are not ready in time, run too long, or are deactivated and reactivated, under faults."""

import asyncio
from random import Random
from typing import Any, Final

from services.simulator.judge import checks, time_limits
from services.simulator.scenarios import load
from services.simulator.scenarios.basic import play_with_faults
from services.simulator.scenarios.port import Verdict
from services.simulator.scenarios.system import System
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.names import HOSTNAME
from shared.contracts.simulation import DURATION
from shared.kube.port import NotFoundError
from shared.settings.configuration import Configuration

LOAD_SECONDS: Final = 60.0
END_SECONDS: Final = 900.0
LOOK_SECONDS: Final = 5.0
LIMIT_SECONDS: Final = 40
CONFIGURATION: Final = Configuration.model_validate(
    {
        "waitForPodsReady": {
            "timeout": "25s",
            "recoveryTimeout": "15s",
            "requeuingStrategy": {
                "backoffLimitCount": 2,
                "backoffBaseSeconds": 8,
                "backoffMaxSeconds": 30,
            },
        }
    }
)
NOWHERE: Final = {HOSTNAME: "nowhere"}
"""No node has this label: such pods are never ready."""


def play(seed: int) -> Verdict:
    """Run the world of `seed`; return its verdict."""
    return play_with_faults("lives", seed, _drive, CONFIGURATION)


async def _drive(system: System, random: Random, verdict: Verdict) -> None:
    for kind, obj in load.queues(random):
        await system.kube.create(kind, obj)
    for service in ("watcher", "classifier", "quota"):
        for replica in range(1, random.randint(1, 2) + 1):
            system.serve(service, replica=replica)
    system.serve("patcher")
    system.start_faults()
    meddling = asyncio.create_task(_disturb(system, random))
    jobs = await _submit(system, random)
    await meddling
    over = await _until_over(system, jobs)
    message_logs = system.message_logs()
    wait = CONFIGURATION.pods_ready
    assert wait is not None
    for check in (*checks.ALWAYS, *time_limits.ALWAYS):
        verdict.violated(check(message_logs))
    verdict.violated(time_limits.limits_kept(message_logs, wait))
    if not over:
        left = [name for name in jobs if not await _is_over(system, *name)]
        verdict.problems.append(f"after {END_SECONDS:g} s these go on and on: {left}")


async def _submit(system: System, random: Random) -> list[tuple[str, str]]:
    """Create the jobs; return namespace and name of each."""
    jobs = []
    for number in range(random.randint(4, 12)):
        await asyncio.sleep(random.uniform(0, 2 * LOAD_SECONDS / 12))
        job = _job(number, random)
        system.world.note(f"submit {job['metadata']['namespace']}/{job['metadata']['name']}")
        await system.kube.create(kinds.JOB, job)
        jobs.append((job["metadata"]["namespace"], job["metadata"]["name"]))
    return jobs


def _job(number: int, random: Random) -> Body:
    """Return a normal job, one that is never ready, or one that runs too long."""
    fate = random.choice(("runs", "stuck", "long"))
    labels = {names.QUEUE: "jobs-queue"}
    if fate == "long":
        labels[names.MAX_EXECUTION] = str(LIMIT_SECONDS)
    seconds = 10_000 if fate == "long" else random.randint(5, 40)
    container = {"name": "w", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if fate == "stuck":
        pod["nodeSelector"] = NOWHERE
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{fate}-{number}",
            "namespace": random.choice(load.NAMESPACES),
            "labels": labels,
        },
        "spec": {
            "template": {
                "metadata": {"annotations": {DURATION: f"{seconds}s"}},
                "spec": pod,
            }
        },
    }


async def _disturb(system: System, random: Random) -> None:
    """Act as users do: deactivate and reactivate workloads, and delete pods."""
    loop = asyncio.get_running_loop()
    while loop.time() < 2 * LOAD_SECONDS:
        await asyncio.sleep(random.uniform(1, 12))
        kind = random.choice((kinds.WORKLOAD, kinds.WORKLOAD, kinds.POD))
        found = (await system.kube.list(kind)).items
        if not found:
            continue
        one = random.choice(found)
        metadata = one["metadata"]
        try:
            if kind is kinds.POD:
                await system.kube.delete(kind, metadata["namespace"], metadata["name"])
                continue
            active = not one["spec"].get("active", True)
            system.world.note(f"{metadata['name']}: active {active}")
            patch = {"spec": {"active": active}}
            await system.kube.patch(kind, metadata["namespace"], metadata["name"], patch)
        except NotFoundError:
            continue


async def _until_over(system: System, jobs: list[tuple[str, str]]) -> bool:
    """Return True if each job ended or was deactivated for good in time."""
    loop = asyncio.get_running_loop()
    while loop.time() < END_SECONDS:
        if system.world.calm and all([await _is_over(system, *name) for name in jobs]):
            await asyncio.sleep(LOOK_SECONDS)
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return False


async def _is_over(system: System, namespace: str, name: str) -> bool:
    job = await system.kube.get(kinds.JOB, namespace, name)
    conditions = (job.get("status") or {}).get("conditions") or []
    if any(c["type"] in {"Complete", "Failed"} and c["status"] == "True" for c in conditions):
        return True
    for workload in (await system.kube.list(kinds.WORKLOAD, namespace=namespace)).items:
        owners = workload["metadata"].get("ownerReferences") or []
        if any(owner["uid"] == job["metadata"]["uid"] for owner in owners):
            inactive = workload["spec"].get("active", True) is False
            return inactive and not (job.get("status") or {}).get("active")
    return False
