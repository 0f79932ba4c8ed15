"""The patcher on a cluster in memory: what it writes for each decision, and that it may repeat itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from services.patcher.app import Patcher, assemble
from services.patcher.settings import PatcherSettings
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.bus.port import CaughtUp
from shared.contracts import kinds
from shared.contracts.admissions import Admission, AdmissionState, PodSetAssignment
from shared.contracts.effects import Outcome
from shared.contracts.kinds import Kind
from shared.contracts.names import workload_name
from shared.contracts.observed import Observed
from shared.contracts.workloads import OwnerReference, PodSet, WorkloadState
from shared.kube.port import NotFoundError
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer

Json = dict[str, Any]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECONDS_MAX = 5.0


class Setup:
    """A cluster, a bus, and a patcher between them. The test plays watcher, classifier and quota."""

    def __init__(self) -> None:
        self.kube = LocalKube(Api(now=lambda: NOON, random=Random(1)))
        self.server = MemoryServer()
        self.bus = MemoryBus(self.server, instance="test")
        self._number = 0
        self._running: list[asyncio.Task[None]] = []
        self._buses: list[MemoryBus] = []

    async def start_patcher(self) -> Patcher:
        bus = MemoryBus(self.server, instance=f"patcher-{len(self._buses)}")
        settings = PatcherSettings(cluster="hub", not_seen_seconds=0.01)
        patcher = assemble(settings=settings, bus=bus, kube=self.kube, now=lambda: NOON)
        await bus.start()
        self._buses.append(bus)
        self._running.append(asyncio.create_task(patcher.run()))
        return patcher

    async def kill_patcher(self) -> None:
        task = self._running.pop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._buses.pop().stop()

    async def observe(self, kind: Kind, obj: Json) -> None:
        metadata = obj["metadata"]
        await self.bus.publish(
            Observed(
                cluster="hub", group=kind.group, version=kind.version, plural=kind.plural,
                kind=kind.kind, namespace=metadata.get("namespace"), name=metadata["name"],
                uid=metadata["uid"], resource_version=metadata["resourceVersion"], object=obj,
            )
        )  # fmt: skip

    async def submit(self, **spec: Any) -> WorkloadState:
        """A suspended Job, observed and projected."""
        containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
        template = {"spec": {"restartPolicy": "Never", "containers": containers}}
        job = await self.kube.create(
            kinds.JOB,
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "train", "namespace": "default"},
                "spec": {"suspend": True, "template": template, **spec},
            },
        )
        await self.observe(kinds.JOB, job)
        state = projected(job)
        await self.bus.publish(state)
        return state

    async def decide(self, state: WorkloadState, decided: AdmissionState, **more: Any) -> None:
        self._number += 1
        pod_set = PodSetAssignment(
            name="main", count=1, flavors={"cpu": "spot"}, usage={"cpu": "1"}
        )
        await self.bus.publish(
            Admission(
                cluster="hub", namespace="default", name=state.name, uid=state.uid, state=decided,
                term=1, number=self._number, decided_at=NOON, cluster_queue="cq",
                pod_sets=[pod_set], **more,
            )
        )  # fmt: skip

    async def flavor(self, **spec: Any) -> None:
        obj = {
            "apiVersion": kinds.RESOURCE_FLAVOR.api_version,
            "kind": "ResourceFlavor",
            "metadata": {"name": "spot"},
            "spec": spec,
        }
        await self.observe(
            kinds.RESOURCE_FLAVOR, await self.kube.create(kinds.RESOURCE_FLAVOR, obj)
        )

    async def job(self) -> Json:
        return await self.kube.get(kinds.JOB, "default", "train")

    async def workload(self, state: WorkloadState) -> Json | None:
        try:
            return await self.kube.get(kinds.WORKLOAD, "default", state.name)
        except NotFoundError:
            return None

    async def conditions(self, state: WorkloadState) -> dict[str, str]:
        obj = await self.workload(state) or {}
        found = (obj.get("status") or {}).get("conditions") or []
        return {c["type"]: c["status"] for c in found}

    async def outcomes(self) -> list[Outcome]:
        found = []
        async with aclosing(self.bus.replay("OUTCOMES")) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    break
                found.append(Outcome.decode(item.data))
        return found


def projected(job: Json, **more: Any) -> WorkloadState:
    metadata = job["metadata"]
    owner = OwnerReference(
        api_version="batch/v1", kind="Job", plural="jobs", name="train", uid=metadata["uid"]
    )
    return WorkloadState(
        cluster="hub", namespace="default", uid=metadata["uid"], owner=owner, queue="main",
        name=workload_name(kind="Job", group="batch", name="train", uid=metadata["uid"]),
        created_at=NOON, pod_sets=[PodSet(name="main", count=1, requests={"cpu": "1"})],
        **{"phase": "waiting", "held": job["spec"].get("suspend", False), **more},
    )  # fmt: skip


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    subject = Setup()
    await subject.bus.start()
    await subject.start_patcher()
    yield subject
    await subject.kill_patcher()
    await subject.bus.stop()


async def until(condition: Any) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not await condition():  # noqa: ASYNC110 - the condition is in a cluster
            await asyncio.sleep(0.01)


async def test_a_waiting_job_gets_a_workload_object_of_its_own(setup: Setup) -> None:
    state = await setup.submit()
    await until(lambda: setup.workload(state))
    obj = await setup.workload(state)
    assert obj is not None
    assert obj["metadata"]["ownerReferences"][0]["uid"] == state.uid
    assert obj["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert obj["spec"]["queueName"] == "main"


async def test_an_admission_is_on_the_workload_before_its_job_runs(setup: Setup) -> None:
    await setup.flavor(nodeLabels={"pool": "spot"}, tolerations=[{"key": "spot"}])
    state = await setup.submit()
    await setup.decide(state, "admitted")

    async def released() -> bool:
        job = await setup.job()
        if job["spec"]["suspend"]:
            return False
        assert (await setup.conditions(state)).get("Admitted") == "True"
        return True

    await until(released)
    pod = (await setup.job())["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "spot"}
    assert pod["tolerations"] == [{"key": "spot"}]


async def test_a_reservation_does_not_start_anything(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "reserved", checks=["machines"])

    async def reserved() -> bool:
        return (await setup.conditions(state)).get("QuotaReserved") == "True"

    await until(reserved)
    assert (await setup.job())["spec"]["suspend"] is True


async def test_an_eviction_suspends_and_reports_the_version_that_was_suspended(
    setup: Setup,
) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "admitted")
    await until(lambda: running(setup))
    await setup.decide(state, "evicted", reason="InClusterQueue", preempted_by="team/x")

    async def suspended() -> bool:
        return any(outcome.action == "suspend" for outcome in await setup.outcomes())

    await until(suspended)
    job = await setup.job()
    assert job["spec"]["suspend"] is True
    [outcome] = [o for o in await setup.outcomes() if o.action == "suspend"]
    assert outcome.version == job["metadata"]["resourceVersion"]
    assert (await setup.conditions(state))["Preempted"] == "True"


async def running(setup: Setup) -> bool:
    return not (await setup.job())["spec"]["suspend"]


async def test_a_decision_about_an_earlier_life_releases_nothing(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state.model_copy(update={"uid": "earlier"}), "admitted")
    await until(lambda: setup.workload(state))
    await asyncio.sleep(0.1)
    assert (await setup.job())["spec"]["suspend"] is True


async def test_a_job_that_slipped_past_the_webhook_is_made_to_wait(setup: Setup) -> None:
    await setup.submit(suspend=False)

    async def held() -> bool:
        return bool((await setup.job())["spec"]["suspend"])

    await until(held)


async def test_a_patcher_that_died_between_status_and_release_goes_on(setup: Setup) -> None:
    await setup.kill_patcher()
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "admitted")
    await setup.start_patcher()
    await until(lambda: running(setup))
    before = await setup.job()
    await setup.kill_patcher()
    await setup.start_patcher()
    await setup.bus.publish(projected(before, pods_ready=True))
    await asyncio.sleep(0.2)
    assert (await setup.job())["metadata"]["resourceVersion"] == before["metadata"][
        "resourceVersion"
    ]


async def test_an_end_is_written_and_the_finalizer_let_go(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "admitted")
    await until(lambda: running(setup))
    finish = {"success": True, "message": "done", "at": NOON}
    await setup.bus.publish(projected(await setup.job(), phase="finished", finish=finish))

    async def finished() -> bool:
        obj = await setup.workload(state)
        return obj is not None and not obj["metadata"].get("finalizers")

    await until(finished)
    assert (await setup.conditions(state))["Finished"] == "True"
