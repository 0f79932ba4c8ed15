"""Coscheduled PipelineRuns for the tests of document 002.

Nodes, volumes, StatefulSets and Tekton are the simulator's; Tekton is set to `coschedule: disabled`
unless a test says otherwise. See `docs/how-to/coschedule.md`.
"""

from collections.abc import Mapping
from typing import Any

from shared.contracts import coscheduling
from shared.contracts.coscheduling import (
    COMPONENT_LABEL,
)
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Object
from shared.contracts.simulation import RUN_IN_PODS
from tests.conformance.seeds.stage import Stage, pipeline_run, pool

NODES = ("node-1", "node-2", "node-3")


PER_RUN = ("pipelineruns", "isolate-pipelinerun")


QUOTA = {"tekton.dev/pipelineruns": 20, coscheduling.NODE_SLOTS: len(NODES)}


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
