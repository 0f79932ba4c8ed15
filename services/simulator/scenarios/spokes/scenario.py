"""One hub and three spokes with unreliable connections; jobs run on the spokes."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from services.simulator.judge import checks
from services.simulator.scenarios.basic import faults_of
from services.simulator.scenarios.load import object_of
from services.simulator.scenarios.port import Verdict, run_world
from services.simulator.scenarios.spokes.clusters import CHECK, MultiClusterSystem
from services.simulator.scenarios.spokes.judge import PodObserver, left_behind
from services.simulator.scenarios.spokes.lying import LyingSpoke
from services.simulator.scenarios.spokes.revocations import NAMESPACE, revoke, revoke_one
from services.simulator.scenarios.system import CLUSTER
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import workload_name
from shared.contracts.simulation import DURATION, RUN_IN_PODS
from shared.integrations import TEKTON_SLOT, integration_for
from shared.kube.port import ConflictError, NotFoundError
from shared.testing.world.world import Faults, World

SPOKES: Final = ("east", "west", "north")
QUEUE: Final = "main"
RULES: Final = f"queueName: {QUEUE}\nmultiKueueOverride: true\n"
PRIORITIES: Final = {"high": 100, "low": 1}
SECONDS: Final = (3, 30)
"""Running time of most jobs."""

LONG_SECONDS: Final = (65, 90)
"""Running time of the others: they still run when the hub gives up a disconnected spoke."""


LOAD_SECONDS: Final = 25.0
FAULT_SECONDS: Final = 80.0
END_SECONDS: Final = 1500.0
SETTLE_SECONDS: Final = 45.0
"""Longer than the bus waits before it delivers again what was lost with a connection."""
BEAT_SECONDS: Final = 3.0
LOST_SECONDS: Final = 55.0
STOP_SECONDS: Final = 20.0
"""Time to stop a copy: a pod's grace period and some refused requests."""

GRACE_SECONDS: Final = 90
"""How long pods of Jobs work on when they are to stop, in half of the worlds without leases."""

LIES_EVERY: Final = 7
"""In one of so many worlds a spoke's agent is in an attacker's hands."""

DOWN_SECONDS: Final = 25.0
"""Longest time for which a patcher is down or without its cluster."""


def _settings_of(random: Random) -> dict[str, Any]:
    """Draw the dispatcher's settings."""
    after_lease = random.random() < 1 / 2
    return {
        "dispatcher": random.choice(("best-fit", "best-fit", "all-at-once", "incremental")),
        "incremental_step_size": 1,
        "incremental_round_seconds": 15.0,
        "fallback_seconds": 8.0,
        "silent_seconds": 3 * BEAT_SECONDS,
        "worker_lost_timeout_seconds": LOST_SECONDS,
        "redispatch": "afterLease" if after_lease else "afterConfirmation",
        "stop_seconds": STOP_SECONDS,
        "patcher_down_seconds": DOWN_SECONDS,
        "no_cluster_retry_seconds": 5.0,
        "spokes_seconds": 2.0,
        "orphan_seconds": 6.0,
        "tidy_seconds": 8.0,
        "forget_seconds": 12.0,
    }


def _spoke_faults(random: Random, settings: dict[str, Any]) -> Faults:
    """Draw the faults: always crashes, partitions and delays, sometimes others.

    With leases, a patcher is never without its cluster for too long.
    """
    faults = replace(
        faults_of(random),
        until_seconds=FAULT_SECONDS,
        delay=0.03,
        partition_every_seconds=20.0,
        kill_every_seconds=random.choice((10.0, 20.0)),
    )
    if settings["redispatch"] == "afterLease":
        faults = replace(
            faults,
            crash=faults.crash / 4,
            down_seconds=(0.1, 4.0),
            kill_every_seconds=40.0,
            partition_seconds=(0.5, 6.0),
        )
    return faults


Submitted = list[tuple[Kind, str, str]]


def play(seed: int) -> Verdict:
    """Run the world of `seed`; return its verdict."""
    random = Random(f"spokes/{seed}")
    verdict = Verdict(seed=seed)
    settings = _settings_of(random)
    lying = SPOKES[seed % len(SPOKES)] if seed % LIES_EVERY == LIES_EVERY - 1 else None
    if lying is not None:
        settings["dispatcher"] = (
            "best-fit"  # Others ask every spoke, so that all work is the liar's.
        )
    leases = settings["redispatch"] == "afterLease"
    with World(seed, faults=_spoke_faults(random, settings)) as world:
        system = MultiClusterSystem(
            world, SPOKES, rules=RULES, dispatcher=settings, beat_seconds=BEAT_SECONDS
        )
        held: set[str] = set()
        observer = PodObserver(
            system.apis,
            world.loop.time,
            given_up=lambda job, spoke: (
                (leases and (job[1] in held or system.reports_silent(spoke)))
                or system.reports_lost(job, spoke)
            ),
        )
        world.note(f"dispatcher {settings['dispatcher']}, {settings['redispatch']}, liar {lying}")
        liar = None
        if lying is not None:
            liar = LyingSpoke(system, lying, until_seconds=FAULT_SECONDS)
        grace = None if leases or seed % 2 else GRACE_SECONDS
        drive = partial(_drive, system, observer, held, random, verdict, liar, grace)
        run_world(world, drive, verdict)
        verdict.violated(observer.problems)
    return verdict


async def _drive(
    system: MultiClusterSystem,
    observer: PodObserver,
    held: set[str],
    random: Random,
    verdict: Verdict,
    liar: LyingSpoke | None,
    grace: int | None,
) -> None:
    for cluster in (CLUSTER, *SPOKES):
        for kind, obj in _queues(cluster, random):
            await system.kubes[cluster].create(kind, obj)
    await system.configure()
    system.serve()
    if random.random() < 1 / 2:
        await asyncio.sleep(5.0)
    system.world.start_faults(
        parties=("bus", *(CLUSTER, *SPOKES)),
        bus_restart=lambda: system.hub.server.restart(
            down_seconds=system.world.between((0.1, 5.0))
        ),
    )
    if liar is not None:
        liar.start()
    cutting = asyncio.create_task(_cut_spokes(system, observer, held, random))
    meddling = asyncio.create_task(_disturb(system, random))
    revoking = None if grace is None else asyncio.create_task(revoke(system, observer, held))
    submitted = await _submit(system, random, grace=grace)
    gone = await meddling
    await cutting
    if revoking is not None:
        await revoking
    if liar is not None:
        await _judge_others(system, observer, liar, submitted, gone, verdict)
        return
    ended = await _until_ended(system, submitted)
    if not ended:
        left = [name async for name in _unended(system, submitted)]
        verdict.problems.append(f"after {END_SECONDS:g} s these have not ended: {', '.join(left)}")
    else:
        await asyncio.sleep(SETTLE_SECONDS)
        verdict.violated(await left_behind(dict(system.kubes)))
    message_logs = system.hub.message_logs()
    for check in checks.ALWAYS:
        verdict.violated(check(message_logs))
    wanted = {uid: f"{NAMESPACE}/{name}" for _, name, uid in submitted if uid not in gone}
    verdict.violated(checks.none_lost(message_logs, wanted, finished=ended))
    if ended:
        verdict.violated(checks.quota_given_back(message_logs))
        verdict.violated(
            f"{NAMESPACE}/{name} never ran, and ended"
            for _, name, uid in submitted
            if uid not in gone and (NAMESPACE, name) not in observer.ran
        )


async def _judge_others(
    system: MultiClusterSystem,
    observer: PodObserver,
    liar: LyingSpoke,
    submitted: Submitted,
    gone: set[str],
    verdict: Verdict,
) -> None:
    """Judge the work that was never ordered from the lying spoke: it runs once, elsewhere, and ends."""
    loop = asyncio.get_running_loop()
    others: Submitted = []
    left: list[str] = []
    while loop.time() < END_SECONDS:
        own = {ref.name for ref in liar.own_work()}
        others = [
            (kind, name, uid)
            for kind, name, uid in submitted
            if workload_name(kind=kind.kind, group=kind.group, name=name, uid=uid) not in own
        ]
        left = [name async for name in _unended(system, others)]
        if system.world.calm and not left:
            break
        await asyncio.sleep(5.0)
    observer.problems = [
        problem
        for problem in observer.problems
        if any(f"{NAMESPACE}/{name} " in problem for _, name, _ in others)
    ]
    if left:
        verdict.problems.append(f"beside a lying spoke these never end: {', '.join(left)}")
    for _, name, uid in others:
        places = observer.ran.get((NAMESPACE, name), [])
        if uid not in gone and not places and not left:
            verdict.violated([f"{NAMESPACE}/{name} never ran: a lie ended it"])
        if liar.spoke in places:
            verdict.violated([f"{NAMESPACE}/{name} ran on {liar.spoke} without an order"])
    system.world.note(f"judged {len(others)} of {len(submitted)} beside the liar")
    # What quota decides about the liar's own cluster follows from what the liar shows there.
    message_logs = system.hub.message_logs(besides=liar.spoke)
    for check in (checks.decided_in_order, checks.none_admitted_twice, checks.quotas_respected):
        verdict.violated(check(message_logs))


# --- what there is ---------------------------------------------------------------------------------


def _queues(cluster: str, random: Random) -> list[tuple[Kind, Body]]:
    hub = cluster == CLUSTER
    objects: list[tuple[Kind, Body]] = [
        (kinds.NAMESPACE, object_of(kinds.NAMESPACE, NAMESPACE)),
        (kinds.RESOURCE_FLAVOR, object_of(kinds.RESOURCE_FLAVOR, "any", spec={})),
    ]
    objects += [
        (
            kinds.WORKLOAD_PRIORITY_CLASS,
            object_of(kinds.WORKLOAD_PRIORITY_CLASS, name) | {"value": value},
        )
        for name, value in PRIORITIES.items()
    ]
    cpu, slots = random.randint(1, 2), random.randint(1, 2)
    if hub:
        cpu, slots = random.randint(3, 5), random.randint(3, 5)
    resources = [
        {"name": "cpu", "nominalQuota": str(cpu)},
        {"name": TEKTON_SLOT, "nominalQuota": str(slots)},
    ]
    covered = ["cpu", TEKTON_SLOT]
    spec: dict[str, Any] = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": random.choice(("Never", "LowerPriority"))},
        "resourceGroups": [
            {"coveredResources": covered, "flavors": [{"name": "any", "resources": resources}]}
        ],
    }
    if hub:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
    objects.append((kinds.CLUSTER_QUEUE, object_of(kinds.CLUSTER_QUEUE, QUEUE, spec=spec)))
    local = object_of(kinds.LOCAL_QUEUE, QUEUE, namespace=NAMESPACE, spec={"clusterQueue": QUEUE})
    objects.append((kinds.LOCAL_QUEUE, local))
    return objects


def _job(index: int, random: Random, *, grace_seconds: int | None) -> Body:
    """Return a Job. `grace_seconds`: for which its pods work on when they are to stop."""
    template: dict[str, Any] = {
        "metadata": {"annotations": {DURATION: _duration(random)}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "work", "image": "none", "resources": {"requests": {"cpu": "1"}}}
            ],
        },
    }
    if grace_seconds is not None:
        template["spec"]["terminationGracePeriodSeconds"] = grace_seconds
    spec: dict[str, Any] = {
        "parallelism": 1,
        "completions": 1,
        "template": template,
        "suspend": True,
    }
    if random.random() < 3 / 4:
        spec["managedBy"] = MULTIKUEUE
    if random.random() < 1 / 3:
        # The spoke deletes the job itself, perhaps before any service saw its end.
        spec["ttlSecondsAfterFinished"] = random.choice((0, 5))
    job = object_of(kinds.JOB, f"job-{index}", namespace=NAMESPACE, spec=spec)
    job["metadata"]["labels"] = {names.QUEUE: QUEUE, **_priority(random)}
    return job


def _run(index: int, random: Random) -> Body:
    task = {"name": "task", "taskSpec": {"steps": [{"name": "work", "image": "none"}]}}
    run = object_of(
        kinds.PIPELINE_RUN,
        f"run-{index}",
        namespace=NAMESPACE,
        spec={"pipelineSpec": {"tasks": [task]}},
    )
    run["metadata"]["labels"] = _priority(random)
    run["metadata"]["annotations"] = {DURATION: _duration(random), RUN_IN_PODS: "true"}
    return run


def _duration(random: Random) -> str:
    low, high = LONG_SECONDS if random.random() < 1 / 2 else SECONDS
    return f"{random.randint(low, high)}s"


def _priority(random: Random) -> dict[str, str]:
    return {names.PRIORITY_CLASS_LABEL: random.choice(tuple(PRIORITIES))}


async def _submit(system: MultiClusterSystem, random: Random, *, grace: int | None) -> Submitted:
    """Create the load. `grace`: the grace period of the pods of Jobs."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    coming = [
        (random.uniform(0, LOAD_SECONDS), kinds.JOB, _job(index, random, grace_seconds=grace))
        for index in range(random.randint(1, 3))
    ]
    coming += [
        (random.uniform(0, LOAD_SECONDS), kinds.PIPELINE_RUN, _run(index, random))
        for index in range(random.randint(0, 2))
    ]
    submitted: Submitted = []
    for at, kind, job in sorted(coming, key=lambda one: one[0]):
        await asyncio.sleep(max(0.0, began + at - loop.time()))
        created = await system.hub.kube.create(kind, job)
        metadata = created["metadata"]
        system.world.note(f"submit {kind.kind} {metadata['name']}")
        submitted.append((kind, metadata["name"], metadata["uid"]))
    return submitted


# --- what happens to it ----------------------------------------------------------------------------


async def _cut_spokes(
    system: MultiClusterSystem, observer: PodObserver, held: set[str], random: Random
) -> None:
    """Disconnect whole spokes from the bus, and put one on a slow link.

    The first disconnected spoke runs a job, and half of these cuts last longer than the time-out;
    quota of jobs on that spoke may be revoked meanwhile.
    """
    loop = asyncio.get_running_loop()
    slow, by_seconds = random.choice(SPOKES), random.choice((0.05, 0.3, 1.5))
    for process in system.pair(slow):
        system.world.slow_down(process, by_seconds)
    every = random.choice((15.0, 40.0, 1e6))
    await _until_at_work(observer)
    at, shortest = loop.time() + random.uniform(0, 3), random.choice((5.0, LOST_SECONDS))
    holding = []
    while at < FAULT_SECONDS:
        await asyncio.sleep(at - loop.time())
        spoke = random.choice([spoke for _, spoke in observer.at_work()] or SPOKES)
        seconds = random.uniform(shortest, 1.5 * LOST_SECONDS)
        for process in system.pair(spoke):
            system.world.heal(process, "bus")
            system.world.partition(process, "bus", seconds=seconds)
        if random.random() < 1 / 2:
            there = [job for job, place in observer.at_work() if place == spoke]
            holding.append(asyncio.create_task(revoke_one(system, there, held, random)))
        at, shortest = loop.time() + random.expovariate(1 / every), 5.0
    await asyncio.gather(*holding)
    await asyncio.sleep(max(0.0, FAULT_SECONDS - loop.time()))


async def _until_at_work(observer: PodObserver) -> None:
    """Wait until some job runs, for a limited time."""
    for _ in range(int(FAULT_SECONDS)):
        if observer.at_work():
            return
        await asyncio.sleep(0.5)


async def _disturb(system: MultiClusterSystem, random: Random) -> set[str]:
    """Act as users do: delete a job or cancel a run, also on a spoke, where they should not.

    Returns the uids of deleted and cancelled jobs of the hub.
    """
    loop = asyncio.get_running_loop()
    gone: set[str] = set()
    patience = random.choice((10.0, 25.0, 1e6))
    while True:
        at = loop.time() + random.expovariate(1 / patience)
        if at >= LOAD_SECONDS * 2:
            return gone
        await asyncio.sleep(at - loop.time())
        act = random.choice((_delete, _cancel, _delete_copy))
        gone |= await act(system, random)


async def _delete(system: MultiClusterSystem, random: Random) -> set[str]:
    return await _delete_one(system, CLUSTER, random)


async def _delete_copy(system: MultiClusterSystem, random: Random) -> set[str]:
    await _delete_one(system, random.choice(SPOKES), random)
    return set()


async def _delete_one(system: MultiClusterSystem, cluster: str, random: Random) -> set[str]:
    kind = random.choice((kinds.PIPELINE_RUN, kinds.JOB))
    found = (await system.kubes[cluster].list(kind)).items
    if not found:
        return set()
    metadata = random.choice(found)["metadata"]
    system.world.note(f"delete {kind.kind} {metadata['name']} on {cluster}")
    await system.kubes[cluster].delete(kind, metadata["namespace"], metadata["name"])
    return {metadata["uid"]}


async def _cancel(system: MultiClusterSystem, random: Random) -> set[str]:
    runs = [
        run
        for run in (await system.hub.kube.list(kinds.PIPELINE_RUN)).items
        if (run.get("status") or {}).get("startTime")
        and not (run.get("status") or {}).get("completionTime")
    ]
    if not runs:
        return set()
    metadata = random.choice(runs)["metadata"]
    system.world.note(f"cancel PipelineRun {metadata['name']}")
    patch = {"spec": {"status": "CancelledRunFinally"}}
    try:
        await system.hub.kube.patch(
            kinds.PIPELINE_RUN, metadata["namespace"], metadata["name"], patch
        )
    except (ConflictError, NotFoundError):
        return set()
    return {metadata["uid"]}


async def _until_ended(system: MultiClusterSystem, submitted: Submitted) -> bool:
    loop = asyncio.get_running_loop()
    while loop.time() < END_SECONDS:
        world = system.world
        if world.calm and world.whole and not [name async for name in _unended(system, submitted)]:
            return True
        await asyncio.sleep(1.0)
    return False


async def _unended(system: MultiClusterSystem, submitted: Submitted) -> AsyncIterator[str]:
    for kind, name, _ in submitted:
        integration = integration_for(group=kind.group, kind=kind.kind)
        assert integration is not None
        try:
            obj = await system.hub.kube.get(kind, NAMESPACE, name)
        except NotFoundError:
            continue  # A user deleted it.
        if integration.finish(obj) is None:
            yield f"{kind.kind} {name}"
