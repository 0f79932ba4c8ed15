"""Document 002: where the pods of a coscheduled run are scheduled."""

import asyncio

import pytest

from shared.contracts import coscheduling
from shared.contracts.kube import kinds
from tests.conformance.seeds.coscheduled_runs import (
    NODES,
    PER_RUN,
    QUOTA,
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
async def test_use_case_builds_with_a_template_claim_and_an_existing_claim(stage: Stage) -> None:
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
async def test_use_case_without_coscheduling_never_gets_a_node(stage: Stage) -> None:
    """Two local volumes on two nodes: what the document is about, and what waits forever."""
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


@says("002:124-127", "002:133-143")
@story()
async def test_isolated_run_shares_its_node_with_no_run(stage: Stage) -> None:
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
