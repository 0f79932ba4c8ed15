"""A kind that nobody wrote code for, from its document to the end of its objects, in a whole world."""

from typing import Any

import pytest
import yaml

from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.simulation import DURATION
from shared.kube.port import NotFoundError
from tests.conformance.seeds.stage import Stage, job, pool, priority, story

CRD = yaml.safe_load("""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets, singular: gadget, listKind: GadgetList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
""")

INTEGRATION = """
apiVersion: sluicegate.dev/v1alpha1
kind: Integration
metadata:
  name: gadgets.example.com
spec:
  kind: {group: example.com, version: v1, kind: Gadget, plural: gadgets}
  podSets:
  - template: spec.template
    count: spec.replicas
"""

GADGET = Kind(group="example.com", version="v1", plural="gadgets", kind="Gadget")
INTEGRATIONS = Kind(
    group="sluicegate.dev",
    version="v1alpha1",
    plural="integrations",
    kind="Integration",
    namespaced=False,
)
DEFINITIONS = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
)


def integration(**spec: Any) -> Object:
    document: Object = yaml.safe_load(INTEGRATION)
    document["spec"] |= spec
    return document


def gadget(name: str, *, cpu: str = "1", replicas: int = 2, **metadata: Any) -> Object:
    container = {"name": "work", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "example.com/v1",
        "kind": "Gadget",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "labels": {"kueue.x-k8s.io/queue-name": "queue"},
            **metadata,
        },
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
    }


def condition(type_: str, status: str = "True") -> Object:
    return {"status": {"conditions": [{"type": type_, "status": status, "message": "so it is"}]}}


async def set_up(stage: Stage, document: Object, **queue: Any) -> None:
    await stage.create(*pool("queue", {"cpu": 3}, **queue))
    await stage.kube.create(DEFINITIONS, CRD)
    await stage.kube.create(INTEGRATIONS, document)
    await stage.settle(40)  # A kind that was not served is looked for again now and then.


@story()
async def test_kind_integrated_by_ten_lines_waits_runs_and_finishes(stage: Stage) -> None:
    assert len(INTEGRATION.strip().splitlines()) <= 10
    await set_up(stage, integration())
    first = await stage.kube.create(GADGET, gadget("first"))
    assert first["spec"]["suspend"] is True, "the webhook holds it"
    await stage.until_admitted(first)
    assert await stage.runs(first)
    second = await stage.kube.create(GADGET, gadget("second"))
    await stage.until_waits(second, "insufficient unused quota for cpu")
    assert not await stage.runs(second)
    await stage.patch(first, condition("Complete"), subresource="status")
    await stage.until_finished(first)
    await stage.until_admitted(second)
    assert await stage.runs(second)


@story()
async def test_invalid_update_of_a_document_keeps_the_valid_one_and_reports_why(
    stage: Stage,
) -> None:
    await set_up(stage, integration())
    document = await stage.kube.get(INTEGRATIONS, None, "gadgets.example.com")
    assert active(document)["status"] == "True"
    assert document["status"]["accepted"] == document["spec"]
    bad = {"podSets": [{"template": "spec.template", "count": "spec.replicas +\n 'two' * 2"}]}
    await stage.patch(document, {"spec": bad})
    await stage.settle()
    document = await stage.kube.get(INTEGRATIONS, None, "gadgets.example.com")
    said = active(document)
    assert said["status"] == "False"
    assert "spec.podSets[0].count: line 2, column 8: found no matching overload" in said["message"]
    assert said["message"].endswith("the one before is in force")
    first = await stage.kube.create(GADGET, gadget("first"))
    await stage.until_admitted(first)
    await stage.patch(document, {"spec": integration()["spec"]})
    await stage.settle()
    document = await stage.kube.get(INTEGRATIONS, None, "gadgets.example.com")
    assert active(document)["status"] == "True"


@story()
async def test_second_document_for_a_kind_is_reported_and_used_after_the_first_is_deleted(
    stage: Stage,
) -> None:
    await set_up(stage, integration())
    second = integration(podSets=[{"template": "spec.template", "count": "1"}])
    second["metadata"]["name"] = "a-second"
    await stage.kube.create(INTEGRATIONS, second)
    await stage.settle()
    said = active(await stage.kube.get(INTEGRATIONS, None, "a-second"))
    assert said["message"] == "Integration gadgets.example.com speaks for that kind already"
    for service in ("watcher", "classifier", "patcher"):
        stage.system.world.crash(f"{service}-1", down_seconds=3.0)
    await stage.settle(20)
    assert active(await stage.kube.get(INTEGRATIONS, None, "a-second")) == said

    await stage.kube.delete(INTEGRATIONS, None, "gadgets.example.com")
    await stage.settle()
    said = active(await stage.kube.get(INTEGRATIONS, None, "a-second"))
    assert said["status"] == "True"
    first = await stage.kube.create(GADGET, gadget("first", replicas=9))
    await stage.until_admitted(first)
    [assigned] = (await stage.workload(first))["status"]["admission"]["podSetAssignments"]
    assert assigned["count"] == 1


@story()
async def test_changed_document_takes_effect_without_a_restart(stage: Stage) -> None:
    await set_up(stage, integration())
    first = await stage.kube.create(GADGET, gadget("first"))
    await stage.until_admitted(first)
    second = await stage.kube.create(GADGET, gadget("second"))
    await stage.until_waits(second, "insufficient")
    document = await stage.kube.get(INTEGRATIONS, None, "gadgets.example.com")
    one = {"podSets": [{"template": "spec.template", "count": "1"}]}
    await stage.patch(document, {"spec": one})
    await stage.until_admitted(second)


@story()
async def test_object_whose_expression_fails_waits_with_the_reason(stage: Stage) -> None:
    await set_up(stage, integration())
    odd = gadget("odd")
    odd["spec"]["replicas"] = "two"
    made = await stage.kube.create(GADGET, odd)
    await stage.settle()
    (why,) = await stage.events(made, "ErrWorkloadCompose")
    assert "spec.podSets[0].count: must return int, but returned 'two'" in why
    assert not await stage.runs(made)
    await stage.patch(made, {"spec": {"replicas": 1}})
    await stage.until_admitted(made)


BROKEN: dict[str, tuple[Object, str]] = {
    "a template that cannot be read": (
        {"template": {"spec": {"containers": "work"}}},
        "spec.podSets[0].template.spec.containers: must be a list, got str",
    ),
    "a node that nothing can require": (
        {"template": {"spec": {"containers": [], "nodeSelector": "spot"}}},
        "spec.podSets[0].template.spec.nodeSelector: must be an object, got str",
    ),
}


@pytest.mark.parametrize(("spec", "why"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("when", ["at its creation", "while it waits", "while it runs"])
@story()
async def test_malformed_object_without_a_schema_does_not_affect_others(
    stage: Stage, spec: Object, why: str, when: str
) -> None:
    """A definition that leaves the template open lets anything in."""
    await set_up(stage, integration())
    wanted = gadget("odd")
    if when == "while it waits":
        await stage.until_admitted(await stage.kube.create(GADGET, gadget("before")))
    if when == "at its creation":
        wanted["spec"] |= spec
    odd = await stage.kube.create(GADGET, wanted)
    if when == "while it runs":
        await stage.until_admitted(odd)
    else:
        await stage.until_waits(odd, "" if when == "while it waits" else why)
    if when != "at its creation":
        changes = [{"op": "add", "path": f"/spec/{k}", "value": v} for k, v in spec.items()]
        await stage.patch(odd, changes)
    if when == "while it waits":
        await stage.until_waits(odd, why)
    fine = await stage.create(job("fine", "queue", {"cpu": 1}))
    await stage.until_admitted(fine)
    assert await stage.is_admitted(odd) == (when == "while it runs")


@story()
async def test_object_with_raised_requests_stops_until_quota_is_free(
    stage: Stage,
) -> None:
    await set_up(stage, integration())
    one = await stage.kube.create(GADGET, gadget("one"))
    await stage.until_admitted(one)
    template = gadget("one", cpu="2")["spec"]["template"]
    await stage.patch(one, {"spec": {"template": template}})
    await stage.until_waits(one, "insufficient quota for cpu")
    assert not await stage.runs(one)
    stopped = "The job asks for 2 cpu for each of 2 pods in main, admitted 2 for all"
    assert any(stopped in said for said in await stage.events(one, "Stopped"))

    await stage.patch(one, {"spec": {"replicas": 1}})
    await stage.until_admitted(one)
    await stage.settle()
    assert await stage.runs(one)
    template = gadget("one", cpu="1")["spec"]["template"]
    await stage.patch(one, {"spec": {"template": template}})
    await stage.settle()
    assert await stage.runs(one), "less is its own affair"


@story()
async def test_restarted_service_knows_the_kind_and_running_objects_keep_quota(
    stage: Stage,
) -> None:
    await set_up(stage, integration())
    first = await stage.kube.create(GADGET, gadget("first"))
    await stage.until_admitted(first)
    second = await stage.kube.create(GADGET, gadget("second"))
    await stage.until_waits(second, "insufficient")
    for service in ("watcher", "classifier", "patcher", "quota"):
        stage.system.world.crash(f"{service}-1", down_seconds=3.0)
        await stage.settle(20)
        assert await stage.is_admitted(first), service
        assert await stage.runs(first), service
        assert not await stage.is_admitted(second), service
    await stage.patch(first, condition("Complete"), subresource="status")
    await stage.until_admitted(second)


@story()
async def test_running_object_is_preempted_and_started_again(
    stage: Stage,
) -> None:
    await stage.create(priority("high", 1000))
    await set_up(stage, integration(), preemption={"withinClusterQueue": "LowerPriority"})
    low = await stage.kube.create(GADGET, gadget("low"))
    await stage.until_admitted(low)
    labels = {
        "kueue.x-k8s.io/queue-name": "queue",
        "kueue.x-k8s.io/priority-class": "high",
    }
    high = await stage.kube.create(GADGET, gadget("high", labels=labels))
    await stage.until_admitted(high)
    assert not await stage.runs(low)
    await stage.patch(high, condition("Complete"), subresource="status")
    await stage.until_admitted(low)
    assert await stage.runs(low)


@story(configuration={"objectRetentionPolicies": {"workloads": {"afterDeactivatedByKueue": "2m"}}})
async def test_object_above_its_execution_time_is_deactivated_and_deleted_after_retention(
    stage: Stage,
) -> None:
    await set_up(stage, integration())
    labels = {
        "kueue.x-k8s.io/queue-name": "queue",
        "kueue.x-k8s.io/max-exec-time-seconds": "60",
    }
    long = await stage.kube.create(GADGET, gadget("long", labels=labels))
    await stage.until_admitted(long)
    await stage.settle(80)
    assert not await stage.runs(long)
    assert (await stage.workload(long))["spec"]["active"] is False
    stage.system.world.crash("patcher-1", down_seconds=120.0)
    await stage.settle(180)
    with pytest.raises(NotFoundError):
        await stage.fresh(long)


@story()
async def test_object_made_by_an_admitted_controller_does_not_wait(stage: Stage) -> None:
    await set_up(stage, integration(children=[{"group": "example.com", "kind": "Gadget"}]))
    parent = await stage.kube.create(GADGET, gadget("parent"))
    owner = {
        "apiVersion": "example.com/v1",
        "kind": "Gadget",
        "name": "parent",
        "uid": parent["metadata"]["uid"],
        "controller": True,
    }
    await stage.until_admitted(parent)
    child = await stage.kube.create(GADGET, gadget("child", ownerReferences=[owner]))
    assert "suspend" not in child["spec"]
    await stage.settle()
    assert await stage.workload(child) == {}


def active(document: Object) -> Object:
    conditions: list[Object] = (document.get("status") or {}).get("conditions") or []
    return next(c for c in conditions if c["type"] == "Active")


# JobSet ----------------------------------------------------------------------------------------------

JOB_SETS = Kind(group="jobset.x-k8s.io", version="v1alpha2", plural="jobsets", kind="JobSet")


def job_set(name: str, **replicas: int) -> Object:
    """A replicated job for each argument, two pods in each of its Jobs."""
    container = {"name": "work", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    annotations = {DURATION: "60s"}
    pod = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    job = {"spec": {"parallelism": 2, "completions": 2, "template": pod}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "labels": {"kueue.x-k8s.io/queue-name": "queue"},
        },
        "spec": {
            "replicatedJobs": [
                {"name": part, "replicas": count, "template": job}
                for part, count in replicas.items()
            ]
        },
    }


@story()
async def test_job_set_waits_as_a_whole_runs_on_nodes_of_its_flavor_and_finishes(
    stage: Stage,
) -> None:
    await stage.create(*pool("queue", {"cpu": 7}))
    labels = {"spec": {"nodeLabels": {"pool": "spot"}}}
    flavor = Kind(
        group="kueue.x-k8s.io",
        version="v1beta2",
        plural="resourceflavors",
        kind="ResourceFlavor",
        namespaced=False,
    )
    await stage.kube.patch(flavor, None, "default-flavor", labels)
    node = {"metadata": {"name": "spot-1", "labels": {"pool": "spot"}}}
    await stage.create({"apiVersion": "v1", "kind": "Node", **node})
    first = await stage.kube.create(JOB_SETS, job_set("first", driver=1, workers=2))
    second = await stage.kube.create(JOB_SETS, job_set("second", workers=2))
    assert first["spec"]["suspend"] is True
    await stage.until_admitted(first)
    workload = await stage.workload(first)
    assert [(p["name"], p["count"]) for p in workload["spec"]["podSets"]] == [
        ("driver", 2),
        ("workers", 4),
    ]
    running = await stage.fresh(first)
    for replicated in running["spec"]["replicatedJobs"]:
        assert replicated["template"]["spec"]["template"]["spec"]["nodeSelector"] == {
            "pool": "spot"
        }
    await stage.until_waits(second, "insufficient")
    await stage.until_finished(first)
    await stage.until_finished(second)
    # The Jobs of a set inherit nothing that waits: only the sets have Workloads.
    workloads = await stage.kube.list(
        Kind(group="kueue.x-k8s.io", version="v1beta2", plural="workloads", kind="Workload"),
        namespace="team-a",
    )
    assert len(workloads.items) == 2
