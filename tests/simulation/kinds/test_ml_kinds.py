"""A kind that ships as a document waits, runs and ends in a cluster that begins to serve it."""

from typing import Any

import pytest
import yaml

from services.simulator.scenarios.system import WATCHED
from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.stage import Stage, pool, story
from tests.simulation.kinds.test_integrations import DEFINITIONS, condition

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}, singular: {singular}, listKind: {kind}List}}
  versions:
  - name: {version}
    served: true
    storage: true
    subresources: {subresources}
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"""
KINDS = {
    "watcher": {"kinds": (*WATCHED["kinds"], "pytorchjobs.kubeflow.org", "workflows.argoproj.io")}
}


async def serve(stage: Stage, kind: str, *, group: str, version: str) -> None:
    """Begin to serve a kind that nobody served when the watcher began."""
    await stage.settle(30)
    names = {"plural": f"{kind.lower()}s", "singular": kind.lower()}
    # Argo's definition has none.
    subresources = "{}" if kind == "Workflow" else "{status: {}}"
    of = {"kind": kind, "group": group, "version": version, "subresources": subresources}
    text = DEFINITION.format(**of, **names)
    await stage.kube.create(DEFINITIONS, yaml.safe_load(text))
    await stage.settle(90)  # It is looked for once a minute.


def training(name: str, *, workers: int) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    role: Any = {"template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "labels": {"kueue.x-k8s.io/queue-name": "queue"},
        },
        "spec": {"pytorchReplicaSpecs": {"Worker": {**role, "replicas": workers}, "Master": role}},
    }


@story(settings=KINDS)
async def test_kind_without_python_waits_runs_is_stopped_and_ends(stage: Stage) -> None:
    await stage.create(*pool("queue", {"cpu": 4}))
    await serve(stage, "PyTorchJob", group="kubeflow.org", version="v1")
    first = await stage.create(training("first", workers=3))
    assert first["spec"]["runPolicy"] == {"suspend": True}, "the webhook holds it"
    await stage.until_admitted(first)
    [master, workers] = (await stage.workload(first))["spec"]["podSets"]
    assert (master["name"], master["count"]) == ("master", 1)
    assert (workers["name"], workers["count"]) == ("worker", 3)
    assert (await stage.fresh(first))["spec"]["runPolicy"] == {"suspend": False}

    second = await stage.create(training("second", workers=1))
    await stage.until_waits(second, "insufficient unused quota for cpu")
    roles = {"replicaStatuses": {"Worker": {"active": 3}}}
    await stage.patch(first, {"status": roles}, subresource="status")
    await stage.patch(await stage.workload(first), {"spec": {"active": False}})
    await stage.settle()
    assert (await stage.fresh(first))["spec"]["runPolicy"] == {"suspend": True}
    assert not await stage.is_admitted(second), "the pods of the first have not ended"
    await stage.patch(
        first, {"status": {"replicaStatuses": {"Worker": {"active": 0}}}}, subresource="status"
    )
    await stage.until_admitted(second)
    await stage.patch(second, condition("Succeeded"), subresource="status")
    await stage.until_finished(second)


STATES: dict[str, Any] = {
    "done": {"replicaStatuses": {"Worker": {"succeeded": 3}}, **condition("Succeeded")["status"]},
    "stopped": {"replicaStatuses": {"Worker": {"active": 0}}},
}


@pytest.mark.parametrize("state", STATES)
@story(settings=KINDS, refuses_starts=True)
async def test_workers_that_are_left_keep_their_quota(stage: Stage, state: str) -> None:
    await stage.create(*pool("queue", {"cpu": 4}))
    await serve(stage, "PyTorchJob", group="kubeflow.org", version="v1")
    first = await stage.create(training("first", workers=3))
    await stage.until_admitted(first)
    pod = await stage.create(pod_of(first))
    active: Any = {"status": {"replicaStatuses": {"Worker": {"active": 3}}}}
    await stage.patch(first, active, subresource="status")
    second = await stage.create(training("second", workers=3))
    await stage.settle()
    if state == "stopped":
        await stage.patch(await stage.workload(first), {"spec": {"active": False}})
        await stage.settle()
    await stage.patch(first, {"status": STATES[state]}, subresource="status")
    await stage.settle(60)
    assert not await stage.is_admitted(second), "a worker of the first runs"
    done: Any = {"status": {"phase": "Succeeded"}}
    await stage.patch(pod, done, subresource="status")
    await stage.until_admitted(second)


def workflow(name: str) -> Object:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "labels": {"kueue.x-k8s.io/queue-name": "queue"},
        },
        "spec": {"entrypoint": "main"},
    }


@story(settings=KINDS)
async def test_workflows_of_argo_take_turns(stage: Stage) -> None:
    await stage.create(*pool("queue", {"argoproj.io/workflows": 1}))
    await serve(stage, "Workflow", group="argoproj.io", version="v1alpha1")
    first = await stage.create(workflow("first"))
    assert first["spec"]["suspend"] is True, "the webhook holds it"
    await stage.until_admitted(first)
    assert (await stage.fresh(first))["spec"]["suspend"] is False
    second = await stage.create(workflow("second"))
    await stage.until_waits(second, "insufficient unused quota for argoproj.io/workflows")
    ended = {"phase": "Error", "message": "no such template", "finishedAt": "2026-01-01T00:10:00Z"}
    await stage.patch(first, {"status": ended})
    await stage.settle(30)
    assert not await stage.is_admitted(second), "Argo has not said that it is done with it"
    await stage.patch(first, COMPLETED)
    await stage.until_finished(first)
    await stage.until_admitted(second)


COMPLETED: Any = {"metadata": {"labels": {"workflows.argoproj.io/completed": "true"}}}
"""As Argo's controller labels a Workflow with which it is done."""

WRITTEN: dict[str, Any] = {
    "that it has succeeded": {**COMPLETED, "status": {"phase": "Succeeded"}},
    "that it has never begun": {"status": None},
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
@story(settings=KINDS, refuses_starts=True)
async def test_workflow_has_its_place_until_its_pods_end_whatever_its_user_writes(
    stage: Stage, written: Any
) -> None:
    await stage.create(*pool("queue", {"argoproj.io/workflows": 1}))
    await serve(stage, "Workflow", group="argoproj.io", version="v1alpha1")
    first = await stage.create(workflow("first"))
    await stage.until_admitted(first)
    await stage.patch(first, {"status": {"phase": "Running", "nodes": {"a": {}}}})
    pod = await stage.create(pod_of(first))
    second = await stage.create(workflow("second"))
    await stage.until_waits(second, "insufficient unused quota for argoproj.io/workflows")
    await stage.patch(first, written)
    await stage.patch(await stage.workload(first), {"spec": {"active": False}})
    await stage.settle(120)
    assert not await stage.is_admitted(second), "the pod of the first runs"
    await stage.patch(pod, {"status": {"phase": "Succeeded"}}, subresource="status")
    await stage.patch(first, {**COMPLETED, "status": {"phase": "Succeeded"}})
    await stage.until_admitted(second)


@story(settings=KINDS, refuses_starts=True)
async def test_workflow_that_goes_on_after_its_user_ended_it_is_stopped(stage: Stage) -> None:
    """It has no pods between two steps, and Argo goes on once the label is gone."""
    await stage.create(*pool("queue", {"argoproj.io/workflows": 1}))
    await serve(stage, "Workflow", group="argoproj.io", version="v1alpha1")
    first = await stage.create(workflow("first"))
    await stage.until_admitted(first)
    running = {"status": {"phase": "Running", "nodes": {"a": {}}}}
    await stage.patch(first, running)
    await stage.settle(5)
    await stage.patch(first, {**COMPLETED, "status": {"phase": "Succeeded"}})
    await stage.until_finished(first)
    await stage.patch(first, {"metadata": {"labels": {"workflows.argoproj.io/completed": None}}})
    pod = await stage.create(pod_of(first))
    second = await stage.create(workflow("second"))
    await stage.until_waits(second, "insufficient unused quota for argoproj.io/workflows")

    async def is_ended() -> bool:
        return bool((await stage.fresh(first))["spec"].get("shutdown") == "Terminate")

    await stage.until(is_ended)
    await stage.patch(first, {**COMPLETED, "status": {"phase": "Failed"}})
    await stage.settle(60)
    assert not await stage.is_admitted(second), "the pod of the first runs"
    await stage.delete(pod)
    await stage.until_admitted(second)


def pod_of(owner: Object) -> Object:
    """A pod as the controller of a Workflow makes it."""
    metadata = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    reference |= {"name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata['name']}-step",
            "namespace": metadata["namespace"],
            "ownerReferences": [reference],
        },
        "spec": {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"},
    }
