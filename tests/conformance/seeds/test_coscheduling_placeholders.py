"""Document 002: placeholder pods, claims of volumes, and nodes that fail."""

import pytest

from shared.contracts.coscheduling import (
    AFFINITY_ANNOTATION,
    COMPONENT_LABEL,
    INSTANCE_LABEL,
    placeholder_name,
)
from shared.contracts.kube import kinds
from tests.conformance.seeds.coscheduled_runs import (
    NODES,
    PER_RUN,
    cordon,
    furnish,
    placeholders,
    run,
    until_done,
    until_started,
    where,
)
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, story

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@says("002:129-131", "002:147-149", "002:151-172")
@story()
async def test_stateful_set_makes_one_placeholder_that_all_pods_follow_and_is_torn_down(
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
async def test_placeholders_repel_each_other_preferred_or_required(
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
async def test_placeholder_requests_little_and_reserves_nothing(stage: Stage) -> None:
    """A known limit, and documented as such."""
    await furnish(stage)
    made = await stage.create(run("pipelineruns", {"a": []}))
    await until_started(stage, made, "a")
    (pod,) = await placeholders(stage)
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "50m", "memory": "100Mi"}


@says("002:190-198", "002:200", "002:204-316")
@pytest.mark.parametrize("mode", PER_RUN)
@story()
async def test_claims_of_a_run_are_mounted_by_its_placeholder_passed_on_and_cleaned_up(
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


@says("002:318-324")
@story()
async def test_placeholder_that_is_evicted_is_recreated_on_another_node(stage: Stage) -> None:
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
async def test_run_finishes_although_its_node_becomes_unschedulable(
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
async def test_run_whose_placeholder_has_no_node_waits_with_an_event(
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
async def test_deleted_or_cancelled_run_leaves_no_objects(stage: Stage, way: str) -> None:
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
