"""Of a kind whose users write the status, the watcher says that a job has ended when its pods have."""

import asyncio
from typing import Any, Final

import pytest

from shared.contracts.kube.kinds import POD, Kind, Object
from shared.kube.port import Kube
from tests.unit.watcher.harness import Harness, run_harness
from tests.unit.watcher.test_departures import WithoutPods
from tests.unit.watcher.test_integration_kinds import DEFINITIONS

WORKFLOW: Final = Kind(group="argoproj.io", version="v1alpha1", plural="workflows", kind="Workflow")
RUNS: Final = {"status": {"phase": "Running", "nodes": {"a": {"phase": "Running"}}}}
COMPLETED: Final = {"metadata": {"labels": {"workflows.argoproj.io/completed": "true"}}}
ENDED: Final = {**COMPLETED, "status": {"phase": "Succeeded"}}


async def served(harness: Harness) -> None:
    """Argo's definition: no subresources."""
    version = {"name": "v1alpha1", "served": True, "storage": True, "subresources": {}}
    spec: Object = {
        "group": "argoproj.io",
        "scope": "Namespaced",
        "names": {"kind": "Workflow", "plural": "workflows"},
        "versions": [version],
    }
    await harness.kube.create(
        DEFINITIONS, {"metadata": {"name": "workflows.argoproj.io"}, "spec": spec}
    )


async def write(harness: Harness, *patches: Object) -> None:
    """Change the Workflow as whoever may edit it does."""
    for patch in patches:
        await harness.kube.patch(WORKFLOW, "default", "w", patch)


async def running_workflow(harness: Harness, status: Object = RUNS, *, waits: bool = False) -> None:
    """A Workflow that was let go, or waits, and a pod of it that takes long to end."""
    await served(harness)
    spec: Any = {"suspend": waits}
    metadata = {"namespace": "default", "name": "w"}
    made = await harness.kube.create(WORKFLOW, {"metadata": metadata, "spec": spec, **status})
    owner: Object = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "w"}
    owner |= {"uid": made["metadata"]["uid"], "controller": True}
    pod = {"name": "p", "namespace": "default", "finalizers": ["a/b"], "ownerReferences": [owner]}
    await harness.kube.create(
        POD, {"metadata": pod, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    )


async def watched_workflow(harness: Harness, status: Object = RUNS) -> None:
    """A Workflow with a pod, as a watcher has published it."""
    await running_workflow(harness, status)
    await harness.start()
    await asyncio.sleep(5)


async def pod_ends(harness: Harness) -> None:
    done = {"status": {"phase": "Succeeded"}}
    await harness.kube.patch(POD, "default", "p", done, subresource="status")
    await asyncio.sleep(60)


def shown(harness: Harness) -> Object:
    """Labels and status of the Workflow, as the last message has them."""
    last = harness.published(WORKFLOW)[-1]
    if last.deleted or last.body is None:
        return {"deleted": True}
    metadata = last.body["metadata"]
    return {"labels": metadata.get("labels"), "status": last.body.get("status")}


WRITTEN: Final[dict[str, list[Object]]] = {
    "that it has succeeded": [ENDED],
    "that it has failed": [{**COMPLETED, "status": {"phase": "Failed"}}],
    "that it has not begun": [{"status": None}],
    "that it has not begun, twice": [{"status": None}, {"metadata": {"labels": {"a": "b"}}}],
    "that it waits": [{"spec": {"suspend": True}, "status": None}],
    "that it has no nodes": [{"spec": {"suspend": True}, "status": {"nodes": None}}],
}


@pytest.mark.parametrize("patches", WRITTEN.values(), ids=WRITTEN)
def test_what_a_user_writes_is_believed_when_the_pods_have_ended(patches: list[Object]) -> None:
    async def drive(harness: Harness) -> None:
        await watched_workflow(harness)
        before = shown(harness)
        for patch in patches:
            await write(harness, patch)
            await asyncio.sleep(300)
        assert shown(harness) == before
        await pod_ends(harness)
        now = await harness.kube.get(WORKFLOW, "default", "w")
        assert shown(harness) == {
            "labels": now["metadata"].get("labels"),
            "status": now.get("status"),
        }
        assert shown(harness) != before

    run_harness(drive)


def test_end_that_was_written_before_anything_was_counted_is_believed_with_the_pods() -> None:
    async def drive(harness: Harness) -> None:
        await watched_workflow(harness, {})
        await write(harness, ENDED)
        await asyncio.sleep(300)
        assert shown(harness)["status"] is None
        await pod_ends(harness)
        assert shown(harness)["status"] == ENDED["status"]

    run_harness(drive)


def test_end_that_was_written_while_no_watcher_ran_is_believed_with_the_pods() -> None:
    async def drive(harness: Harness) -> None:
        await watched_workflow(harness)
        await harness.kill()
        await write(harness, ENDED)
        await harness.start()
        await asyncio.sleep(300)
        assert shown(harness)["status"] == RUNS["status"]
        await pod_ends(harness)
        assert shown(harness)["labels"] == COMPLETED["metadata"]["labels"]

    run_harness(drive)


def test_workflow_that_is_deleted_after_its_written_end_is_gone_with_its_pods() -> None:
    async def drive(harness: Harness) -> None:
        await watched_workflow(harness)
        await write(harness, ENDED)
        await asyncio.sleep(5)
        await harness.kube.delete(WORKFLOW, "default", "w")
        await asyncio.sleep(300)
        assert shown(harness)["status"] == RUNS["status"]
        await pod_ends(harness)
        assert shown(harness) == {"deleted": True}

    run_harness(drive)


def test_workflow_that_runs_again_is_shown_at_once_and_its_next_end_is_doubted_too() -> None:
    async def drive(harness: Harness) -> None:
        await watched_workflow(harness)
        await write(harness, ENDED)
        await asyncio.sleep(5)
        again = {"metadata": {"labels": {"workflows.argoproj.io/completed": None}}, **RUNS}
        await write(harness, again, {"metadata": {"labels": {"again": "yes"}}})
        await asyncio.sleep(1)
        assert shown(harness)["labels"] == {"again": "yes"}
        await write(harness, ENDED)
        await asyncio.sleep(300)
        assert shown(harness)["labels"] == {"again": "yes"}
        await pod_ends(harness)
        assert shown(harness)["status"]["phase"] == "Succeeded"

    run_harness(drive)


def test_end_without_pods_is_shown_at_once() -> None:
    async def drive(harness: Harness) -> None:
        await running_workflow(harness)
        await pod_ends(harness)
        await harness.start()
        await asyncio.sleep(5)
        await write(harness, ENDED)
        await asyncio.sleep(1)
        assert shown(harness)["status"]["phase"] == "Succeeded"

    run_harness(drive)


def test_end_is_believed_where_pods_may_not_be_listed() -> None:
    async def drive(harness: Harness) -> None:
        await running_workflow(harness)
        kube: Kube = WithoutPods(harness.api)
        await harness.start(kube=kube)
        await asyncio.sleep(5)
        await write(harness, ENDED)
        await asyncio.sleep(1)
        assert shown(harness)["status"]["phase"] == "Succeeded"

    run_harness(drive)


def test_beginning_is_believed_where_pods_may_not_be_listed() -> None:
    async def drive(harness: Harness) -> None:
        await running_workflow(harness, {}, waits=True)
        kube: Kube = WithoutPods(harness.api)
        await harness.start(kube=kube)
        await asyncio.sleep(5)
        await write(harness, RUNS)
        await asyncio.sleep(5)
        assert shown(harness)["status"] == RUNS["status"]

    run_harness(drive)


def test_workflow_that_was_let_go_is_shown_while_nothing_of_it_runs() -> None:
    async def drive(harness: Harness) -> None:
        await watched_workflow(harness, {})
        await write(harness, {"metadata": {"labels": {"a": "b"}}})
        await asyncio.sleep(1)
        assert shown(harness)["labels"] == {"a": "b"}

    run_harness(drive)


def test_beginning_that_a_user_writes_is_not_believed_without_pods() -> None:
    """He could keep others out by what his Workflow asks for, and run nothing."""

    async def drive(harness: Harness) -> None:
        await running_workflow(harness, {}, waits=True)
        await pod_ends(harness)
        await harness.start()
        await asyncio.sleep(5)
        for number in ("1", "2"):
            await write(harness, {**RUNS, "metadata": {"labels": {"a": number}}})
            await asyncio.sleep(10)
            assert shown(harness) == {"labels": {"a": number}, "status": {}}
        await write(harness, {"spec": {"suspend": False}})
        await asyncio.sleep(1)
        assert shown(harness)["status"] == RUNS["status"]

    run_harness(drive)


@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
def test_beginning_of_what_waits_is_believed_with_its_pods(*, restarts: bool) -> None:
    async def drive(harness: Harness) -> None:
        await running_workflow(harness, {}, waits=True)
        await harness.start()
        await asyncio.sleep(5)
        await write(harness, RUNS)
        await asyncio.sleep(10)
        assert shown(harness)["status"] == RUNS["status"]
        if restarts:
            await harness.kill()
            await harness.start()
        await write(harness, {"status": None})
        await asyncio.sleep(300)
        assert shown(harness)["status"] == RUNS["status"]
        await pod_ends(harness)
        assert shown(harness)["status"] is None

    run_harness(drive)
