"""The system on one cluster: PipelineRuns and Jobs, with all faults for the first 90 seconds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any, Final

from services.simulator.judge import checks
from services.simulator.scenarios import load
from services.simulator.scenarios.port import Verdict, run_world
from services.simulator.scenarios.system import DEFAULTS, System
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.integrations import SHIPPED, Integrations
from shared.kube.port import NotFoundError
from shared.settings.configuration import Configuration
from shared.testing.world.world import Faults, World

LOAD_SECONDS: Final = 60.0
FAULT_SECONDS: Final = 90.0
END_SECONDS: Final = 600.0
"""All jobs must have finished by then."""

SETTLE_SECONDS: Final = 45.0
"""Time after the last job for releasing quota and writing statuses."""

STARTING_SECONDS: Final = 3.0

_WORST: Final = Faults(
    crash=0.004,
    delay=0.03,
    lost_request=0.004,
    lost_answer=0.01,
    duplicate=0.1,
    conflict=0.05,
    throttled=0.03,
    unavailable=0.05,
    watch_break=0.05,
    expired=0.2,
    partition_every_seconds=20.0,
    bus_restart_every_seconds=30.0,
    kill_every_seconds=10.0,
    skew_seconds=0.5,
)


_CHOICES: Final = (
    "crash",
    "delay",
    "lost_request",
    "lost_answer",
    "duplicate",
    "conflict",
    "throttled",
    "unavailable",
    "watch_break",
    "expired",
    "partition_every_seconds",
    "bus_restart_every_seconds",
    "kill_every_seconds",
    "skew_seconds",
)


def faults_of(random: Random) -> Faults:
    """Draw the faults of a world; one world in eight has none."""
    if random.random() < 1 / 8:
        return Faults()
    off = [name for name in _CHOICES if random.random() < 1 / 2]
    calmer: dict[str, Any] = dict.fromkeys(off, 0.0)
    return replace(_WORST, until_seconds=FAULT_SECONDS, **calmer)


def play(seed: int) -> Verdict:
    """Run the world of `seed`; return its verdict."""
    return play_with_faults("basic", seed, _drive)


def play_with_faults(
    name: str,
    seed: int,
    drive: Callable[[System, Random, Verdict], Coroutine[Any, Any, None]],
    configuration: Configuration = DEFAULTS,
) -> Verdict:
    """Run a world with the faults that its name and `seed` draw; return its verdict."""
    random = Random(f"{name}/{seed}")
    verdict = Verdict(seed=seed)
    with World(seed, faults=faults_of(random)) as world:
        system = System(world, configuration=configuration)
        run_world(world, lambda: drive(system, random, verdict), verdict)
    return verdict


async def _drive(system: System, random: Random, verdict: Verdict) -> None:
    for kind, obj in load.queues(random):
        await system.kube.create(kind, obj)
    for service in ("watcher", "classifier", "quota"):
        for replica in range(1, random.randint(1, 2) + 1):
            system.serve(service, replica=replica)
    for service in ("patcher", "dispatcher", "provisioner"):
        system.serve(service)
    if random.random() < 1 / 2:
        await asyncio.sleep(
            STARTING_SECONDS
        )  # Otherwise the first jobs exist before the services start.
    system.start_faults()
    meddling = asyncio.create_task(_disturb(system, random))
    submitted = await _submit(system, random)
    deleted = await meddling
    ended = await _until_ended(system, submitted)
    if ended:
        await asyncio.sleep(SETTLE_SECONDS)
    message_logs = system.message_logs()
    for check in checks.ALWAYS:
        verdict.violated(check(message_logs))
    # A job that is deleted before any service saw it leaves no trace.
    names = {
        uid: f"{namespace}/{name}" for _, namespace, name, uid in submitted if uid not in deleted
    }
    verdict.violated(checks.none_lost(message_logs, names, finished=ended))
    if ended:
        verdict.violated(checks.quota_given_back(message_logs))
    else:
        left = [name async for name in unended(system, submitted)]
        verdict.problems.append(f"after {END_SECONDS:g} s these have not ended: {', '.join(left)}")


Submitted = list[tuple[Kind, str, str, str]]


async def _submit(system: System, random: Random) -> Submitted:
    loop = asyncio.get_running_loop()
    began = loop.time()
    submitted: Submitted = []
    coming = load.arrivals(
        random, runs=random.randint(3, 16), jobs=random.randint(3, 16), seconds=LOAD_SECONDS
    )
    for one in coming:
        await asyncio.sleep(max(0.0, began + one.at - loop.time()))
        created = await system.kube.create(one.kind, one.job)
        metadata = created["metadata"]
        system.world.note(f"submit {one.kind.kind} {metadata['namespace']}/{metadata['name']}")
        submitted.append((one.kind, metadata["namespace"], metadata["name"], metadata["uid"]))
    return submitted


async def _disturb(system: System, random: Random) -> set[str]:
    """Act as users do: delete jobs in any state, and change a quota.

    Returns the uids of the deleted jobs.
    """
    deleted: set[str] = set()
    loop = asyncio.get_running_loop()
    until = loop.time() + LOAD_SECONDS
    patience = random.choice((5.0, 15.0, 1000.0))
    while True:
        at = loop.time() + random.expovariate(1 / patience)
        if at >= until:
            return deleted
        await asyncio.sleep(at - loop.time())
        if random.random() < 1 / 2:
            deleted |= await delete_one(system, random)
        else:
            await resize_one(system, random)


async def delete_one(system: System, random: Random) -> set[str]:
    """Delete a job as its user does; return its uid."""
    kind = random.choice((kinds.PIPELINE_RUN, kinds.JOB))
    listing = await system.kube.list(kind)
    if not listing.items:
        return set()
    metadata = random.choice(listing.items)["metadata"]
    namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
    system.world.note(f"delete {kind.kind} {namespace}/{name}")
    await system.kube.delete(kind, namespace, name, uid=uid)
    return {uid}


async def resize_one(system: System, random: Random) -> None:
    """Change the quota of a team."""
    name, size = random.choice(load.NAMESPACES), random.randint(2, 6)
    system.world.note(f"resize {name} to {size} cpu")
    path = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
    patch = [{"op": "replace", "path": path, "value": str(size)}]
    await system.kube.patch(kinds.CLUSTER_QUEUE, None, name, patch)


async def _until_ended(system: System, submitted: Submitted) -> bool:
    """Return True if all jobs ended in time."""
    loop = asyncio.get_running_loop()
    while loop.time() < END_SECONDS:
        if system.world.calm and not [name async for name in unended(system, submitted)]:
            return True
        await asyncio.sleep(1.0)
    return False


async def unended(
    system: System, submitted: Submitted, integrations: Integrations = SHIPPED
) -> AsyncIterator[str]:
    """Yield the jobs that still wait or run."""
    for kind, namespace, name, _ in submitted:
        integration = integrations.find(group=kind.group, kind=kind.kind)
        assert integration is not None
        try:
            obj = await system.kube.get(kind, namespace, name)
        except NotFoundError:
            continue  # A user deleted it.
        if integration.finish(obj) is None:
            yield f"{kind.kind} {namespace}/{name}"
