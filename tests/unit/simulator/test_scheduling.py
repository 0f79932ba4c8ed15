"""Where pods go: the rules one by one, and what StatefulSets, claims and Tekton's assistants make of them."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from services.simulator.behaviour.nodes.scheduling import feasible, preferred
from services.simulator.behaviour.tekton.coscheduling import claim_name
from services.simulator.cluster.kinds.catalogue import (
    CLAIMS,
    CONFIG_MAPS,
    NODES,
    PIPELINERUNS,
    PODS,
    STATEFUL_SETS,
    TASKRUNS,
)
from services.simulator.cluster.kinds.registry import Obj
from shared.contracts.coscheduling import AFFINITY_ANNOTATION
from shared.contracts.simulation import DURATION
from tests.unit.simulator.builders import Cluster, in_cluster, pipeline_run, verdict

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def node(name: str, *, zone: str = "a", **spec: Any) -> Obj:
    return {"metadata": {"name": name, "labels": {HOST: name, ZONE: zone}}, "spec": spec}


def pod(name: str = "p", *, on: str = "", namespace: str = "default", **spec: Any) -> Obj:
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    return {"metadata": metadata, "spec": {**spec, **({"nodeName": on} if on else {})}}


def near(app: str, **more: Any) -> Obj:
    return {"podAffinity": required(app, **more)}


def far(app: str, **more: Any) -> Obj:
    return {"podAntiAffinity": required(app, **more)}


def required(app: str, *, key: str = HOST, **more: Any) -> Obj:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def rather_not(app: str) -> Obj:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST}
    wish = {"weight": 100, "podAffinityTerm": term}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


GPU = {"key": "gpu", "effect": "NoSchedule"}


@dataclass(frozen=True, kw_only=True)
class Case:
    pod: Obj
    goes_to: list[str]
    placed: list[Obj] = field(default_factory=list)
    nodes: list[Obj] = field(default_factory=lambda: [node("n1"), node("n2"), node("n3", zone="b")])
    volume_at: str | None = None


CASES = {
    "a pod without constraints fits every node": Case(pod=pod(), goes_to=["n1", "n2", "n3"]),
    "a cordoned node accepts no pod": Case(
        pod=pod(), nodes=[node("n1", unschedulable=True), node("n2")], goes_to=["n2"]
    ),
    "a taint excludes intolerant pods": Case(
        pod=pod(), nodes=[node("n1", taints=[GPU]), node("n2")], goes_to=["n2"]
    ),
    "a selector is a label of the node": Case(
        pod=pod(nodeSelector={ZONE: "b"}), goes_to=["n3"]
    ),
    "affinity leads to the node of the other pod": Case(
        pod=pod(affinity=near("other")), placed=[pod("other", on="n2")], goes_to=["n2"]
    ),
    "affinity with a zone as topology": Case(
        pod=pod(affinity=near("other", key=ZONE)),
        placed=[pod("other", on="n2")],
        goes_to=["n1", "n2"],
    ),
    "affinity to a missing pod fits no node": Case(pod=pod(affinity=near("other")), goes_to=[]),
    "the first pod with affinity to itself fits every node": Case(
        pod=pod(affinity=near("p")), goes_to=["n1", "n2", "n3"]
    ),
    "affinity ignores pods of other namespaces": Case(
        pod=pod(affinity=near("other")),
        placed=[pod("other", on="n2", namespace="elsewhere")],
        goes_to=[],
    ),
    "an empty namespace selector means all namespaces": Case(
        pod=pod(affinity=near("other", namespaceSelector={})),
        placed=[pod("other", on="n2", namespace="elsewhere")],
        goes_to=["n2"],
    ),
    "anti-affinity avoids the node of the other pod": Case(
        pod=pod(affinity=far("other")), placed=[pod("other", on="n2")], goes_to=["n1", "n3"]
    ),
    "anti-affinity of the other pod is respected": Case(
        pod=pod(), placed=[pod("other", on="n2", affinity=far("p"))], goes_to=["n1", "n3"]
    ),
    "preferred anti-affinity avoids the node": Case(
        pod=pod(affinity=rather_not("other")),
        placed=[pod("other", on="n2")],
        goes_to=["n1", "n3"],
    ),
    "preferred anti-affinity accepts the only fitting node": Case(
        pod=pod(affinity=rather_not("other"), nodeSelector={HOST: "n2"}),
        placed=[pod("other", on="n2")],
        goes_to=["n2"],
    ),
    "a local volume leads to its node": Case(
        pod=pod(volumes=[{"persistentVolumeClaim": {"claimName": "c"}}]),
        volume_at="n3",
        goes_to=["n3"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_pod_is_scheduled_to_a_fitting_node(case: Case) -> None:
    found = feasible(case.pod, case.nodes, case.placed, lambda _ns, _name: case.volume_at)
    chosen = preferred(case.pod, found, case.placed)
    assert [one["metadata"]["name"] for one in chosen] == case.goes_to


# --- StatefulSets and claims ---------------------------------------------------------------------


def stateful_set(**spec: Any) -> Obj:
    labels = {"app": "s"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c"}], **spec}}
    return {
        "metadata": {"name": "s"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def claim(name: str = "c", storage_class: str = "network") -> Obj:
    return {
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class},
    }


def mounting(*names: str) -> list[Obj]:
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]


def test_deleted_pod_of_a_set_comes_back_elsewhere_when_its_node_is_cordoned() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(STATEFUL_SETS, stateful_set())
        await cluster.after(1)
        before = cluster.get(PODS, "s-0")["spec"]["nodeName"]
        await cordon(cluster, before)
        cluster.api.delete_now(cluster.api.get(PODS, "default", "s-0"))
        await cluster.after(5)
        assert cluster.get(PODS, "s-0")["spec"]["nodeName"] != before
        assert cluster.get(STATEFUL_SETS, "s")["status"]["readyReplicas"] == 1

    in_cluster(story)


def test_pods_of_a_deleted_stateful_set_are_deleted_and_its_claims_stay() -> None:
    async def story(cluster: Cluster) -> None:
        body = stateful_set()
        body["spec"]["volumeClaimTemplates"] = [claim("data")]
        await cluster.create(STATEFUL_SETS, body)
        await cluster.after(1)
        assert cluster.get(CLAIMS, "data-s-0")["status"]["phase"] == "Bound"
        cluster.api.delete_now(cluster.api.get(STATEFUL_SETS, "default", "s"))
        await cluster.after(5)
        assert cluster.api.store.objects(PODS) == []
        assert [one.name for one in cluster.api.store.objects(CLAIMS)] == ["data-s-0"]

    in_cluster(story)


def test_claim_waits_for_its_first_pod_and_a_pod_for_its_claim() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(STATEFUL_SETS, stateful_set(volumes=mounting("c")))
        await cluster.after(1)
        pod_ = cluster.get(PODS, "s-0")
        assert verdict(pod_, "PodScheduled") == ("False", "Unschedulable")
        await cluster.create(CLAIMS, claim())
        await cluster.after(1)
        assert cluster.get(PODS, "s-0")["status"]["phase"] == "Running"
        assert cluster.get(CLAIMS, "c")["status"]["phase"] == "Bound"

    in_cluster(story)


def test_local_volume_keeps_its_pods_on_its_node() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(CLAIMS, claim(storage_class="local"))
        await cluster.create(STATEFUL_SETS, stateful_set(volumes=mounting("c")))
        await cluster.after(1)
        await cordon(cluster, cluster.get(PODS, "s-0")["spec"]["nodeName"])
        cluster.api.delete_now(cluster.api.get(PODS, "default", "s-0"))
        await cluster.after(60)
        assert "nodeName" not in cluster.get(PODS, "s-0")["spec"]

    in_cluster(story)


def test_volume_is_attached_to_one_node_at_a_time() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(CLAIMS, claim())
        for name, node_name in (("first", "node-1"), ("second", "node-2")):
            body: Obj = {
                "metadata": {
                    "name": name,
                    "annotations": {DURATION: "30s"},
                },
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": {HOST: node_name},
                    "volumes": mounting("c"),
                },
            }
            await cluster.create(PODS, body)
        await cluster.after(29)
        assert cluster.get(PODS, "second")["status"]["phase"] == "Pending"
        await cluster.after(32)
        assert cluster.get(PODS, "second")["status"]["phase"] == "Succeeded"

    in_cluster(story)


def test_claim_that_is_deleted_stays_as_long_as_a_pod_names_it() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(CLAIMS, claim())
        await cluster.create(STATEFUL_SETS, stateful_set(volumes=mounting("c")))
        await cluster.after(1)
        cluster.api.delete_now(cluster.api.get(CLAIMS, "default", "c"))
        await cluster.after(10)
        assert "deletionTimestamp" in cluster.get(CLAIMS, "c")["metadata"]
        cluster.api.delete_now(cluster.api.get(STATEFUL_SETS, "default", "s"))
        await cluster.after(10)
        assert cluster.api.store.objects(CLAIMS) == []

    in_cluster(story)


# --- Tekton's own assistants ---------------------------------------------------------------------


async def cordon(cluster: Cluster, name: str) -> None:
    await cluster.api.patch(NODES, "v1", "", name, {"spec": {"unschedulable": True}}, "merge")


async def tekton(cluster: Cluster, mode: str) -> None:
    body = {"metadata": {"name": "feature-flags"}, "data": {"coschedule": mode}}
    await cluster.api.create(
        cluster.api.kinds.by_resource("", "namespaces"),
        "v1",
        "",
        {"metadata": {"name": "tekton-pipelines"}},
    )
    await cluster.api.create(CONFIG_MAPS, "v1", "tekton-pipelines", body)


def with_workspaces(*, tasks: dict[str, list[str]], **spec: Any) -> Obj:
    names = sorted({name for used in tasks.values() for name in used})
    return pipeline_run(
        pipelineSpec={
            "tasks": [
                {"name": task, "workspaces": [{"name": name} for name in used]}
                for task, used in tasks.items()
            ]
        },
        workspaces=[
            {
                "name": name,
                "volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}},
            }
            for name in names
        ],
        **spec,
    )


def task_pods(cluster: Cluster) -> dict[str, str]:
    """Pipeline task to the node of its pod."""
    found = {}
    for stored in cluster.api.store.objects(PODS):
        task = (stored.obj["metadata"].get("labels") or {}).get("tekton.dev/pipelineTask")
        if task:
            found[task] = stored.obj["spec"].get("nodeName", "")
    return found


TEKTON = {
    "workspaces: tasks that share a claim share a node": (
        "workspaces", {"a": ["x"], "b": ["x"], "c": ["x"]}, [{"a", "b", "c"}], "True",
    ),
    "workspaces: two claims of one task are refused": (
        "workspaces", {"a": ["x", "y"]}, [], "False",
    ),
    "pipelineruns: all tasks share a node, with two claims as well": (
        "pipelineruns", {"a": ["x", "y"], "b": [], "c": ["y"]}, [{"a", "b", "c"}], "True",
    ),
    "isolate-pipelinerun: all tasks share a node": (
        "isolate-pipelinerun", {"a": ["x", "y"], "b": ["x"]}, [{"a", "b"}], "True",
    ),
    "disabled: two claims of one task are fine": (
        "disabled", {"a": ["x", "y"]}, [], "True",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TEKTON.values(), ids=TEKTON.keys())
def test_tekton_coschedules_according_to_its_setting(
    case: tuple[str, dict[str, list[str]], list[set[str]], str],
) -> None:
    mode, tasks, together, succeeded = case

    async def story(cluster: Cluster) -> None:
        await tekton(cluster, mode)
        await cluster.create(PIPELINERUNS, with_workspaces(tasks=tasks))
        await cluster.after(5)
        where = task_pods(cluster)
        for group in together:
            assert len({where[task] for task in group}) == 1
        await cluster.after(60)
        assert verdict(cluster.run())[0] == succeeded
        assert cluster.api.store.objects(STATEFUL_SETS) == []

    in_cluster(story)


def test_tekton_uses_a_claim_that_is_there_already() -> None:
    async def story(cluster: Cluster) -> None:
        await tekton(cluster, "disabled")
        body = with_workspaces(tasks={"a": ["x"]}, status="PipelineRunPending")
        run = await cluster.create(PIPELINERUNS, body)
        name = claim_name(run.obj["spec"]["workspaces"][0], run.uid)
        made = await cluster.create(CLAIMS, claim(name))
        await cluster.merge(PIPELINERUNS, "p", {"spec": {"status": None}})
        await cluster.after(60)
        assert verdict(cluster.run())[0] == "True"
        assert cluster.api.get(CLAIMS, "default", name).uid == made.uid

    in_cluster(story)


def test_affinity_annotation_of_a_run_places_its_tasks_beside_labelled_pods() -> None:
    async def story(cluster: Cluster) -> None:
        await tekton(cluster, "disabled")
        body = pipeline_run()
        body["metadata"]["annotations"][AFFINITY_ANNOTATION] = "mine"
        await cluster.create(PIPELINERUNS, body)
        await cluster.after(5)
        assert task_pods(cluster) == {"a": ""}
        labels = {
            "app.kubernetes.io/component": "affinity-assistant",
            "app.kubernetes.io/instance": "mine",
        }
        placeholder: Obj = {
            "metadata": {"name": "placeholder", "labels": labels},
            "spec": {"nodeSelector": {HOST: "node-2"}, "containers": [{"name": "c"}]},
        }
        await cluster.create(PODS, placeholder)
        await cluster.after(2)
        assert task_pods(cluster) == {"a": "node-2"}
        taskrun = cluster.get(TASKRUNS, "p-a")
        assert taskrun["metadata"]["annotations"][AFFINITY_ANNOTATION] == "mine"

    in_cluster(story)
