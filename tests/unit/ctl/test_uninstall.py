"""`sluice uninstall` on a simulated API server: running jobs run on, waiting ones start or stay suspended."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.ctl.connect.cluster import ClusterChoice
from services.ctl.setup.uninstall import (
    carry_out,
    check_choice,
    choice_of,
    lines_of,
    plan_for,
    uninstall,
)
from services.simulator.app import Simulator
from services.simulator.local import LocalKube
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.spokes import COPY_FINALIZER
from shared.contracts.multi_platform import FINALIZER
from shared.integrations import opted_documents
from shared.kube.port import ConflictError, Patch
from shared.runtime.command import CommandError, Exit

TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
QUEUED: dict[str, Any] = {"labels": {names.QUEUE: "main"}}
SERVICES = "sluicegate"


class Site:
    """A cluster with jobs in every state."""

    def __init__(self, simulator: Simulator) -> None:
        self.url = simulator.url
        self.kube = LocalKube(simulator.api)

    async def make(
        self, kind: Kind, name: str, spec: Any = None, *, namespace: str = "team", **metadata: Any
    ) -> None:
        obj: dict[str, Any] = {
            "apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, **metadata}
        }  # fmt: skip
        if kind.namespaced:
            obj["metadata"]["namespace"] = namespace
        if spec is not None:
            obj["spec"] = spec
        await self.kube.create(kind, obj)

    async def job(self, name: str, *, suspend: bool = True, **metadata: Any) -> None:
        spec: dict[str, Any] = {"suspend": suspend, "template": TEMPLATE}
        spec |= metadata.pop("spec", {})
        await self.make(kinds.JOB, name, spec, **{**QUEUED, **metadata})

    async def furnish(self) -> None:
        for namespace in ("team", SERVICES):
            await self.make(kinds.NAMESPACE, namespace, {})
        for kind in (kinds.MUTATING_WEBHOOK, kinds.VALIDATING_WEBHOOK):
            await self.make(kind, names.CLASSIFIER_WEBHOOK)
            await self.make(kind, "somebody-elses")
        labels = {"app.kubernetes.io/part-of": "sluicegate"}
        await self.make(
            kinds.DEPLOYMENT, "quota", {"replicas": 2}, namespace=SERVICES, labels=labels
        )
        await self.make(kinds.DEPLOYMENT, "other", {"replicas": 2}, namespace=SERVICES)
        await self.job("waits")
        await self.job("runs", suspend=False)
        await self.job("private", labels={})
        await self.job(
            "copy", labels={**QUEUED["labels"], ORIGIN: "hub"}, finalizers=[COPY_FINALIZER]
        )
        away = {"managedBy": MULTIKUEUE}
        await self.job("away", spec=away)
        run = {"pipelineRef": {"name": "p"}, "status": "PipelineRunPending"}
        ours, theirs = ({names.USER_PENDING: text} for text in ("false", "true"))
        await self.make(kinds.PIPELINE_RUN, "build", run, annotations=ours, **QUEUED)
        await self.make(kinds.PIPELINE_RUN, "paused", run, annotations=theirs, **QUEUED)
        pod_set = {"name": "main", "count": 1, "template": TEMPLATE}
        for name in ("job-waits", "job-runs"):
            spec = {"queueName": "main", "podSets": [pod_set], "active": True}
            held = [names.RESOURCE_IN_USE, "example.com/theirs"]
            await self.make(kinds.WORKLOAD, name, spec, finalizers=held)
        await self.make(kinds.TASK_RUN, "task", {"taskRef": {"name": "t"}}, finalizers=[FINALIZER])

    async def suspended(self, name: str) -> bool:
        return bool((await self.kube.get(kinds.JOB, "team", name))["spec"]["suspend"])

    async def pending(self, name: str) -> bool:
        run = await self.kube.get(kinds.PIPELINE_RUN, "team", name)
        return "status" in run["spec"]

    async def finalizers(self, kind: Kind, name: str) -> list[str]:
        obj = await self.kube.get(kind, "team", name)
        return obj["metadata"].get("finalizers") or []


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    site = Site(simulator)
    await site.furnish()
    yield site
    await simulator.stop()


async def test_plan_names_everything_and_writes_nothing(site: Site) -> None:
    before = {kind: await site.kube.list(kind) for kind in (kinds.JOB, kinds.WORKLOAD)}
    text = "\n".join(lines_of(await plan_for(site.kube, SERVICES), None))
    for line in (
        "delete    MutatingWebhookConfiguration sluicegate-classifier",
        "delete    ValidatingWebhookConfiguration sluicegate-classifier",
        "stop      Deployment sluicegate/quota",
        "remove    kueue.x-k8s.io/resource-in-use from 2 object(s)",
        "waiting   Job team/waits",
        "waiting   PipelineRun team/build",
        "these 2 job(s) wait for your choice: --waiting release|leave",
        "keep      1 run, and go on running",
        "keep      1 were paused by their users",
        "keep      2 run in another cluster or are its copies",
        "keep      1 TaskRun(s) use build machines",
    ):
        assert line in text
    for word in ("somebody-elses", "sluicegate/other", "private"):
        assert word not in text
    for kind, listing in before.items():
        assert (await site.kube.list(kind)).items == listing.items


@pytest.mark.parametrize("waiting", ["release", "leave"])
async def test_cluster_is_given_back_as_the_user_chooses(site: Site, waiting: Any) -> None:
    plan = await plan_for(site.kube, SERVICES)
    assert await carry_out(site.kube, plan, waiting, namespace=SERVICES, wait_seconds=1) == []
    assert await site.suspended("waits") is (waiting == "leave")
    assert await site.pending("build") is (waiting == "leave")
    assert not await site.suspended("runs")
    for untouched in ("private", "copy", "away"):
        assert await site.suspended(untouched)
    assert await site.pending("paused")
    assert await site.finalizers(kinds.WORKLOAD, "job-runs") == ["example.com/theirs"]
    assert await site.finalizers(kinds.JOB, "copy") == []
    assert await site.finalizers(kinds.TASK_RUN, "task") == []
    quota = await site.kube.get(kinds.DEPLOYMENT, SERVICES, "quota")
    other = await site.kube.get(kinds.DEPLOYMENT, SERVICES, "other")
    assert (quota["spec"]["replicas"], other["spec"]["replicas"]) == (0, 2)
    hooks = (await site.kube.list(kinds.MUTATING_WEBHOOK)).items
    assert [hook["metadata"]["name"] for hook in hooks] == ["somebody-elses"]

    again = await plan_for(site.kube, SERVICES)
    assert again.is_empty()
    assert len(again.waiting) == (0 if waiting == "release" else 2)
    assert await carry_out(site.kube, again, waiting, namespace=SERVICES, wait_seconds=1) == []


@pytest.mark.parametrize("waiting", ["release", "leave"])
async def test_pods_lose_their_finalizers_and_start_or_stay_gated(site: Site, waiting: Any) -> None:
    [document] = opted_documents(["pod"])
    await site.kube.create(kinds.INTEGRATION, document)
    await site.make(kinds.MUTATING_WEBHOOK, names.PODS_WEBHOOK)
    gate = document["spec"]["gate"]
    marked: dict[str, Any] = {
        "labels": {names.QUEUE: "main", gate["label"]: "true"},
        "finalizers": [gate["finalizer"]],
    }
    gated = {**TEMPLATE["spec"], "schedulingGates": [{"name": gate["name"]}]}
    await site.make(kinds.POD, "gated", gated, **marked)
    await site.make(kinds.POD, "started", TEMPLATE["spec"], **marked)
    plan = await plan_for(site.kube, SERVICES)
    assert await carry_out(site.kube, plan, waiting, namespace=SERVICES, wait_seconds=1) == []
    left = [{"name": gate["name"]}] if waiting == "leave" else []
    pod = await site.kube.get(kinds.POD, "team", "gated")
    assert pod["spec"]["schedulingGates"] == left
    for name in ("gated", "started"):
        assert await site.finalizers(kinds.POD, name) == []
    hooks = (await site.kube.list(kinds.MUTATING_WEBHOOK)).items
    assert [hook["metadata"]["name"] for hook in hooks] == ["somebody-elses"]


async def test_waiting_jobs_need_a_choice(site: Site) -> None:
    plan = await plan_for(site.kube, SERVICES)
    with pytest.raises(CommandError, match=r"--waiting: must say what becomes of 2 waiting job"):
        check_choice(plan, None)
    with pytest.raises(CommandError, match="--waiting start: must be release or leave"):
        choice_of("start")


async def test_nothing_is_given_back_while_a_service_still_runs(site: Site) -> None:
    status = [{"op": "add", "path": "/status", "value": {"replicas": 1}}]
    await site.kube.patch(kinds.DEPLOYMENT, SERVICES, "quota", status, subresource="status")
    plan = await plan_for(site.kube, SERVICES)
    told: list[str] = []
    problems = await carry_out(
        site.kube, plan, "release", namespace=SERVICES, wait_seconds=0, note=told.append
    )
    assert problems[0] == "Deployment sluicegate/quota: its pods have not ended"
    assert told == ["waiting for the pods of 1 service(s) to end"]
    assert await site.suspended("waits")
    assert names.RESOURCE_IN_USE in await site.finalizers(kinds.WORKLOAD, "job-waits")


class WatchedKube(LocalKube):
    """Something happens before a patch is applied."""

    async def before(self, kind: Kind, name: str) -> None:
        raise NotImplementedError

    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Patch,
        *,
        subresource: str | None = None,
    ) -> Any:
        await self.before(kind, name)
        return await super().patch(kind, namespace, name, patch, subresource=subresource)


class MeddledKube(WatchedKube):
    """Somebody changes each Workload between reading and writing it, once."""

    def __init__(self, inner: LocalKube) -> None:
        super().__init__(inner._api)
        self.meddled: set[str] = set()

    async def before(self, kind: Kind, name: str) -> None:
        if kind is kinds.WORKLOAD and name not in self.meddled:
            self.meddled.add(name)
            raise ConflictError("changed meanwhile", status=409)


async def test_object_that_changes_meanwhile_is_read_again(site: Site) -> None:
    kube = MeddledKube(site.kube)
    plan = await plan_for(kube, SERVICES)
    assert await carry_out(kube, plan, "leave", namespace=SERVICES, wait_seconds=1) == []
    assert kube.meddled == {"job-waits", "job-runs"}
    assert await site.finalizers(kinds.WORKLOAD, "job-waits") == ["example.com/theirs"]


class BusyKube(WatchedKube):
    """A cluster whose services hold one more job and one more Workload until they stop."""

    def __init__(self, site: "Site") -> None:
        super().__init__(site.kube._api)
        self.site = site

    async def before(self, kind: Kind, _name: str) -> None:
        if kind is kinds.DEPLOYMENT:
            await self.site.job("late")
            held = [names.RESOURCE_IN_USE]
            spec = {"queueName": "main", "podSets": [], "active": True}
            await self.site.make(kinds.WORKLOAD, "job-late", spec, finalizers=held)


async def test_job_that_began_to_wait_while_services_stopped_is_given_back(site: Site) -> None:
    kube = BusyKube(site)
    plan = await plan_for(kube, SERVICES)
    assert await carry_out(kube, plan, "release", namespace=SERVICES, wait_seconds=1) == []
    assert not await site.suspended("late")
    assert await site.finalizers(kinds.WORKLOAD, "job-late") == []


async def test_command_over_http_plans_and_gives_back(site: Site, tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": site.url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    }  # fmt: skip
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    said: list[str] = []

    async def run(**options: Any) -> bool:
        return await uninstall(
            **{"waiting": None, "yes": True, **options}, namespace=SERVICES, wait_seconds=5,
            cluster=ClusterChoice(kubeconfig=kubeconfig), say=said.append,
        )  # fmt: skip

    assert await run(yes=False)
    assert await site.suspended("waits")
    with pytest.raises(CommandError) as refused:
        await run()
    assert refused.value.status == Exit.WRONG_INPUT
    assert await run(waiting="release")
    assert not await site.suspended("waits")
    assert "delete the overlay" in said[-1]
    assert await run(waiting="release")
