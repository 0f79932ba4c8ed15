"""Workloads that another program created: each decision is one write to their status, and no other write.

Only the value of the priority class that they name is written into their spec.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.classifier.projection.cluster_objects import ClusterObjects
from services.classifier.projection.project import project_external
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.waiting import eventually
from tests.unit.classifier.observations import seen
from tests.unit.patcher.stage import HeldKube, Setup


class Theirs(Setup):
    """Plays their controller too: it creates a Workload, waits for conditions, and sets some."""

    classes = ClusterObjects()

    async def make(self, **spec: object) -> WorkloadState:
        containers = [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}]
        template = {"spec": {"restartPolicy": "Never", "containers": containers}}
        pod_sets = [{"name": "main", "count": 1, "template": template}]
        return await self.project(
            await self.kube.create(
                kinds.WORKLOAD,
                {
                    "metadata": {"name": "theirs", "namespace": "default"},
                    "spec": {"queueName": "main", "podSets": pod_sets, **spec},
                },
            )
        )

    async def project(self, obj: Object) -> WorkloadState:
        """Observe it as it is, and publish what the classifier makes of it."""
        await self.observe(kinds.WORKLOAD, obj)
        state = project_external(obj, cluster="hub", cluster_objects=self.classes)
        await self.bus.publish(state)
        return state

    async def now(self) -> Object:
        return await self.kube.get(kinds.WORKLOAD, "default", "theirs")

    async def set(self, **values: str) -> WorkloadState:
        obj = await self.now()
        conditions = {c["type"]: c for c in obj["status"].get("conditions") or []}
        for type_, value in values.items():
            told = {
                "type": type_,
                "status": value,
                "reason": "ByTest",
                "message": "by their runner",
            }
            conditions[type_] = {**told, "lastTransitionTime": "2026-01-01T12:00:01Z"}
        status = {"conditions": list(conditions.values())}
        after = await self.kube.patch(
            kinds.WORKLOAD, "default", "theirs", {"status": status}, subresource="status"
        )
        return await self.project(after)

    async def is_true(self, type_: str) -> bool:
        conditions = ((await self.now()).get("status") or {}).get("conditions") or []
        return any(c["type"] == type_ and c["status"] == "True" for c in conditions)

    async def is_told(self, reason: str) -> bool:
        conditions = ((await self.now()).get("status") or {}).get("conditions") or []
        return any(c["reason"] == reason for c in conditions)


@pytest.fixture
async def theirs() -> AsyncIterator[Theirs]:
    subject = Theirs()
    await subject.bus.start()
    await subject.start_patcher()
    yield subject
    await subject.kill_patcher()
    await subject.bus.stop()


async def test_foreign_workload_is_admitted_in_one_write(theirs: Theirs) -> None:
    state = await theirs.make()
    assert (state.owner, state.held, state.phase) == (None, True, "waiting")
    created = int((await theirs.now())["metadata"]["resourceVersion"])
    await theirs.decide(state, "admitted")
    await eventually(lambda: theirs.is_true("Admitted"))
    assert int((await theirs.now())["metadata"]["resourceVersion"]) == created + 1
    assert not (await theirs.project(await theirs.now())).held

    finished = await theirs.set(Finished="True")
    assert finished.phase == "finished"
    await theirs.decide(finished, "released", reason="Finished")
    await asyncio.sleep(0.3)
    after = await theirs.now()
    assert int(after["metadata"]["resourceVersion"]) == created + 2
    assert after["status"]["admission"]["clusterQueue"] == "cq"
    assert await theirs.events() == []


async def test_short_wait_of_a_foreign_workload_causes_no_write(theirs: Theirs) -> None:
    theirs.settings["foreign_reasons_per_second"] = 0.01
    await theirs.kill_patcher()
    await theirs.start_patcher()
    first = await theirs.make()
    await theirs.decide(first, "waiting", reason="WaitingForQuota", message="1 more needed")
    await eventually(lambda: theirs.is_told("WaitingForQuota"))
    version = int((await theirs.now())["metadata"]["resourceVersion"])
    await theirs.decide(first, "waiting", reason="WaitingForQuota", message="2 more needed")
    await asyncio.sleep(0.1)
    await theirs.decide(first, "admitted")
    await eventually(lambda: theirs.is_true("Admitted"))
    await asyncio.sleep(0.3)
    assert int((await theirs.now())["metadata"]["resourceVersion"]) == version + 1


async def test_late_waiting_reason_does_not_revert_the_admission(theirs: Theirs) -> None:
    theirs.patchers_kube = slow = HeldKube(
        theirs.kube, lambda _, patch: "WaitingForQuota" in str(patch)
    )
    await theirs.kill_patcher()
    await theirs.start_patcher()
    state = await theirs.make()
    await theirs.decide(state, "waiting", reason="WaitingForQuota", message="1 more needed")
    await slow.on_its_way.wait()
    await theirs.decide(state, "admitted")
    await eventually(lambda: theirs.is_true("Admitted"))
    slow.arrives.set()
    await asyncio.sleep(0.3)
    assert await theirs.is_true("Admitted")
    assert (await theirs.now())["status"]["admission"]["clusterQueue"] == "cq"


async def test_foreign_eviction_ends_when_its_controller_returns_the_quota(
    theirs: Theirs,
) -> None:
    state = await theirs.make()
    await theirs.decide(state, "admitted")
    await eventually(lambda: theirs.is_true("Admitted"))
    await theirs.decide(state, "evicted", reason="InClusterQueue", preempted_by="team/x")
    await eventually(lambda: theirs.is_true("Evicted"))

    async def reported() -> bool:
        return bool(await theirs.outcomes())

    await eventually(reported)
    [outcome] = await theirs.outcomes()
    assert (outcome.action, outcome.result) == ("suspend", "applied")
    evicted = await theirs.project(await theirs.now())
    assert evicted.version == outcome.version
    assert not evicted.held, "their pods run until they say otherwise"
    after = await theirs.set(QuotaReserved="False", Admitted="False")
    assert after.held
    assert int(after.version) > int(outcome.version)


async def test_decision_about_an_earlier_workload_of_the_name_is_ignored(theirs: Theirs) -> None:
    state = await theirs.make()
    await theirs.kube.delete(kinds.WORKLOAD, "default", "theirs")
    again = await theirs.make()
    assert again.uid != state.uid
    await theirs.decide(state, "admitted")
    await asyncio.sleep(0.3)
    assert not await theirs.is_true("Admitted")


async def test_value_of_its_class_is_written_waiting_or_with_quota(theirs: Theirs) -> None:
    theirs.classes = ClusterObjects()

    async def classed(value: int) -> None:
        theirs.classes.observe(seen(kinds.WORKLOAD_PRIORITY_CLASS, "urgent", value=value))
        await theirs.project(await theirs.now())

    async def priority() -> tuple[int, str]:
        spec = (await theirs.now())["spec"]
        return spec["priority"], spec["priorityClassRef"]["name"]

    async def is_now(*wanted: object) -> None:
        async def reached() -> bool:
            return await priority() == wanted

        await eventually(reached)

    named = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "urgent"}
    state = await theirs.make(priority=200, priorityClassRef=named)
    await theirs.decide(state, "waiting", reason="WaitingForQuota", message="1 more needed")
    await classed(150)
    await is_now(150, "urgent")
    await theirs.decide(state, "admitted")
    await eventually(lambda: theirs.is_true("Admitted"))
    await classed(300)
    await is_now(300, "urgent")

    # Its controller takes another class: what the state still says of the first one is not written.
    other = {"spec": {"priority": 7, "priorityClassRef": {**named, "name": "other"}}}
    await theirs.kube.patch(kinds.WORKLOAD, "default", "theirs", other)
    await theirs.decide(state, "evicted", reason="InClusterQueue", preempted_by="team/x")
    await eventually(lambda: theirs.is_true("Evicted"))
    assert await priority() == (7, "other")
