"""AppWrappers wait as a whole: what is inside runs on their quota, also with a queue of its own."""

from typing import Any

from services.simulator.scenarios.system import WATCHED
from shared.contracts.kube.kinds import JOB, Object
from shared.contracts.kube.names import QUEUE
from shared.kube.port import RefusedError
from tests.conformance.seeds.stage import Stage, job, pool, story
from tests.simulation.kinds.test_ml_kinds import serve

KINDS = {"watcher": {"kinds": (*WATCHED["kinds"], "appwrappers.workload.codeflare.dev")}}


def wrapper(name: str, *inside: Object, **more: Any) -> Object:
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "team-a", "labels": {QUEUE: "queue"}},
        "spec": {"components": [{"template": one, **more} for one in inside]},
    }


def owned(obj: Object, by: Object, *, uid: str = "") -> Object:
    """The object as the operator of AppWrappers creates it."""
    owner = {
        "apiVersion": by["apiVersion"],
        "kind": by["kind"],
        "name": by["metadata"]["name"],
        "uid": uid or by["metadata"]["uid"],
        "controller": True,
    }
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [owner]}}


@story(settings=KINDS)
async def test_object_inside_an_app_wrapper_runs_on_its_quota_and_is_counted_once(
    stage: Stage,
) -> None:
    await stage.create(*pool("queue", {"cpu": 4}))
    await serve(stage, "AppWrapper", group="workload.codeflare.dev", version="v1beta2")
    inside = job("inside", queue="queue", parallelism=3, requests={"cpu": "1"})
    first = await stage.create(wrapper("first", inside))
    assert first["spec"]["suspend"] is True, "the webhook holds it"
    early = await stage.create(owned(job("early", queue="queue"), first))
    assert early["spec"]["suspend"] is True, "what it would cover waits with it"
    await stage.until_admitted(first)
    [pods] = (await stage.workload(first))["spec"]["podSets"]
    assert (pods["name"], pods["count"]) == ("first-0", 3)
    [component] = (await stage.fresh(first))["spec"]["components"]
    [info] = component["podSetInfos"]
    assert info["labels"]["kueue.x-k8s.io/podset"] == "first-0"

    made = await stage.create(owned(inside, first))
    assert not made["spec"].get("suspend"), "it runs at once"
    forged = await stage.create(owned(job("forged", queue="queue"), first, uid="u-none"))
    assert forged["spec"]["suspend"] is True, "an AppWrapper of that uid is not admitted"
    second = await stage.create(wrapper("second", job("other", None, {"cpu": 2})))
    await stage.until_waits(second, "insufficient unused quota for cpu")
    workloads = (await stage.kube.list(stage.kind(await stage.workload(first)))).items
    owners = {one["metadata"]["ownerReferences"][0]["name"] for one in workloads}
    assert "inside" not in owners

    await stage.patch(await stage.workload(first), {"spec": {"active": False}})
    await stage.settle()
    assert (await stage.fresh(first))["spec"]["suspend"] is True
    assert not await stage.is_admitted(second), "the Job inside still runs"
    for each in ("inside", "early"):
        assert not await stage.is_admitted(second)
        await stage.kube.delete(JOB, "team-a", each)
        await stage.settle()
    await stage.until_admitted(second)
    [component] = (await stage.fresh(first))["spec"]["components"]
    assert "podSetInfos" not in component


@story(settings=KINDS)
async def test_path_that_leads_nowhere_is_refused_with_object_path_and_cause(stage: Stage) -> None:
    await stage.create(*pool("queue", {"cpu": 4}))
    await serve(stage, "AppWrapper", group="workload.codeflare.dev", version="v1beta2")
    crew = {"apiVersion": "example.com/v1", "kind": "Crew", "spec": {}}
    try:
        await stage.create(wrapper("bad", crew, podSets=[{"path": "template.spec.pods"}]))
    except RefusedError as error:
        told = str(error)
    assert (
        "AppWrapper team-a/bad: spec.components[0].podSets[0].path: 'template.spec.pods': template.spec has "
        "no 'pods'" in told
    )
