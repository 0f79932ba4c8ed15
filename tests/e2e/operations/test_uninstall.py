"""`sluice uninstall` on a real API server that has work (docs/how-to/uninstall.md)."""

import asyncio
import math
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from services.ctl.dev.supervisor import Supervisor
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import CLASSIFIER_WEBHOOK, QUEUE, RESOURCE_IN_USE
from shared.settings.environment import child_environment
from shared.testing.waiting import eventually
from tests.conformance.seeds.stage import job, pipeline_run
from tests.e2e.operations.site import (
    FLAVOR_LABEL,
    SERVICES,
    SLUICE,
    TEAM,
    Site,
    manifests,
    site,
)

pytestmark = pytest.mark.cluster

RUNNING: Final = ("runs-0", "runs-1")
WAITING: Final = tuple(f"waits-{number}" for number in range(12))
HELD: Final = (*WAITING, "reserved")
"""Jobs that wait for us; the last has its quota, and waits for a check."""

READ: Final = (
    kinds.JOB, kinds.POD, kinds.PIPELINE_RUN, kinds.WORKLOAD, kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE,
    kinds.RESOURCE_FLAVOR, kinds.ADMISSION_CHECK, kinds.DEPLOYMENT, kinds.MUTATING_WEBHOOK,
    kinds.VALIDATING_WEBHOOK, kinds.CUSTOM_RESOURCE_DEFINITION,
)  # fmt: skip
FINALIZED: Final = (
    kinds.WORKLOAD, kinds.CLUSTER_QUEUE, kinds.RESOURCE_FLAVOR, kinds.ADMISSION_CHECK,
)  # fmt: skip
QUIET_SECONDS: Final = 2.0
KEEP_DEFINITIONS: Final = "app.kubernetes.io/component!=definitions"
"""The selector of the page."""

CLUSTER_ROLE_NAMES: Final = {"sluicegate-patcher", "sluicegate-watcher"}
CLUSTER_ROLE: Final = Kind(
    group="rbac.authorization.k8s.io", version="v1", plural="clusterroles", kind="ClusterRole",
    namespaced=False,
)  # fmt: skip
PLANNED: Final = (
    f"delete    MutatingWebhookConfiguration {CLASSIFIER_WEBHOOK}",
    f"delete    ValidatingWebhookConfiguration {CLASSIFIER_WEBHOOK}",
    *(f"stop      Deployment {SERVICES}/{name}" for name in ("classifier", "quota", "watcher")),
    f"remove    {RESOURCE_IN_USE} from ",
    *(f"waiting   Job {TEAM}/{name}" for name in HELD),
    f"waiting   PipelineRun {TEAM}/build-waits",
    f"these {len(HELD) + 1} job(s) wait for your choice: --waiting release|leave",
    f"keep      {len(RUNNING) + 1} run, and go on running",
    "keep      1 were paused by their users",
)


async def versions(place: Site) -> dict[tuple[str, str], str]:
    """The resource version of each object that the command could write."""
    return {
        (kind.kind, one["metadata"]["name"]): one["metadata"]["resourceVersion"]
        for kind in READ
        for one in (await place.kube.list(kind)).items
    }


async def furnish(place: Site) -> None:
    """Jobs in every state: two run, the others are held for their reasons."""
    check = {"controllerName": "example.test/nobody"}
    made = await place.kube.create(
        kinds.ADMISSION_CHECK, {"metadata": {"name": "nobody"}, "spec": check}
    )
    condition = {
        "type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": made["metadata"]["creationTimestamp"],
    }  # fmt: skip
    status = {"status": {"conditions": [condition]}}
    await place.kube.patch(kinds.ADMISSION_CHECK, None, "nobody", status, subresource="status")
    await place.create_queue(len(RUNNING))
    strategy = {"admissionChecks": [{"name": "nobody"}]}
    await place.create_queue(1, "checked", admissionChecksStrategy=strategy)
    await place.create_jobs(*RUNNING)
    await place.until_runs(*RUNNING)
    await place.create_jobs(*WAITING)
    await place.create_jobs("reserved", queue="checked")
    private = job("private", None, {"cpu": 1})
    private["spec"]["suspend"] = True
    await place.kube.create(kinds.JOB, private)
    for run in (
        pipeline_run("build-runs"),
        pipeline_run("build-waits"),
        pipeline_run("build-paused", status="PipelineRunPending"),
    ):
        await place.kube.create(kinds.PIPELINE_RUN, run)
        if run["metadata"]["name"] == "build-runs":
            await place.until_workload("build-runs", "Admitted", kinds.PIPELINE_RUN)
    for name in WAITING:
        await place.until_workload(name, "QuotaReserved", status="False")
    await place.until_workload("build-waits", "QuotaReserved", kinds.PIPELINE_RUN, status="False")
    await place.until_workload("reserved", "QuotaReserved")


async def still(place: Site) -> None:
    """Return once nobody has written anything for a moment: then whatever changes is the command's work."""
    before: dict[tuple[str, str], str] = {}
    while (found := await versions(place)) != before:
        before = found
        await asyncio.sleep(QUIET_SECONDS)


@asynccontextmanager
async def deployed(place: Site, supervisor: Supervisor) -> AsyncIterator[None]:
    """Plays the kubelet for our Deployments: a process ends when its Deployment is scaled to zero."""

    async def say(name: str, replicas: int) -> None:
        patch = {"status": {"replicas": replicas}}
        await place.kube.patch(kinds.DEPLOYMENT, SERVICES, name, patch, subresource="status")

    async def one(name: str) -> None:
        async def scaled() -> bool:
            deployment = await place.kube.get(kinds.DEPLOYMENT, SERVICES, name)
            return spec_of(deployment).get("replicas") == 0

        await eventually(scaled, seconds=math.inf, look_seconds=0.2)
        await supervisor.drop(name)
        await say(name, 0)

    names = await place.names(kinds.DEPLOYMENT, namespace=SERVICES)
    for name in names:
        await say(name, 1)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(name)) for name in names]
        yield
        for task in tasks:
            task.cancel()


async def pods_of(place: Site, *jobs: str) -> set[str]:
    """uids of the pods that these Jobs have now."""
    return {
        pod["metadata"]["uid"]
        for name in jobs
        for pod in (
            await place.kube.list(kinds.POD, namespace=TEAM, labels=f"job-name={name}")
        ).items
    }


async def judge(place: Site, waiting: str, pods: set[str]) -> None:
    """What docs/how-to/uninstall.md says of the cluster afterwards."""
    assert await place.suspended(*RUNNING) == [False, False]
    assert place.history.stops() == []
    assert {uid for name in RUNNING for uid in place.history.pods_of(name)} == pods
    assert await pods_of(place, *RUNNING) == pods
    assert await place.suspended("private") == [True]
    held = {run: await pending(place, run) for run in ("build-runs", "build-waits", "build-paused")}
    leaves = waiting == "leave"
    assert held == {"build-runs": False, "build-waits": leaves, "build-paused": True}
    assert set(await place.suspended(*HELD)) == {leaves}
    if not leaves:
        await place.until_runs(*HELD)
        assert {selector(pod) for pod in place.history.pods if owner(pod) in HELD} == {None}
    for name in HELD:
        assert (await place.job(name))["metadata"]["labels"][QUEUE]
    for kind in FINALIZED:
        items = (await place.kube.list(kind)).items
        assert items, "they stay until somebody deletes them"
        assert not [one for one in items if RESOURCE_IN_USE in finalizers(one)]
    for kind in (kinds.MUTATING_WEBHOOK, kinds.VALIDATING_WEBHOOK):
        assert CLASSIFIER_WEBHOOK not in await place.names(kind)
    assert place.history.gaps == 0


def finalizers(obj: Any) -> list[str]:
    return obj["metadata"].get("finalizers") or []


def selector(pod: Any) -> str | None:
    return (pod["spec"].get("nodeSelector") or {}).get(FLAVOR_LABEL)


def owner(pod: Any) -> str:
    return str((pod["metadata"].get("labels") or {}).get("job-name", ""))


async def pending(place: Site, run: str) -> bool:
    return spec_of(await place.kube.get(kinds.PIPELINE_RUN, TEAM, run)).get("status") is not None


async def gone(place: Site, kind: Kind, names: set[str]) -> None:
    """Return once none of these is left."""

    async def none() -> bool:
        return not (await place.names(kind) & names)

    await eventually(none, f"{kind.kind} is left: {names}", look_seconds=0.2)


async def test_plan_writes_nothing_and_what_waits_starts_beside_what_runs(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        async with place.services() as system, deployed(place, system.supervisor):
            await furnish(place)
            await still(place)
            before = await versions(place)
            status, plan = await place.sluice("uninstall", "--plan")
            assert (status, await versions(place)) == (0, before), plan
            for line in PLANNED:
                assert line in plan
            pods = await pods_of(place, *RUNNING)
            status, said = await place.sluice("uninstall", "--yes", "--waiting", "release")
            assert status == 0, said
        await judge(place, "release", pods)
        await place.create_jobs("later")
        await place.until_runs("later")

        ours = {one["metadata"]["name"] for one in manifests()}
        await place.kubectl(
            "delete", "--ignore-not-found", "--timeout=120s", "-f", "-", documents=manifests()
        )
        for kind in (kinds.CUSTOM_RESOURCE_DEFINITION, kinds.DEPLOYMENT, CLUSTER_ROLE):
            await gone(place, kind, ours)
        assert await pods_of(place, *RUNNING) == pods
        assert place.history.stops() == []


async def test_what_waits_stays_suspended_and_queues_can_be_deleted(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        async with place.services() as system, deployed(place, system.supervisor):
            await furnish(place)
            pods = await pods_of(place, *RUNNING)
            status, said = await place.sluice("uninstall", "--yes", "--waiting", "leave")
            assert status == 0, said
        await judge(place, "leave", pods)
        await place.kubectl(
            *("delete", "--ignore-not-found", "--timeout=120s", "-l", KEEP_DEFINITIONS, "-f", "-"),
            documents=manifests(),
        )
        assert CLUSTER_ROLE_NAMES.isdisjoint(await place.names(CLUSTER_ROLE))
        for kind in FINALIZED:
            names = await place.names(kind)
            assert names, "their definitions are kept, and they with them"
            for name in names:
                namespace = TEAM if kind.namespaced else None
                await place.kube.delete(kind, namespace, name)
            await gone(place, kind, names)
        assert set(await place.suspended(*HELD)) == {True}
        assert await pods_of(place, *RUNNING) == pods


async def test_command_that_is_killed_and_repeated_ends_in_the_same_state(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        async with place.services() as system, deployed(place, system.supervisor):
            await furnish(place)
            pods = await pods_of(place, *RUNNING)

            async def webhook_is_gone() -> bool:
                return CLASSIFIER_WEBHOOK not in await place.names(kinds.MUTATING_WEBHOOK)

            async def finalizer_is_gone() -> bool:
                items = (await place.kube.list(kinds.WORKLOAD)).items
                return any(RESOURCE_IN_USE not in finalizers(one) for one in items)

            async def job_is_started() -> bool:
                return False in await place.suspended(*HELD)

            left = [
                await kill_when(place, moment)
                for moment in (webhook_is_gone, finalizer_is_gone, job_is_started)
            ]
            assert any(left), "each time it was faster than the kill"
            status, said = await place.sluice("uninstall", "--yes", "--waiting", "release")
            assert status == 0, said
        await judge(place, "release", pods)


async def kill_when(place: Site, moment: Callable[[], Any]) -> bool:
    """Begin to uninstall, and send SIGKILL once it has come so far; return whether something is left."""
    arguments = (
        "uninstall",
        "--yes",
        "--waiting",
        "release",
        "--kubeconfig",
        str(place.kubeconfig),
    )
    process = await asyncio.create_subprocess_exec(
        *SLUICE, *arguments,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, env=child_environment({}),
    )  # fmt: skip
    await eventually(moment, "it does not come so far")
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    killed = await process.wait() == -signal.SIGKILL
    _, plan = await place.sluice("uninstall", "--plan")
    return killed and any(word in plan for word in ("stop  ", "remove  ", "waiting  "))
