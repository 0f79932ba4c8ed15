"""Steps on a job's way that follow each other in a moment: one message for all, no delay for who waits."""

import asyncio
from typing import Any

import pytest

from services.watcher.observe import observed
from services.watcher.publisher import GATHER_SECONDS, ObservedPublisher
from shared.contracts.kube.kinds import JOB, WORKLOAD
from shared.testing.world.memory_bus import MemoryBus
from tests.unit.watcher.harness import Harness, run_harness

MOMENT = GATHER_SECONDS / 25
RUNS: dict[str, Any] = {"status": {"active": 1, "startTime": "2026-01-01T00:00:00Z"}}
READY = {"status": {"ready": 1}}
COMPLETE = {"type": "Complete", "status": "True", "reason": "CompletionsReached"}
ENDED = {"status": {"active": 0, "ready": 0, "succeeded": 1, "conditions": [COMPLETE]}}
SUSPENDED = {"spec": {"suspend": True}}
QUEUED = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}
STOPPED = {"status": {"active": 0, "ready": 0, "terminating": 0}}


async def change(harness: Harness, body: dict[str, Any]) -> None:
    subresource = "status" if "status" in body else None
    await harness.kube.patch(JOB, "default", "j", body, subresource=subresource)
    await asyncio.sleep(MOMENT)


async def start(harness: Harness) -> int:
    """Release a job that is published; return the number of messages about it."""
    await harness.start()
    await harness.job("j")
    await asyncio.sleep(10)
    await change(harness, {"spec": {"suspend": False}})
    return len(harness.published(JOB))


def test_steps_of_a_moment_are_one_message() -> None:
    async def drive(harness: Harness) -> None:
        before = await start(harness)
        await change(harness, RUNS)
        await change(harness, READY)
        assert len(harness.published(JOB)) == before
        await asyncio.sleep(GATHER_SECONDS)
        *_, last = harness.published(JOB)
        assert len(harness.published(JOB)) == before + 1
        assert last.object is not None
        assert last.object["status"]["ready"] == 1

    run_harness(drive)


def test_step_that_comes_alone_is_published_at_once() -> None:
    async def drive(harness: Harness) -> None:
        before = await start(harness)
        await asyncio.sleep(GATHER_SECONDS)
        await change(harness, RUNS)
        assert len(harness.published(JOB)) == before + 1

    run_harness(drive)


@pytest.mark.parametrize(
    "steps",
    [[ENDED], [RUNS, ENDED], [RUNS, SUSPENDED], [RUNS, SUSPENDED, STOPPED], [RUNS, QUEUED]],
    ids=["its end", "its end behind a step", "its spec", "the end of its last pod", "its queue"],
)
def test_what_somebody_waits_for_is_published_at_once(steps: list[dict[str, Any]]) -> None:
    async def drive(harness: Harness) -> None:
        await start(harness)
        for step in steps:
            await change(harness, step)
        assert (await harness.truth(JOB)).items() <= harness.view().items()

    run_harness(drive)


def test_finalizer_of_a_workload_waits_and_its_status_does_not() -> None:
    async def drive(harness: Harness) -> None:
        await harness.start()
        named = {"name": "w", "namespace": "default", "finalizers": ["a/b"]}
        await harness.kube.create(WORKLOAD, {"metadata": named, "spec": {"podSets": []}})
        await asyncio.sleep(10)
        finished = {"type": "Finished", "status": "True", "reason": "Succeeded"}
        status = {"status": {"conditions": [finished]}}
        for body, subresource in ((status, "status"), ({"metadata": {"finalizers": None}}, None)):
            await harness.kube.patch(WORKLOAD, "default", "w", body, subresource=subresource)
            await asyncio.sleep(MOMENT)
        assert len(harness.published(WORKLOAD)) == 2
        await asyncio.sleep(GATHER_SECONDS)
        assert len(harness.published(WORKLOAD)) == 3

    run_harness(drive)


def test_deletion_is_published_at_once() -> None:
    async def drive(harness: Harness) -> None:
        await start(harness)
        await change(harness, RUNS)
        await harness.kube.delete(JOB, "default", "j")
        await asyncio.sleep(MOMENT)
        assert harness.published(JOB)[-1].deleted

    run_harness(drive)


def test_flush_waits_for_no_time() -> None:
    async def drive(harness: Harness) -> None:
        bus = MemoryBus(harness.server, instance="watcher")
        await bus.start()
        publisher = ObservedPublisher(bus, can_wait=lambda _before, _message: True)
        running = asyncio.create_task(publisher.run())
        created = await harness.job("j")
        for number in (1, 2):
            created["metadata"]["resourceVersion"] = str(number)
            publisher.put(observed("hub", JOB, created))
            await asyncio.sleep(MOMENT)
        assert (publisher.waiting, len(harness.published(JOB))) == (1, 1)
        began = asyncio.get_running_loop().time()
        await publisher.flush()
        assert asyncio.get_running_loop().time() < began + MOMENT
        assert (publisher.waiting, len(harness.published(JOB))) == (0, 2)
        running.cancel()

    run_harness(drive)
