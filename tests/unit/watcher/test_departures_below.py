"""What a controller made ends before the controller does, as far as the watcher says."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from services.watcher.publisher import ObservedPublisher
from shared.contracts.kube.kinds import DEPARTURE, JOB, POD, Kind, Object
from shared.integrations import JOB_SET
from shared.kube.port import NotFoundError
from shared.testing.builders import observed
from shared.testing.world.memory_bus import MemoryBus
from tests.unit.watcher.harness import Harness, job, run_harness

ACTIVE: Object = {"status": {"active": 1}}
COMPLETED: Object = {"status": {"conditions": [{"type": "Completed", "status": "True"}]}}


async def job_set(harness: Harness) -> Object:
    metadata = {"namespace": "default", "name": "set"}
    spec: dict[str, Any] = {"suspend": False, "replicatedJobs": []}
    return await harness.kube.create(JOB_SET.kind, {"metadata": metadata, "spec": spec})


def owned(owner: Object, kind: str, api_version: str) -> list[Object]:
    about = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return [{"apiVersion": api_version, "kind": kind, "controller": True, **about}]


async def furnish(harness: Harness, *, is_let_out: bool = False) -> None:
    """A JobSet, a Job of it that runs, and the pod of that, which ends slowly.

    `is_let_out`: the Job does not name the JobSet any more.
    """
    above = await job_set(harness)
    body = job("j")
    if not is_let_out:
        body["metadata"]["ownerReferences"] = owned(above, "JobSet", JOB_SET.kind.api_version)
    made = await harness.kube.create(JOB, body)
    await harness.kube.patch(JOB, "default", "j", ACTIVE, subresource="status")
    metadata = {
        "name": "p",
        "namespace": "default",
        "finalizers": ["a/b"],
        "ownerReferences": owned(made, "Job", "batch/v1"),
    }
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await harness.kube.create(POD, {"metadata": metadata, "spec": spec})


async def next_job(harness: Harness) -> str:
    """The next Job of that name, which the JobSet makes. Returns its uid."""
    above = await harness.kube.get(JOB_SET.kind, "default", "set")
    body = job("j")
    body["metadata"]["ownerReferences"] = owned(above, "JobSet", JOB_SET.kind.api_version)
    uid: str = (await harness.kube.create(JOB, body))["metadata"]["uid"]
    return uid


async def end_pod(harness: Harness) -> None:
    await harness.kube.patch(POD, "default", "p", {"metadata": {"finalizers": None}})
    with suppress(NotFoundError):  # The garbage collector has deleted it.
        await harness.kube.delete(POD, "default", "p")
    await asyncio.sleep(60)


def ended(harness: Harness) -> list[str]:
    """Plurals of what is gone, in the order of the log."""
    return [one.plural for one in harness.published() if one.deleted]


@pytest.mark.parametrize(
    ("lets_out", "away"),
    [(False, False), (True, False), (False, True)],
    ids=["below it", "let out of it", "while no watcher is there"],
)
def test_owner_that_has_ended_is_gone_when_the_pods_of_its_jobs_are(
    *, lets_out: bool, away: bool
) -> None:
    """A JobSet that is complete counts no Job any more, and its Jobs' pods may end slowly."""

    async def drive(harness: Harness) -> None:
        await furnish(harness)
        await harness.start()
        await asyncio.sleep(5)
        if lets_out:
            nobody = {"metadata": {"ownerReferences": None}}
            await harness.kube.patch(JOB, "default", "j", nobody)
        await harness.kube.patch(JOB_SET.kind, "default", "set", COMPLETED, subresource="status")
        await asyncio.sleep(5)
        if away:
            await harness.kill()
        await harness.kube.delete(JOB_SET.kind, "default", "set")
        if away:
            await harness.start()
        await asyncio.sleep(60)
        assert ended(harness) == []
        await end_pod(harness)
        assert "jobsets" in ended(harness)

    run_harness(drive)


def test_what_was_made_ends_before_what_made_it() -> None:
    """Between the two the Job would run below nobody."""

    async def drive(harness: Harness) -> None:
        await furnish(harness)
        await harness.start()
        await asyncio.sleep(5)
        await harness.kube.delete(JOB_SET.kind, "default", "set")
        await asyncio.sleep(60)
        assert ended(harness) == []
        await end_pod(harness)
        assert ended(harness) == ["jobs", "jobsets"]

    run_harness(drive)


def test_owner_whose_jobs_have_ended_is_gone_at_once() -> None:
    async def drive(harness: Harness) -> None:
        await furnish(harness)
        await harness.start()
        await asyncio.sleep(5)
        done: Object = {
            "status": {"active": 0, "conditions": [{"type": "Complete", "status": "True"}]}
        }
        await harness.kube.patch(JOB, "default", "j", done, subresource="status")
        await harness.kube.patch(JOB_SET.kind, "default", "set", COMPLETED, subresource="status")
        await asyncio.sleep(5)
        await harness.kube.delete(JOB_SET.kind, "default", "set")
        await asyncio.sleep(1)
        assert "jobsets" in ended(harness)

    run_harness(drive)


@pytest.mark.parametrize("restarts", [False, True])
def test_owner_is_gone_when_the_pods_of_all_that_it_made_are(*, restarts: bool) -> None:
    """Its tenant deletes one Job after the other, and its controller makes the next one each time."""

    async def drive(harness: Harness) -> None:
        await furnish(harness)
        await harness.start()
        await asyncio.sleep(5)
        uids = [(await harness.kube.get(JOB, "default", "j"))["metadata"]["uid"]]
        for _ in range(2):
            await harness.delete("j")
            uids.append(await next_job(harness))
            await harness.kube.patch(JOB, "default", "j", ACTIVE, subresource="status")
            await asyncio.sleep(5)
        if restarts:
            await harness.kill()
            await harness.start()
            await asyncio.sleep(5)
        await harness.kube.patch(JOB_SET.kind, "default", "set", COMPLETED, subresource="status")
        await harness.kube.delete(JOB_SET.kind, "default", "set")
        await asyncio.sleep(60)
        alive = {one.uid for one in harness.published(DEPARTURE)}
        alive -= {one.uid for one in harness.published(DEPARTURE) if one.deleted}
        assert alive == {uids[0]}, "the second has no pod"
        assert "jobsets" not in ended(harness)
        await end_pod(harness)
        assert ended(harness)[-2:] == ["departures", "jobsets"]

    run_harness(drive)


@pytest.mark.parametrize("restarts", [False, True])
def test_departure_of_a_job_without_a_controller_ends_with_its_pods(*, restarts: bool) -> None:
    async def drive(harness: Harness) -> None:
        await furnish(harness, is_let_out=True)
        await harness.start()
        await asyncio.sleep(5)
        await harness.delete("j")
        await next_job(harness)
        await asyncio.sleep(5)
        if restarts:
            await harness.kill()
            await harness.start()
            await asyncio.sleep(5)
        assert [one.deleted for one in harness.published(DEPARTURE)] == [False]
        await end_pod(harness)
        assert [one.deleted for one in harness.published(DEPARTURE)] == [False, True]

    run_harness(drive)


def test_departure_of_a_kind_that_has_its_version_is_no_repetition_of_the_job() -> None:
    """The server drops a message whose id it has had, and acknowledges it."""

    async def drive(harness: Harness) -> None:
        kind = Kind(group="example.com", version=DEPARTURE.version, plural="parts", kind="Part")
        first = observed(kind, "part", {}, "default")
        apart = first.apart()
        assert apart is not None
        bus = MemoryBus(harness.server, instance="watcher")
        await bus.start()
        publisher = ObservedPublisher(bus)
        running = asyncio.create_task(publisher.run())
        for message in (first, apart, first.ended(), apart.ended()):
            publisher.put(message)
            await publisher.flush()
        running.cancel()
        assert [one.deleted for one in harness.published(kind)] == [False, True]
        assert [one.deleted for one in harness.published(DEPARTURE)] == [False, True]

    run_harness(drive)
