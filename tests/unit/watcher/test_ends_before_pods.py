"""Of a kind whose pods outlive its status, the watcher says that a job has ended when its pods have."""

import asyncio
from typing import Any, Final

import pytest
from typing_extensions import override

from services.simulator.local import LocalKube
from shared.contracts.kube.kinds import POD, Kind, Object
from shared.integrations import INTEGRATIONS
from shared.kube.port import Listing
from tests.unit.watcher.harness import Harness, run_harness
from tests.unit.watcher.test_integration_kinds import DEFINITIONS

SUCCEEDED: Final = {"conditions": [{"type": "Succeeded", "status": "True"}]}
WORKERS: Final = {"replicaStatuses": {"Worker": {"active": 3}}}
NONE: Final = {"replicaStatuses": {"Worker": {"active": 0}}}
DONE: Final = {"replicaStatuses": {"Worker": {"succeeded": 3}}}
SUSPENDED: Final = {"spec": {"runPolicy": {"suspend": True}}, "status": NONE}
RAN: Final = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
GONE: Final = {"jobDeploymentStatus": "Suspended"}

ENDS: Final[dict[str, tuple[str, Object, Object]]] = {
    "workers left": ("PyTorchJob", WORKERS, {"status": {**DONE, **SUCCEEDED}}),
    "workers left and counted": ("MPIJob", WORKERS, {"status": {**WORKERS, **SUCCEEDED}}),
    **{
        f"{kind} that is stopped": (kind, WORKERS, SUSPENDED)
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")
    },
    "cluster left": ("RayJob", {"jobDeploymentStatus": "Running"}, {"status": RAN}),
    "cluster ending": (
        "RayJob",
        {"jobDeploymentStatus": "Running"},
        {"spec": {"suspend": True}, "status": GONE},
    ),
    "executors left": (
        "SparkApplication",
        {"applicationState": {"state": "RUNNING"}},
        {"status": {"applicationState": {"state": "COMPLETED"}}},
    ),
    "executors left by a driver that was deleted": (
        "SparkApplication",
        {"applicationState": {"state": "RUNNING"}, "executorState": {"p": "RUNNING"}},
        {"status": {"applicationState": {"state": "FAILED"}, "executorState": {"p": "FAILED"}}},
    ),
}


def kind_of(name: str) -> Kind:
    [found] = [one.kind for one in INTEGRATIONS if one.kind.kind == name]
    return found


async def served(harness: Harness, *kinds: Kind) -> None:
    for kind in kinds:
        version = {"name": kind.version, "served": True, "storage": True}
        spec: Object = {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"kind": kind.kind, "plural": kind.plural},
            "versions": [{**version, "subresources": {"status": {}}}],
        }
        name = f"{kind.plural}.{kind.group}"
        await harness.kube.create(DEFINITIONS, {"metadata": {"name": name}, "spec": spec})


def controlled(name: str, kind: Kind, by: Object) -> Object:
    owner = {"apiVersion": kind.api_version, "kind": kind.kind, "controller": True}
    owner |= {"name": by["metadata"]["name"], "uid": by["metadata"]["uid"]}
    return {"name": name, "namespace": "default", "ownerReferences": [owner]}


async def running(harness: Harness, kind: Kind, status: Object, name: str = "w") -> Object:
    """A job that was let go, as its controller has it; the pods are another matter."""
    metadata = {"namespace": "default", "name": name}
    obj = {"metadata": metadata, "spec": {"suspend": False, "runPolicy": {"suspend": False}}}
    made = await harness.kube.create(kind, obj)
    await harness.kube.patch(kind, "default", name, {"status": status}, subresource="status")
    return made


async def pod(harness: Harness, name: str, kind: Kind, by: Object) -> Object:
    spec: Any = {"containers": [{"name": "c", "image": "i"}]}
    return await harness.kube.create(
        POD, {"metadata": controlled(name, kind, by), "spec": spec, "status": {"phase": "Running"}}
    )


async def with_pod(harness: Harness, kind: Kind, job: Object) -> None:
    """A pod that is the job's as its controller makes it: by a RayCluster, by a driver, by itself."""
    above, by = kind, job
    if kind.kind == "RayJob":
        above = kind_of("RayCluster")
        metadata = controlled("cluster", kind, job)
        by = await harness.kube.create(above, {"metadata": metadata, "spec": {}})
    if kind.kind == "SparkApplication":
        above, by = POD, await pod(harness, "driver", kind, job)
        await ended(harness, "driver")
    await pod(harness, "p", above, by)


async def ended(harness: Harness, name: str) -> None:
    done = {"status": {"phase": "Succeeded"}}
    await harness.kube.patch(POD, "default", name, done, subresource="status")


async def write(harness: Harness, kind: Kind, patch: Object, name: str = "w") -> None:
    """Change spec and status as stop and controller do."""
    rest = {key: value for key, value in patch.items() if key != "status"}
    if rest:
        await harness.kube.patch(kind, "default", name, rest)
    status = {"status": patch["status"]}
    await harness.kube.patch(kind, "default", name, status, subresource="status")


def shown(harness: Harness, kind: Kind) -> Object:
    """The job's status, as the last message has it."""
    last = harness.published(kind)[-1]
    return {"deleted": True} if last.deleted or last.body is None else dict(last.body["status"])


@pytest.mark.parametrize(("of", "status", "end"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
def test_job_has_ended_when_its_pods_have(
    of: str, status: Object, end: Object, *, restarts: bool
) -> None:
    kind = kind_of(of)

    async def drive(harness: Harness) -> None:
        await served(harness, kind, *([kind_of("RayCluster")] if of == "RayJob" else []))
        job = await running(harness, kind, status)
        await with_pod(harness, kind, job)
        await harness.start()
        await asyncio.sleep(5)
        if restarts:
            await harness.kill()
        if "executorState" in status:
            await harness.kube.patch(POD, "default", "p", {"metadata": {"finalizers": ["a/b"]}})
            await harness.kube.delete(POD, "default", "driver")
        await write(harness, kind, end)
        if restarts:
            await harness.start()
        await asyncio.sleep(300)
        assert shown(harness, kind) == status
        await ended(harness, "p")
        await asyncio.sleep(60)
        assert shown(harness, kind) == (await harness.kube.get(kind, "default", "w"))["status"]
        assert shown(harness, kind) != status

    run_harness(drive)


def test_growth_of_a_job_that_counts_no_pods_is_shown_at_once() -> None:
    """Pods that wait for a node count for nothing in its status."""
    kind = kind_of("PyTorchJob")

    async def drive(harness: Harness) -> None:
        await served(harness, kind)
        await with_pod(harness, kind, await running(harness, kind, WORKERS))
        await harness.start()
        await asyncio.sleep(5)
        await write(harness, kind, {"spec": {"grown": True}, "status": NONE})
        await asyncio.sleep(1)
        assert shown(harness, kind) == NONE
        await write(harness, kind, SUSPENDED)
        await asyncio.sleep(300)
        last = harness.published(kind)[-1].body
        assert last is not None
        assert not last["spec"]["runPolicy"]["suspend"]

    run_harness(drive)


def test_job_that_is_deleted_after_its_end_is_gone_with_its_pods() -> None:
    kind = kind_of("PyTorchJob")

    async def drive(harness: Harness) -> None:
        await served(harness, kind)
        await with_pod(harness, kind, await running(harness, kind, WORKERS))
        await harness.start()
        await asyncio.sleep(5)
        await write(harness, kind, {"status": {**DONE, **SUCCEEDED}})
        await asyncio.sleep(5)
        await harness.kube.patch(POD, "default", "p", {"metadata": {"finalizers": ["a/b"]}})
        await harness.kube.delete(kind, "default", "w")
        await asyncio.sleep(300)
        assert shown(harness, kind) == WORKERS
        await ended(harness, "p")
        await asyncio.sleep(60)
        assert shown(harness, kind) == {"deleted": True}

    run_harness(drive)


class Counting(LocalKube):
    """Counts the lists of pods."""

    lists = 0

    @override
    async def list(self, kind: Kind, **options: Any) -> Listing:
        self.lists += kind == POD
        return await super().list(kind, **options)


@pytest.mark.parametrize("deleted", [False, True], ids=["end", "are deleted"])
def test_one_list_of_pods_serves_all_jobs_of_a_namespace_that_end_or_are_deleted(
    *, deleted: bool
) -> None:
    """A list may have thousands of pods, and their user deletes as often as he likes."""
    kind, jobs = kind_of("PyTorchJob"), 40

    async def drive(harness: Harness) -> None:
        await served(harness, kind)
        for number in range(jobs):
            await running(harness, kind, WORKERS, f"w{number}")
        kube = Counting(harness.api)
        await harness.start(kube=kube)
        await asyncio.sleep(5)
        before = kube.lists
        for number in range(jobs):
            if deleted:
                await harness.kube.delete(kind, "default", f"w{number}")
            else:
                await write(harness, kind, {"status": {**DONE, **SUCCEEDED}}, f"w{number}")
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)
        over = {
            one.name
            for one in harness.published(kind)
            if one.deleted or (one.body and "conditions" in one.body["status"])
        }
        assert len(over) == jobs
        assert kube.lists - before <= 4

    run_harness(drive)


STATUS_COUNTS: Final = {"Job", "JobSet", "PipelineRun", "Workflow"}
"""A Job's counts pods that are ending, a JobSet is looked at by its Jobs, a PipelineRun's pods have Tekton's
own grace, and no end of a Workflow is believed anyway."""


def test_each_kind_that_ships_says_whether_its_pods_outlive_its_status() -> None:
    said = {one.kind.kind for one in INTEGRATIONS if one.pods_outlive_status}
    assert said == {one.kind.kind for one in INTEGRATIONS} - STATUS_COUNTS
