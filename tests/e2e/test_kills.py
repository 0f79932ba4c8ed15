"""The whole system as processes, each killed in turn, the cluster too: nothing lost, nothing doubled."""

import asyncio
import os
import signal
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from services.ctl.connect.bus import connected
from services.ctl.demo.check import judge
from services.ctl.demo.create import create_all
from services.ctl.demo.load import make_load
from services.ctl.demo.progress import ProgressTracker, track
from services.ctl.demo.results import LoadResult, read_results
from services.ctl.dev.app import BROKER, EXAMPLE, DevOptions, Running, running
from services.ctl.programs import SERVICES, Program
from shared.contracts.kube import kinds
from shared.kube.port import Kube
from shared.testing.waiting import eventually

RUNS, JOBS, SLOTS = 56, 8, 10
BETWEEN_SECONDS = 2.0
END_SECONDS = 600

VICTIMS = (
    *(program.value for program in SERVICES),
    BROKER,
    "quota",
    Program.SIMULATOR.value,
)
"""The decider twice: the second time it takes over from a log that the server has just recovered."""


async def shrink(kube: Kube) -> None:
    """Few slots, so that there is always somebody who waits."""
    path = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
    patch = [{"op": "replace", "path": path, "value": SLOTS}]
    await kube.patch(kinds.CLUSTER_QUEUE, None, "cluster-pipeline-queue", patch)


async def kill(system: Running, name: str) -> None:
    """SIGKILL, as an out-of-memory killer would: nothing can be said any more."""
    # It may still be on its way up from the last time.
    await eventually(lambda: system.supervisor.pid(name), f"{name} does not run", look_seconds=0.1)
    pid = system.supervisor.pid(name)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


async def kill_all(system: Running) -> None:
    for name in VICTIMS:
        await asyncio.sleep(BETWEEN_SECONDS)
        await kill(system, name)


async def finish(tracker: ProgressTracker) -> None:
    async with asyncio.timeout(END_SECONDS):
        for _ in iter(lambda: tracker.complete, True):
            await asyncio.sleep(0.2)


def is_up_again(system: Running, name: str) -> bool:
    return system.supervisor.starts(name) > VICTIMS.count(name)


async def play(system: Running) -> tuple[LoadResult, ProgressTracker]:
    load = make_load(seed=11, runs=RUNS, jobs=JOBS)
    tracker = ProgressTracker(len(load))
    kube = system.kube()
    async with connected(system.nats_url) as bus:
        following = asyncio.create_task(track(bus, tracker))
        killing = asyncio.create_task(kill_all(system))
        try:
            await shrink(kube)
            await create_all(kube, load, now=lambda: datetime.now(UTC), on_submitted=tracker.submit)
            await killing
            await finish(tracker)
        finally:
            following.cancel()
            killing.cancel()
            await kube.close()
        return await read_results(bus, tracker.submitted, tuple(tracker.refused)), tracker


async def test_load_finishes_while_every_service_and_the_broker_are_killed(tmp_path: Path) -> None:
    said: list[str] = []
    options = DevOptions(directory=tmp_path, manifests=(EXAMPLE,), speed=150.0, seed=11)
    async with running(options, said.append) as system:
        result, tracker = await play(system)
        for name in set(VICTIMS):
            # What was killed last may not be up again when the last job ends.
            await eventually(partial(is_up_again, system, name), lambda: said)
    assert not tracker.refused
    assert len(result.cases) == RUNS + JOBS
    wrong = [line for verdict in judge(result, queues=False) for line in verdict.wrong]
    assert not wrong
