"""What a tenant writes into the Workload of their own job keeps nobody from stopping that job."""

import pytest

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.stage import Stage, job, pool, story

CPU = {"cpu": 1}


def controlled_by(obj: Object) -> Object:
    metadata = obj["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "controller": True}
    return {"metadata": {"ownerReferences": [{**owner, "uid": metadata["uid"]}]}}


@pytest.mark.parametrize(
    "finalizers", [None, ["example.com/keep"]], ids=["", "kept by a finalizer"]
)
@story()
async def test_job_is_stopped_although_another_object_controls_its_workload(
    stage: Stage, finalizers: list[str] | None
) -> None:
    await stage.create(*pool("q", CPU))
    first = await stage.create(job("first", "q", CPU))
    await stage.until_admitted(first)
    second = await stage.create(job("second", "q", CPU))
    await stage.until_waits(second, "insufficient")
    patch = controlled_by(first)
    patch["metadata"]["finalizers"] = finalizers
    await stage.patch(await stage.workload(second), patch)
    await stage.patch(second, {"spec": {"suspend": False}})

    async def is_stopped() -> bool:
        now = await stage.fresh(second)
        pods = (now.get("status") or {}).get("active", 0)
        return bool(now["spec"]["suspend"]) and not pods

    await stage.until(is_stopped, seconds=30)
    await stage.settle(30)
    assert await is_stopped()
    assert await stage.runs(first)
    if finalizers is None:
        [owner] = (await stage.workload(second))["metadata"]["ownerReferences"]
        assert owner["uid"] == second["metadata"]["uid"], "it has a Workload of its own again"


@story()
async def test_workload_created_under_the_name_of_a_job_s_workload_is_removed(stage: Stage) -> None:
    await stage.create(*pool("q", CPU))
    first = await stage.create(job("first", "q", CPU))
    await stage.until_admitted(first)
    second = await stage.create(job("second", "q", CPU))
    await stage.until_waits(second, "insufficient")
    old = await stage.workload(second)
    await stage.patch(old, {"metadata": {"finalizers": None}})
    await stage.delete(old)
    imitation = {
        "apiVersion": kinds.WORKLOAD.api_version,
        "kind": "Workload",
        "metadata": {
            "name": old["metadata"]["name"],
            "namespace": "team-a",
            **controlled_by(first)["metadata"],
        },
        "spec": old["spec"],
    }
    await stage.create(imitation)
    await stage.delete(first)
    await stage.until_admitted(second)
    assert await stage.runs(second)
