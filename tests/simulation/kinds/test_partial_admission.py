"""How many pods a Job starts with, starts again with, and may run."""

import pytest

from services.simulator.behaviour.workloads.jobs import INDEX
from shared.contracts.kube.kinds import POD, Object
from shared.contracts.kube.names import EQUAL_COMPLETIONS, MIN_PARALLELISM
from tests.conformance.seeds.stage import Stage, job, pool, story
from tests.simulation.tenants.hostile_input import CPU, used


async def sizes(stage: Stage, obj: Object) -> tuple[int, int]:
    """Parallelism and completions of a Job as it is now."""
    spec = (await stage.fresh(obj))["spec"]
    return spec["parallelism"], spec["completions"]


async def set_active(stage: Stage, obj: Object, *, active: bool) -> None:
    await stage.patch(await stage.workload(obj), {"spec": {"active": active}})


@pytest.mark.parametrize("equal", [True, False], ids=["with equal completions", "without"])
@story()
async def test_job_that_starts_smaller_gets_its_size_back_when_it_is_stopped(
    stage: Stage, equal: bool
) -> None:
    await stage.create(*pool("q", {"cpu": 3}))
    annotations = {MIN_PARALLELISM: "2", EQUAL_COMPLETIONS: str(equal).lower()}
    obj = job("part", "q", CPU, parallelism=5, annotations=annotations)
    obj["spec"]["completionMode"] = "Indexed"
    part = await stage.create(obj)
    await stage.until_admitted(part)
    await stage.settle()
    assert await sizes(stage, part) == (3, 3 if equal else 5)
    assert len((await stage.kube.list(POD, namespace="team-a")).items) == 3
    assert await used(stage, "q") == "3"

    await set_active(stage, part, active=False)
    await stage.until_waits(part, "The workload is deactivated")
    assert await sizes(stage, part) == (5, 5)
    await set_active(stage, part, active=True)
    await stage.until_admitted(part)
    await stage.settle()
    assert await sizes(stage, part) == (3, 3 if equal else 5)


@story()
async def test_job_keeps_its_parallelism_when_it_starts_again_after_some_pods_have_finished(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 3}))
    three = await stage.create(job("three", "q", CPU, parallelism=3))
    await stage.until_admitted(three)
    await stage.settle()
    [pod, *_] = (await stage.kube.list(POD, namespace="team-a")).items
    done: Object = {"status": {"phase": "Succeeded"}}
    await stage.kube.patch(POD, "team-a", pod["metadata"]["name"], done, subresource="status")
    await stage.settle()

    await set_active(stage, three, active=False)
    await stage.until_waits(three, "The workload is deactivated")
    await set_active(stage, three, active=True)
    await stage.until_admitted(three)
    await stage.settle(60)
    assert await sizes(stage, three) == (3, 3)
    assert await stage.runs(three)
    assert await used(stage, "q") == "2"


@story()
async def test_indexes_that_run_anew_wait_for_the_quota_that_others_have_by_now(
    stage: Stage,
) -> None:
    """Completed indexes that a user takes off the end of a Job are forgotten; wanted again, they run."""
    await stage.create(*pool("q", {"cpu": 3}))
    obj = job("three", "q", CPU, parallelism=3)
    obj["spec"]["completionMode"] = "Indexed"
    three = await stage.create(obj)
    await stage.until_admitted(three)
    await stage.settle()
    done: Object = {"status": {"phase": "Succeeded"}}
    for pod in (await stage.kube.list(POD, namespace="team-a")).items:
        if pod["metadata"]["annotations"][INDEX] != "0":
            await stage.kube.patch(
                POD, "team-a", pod["metadata"]["name"], done, subresource="status"
            )
    await stage.settle()
    assert await used(stage, "q") == "1"
    other = await stage.create(job("other", "q", CPU, parallelism=2))
    await stage.until_admitted(other)

    for size in (1, 3):
        await stage.patch(three, {"spec": {"parallelism": size, "completions": size}})
        await stage.settle()
    await stage.until_waits(three, "couldn't assign flavors")
    await stage.settle(30)
    assert await stage.runs(other)
    assert not await stage.runs(three)
