"""Quota of a job that is deleted while it runs is free when its pods are gone."""

from typing import Any, Final

import pytest

from services.simulator.cluster.api import DeleteOptions
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import QUEUE
from shared.contracts.simulation import RUN_IN_PODS
from tests.conformance.seeds.stage import Stage, job, pipeline_run, pool, story
from tests.simulation.kinds.test_integrations import job_set

CPU: Final = {"cpu": 2, "tekton.dev/pipelineruns": 1}
SLOW: Final = {"metadata": {"finalizers": ["example.com/slow"]}}
"""Keeps a pod on its node: it has not ended yet."""


def work(kind: str, name: str) -> Object:
    match kind:
        case "Job":
            return job(name, "q", {"cpu": 2})
        case "JobSet":
            made = job_set(name, workers=1)
            made["metadata"]["labels"] = {QUEUE: "q"}
            return made
        case _:
            return pipeline_run(name, labels={QUEUE: "q"}, annotations={RUN_IN_PODS: "true"})


async def pods(stage: Stage) -> list[Object]:
    return (await stage.kube.list(kinds.POD, namespace="team-a")).items


async def running(stage: Stage, kind: str) -> Object:
    """An admitted job whose pods run, and end slowly."""
    await stage.create(*pool("q", CPU))
    made = await stage.create(work(kind, "first"))
    await stage.until_admitted(made)

    async def has_pods() -> bool:
        found = await pods(stage)
        return bool(found) and all(p.get("status", {}).get("phase") == "Running" for p in found)

    await stage.until(has_pods)
    for pod in await pods(stage):
        await stage.kube.patch(kinds.POD, "team-a", pod["metadata"]["name"], SLOW)
    return made


async def delete(stage: Stage, obj: Object, propagation: str) -> None:
    api = stage.system.api
    kind = stage.kind(obj)
    served = api.kinds.find(kind.group, kind.version, kind.plural)
    assert served is not None
    options = DeleteOptions(propagation=propagation)
    await api.delete(served, "team-a", obj["metadata"]["name"], options)


async def end_pods(stage: Stage) -> None:
    for pod in await pods(stage):
        patch: Any = {"metadata": {"finalizers": None}}
        await stage.kube.patch(kinds.POD, "team-a", pod["metadata"]["name"], patch)


KINDS = ["Job", "JobSet", "PipelineRun"]


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
@pytest.mark.parametrize("kind", KINDS)
@story()
async def test_quota_of_a_deleted_job_is_free_when_its_pods_are_gone(
    stage: Stage, kind: str, propagation: str
) -> None:
    first = await running(stage, kind)
    await delete(stage, first, propagation)
    later = await stage.create(work(kind, "later"))
    await stage.settle(90)
    assert await pods(stage)
    assert not await stage.is_admitted(later)
    await end_pods(stage)
    await stage.until_admitted(later, seconds=60)


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
@story()
async def test_quota_of_a_stopped_job_is_free_when_its_pods_are_gone(
    stage: Stage, kind: str
) -> None:
    """A JobSet counts the Jobs of which pods are active, and not those whose pods still end."""
    first = await running(stage, kind)
    workload = await stage.workload(first)
    await stage.patch(workload, {"spec": {"active": False}})
    later = await stage.create(work("Job", "later"))
    await stage.settle(90)
    assert await pods(stage)
    assert not await stage.is_admitted(later)
    await end_pods(stage)
    await stage.until_admitted(later, seconds=60)


@story()
async def test_pods_that_a_job_leaves_behind_keep_its_quota(stage: Stage) -> None:
    first = await running(stage, "Job")
    await delete(stage, first, "Orphan")
    later = await stage.create(work("Job", "later"))
    await stage.settle(60)
    assert await pods(stage)
    assert not await stage.is_admitted(later)
    for pod in await pods(stage):
        await stage.kube.delete(kinds.POD, "team-a", pod["metadata"]["name"])
    await end_pods(stage)
    await stage.until_admitted(later, seconds=60)
    assert await stage.workload(first) == {}


@pytest.mark.parametrize("service", ["watcher", "classifier", "quota"])
@story()
async def test_restart_does_not_give_back_what_pods_still_use(stage: Stage, service: str) -> None:
    first = await running(stage, "Job")
    if service == "watcher":
        stage.system.world.crash("watcher-1", down_seconds=5.0)
    await delete(stage, first, "Background")
    later = await stage.create(work("Job", "later"))
    if service != "watcher":
        stage.system.world.crash(f"{service}-1", down_seconds=5.0)
    await stage.settle(60)
    assert not await stage.is_admitted(later)
    await end_pods(stage)
    await stage.until_admitted(later, seconds=60)


@story()
async def test_job_of_the_same_name_waits_for_the_pods_of_the_one_before(stage: Stage) -> None:
    first = await running(stage, "Job")
    for _ in range(3):
        await delete(stage, first, "Background")
        first = await stage.create(work("Job", "first"))
        await stage.settle(20)
        assert not await stage.runs(first)
    await end_pods(stage)
    await stage.until_admitted(first, seconds=60)


@story()
async def test_stripping_labels_and_owners_from_pods_gives_nothing_back(stage: Stage) -> None:
    first = await running(stage, "Job")
    await delete(stage, first, "Background")
    await stage.settle(5)
    for pod in await pods(stage):
        patch: Any = {"metadata": {"ownerReferences": None, "labels": None}}
        await stage.kube.patch(kinds.POD, "team-a", pod["metadata"]["name"], patch)
    later = await stage.create(work("Job", "later"))
    await stage.settle(60)
    assert not await stage.is_admitted(later)
    await end_pods(stage)
    await stage.until_admitted(later, seconds=60)


@story(settings={"watcher": {"release_quota": "jobGone"}})
async def test_quota_is_free_with_the_job_if_so_set(stage: Stage) -> None:
    first = await running(stage, "Job")
    await delete(stage, first, "Background")
    later = await stage.create(work("Job", "later"))
    await stage.until_admitted(later, seconds=10)
    assert await pods(stage)


@pytest.mark.parametrize("kind", KINDS)
@story()
async def test_deletion_of_a_job_that_waits_or_has_ended_is_seen_at_once(
    stage: Stage, kind: str
) -> None:
    await stage.create(*pool("q", {"cpu": 0, "tekton.dev/pipelineruns": 0}))
    waiting = await stage.create(work(kind, "first"))
    await stage.until_waits(waiting)
    await stage.delete(waiting)
    await stage.settle(1)
    assert await stage.workload(waiting) == {}
