"""Plays one seed twice, with the adversary and without, and judges what really ran."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from random import Random
from typing import Final

from services.simulator.judge import checks, tenants, waits
from services.simulator.judge.running_work import RunningWork
from services.simulator.scenarios.port import Verdict, run_world
from services.simulator.scenarios.system import DEFAULTS, System
from services.simulator.scenarios.tenants.jobs import JOB_WRITES
from services.simulator.scenarios.tenants.jobsets import JOB_SET_WRITES
from services.simulator.scenarios.tenants.load import (
    ADVERSARY,
    HONEST,
    IN_FORCE_SECONDS,
    PRIORITIES,
    RULES,
    Queues,
    arrivals,
    draw_queues,
)
from services.simulator.scenarios.tenants.metadata import METADATA_WRITES
from services.simulator.scenarios.tenants.pods import FRAMEWORKS, POD_WRITES
from services.simulator.scenarios.tenants.prebuilt import PREBUILT_WRITES
from services.simulator.scenarios.tenants.rights import Tenant, Write
from services.simulator.scenarios.tenants.runs import RUN_WRITES
from services.simulator.scenarios.tenants.workloads import MORE_WORKLOAD_WRITES, WORKLOAD_WRITES
from shared.contracts.kube import kinds
from shared.settings.configuration import Configuration
from shared.testing.world.world import World

WRITES_SECONDS: Final = 90.0
"""How long the adversary writes."""

SEEN_SECONDS: Final = 8.0
"""By then services see what is created."""

SETTLE_SECONDS: Final = 45.0
"""Longer than everything has to be noticed and to end."""

END_SECONDS: Final = 600.0
"""Everything honest has ended by then."""

WAIT_BOUND: Final = timedelta(seconds=10)
"""How much later honest work may start beside room because of the adversary: never for want of quota, only
while services read what the adversary wrote."""

SERVICES: Final = ("watcher", "classifier", "quota", "patcher")
PODS_WAIT_EVERY: Final = 3
"""In one of so many worlds pods wait, too, and the adversary writes whatever there is."""

JOB_SETS_EVERY: Final = 6
"""In one of so many worlds the adversary has JobSets, too, and writes to them and to their Jobs besides."""

_WRITES: Final = {**JOB_WRITES, **RUN_WRITES, **WORKLOAD_WRITES, **METADATA_WRITES}
_MORE_WRITES: Final = {**_WRITES, **POD_WRITES, **PREBUILT_WRITES, **MORE_WORKLOAD_WRITES}
_PODS_WAIT: Final = Configuration.model_validate({"integrations": {"frameworks": FRAMEWORKS}})
_CHECKS: Final = (
    checks.decided_in_order,
    checks.next_leader_can_read,
    checks.none_admitted_twice,
    checks.quotas_respected,
    checks.nothing_dead,
)
"""Of the checks of all histories those that hold although a tenant starts and stops jobs by hand."""


def play(seed: int) -> Verdict:
    """Run the worlds of `seed`; return the verdict."""
    quiet = Verdict(seed=seed)
    alone = _play(seed, quiet, is_attacked=False)
    verdict = Verdict(seed=seed)
    verdict.problems += [f"without the adversary: {problem}" for problem in quiet.problems]
    work = _play(seed, verdict, is_attacked=True)
    queues = draw_queues(Random(f"tenants/{seed}"))
    if queues.alone:
        honest = [pool for pool in queues.pools if pool.namespaces == frozenset(HONEST)]
        verdict.problems += waits.waits_kept(work, alone, honest, bound=WAIT_BOUND)
    return verdict


@contextmanager
def written_often(write: Write) -> Iterator[None]:
    """Make one write of the adversary's every second one meanwhile: what it takes may be rare otherwise."""
    tables = [table for table in (_WRITES, _MORE_WRITES) if write in table]
    usual = [table[write] for table in tables]
    for table in tables:
        table[write] = sum(table.values())
    try:
        yield
    finally:
        for table, weight in zip(tables, usual, strict=True):
            table[write] = weight


def _play(seed: int, verdict: Verdict, *, is_attacked: bool) -> RunningWork:
    random = Random(f"tenants/{seed}")
    with World(seed) as world:
        queues = draw_queues(random)
        system = System(
            world,
            rules=RULES,
            configuration=_PODS_WAIT if _pods_wait(seed) else DEFAULTS,
            refuses_starts=random.random() < 1 / 2,
            fixes_requests=True,
        )
        work = RunningWork(system.api, world.now, pods_wait=_pods_wait(seed))
        run_world(
            world,
            lambda: _drive(system, queues, random, work, verdict, is_attacked=is_attacked),
            verdict,
        )
    return work


def _has_job_sets(seed: int) -> bool:
    return seed % JOB_SETS_EVERY == 4


def _pods_wait(seed: int) -> bool:
    return seed % PODS_WAIT_EVERY == 1


async def _drive(
    system: System,
    queues: Queues,
    random: Random,
    work: RunningWork,
    verdict: Verdict,
    *,
    is_attacked: bool,
) -> None:
    world, loop = system.world, asyncio.get_running_loop()
    for kind, obj in queues.objects:
        await system.kube.create(kind, obj)
    for service in SERVICES:
        system.serve(service)
    tenant = Tenant(system.kube, ADVERSARY, random=Random(f"adversary/{world.seed}"), world=world)
    draws = Random(f"jobsets/{world.seed}")
    job_sets = Tenant(system.kube, ADVERSARY, random=draws, world=world)
    coming = arrivals(random, pods_wait=_pods_wait(world.seed))
    if random.random() < 1 / 2:
        await asyncio.sleep(3.0)  # Otherwise the first jobs exist before the services start.
    async with asyncio.TaskGroup() as group:
        if is_attacked:
            group.create_task(_attack(tenant, pods_wait=_pods_wait(world.seed)))
        if is_attacked and _has_job_sets(world.seed):
            group.create_task(_write_to_job_sets(job_sets))
        for one in coming:
            await asyncio.sleep(max(0.0, one.at - loop.time()))
            await system.kube.create(one.kind, one.job)
    # Where runs share a queue, the adversary's may hold it for as long as they like.
    judged = {kinds.JOB.kind, kinds.POD.kind}
    if queues.alone:
        judged.add(kinds.PIPELINE_RUN.kind)
    if not await _until_over(work, judged):
        verdict.problems.append(f"after {END_SECONDS:g} s not all honest work has ended")
    if is_attacked:
        await asyncio.sleep(max(0.0, WRITES_SECONDS + SETTLE_SECONDS - loop.time()))
        world.note(f"adversary: {tenant.refused} refused, accepted {tenant.done}")
    _judge(system, queues, work, verdict)


async def _attack(tenant: Tenant, *, pods_wait: bool) -> None:
    """Write at a rate that is drawn: a write each few seconds, or some at once."""
    random, loop = tenant.random, asyncio.get_running_loop()
    every = random.choice((0.7, 1.5, 4.0))
    table = _WRITES
    if pods_wait:
        table = _MORE_WRITES
        await asyncio.sleep(IN_FORCE_SECONDS - loop.time())
    await _write(tenant, table, every)


async def _write_to_job_sets(tenant: Tenant) -> None:
    await asyncio.sleep(SEEN_SECONDS)
    await _write(tenant, JOB_SET_WRITES, tenant.random.choice((0.7, 1.5, 4.0)))


async def _write(tenant: Tenant, table: Mapping[Write, int], every: float) -> None:
    random, loop = tenant.random, asyncio.get_running_loop()
    writes, weights = list(table), list(table.values())
    while loop.time() < WRITES_SECONDS:
        await asyncio.sleep(random.choice((0.0, random.expovariate(1 / every))))
        [write] = random.choices(writes, weights)
        await write(tenant)


async def _until_over(work: RunningWork, judged: Collection[str]) -> bool:
    """Return True if everything honest of these kinds ended in time."""
    loop = asyncio.get_running_loop()
    while loop.time() < END_SECONDS:
        honest = (job for job in work.jobs.values() if job.namespace in HONEST)
        if all(job.finished for job in honest if job.kind in judged):
            return True
        await asyncio.sleep(1.0)
    return False


def _judge(system: System, queues: Queues, work: RunningWork, verdict: Verdict) -> None:
    message_logs, end = system.message_logs(), system.world.now()
    for check in _CHECKS:
        verdict.violated(check(message_logs))
    if checks.next_leader_can_read(message_logs):
        return  # Nor can a judge add it up.
    verdict.violated(tenants.uncounted_is_stopped(work, message_logs, end))
    verdict.violated(tenants.never_more_than_admitted(work, message_logs, end))
    verdict.violated(tenants.quotas_kept(work, message_logs, end, queues.pools))
    verdict.violated(tenants.released_when_gone(work, message_logs, (*HONEST, ADVERSARY)))
    given = {
        uid: PRIORITIES["low" if job.namespace == ADVERSARY else "high"]
        for uid, job in work.jobs.items()
        if job.kind == kinds.PIPELINE_RUN.kind
    }
    verdict.violated(tenants.priorities_given(message_logs, given))
    verdict.problems += [
        f"{process.name} was started {process.start_number} times"
        for process in system.world.processes.values()
        if process.start_number > 1
    ]
