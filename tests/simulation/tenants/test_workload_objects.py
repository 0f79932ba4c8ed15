"""What a tenant writes into the Workload of their own job keeps nobody from stopping that job."""

import pytest

from services.simulator.cluster.admission import AdmissionRequest
from services.simulator.cluster.errors import bad_request
from services.simulator.cluster.kinds.registry import Obj
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import ORIGIN, PREBUILT_WORKLOAD, QUEUE
from shared.contracts.messages.admissions import HOLDING
from shared.kube.port import RefusedError
from tests.conformance.seeds.stage import Stage, job, pipeline_run, pool, story

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


class NoWorkloads:
    """Somebody's policy: no Workload of a job whose name begins with `wild` is stored."""

    name = "no-workloads"

    async def mutate(self, request: AdmissionRequest) -> Obj | None:
        return request.obj

    async def validate(self, request: AdmissionRequest) -> None:
        if request.kind.kind == "Workload" and "wild" in request.name:
            raise bad_request('admission webhook "policy" denied the request: no Workload of it')


@pytest.mark.parametrize("kind", ["Job", "PipelineRun"])
@story()
async def test_job_whose_workload_is_refused_is_counted_and_stopped(
    stage: Stage, kind: str
) -> None:
    await stage.create(*pool("q", {"cpu": 1, "tekton.dev/pipelineruns": 1}))
    stage.system.api.admission.plugins.append(NoWorkloads())
    if kind == "Job":
        wild = await stage.create(job("wild", "q", CPU))
        await stage.patch(wild, {"spec": {"suspend": False}})
    else:
        wild = await stage.create(pipeline_run("wild", labels={QUEUE: "q"}))
        await stage.patch(wild, {"spec": {"status": None}})

    async def ended() -> bool:
        status = (await stage.fresh(wild)).get("status") or {}
        conditions = {one["type"]: one["status"] for one in status.get("conditions") or []}
        if kind == "PipelineRun":
            return conditions.get("Succeeded") == "False"
        return conditions.get("Suspended") == "True" and not status.get("active")

    await stage.until(ended, seconds=30)
    await stage.settle(30)
    assert await ended()
    logs = stage.system.message_logs()
    held = [one.message.state in HOLDING for one in logs.admissions if "wild" in one.message.name]
    assert held.count(True) >= 1, "it was counted before it was stopped"


@pytest.mark.parametrize("is_running", [False, True], ids=["that waits", "that runs"])
@story()
async def test_labels_of_a_copy_do_not_move_a_job_out_of_sight_of_quota(
    stage: Stage, is_running: bool
) -> None:
    await stage.create(*pool("q", CPU))
    if not is_running:
        await stage.until_admitted(await stage.create(job("first", "q", CPU)))
    wild = await stage.create(job("wild", "q", CPU))
    await stage.settle(5)
    labels = {ORIGIN: "multikueue", PREBUILT_WORKLOAD: "job-of-another"}
    await stage.patch(wild, {"metadata": {"labels": {ORIGIN: "multikueue"}}})
    if is_running:
        with pytest.raises(RefusedError, match="field is immutable"):
            await stage.patch(wild, {"metadata": {"labels": labels}})
    else:
        await stage.patch(wild, {"metadata": {"labels": {**labels, QUEUE: None}}})
        await stage.patch(wild, {"spec": {"suspend": False}})
    await stage.settle(30)
    assert await stage.runs(wild) is is_running
    last = [r.message for r in stage.system.message_logs().admissions if "wild" in r.message.name]
    assert {one.name for one in last} == {(await stage.workload(wild))["metadata"]["name"]}


@story()
async def test_workload_that_its_user_keeps_gives_no_quota_twice(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 1}))
    first = await stage.create(job("first", "q", {"cpu": 1}))
    await stage.until_admitted(first)
    kept = await stage.workload(first)
    await stage.patch(kept, {"metadata": {"finalizers": ["example.com/keep"]}})
    await stage.delete(first)
    second = await stage.create(job("second", "q", {"cpu": 1}))
    await stage.until_admitted(second)
    await stage.patch(kept, {"metadata": {"ownerReferences": None}})
    await stage.settle(20)
    assert "admission" not in (await stage.fresh(kept))["status"]
    assert await stage.runs(second)
    of_kept = [
        one.message.state
        for one in stage.system.message_logs().admissions
        if one.message.name == kept["metadata"]["name"]
    ]
    assert of_kept[-1] == "released"
