"""A run's pods are its TaskRuns': a watcher that starts anew still knows whose they are."""

import asyncio
from typing import Any

import pytest

from shared.contracts.kube.kinds import JOB, PIPELINE_RUN, POD, TASK_RUN, Kind
from tests.unit.watcher.harness import Harness, run_harness

RUNNING = {
    "startTime": "2026-01-01T00:00:00Z",
    "conditions": [{"type": "Succeeded", "status": "Unknown"}],
}


async def made(harness: Harness, kind: Kind, name: str, owner: Any, **more: Any) -> Any:
    metadata: dict[str, Any] = {"name": name, "namespace": "default"} | more.pop("metadata", {})
    if owner is not None:
        about = {key: owner["metadata"][key] for key in ("name", "uid")}
        of = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        metadata["ownerReferences"] = [of | about]
    return await harness.kube.create(kind, {"metadata": metadata} | more)


async def running(harness: Harness) -> None:
    """A run, its TaskRun, and a pod that does not end."""
    task = {"name": "t", "taskSpec": {"steps": [{"name": "s", "image": "i"}]}}
    run = await made(harness, PIPELINE_RUN, "r", None, spec={"pipelineSpec": {"tasks": [task]}})
    part = await made(harness, TASK_RUN, "r-t", run, spec={"taskSpec": task["taskSpec"]})
    for kind, name in ((PIPELINE_RUN, "r"), (TASK_RUN, "r-t")):
        patch = {"status": RUNNING}
        await harness.kube.patch(kind, "default", name, patch, subresource="status")
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await made(harness, POD, "p", part, spec=spec, metadata={"finalizers": ["a/b"]})


def is_gone(harness: Harness) -> bool:
    return harness.published(PIPELINE_RUN)[-1].deleted


@pytest.mark.parametrize("away", [(), ("r",), ("r", "r-t")], ids="away: {}".format)
def test_run_is_gone_when_its_pod_is_also_for_the_next_watcher(away: tuple[str, ...]) -> None:
    """`away`: what is deleted while no watcher is there."""

    async def drive(harness: Harness) -> None:
        await running(harness)
        await harness.start()
        await asyncio.sleep(5)
        deleted = ((TASK_RUN, "r-t"), (PIPELINE_RUN, "r"))
        for kind, name in deleted:
            if name not in away:
                await harness.kube.delete(kind, "default", name)
        await asyncio.sleep(5)
        await harness.kill()
        for kind, name in deleted:
            if name in away:
                await harness.kube.delete(kind, "default", name)
        await harness.start()
        await asyncio.sleep(300)
        assert not is_gone(harness)
        await harness.kube.patch(POD, "default", "p", {"metadata": {"finalizers": None}})
        await asyncio.sleep(90)
        assert is_gone(harness)

    run_harness(drive)


@pytest.mark.parametrize("kind", [JOB, TASK_RUN], ids=lambda kind: kind.kind)
def test_what_only_names_the_run_hides_neither_its_end_nor_the_next_run(kind: Kind) -> None:
    """A Job that says that the run controls it; a TaskRun of a Job that has the run's uid."""

    async def drive(harness: Harness) -> None:
        await running(harness)
        run = await harness.kube.get(PIPELINE_RUN, "default", "r")
        template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
        owner: Any = run
        spec: Any = {"template": template}
        if kind == TASK_RUN:
            owner = dict(run) | {"apiVersion": JOB.api_version, "kind": JOB.kind}
            spec = {"taskSpec": {"steps": [{"name": "s", "image": "i"}]}}
        forged = await made(harness, kind, "k", owner, spec=spec, metadata={"finalizers": ["a/b"]})
        await made(harness, POD, "k-p", forged, metadata={"finalizers": ["a/b"]}, **template)
        await harness.start()
        await asyncio.sleep(5)
        await harness.kube.delete(PIPELINE_RUN, "default", "r")
        await harness.kube.patch(POD, "default", "p", {"metadata": {"finalizers": None}})
        second = await made(harness, PIPELINE_RUN, "r", None, spec=run["spec"])
        await asyncio.sleep(90)
        [last] = harness.published(PIPELINE_RUN)[-1:]
        assert (last.uid, last.deleted) == (second["metadata"]["uid"], False)

    run_harness(drive)


@pytest.mark.parametrize("to_another", [True, False], ids=["to another run", "to nobody"])
def test_run_is_not_gone_because_its_user_gave_its_task_run_away(to_another: bool) -> None:
    async def drive(harness: Harness) -> None:
        await running(harness)
        run = await harness.kube.get(PIPELINE_RUN, "default", "r")
        other = await made(harness, PIPELINE_RUN, "other", None, spec=run["spec"])
        await harness.start()
        await asyncio.sleep(5)
        about = {key: other["metadata"][key] for key in ("name", "uid")}
        of = {"apiVersion": run["apiVersion"], "kind": run["kind"], "controller": True, **about}
        patch = {"metadata": {"ownerReferences": [of] if to_another else None}}
        await harness.kube.patch(TASK_RUN, "default", "r-t", patch)
        await asyncio.sleep(5)
        await harness.kube.delete(PIPELINE_RUN, "default", "r")
        await asyncio.sleep(90)
        assert not [one for one in harness.published(PIPELINE_RUN) if one.deleted]
        await harness.kube.patch(POD, "default", "p", {"metadata": {"finalizers": None}})
        await harness.kube.delete(POD, "default", "p")
        await asyncio.sleep(90)
        assert [one.name for one in harness.published(PIPELINE_RUN) if one.deleted] == ["r"]

    run_harness(drive)
