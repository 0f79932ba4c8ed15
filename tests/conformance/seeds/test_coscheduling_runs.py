"""Document 002: coscheduling, chosen run by run where the document has one setting for a whole cluster.

Nodes, volumes, StatefulSets and Tekton are the simulator's; Tekton is set to `coschedule: disabled`
unless a story says otherwise. See `docs/how-to/coschedule.md`.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from shared.contracts import coscheduling
from shared.contracts.coscheduling import (
    AFFINITY_ANNOTATION,
    COMPONENT_LABEL,
    INSTANCE_LABEL,
    placeholder_name,
)
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Object
from shared.contracts.simulation import RUN_IN_PODS
from shared.kube.port import RefusedError
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, pipeline_run, pool, story

NODES = ("node-1", "node-2", "node-3")
PER_RUN = ("pipelineruns", "isolate-pipelinerun")
QUOTA = {"tekton.dev/pipelineruns": 20, coscheduling.NODE_SLOTS: len(NODES)}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


async def furnish(
    stage: Stage, *, tekton: str = "disabled", quota: Mapping[str, int] = QUOTA
) -> None:
    """Quota for runs and their nodes, and Tekton's own setting."""
    flags = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "feature-flags", "namespace": "tekton-pipelines"},
        "data": {"coschedule": tekton},
    }
    await stage.create(
        flags,
        *pool("pipelines", quota, namespaces=("team-a", "team-b"), local="pipelines-queue"),
    )


def run(
    mode: str | None,
    tasks: Mapping[str, list[str]],
    *,
    name: str = "my-pipelinerun",
    in_order: bool = False,
    workspaces: list[Object] | None = None,
    storage_class: str = "network",
    **more: Any,
) -> Object:
    """A run of tasks with the workspaces that each uses, bound to claims made of templates."""
    made = pipeline_run(
        name,
        seconds=more.pop("seconds", 30),
        annotations={
            RUN_IN_PODS: "true",
            **({} if mode is None else {names.COSCHEDULE: mode}),
        },
        **more,
    )
    before: list[str] = []
    listed = []
    for task, used in tasks.items():
        listed.append(
            {
                "name": task,
                "taskSpec": {"steps": [{"name": "work", "image": "none"}]},
                "workspaces": [{"name": one} for one in used],
                "runAfter": list(before) if in_order else [],
            }
        )
        before = [task]
    template = {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        }
    }
    all_names = list(dict.fromkeys(one for used in tasks.values() for one in used))
    made["spec"]["pipelineSpec"] = {
        "workspaces": [{"name": one} for one in all_names],
        "tasks": listed,
    }
    made["spec"]["workspaces"] = (
        [{"name": one, "volumeClaimTemplate": template} for one in all_names]
        if workspaces is None
        else workspaces
    )
    return made


async def where(stage: Stage, name: str = "my-pipelinerun") -> dict[str, str]:
    """Task to the node of its pod."""
    pods = await stage.kube.list(kinds.POD, labels=f"tekton.dev/pipelineRun={name}")
    return {
        pod["metadata"]["labels"]["tekton.dev/pipelineTask"]: pod["spec"].get("nodeName", "")
        for pod in pods.items
        if "tekton.dev/pipelineTask" in pod["metadata"]["labels"]
    }


async def placeholders(stage: Stage) -> list[Object]:
    pods = await stage.kube.list(kinds.POD, labels=f"{COMPONENT_LABEL}=affinity-assistant")
    return pods.items


async def until_done(stage: Stage, *runs: Object) -> None:
    for one in runs:

        async def done(of: Object = one) -> bool:
            conditions = ((await stage.fresh(of)).get("status") or {}).get("conditions") or []
            return any(c["type"] == "Succeeded" and c["status"] == "True" for c in conditions)

        await stage.until(done, seconds=600)


async def until_started(stage: Stage, made: Object, *tasks: str) -> dict[str, str]:
    """Wait until pods of these tasks have nodes; return task to node."""

    async def started() -> bool:
        found = await where(stage, made["metadata"]["name"])
        return all(found.get(task) for task in tasks)

    await stage.until(started)
    return await where(stage, made["metadata"]["name"])


async def cordon(stage: Stage, *nodes: str, off: bool = False) -> None:
    for node in nodes:
        patch = {"spec": {"unschedulable": None if off else True}}
        await stage.kube.patch(kinds.NODE, None, node, patch)


# --- summary, goals, use case ----------------------------------------------------------------------


@says("002:53-58", "002:133-143")
@pytest.mark.parametrize("mode", PER_RUN)
@story()
async def test_all_of_a_runs_pods_are_scheduled_to_the_same_node(stage: Stage, mode: str) -> None:
    await furnish(stage)
    made = await stage.create(run(mode, {"a": [], "b": [], "c": [], "d": []}))
    found = await until_started(stage, made, "a", "b", "c", "d")
    assert len(set(found.values())) == 1
    await until_done(stage, made)


@says("002:133-143")
@story()
async def test_disabled_leaves_every_pod_to_the_scheduler(stage: Stage) -> None:
    await furnish(stage)
    made = await stage.create(run("disabled", {"a": [], "b": [], "c": []}))
    found = await until_started(stage, made, "a", "b", "c")
    assert len(set(found.values())) == len(NODES)
    assert await placeholders(stage) == []


@says("002:133-143")
@story()
async def test_workspaces_runs_all_pods_that_share_a_workspace_on_one_node(stage: Stage) -> None:
    await furnish(stage)
    uses = {"a": ["x"], "b": ["x"], "c": ["y"], "d": ["y"], "e": []}
    made = await stage.create(run("workspaces", uses))
    found = await until_started(stage, made, *uses)
    assert found["a"] == found["b"]
    assert found["c"] == found["d"]
    assert found["a"] != found["c"], "placeholders keep apart where they can"
    await until_done(stage, made)


@says("002:68-70", "002:388-390")
@pytest.mark.parametrize("mode", PER_RUN)
@story()
async def test_several_claims_in_one_task_and_one_claim_in_several_tasks(
    stage: Stage, mode: str
) -> None:
    await furnish(stage)
    made = await stage.create(run(mode, {"a": ["x"], "b": ["x", "y"], "c": ["y", "z"]}))
    await until_started(stage, made, "a", "b", "c")
    assert len(set((await where(stage)).values())) == 1
    await until_done(stage, made)


@says("002:72-74", "002:80-118")
@story()
async def test_the_use_case_builds_with_a_made_claim_and_a_brought_one(stage: Stage) -> None:
    """The brought claim is bound to a node already: the run goes there, and its author did not say so."""
    await furnish(stage)
    cache = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "build-cache-pvc", "namespace": "team-a"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local-immediate"},
    }
    await stage.create(cache)
    await stage.settle(1)
    claim = await stage.fresh(cache)
    node = claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"]
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}}
    made = await stage.create(
        run(
            "pipelineruns",
            {"clone": ["source"], "build": ["source", "cache"]},
            in_order=True,
            workspaces=[
                {"name": "source", "volumeClaimTemplate": template},
                {"name": "cache", "persistentVolumeClaim": {"claimName": "build-cache-pvc"}},
            ],
        )
    )
    await until_done(stage, made)
    assert await where(stage) == {"clone": node, "build": node}
    await stage.until_finished(made)
    assert (await stage.fresh(cache))["metadata"]["uid"] == claim["metadata"]["uid"]


@says("002:80-118")
@story()
async def test_without_coscheduling_the_use_case_has_no_node_at_all(stage: Stage) -> None:
    """Two local volumes on two nodes: what the document is about, and what waits for ever."""
    await furnish(stage)
    for name, node in (("left", "node-1"), ("right", "node-2")):
        await cordon(stage, *(one for one in NODES if one != node))
        await stage.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "team-a"},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"},
            }
        )
        brought = [{"name": "w", "persistentVolumeClaim": {"claimName": name}}]
        first = await stage.create(run(None, {"a": ["w"]}, name=name, workspaces=brought))
        await until_done(stage, first)
        await cordon(stage, *NODES, off=True)
    both = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in ("left", "right")]
    plain = await stage.create(run(None, {"a": ["left", "right"]}, name="plain", workspaces=both))
    held = await stage.create(
        run("pipelineruns", {"a": ["left", "right"]}, name="held", workspaces=both)
    )
    await stage.settle(60)
    assert await where(stage, "plain") == {"a": ""}
    assert (await stage.fresh(plain))["status"]["startTime"], "its timeout runs"
    # A coscheduled run cannot either, but it waits before its time begins, and says why.
    assert "startTime" not in ((await stage.fresh(held)).get("status") or {})
    assert any(
        "has no node yet" in said for said in await stage.events(held, "AnchorUnschedulable")
    )


# --- requirements and configuration ----------------------------------------------------------------


@says("002:124-127", "002:133-143")
@story()
async def test_an_isolated_run_has_its_node_for_itself(stage: Stage) -> None:
    await furnish(stage)
    runs = [
        await stage.create(
            run("isolate-pipelinerun", {"a": [], "b": []}, name=f"alone-{n}", in_order=True,
                namespace=("team-a", "team-b")[n % 2])
        )
        for n in range(5)
    ]  # fmt: skip
    runs += [await stage.create(run(None, {"a": []}, name="other", seconds=5))]
    finished: set[str] = set()
    while len(finished) < len(runs):
        taken: dict[str, set[str]] = {}
        for name in (one["metadata"]["name"] for one in runs):
            pods = await stage.kube.list(kinds.POD, labels=f"tekton.dev/pipelineRun={name}")
            for pod in pods.items:
                if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
                    taken.setdefault(pod["spec"].get("nodeName", ""), set()).add(name)
        for node, names_ in taken.items():
            assert not node or len(names_) == 1, f"{node} has {names_}"
        finished |= {
            one["metadata"]["name"]
            for one in runs
            if ((await stage.fresh(one)).get("status") or {}).get("completionTime")
        }
        assert stage.now() < 900
        await asyncio.sleep(0.5)


@says("002:124-127")
@story()
async def test_isolated_runs_wait_in_the_queue_for_a_node_and_not_on_the_cluster(
    stage: Stage,
) -> None:
    await furnish(stage, quota={**QUOTA, coscheduling.NODE_SLOTS: 1})
    first = await stage.create(run("isolate-pipelinerun", {"a": []}, name="first"))
    second = await stage.create(run("isolate-pipelinerun", {"a": []}, name="second"))
    await stage.until_admitted(first)
    assert "node-slots" in await stage.until_waits(second)
    assert len(await placeholders(stage)) == 1
    await until_done(stage, first, second)


@says("002:145")
@pytest.mark.parametrize(
    ("mode", "tekton"),
    [
        ("disabled", "workspaces"),
        ("workspaces", "pipelineruns"),
        ("pipelineruns", "workspaces"),
        ("isolate-pipelinerun", "pipelineruns"),
    ],
)
@story()
async def test_a_mode_that_contradicts_tektons_own_setting_is_refused_in_words(
    stage: Stage, mode: str, tekton: str
) -> None:
    await furnish(stage, tekton=tekton)
    made = await stage.create(run(mode, {"a": ["x"], "b": ["x"]}))
    said = await stage.until_waits(made, "contradicts Tekton's own setting")
    assert f"annotation sluicegate.dev/coschedule: '{mode}'" in said
    assert f"coschedule: '{tekton}'" in said
    assert await stage.events(made, "ReleaseRefused")
    assert not await stage.runs(made)


@says("002:145", "002:392-397")
@story()
async def test_a_run_that_was_refused_starts_once_it_asks_for_what_tekton_allows(
    stage: Stage,
) -> None:
    await furnish(stage, tekton="workspaces")
    made = await stage.create(run("pipelineruns", {"a": ["x"], "b": ["x"]}))
    await stage.until_waits(made, "contradicts Tekton's own setting")
    await stage.patch(made, {"metadata": {"annotations": {names.COSCHEDULE: "workspaces"}}})
    await until_done(stage, made)


@says("002:133-143", "002:145")
@story()
async def test_tektons_own_assistants_serve_the_mode_that_tekton_is_set_to(stage: Stage) -> None:
    await furnish(stage, tekton="workspaces")
    made = await stage.create(run("workspaces", {"a": ["x"], "b": ["x"]}))
    found = await until_started(stage, made, "a", "b")
    assert found["a"] == found["b"]
    sets = (await stage.kube.list(kinds.STATEFUL_SET)).items
    assert [one["metadata"]["name"][:18] for one in sets] == ["affinity-assistant"]


@says("002:133-143")
@story()
async def test_a_mode_that_is_none_of_the_four_is_refused_when_the_run_is_created(
    stage: Stage,
) -> None:
    await furnish(stage)
    with pytest.raises(RefusedError) as refused:
        await stage.create(run("isolate", {"a": []}))
    assert (
        "annotation sluicegate.dev/coschedule: 'isolate' is not one of disabled, workspaces, "
        "pipelineruns, isolate-pipelinerun"
    ) in str(refused.value)


@says("002:68-70")
@story()
async def test_two_claims_of_one_task_are_refused_in_mode_workspaces_in_tektons_words(
    stage: Stage,
) -> None:
    await furnish(stage)
    with pytest.raises(RefusedError, match="more than one PersistentVolumeClaim is bound"):
        await stage.create(run("workspaces", {"a": ["x", "y"]}))


@says("002:366-368", "002:392-397")
@story()
async def test_each_run_chooses_for_itself(stage: Stage) -> None:
    """What the document misses in its own design: a multi-arch build may spread, its neighbour not."""
    await furnish(stage)
    uses: dict[str, list[str]] = {"amd64": [], "arm64": [], "merge": []}
    spread = await stage.create(run("disabled", uses, name="multi-arch"))
    together = await stage.create(run("pipelineruns", uses, name="together"))
    plain = await stage.create(run(None, uses, name="plain"))
    assert len(set((await until_started(stage, spread, *uses)).values())) > 1
    assert len(set((await until_started(stage, together, *uses)).values())) == 1
    await until_done(stage, spread, together, plain)


# --- the placeholder -------------------------------------------------------------------------------


@says("002:129-131", "002:147-149", "002:151-172")
@story()
async def test_a_stateful_set_makes_one_placeholder_that_all_pods_follow_and_is_torn_down(
    stage: Stage,
) -> None:
    await furnish(stage)
    made = await stage.create(run("pipelineruns", {"a": [], "b": []}))
    await until_started(stage, made, "a", "b")
    name = placeholder_name(made["metadata"]["uid"])
    placeholder = await stage.kube.get(kinds.STATEFUL_SET, "team-a", name)
    assert placeholder["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert placeholder["spec"]["replicas"] == 1
    (pod,) = await placeholders(stage)
    labels = {COMPONENT_LABEL: "affinity-assistant", INSTANCE_LABEL: name}
    assert labels.items() <= pod["metadata"]["labels"].items()
    task_pods = await stage.kube.list(kinds.POD, labels="tekton.dev/pipelineTask")
    for task_pod in task_pods.items:
        assert task_pod["spec"]["affinity"]["podAffinity"][REQUIRED] == [
            {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        ]
    assert (await stage.fresh(made))["metadata"]["annotations"][AFFINITY_ANNOTATION] == name
    await stage.until_finished(made)
    await stage.settle(5)
    assert (await stage.kube.list(kinds.STATEFUL_SET)).items == []
    assert await placeholders(stage) == []


@says("002:174-188")
@pytest.mark.parametrize(("mode", "rule"), [(PER_RUN[0], PREFERRED), (PER_RUN[1], REQUIRED)])
@story()
async def test_placeholders_repel_each_other_if_need_be_for_good(
    stage: Stage, mode: str, rule: str
) -> None:
    await furnish(stage)
    made = await stage.create(run(mode, {"a": []}))
    await until_started(stage, made, "a")
    (pod,) = await placeholders(stage)
    affinity = pod["spec"]["affinity"]["podAntiAffinity"]
    assert list(affinity) == [rule]
    terms = [term.get("podAffinityTerm", term) for term in affinity[rule]]
    assert terms[0]["labelSelector"] == {"matchLabels": {COMPONENT_LABEL: "affinity-assistant"}}
    assert terms[0]["topologyKey"] == "kubernetes.io/hostname"


@says("002:332-338")
@story()
async def test_a_placeholder_asks_for_little_and_reserves_nothing(stage: Stage) -> None:
    """A known limit, and documented as such."""
    await furnish(stage)
    made = await stage.create(run("pipelineruns", {"a": []}))
    await until_started(stage, made, "a")
    (pod,) = await placeholders(stage)
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "50m", "memory": "100Mi"}


# --- claims ----------------------------------------------------------------------------------------


@says("002:190-198", "002:200", "002:204-316")
@pytest.mark.parametrize("mode", PER_RUN)
@story()
async def test_the_claims_of_a_run_are_mounted_by_its_placeholder_passed_on_and_cleaned_up(
    stage: Stage, mode: str
) -> None:
    await furnish(stage)
    uses = {"a": ["workspace-1"], "b": ["workspace-1", "workspace-2"]}
    made = await stage.create(run(mode, uses, storage_class="local"))
    found = await until_started(stage, made, "a", "b")
    claims = (await stage.kube.list(kinds.PERSISTENT_VOLUME_CLAIM)).items
    assert {claim["metadata"]["labels"]["tekton.dev/workspace"] for claim in claims} == {
        "workspace-1",
        "workspace-2",
    }
    for claim in claims:
        metadata = claim["metadata"]
        assert metadata["labels"]["tekton.dev/pipelineRun"] == "my-pipelinerun"
        assert metadata["labels"][COMPONENT_LABEL] == "affinity-assistant"
        assert metadata["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
        assert claim["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
        node = metadata["annotations"]["volume.kubernetes.io/selected-node"]
        assert {node} == set(found.values())
    (pod,) = await placeholders(stage)
    mounted = {v["persistentVolumeClaim"]["claimName"] for v in pod["spec"]["volumes"]}
    assert mounted == {claim["metadata"]["name"] for claim in claims}
    task_runs = (await stage.kube.list(kinds.TASK_RUN, namespace="team-a")).items
    for task_run in task_runs:
        for bound in task_run["spec"]["workspaces"]:
            assert bound["persistentVolumeClaim"]["claimName"] in mounted
    await stage.until_finished(made)
    await stage.settle(5)
    assert (await stage.kube.list(kinds.PERSISTENT_VOLUME_CLAIM)).items == []


@says("002:202")
@story()
async def test_secrets_and_empty_volumes_are_left_alone(stage: Stage) -> None:
    await furnish(stage)
    others = [{"name": "x", "emptyDir": {}}, {"name": "y", "secret": {"secretName": "s"}}]
    made = await stage.create(run("pipelineruns", {"a": ["x", "y"]}, workspaces=others))
    await until_started(stage, made, "a")
    assert (await stage.kube.list(kinds.PERSISTENT_VOLUME_CLAIM)).items == []
    (pod,) = await placeholders(stage)
    assert pod["spec"]["volumes"] == []


# --- nodes that fail, are cordoned, or are full ----------------------------------------------------


@says("002:318-324")
@story()
async def test_a_placeholder_that_is_evicted_is_recreated_on_another_node(stage: Stage) -> None:
    await furnish(stage)
    made = await stage.create(run("pipelineruns", {"a": [], "b": []}, in_order=True))
    node = (await until_started(stage, made, "a"))["a"]
    await cordon(stage, node)
    (pod,) = await placeholders(stage)
    await stage.kube.delete(kinds.POD, "team-a", pod["metadata"]["name"])

    async def elsewhere() -> bool:
        found = await placeholders(stage)
        return bool(found) and found[0]["spec"].get("nodeName", node) != node

    await stage.until(elsewhere)
    await until_done(stage, made)
    assert (await where(stage))["b"] != node


@says("002:124-127", "002:326-330")
@pytest.mark.parametrize("mode", ["workspaces", *PER_RUN])
@story()
async def test_a_run_ends_without_help_though_its_node_becomes_unschedulable(
    stage: Stage, mode: str
) -> None:
    await furnish(stage)
    made = await stage.create(run(mode, {"a": ["x"], "b": ["x"]}, in_order=True))
    node = (await until_started(stage, made, "a"))["a"]
    await cordon(stage, node)
    await until_done(stage, made)
    found = await where(stage)
    assert found["a"] == node, "what ran there ran on"
    assert found["b"] != node
    await stage.until_finished(made)


@says("002:326-330", "002:332-338")
@pytest.mark.parametrize("mode", PER_RUN)
@story()
async def test_a_run_whose_placeholder_has_no_node_does_not_start_and_says_so(
    stage: Stage, mode: str
) -> None:
    """Nothing is started that could only wait: not even its timeout."""
    await furnish(stage)
    await cordon(stage, *NODES)
    made = await stage.create(run(mode, {"a": []}))
    await stage.until_admitted(made)
    await stage.settle(60)
    assert not await stage.runs(made)
    assert any("0/3 nodes" in said for said in await stage.events(made, "AnchorUnschedulable"))
    await cordon(stage, "node-2", off=True)
    await until_done(stage, made)
    assert await where(stage) == {"a": "node-2"}


@says("002:147-149")
@pytest.mark.parametrize("way", ["delete", "cancel", "cancel before it starts"])
@story()
async def test_nothing_is_left_of_a_run_that_is_deleted_or_cancelled(
    stage: Stage, way: str
) -> None:
    await furnish(stage)
    if "before" in way:
        await cordon(stage, *NODES)
    made = await stage.create(run("isolate-pipelinerun", {"a": ["x"], "b": ["x", "y"]}))
    if "before" in way:
        await stage.until(lambda: placeholders(stage))
    else:
        await until_started(stage, made, "a", "b")
    if way == "delete":
        await stage.delete(made)
    else:
        await stage.patch(made, {"spec": {"status": "Cancelled"}})

    async def nothing() -> bool:
        for kind in (kinds.STATEFUL_SET, kinds.PERSISTENT_VOLUME_CLAIM):
            if (await stage.kube.list(kind)).items:
                return False
        return not await placeholders(stage)

    await stage.until(nothing)
    if "before" in way:
        await cordon(stage, *NODES, off=True)
    after = await stage.create(run("isolate-pipelinerun", {"a": []}, name="after"))
    await until_done(stage, after)
