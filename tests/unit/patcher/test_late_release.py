"""A release that was on its way when another replica stopped the job comes to nothing."""

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Final

import pytest

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.pacing import WriteLoad
from services.patcher.cluster.writer import Writer
from services.patcher.coscheduling.reconciler import CoschedulingReconciler
from services.patcher.jobs.controller import JobController
from services.patcher.jobs.group_cleanup import GroupCleanup
from services.patcher.jobs.groups import GroupController
from services.patcher.jobs.outcomes import Outcomes
from services.patcher.jobs.recreation import Recreation
from services.patcher.jobs.repeated_changes import RepeatedChanges
from services.patcher.jobs.stops import StopController
from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.registry import Kind as ServedKind
from services.simulator.local import LocalKube
from shared.bus.port import LaterError
from shared.contracts.kube.kinds import (
    JOB,
    NAMESPACE,
    PIPELINE_RUN,
    POD,
    RESOURCE_FLAVOR,
    WORKLOAD,
    Kind,
    Object,
)
from shared.contracts.kube.names import MANAGED_LABEL, QUEUE, STOPPED_BY
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import JobRef, Members, WorkloadState
from shared.integrations import opted_documents
from shared.kube.port import Patch, RefusedError
from shared.telemetry import probes
from shared.telemetry.tracing import NO_TRACING
from shared.testing.builders import admission, workload
from shared.testing.probing import acts
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer
from tests.unit.integrations.gadgets import document
from tests.unit.patcher.stage import NOON

GADGET: Final = Kind(group="example.com", version="v1", plural="gadgets", kind="Gadget")
PAUSED: Final = document(
    held='spec.?state.orValue("") == "Paused"',
    hold=[{"op": "add", "path": "/spec/state", "value": "Paused"}],
    release=[{"op": "replace", "path": "/spec/state", "value": "Running"}],
    stop={"how": "Patch", "patch": [{"op": "replace", "path": "/spec/state", "value": "Paused"}]},
)
"""A home-made kind whose release tests nothing."""

TEMPLATE: Final = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
GROUP: Final = "kueue.x-k8s.io/pod-group-name"
GATES: Final = [{"name": "kueue.x-k8s.io/admission"}]
POD_META: Final = {"labels": {QUEUE: "main", MANAGED_LABEL: "true"}}
MEMBER_META: Final = {
    "labels": {QUEUE: "main", MANAGED_LABEL: "true", GROUP: "one"},
    "annotations": {
        "kueue.x-k8s.io/pod-group-total-count": "1",
        "kueue.x-k8s.io/role-hash": "main",
    },
}
HELD: Final[Mapping[str, tuple[Kind, Object, Object]]] = {
    "a Job": (JOB, {}, {"suspend": True, "template": TEMPLATE}),
    "a Job with annotations": (
        JOB,
        {"annotations": {"a": "b"}},
        {"suspend": True, "template": TEMPLATE},
    ),
    "a PipelineRun": (PIPELINE_RUN, {}, {"status": "PipelineRunPending"}),
    "a pod": (POD, POD_META, {**TEMPLATE["spec"], "schedulingGates": GATES}),
    "a pod of a group": (POD, MEMBER_META, {**TEMPLATE["spec"], "schedulingGates": GATES}),
    "a kind of a document": (GADGET, {}, {"state": "Paused", "replicas": 1, "template": TEMPLATE}),
}
SUSPENDED: Final = [name for name in HELD if "Job" in name or "document" in name]
"""Those that are stopped by a patch, and wait again."""

Step = Callable[[], Awaitable[None]]


class Intercepted(LocalKube):
    """A client whose next patch of a job waits until something else has happened."""

    meanwhile: Step | None = None

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, patch: Patch, **options: Any
    ) -> Any:
        if kind != WORKLOAD and (step := self.meanwhile) is not None:
            self.meanwhile = None
            await step()
        return await super().patch(kind, namespace, name, patch, **options)


class Replica:
    """What one patcher knows, and how it deals with jobs."""

    def __init__(self, api: Api, bus: MemoryBus) -> None:
        self.kube = Intercepted(api)
        self.cache = ObjectCache(bus=bus, cluster="hub")
        for one in (*opted_documents(["pod"]), PAUSED):
            self.cache.integrations.apply(one)
        flavor: Any = {"metadata": {"name": "default", "uid": "u", "resourceVersion": "1"}}
        self.cache.store(RESOURCE_FLAVOR, flavor)
        load = WriteLoad()
        writer = Writer(kube=self.kube, cache=self.cache, load=load)
        events = EventRecorder(kube=self.kube, now=lambda: NOON, per_second=0)
        coscheduling = CoschedulingReconciler(
            kube=self.kube, cache=self.cache, writer=writer, events=events, now=lambda: NOON,
            image="i", tekton_namespace="t", cordon_check_seconds=60.0,
        )  # fmt: skip
        groups = GroupController(
            cache=self.cache, kube=self.kube, writer=writer, events=events, now=lambda: NOON,
            cleanup=GroupCleanup(writer=writer, cache=self.cache, events=events, load=load),
            not_seen_seconds=0.01,
        )  # fmt: skip
        outcomes = Outcomes(bus=bus, cache=self.cache, now=lambda: NOON)
        recreation = Recreation(writer=writer, events=events)
        holds = RepeatedChanges(done="held", pause_seconds_max=0.0)
        stops = StopController(
            writer=writer, events=events, outcomes=outcomes, recreation=recreation, holds=holds,
            now=lambda: NOON,
        )  # fmt: skip
        self.jobs = JobController(
            bus=bus, cache=self.cache, writer=writer, events=events, outcomes=outcomes,
            coscheduling=coscheduling, groups=groups, recreation=recreation, stops=stops,
            releases=RepeatedChanges(done="released", pause_seconds_max=0.0),
            holds=holds,
            now=lambda: NOON, tracing=NO_TRACING, not_seen_seconds=0.01, may_start=_yes,
        )  # fmt: skip


async def _yes(_job: Object) -> bool:
    return True


class Stage:
    """Two replicas, a job that is held, and the Workload object of it."""

    def __init__(self, kind: Kind, metadata: Object, spec: Object) -> None:
        self.kind, self.spec = kind, spec
        self.metadata = {"name": "one", "namespace": "team", **metadata}
        api = Api(now=lambda: NOON, random=Random(1))
        api.kinds.add(ServedKind(group="example.com", kind="Gadget", plural="gadgets", custom=True))
        self.bus = MemoryBus(MemoryServer(), instance="quota")
        self.first, self.second = Replica(api, self.bus), Replica(api, self.bus)
        self.number = 0

    async def begin(self) -> None:
        kube = self.first.kube
        await self.bus.start()
        await kube.create(
            NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        )
        typed = {"apiVersion": self.kind.api_version, "kind": self.kind.kind}
        job = await kube.create(self.kind, {**typed, "metadata": self.metadata, "spec": self.spec})
        owner = JobRef(
            api_version=self.kind.api_version, kind=self.kind.kind, plural=self.kind.plural,
            name="one", uid=job["metadata"]["uid"], is_group=GROUP in str(self.metadata),
        )  # fmt: skip
        members = Members(total=1, present=1, complete=True) if owner.is_group else None
        self.state: WorkloadState = workload("one", owner=owner, members=members, held=True)
        pod_sets = [{"name": "main", "count": 1, "template": TEMPLATE}]
        typed = {"apiVersion": WORKLOAD.api_version, "kind": "Workload"}
        metadata = {"name": "one", "namespace": "team"}
        self.workload = await kube.create(
            WORKLOAD, {**typed, "metadata": metadata, "spec": {"podSets": pod_sets}}
        )
        for one in (self.first, self.second):
            await self.observe(one)

    async def observe(self, replica: Replica) -> None:
        """Let a replica see the job as it is now."""
        job = await replica.kube.get(self.kind, "team", "one")
        replica.cache.store(self.kind, job)
        if self.kind == POD:
            integration = replica.cache.integrations.find(group="", plural="pods")
            assert integration is not None
            replica.cache.groups.observe(job, integration)

    async def decide(self, state: str) -> Admission:
        """A decision of just now, on the log."""
        self.number += 1
        decided = admission(self.state, state, number=self.number)
        await self.bus.publish(decided)
        return decided

    async def release(self, replica: Replica, decided: Admission) -> None:
        await replica.jobs.release(self.state, decided, self.workload, is_new=True)

    async def stop(self, replica: Replica, decided: Admission) -> None:
        await replica.jobs.stop(self.state, decided, self.workload)

    async def runs(self) -> bool:
        job = await self.first.kube.get(self.kind, "team", "one")
        integration = self.first.cache.integrations.find(
            group=self.kind.group, plural=self.kind.plural
        )
        assert integration is not None
        return not integration.held(job)

    async def mark(self, text: str) -> None:
        patch = {"metadata": {"annotations": {STOPPED_BY: text}}}
        await self.first.kube.patch(self.kind, "team", "one", patch)


async def staged(name: str) -> Stage:
    stage = Stage(*HELD[name])
    await stage.begin()
    return stage


async def comes_to_nothing(stage: Stage, admitted: Admission, why: str) -> None:
    """The first replica puts off the release, and the job does not run."""
    with pytest.raises(LaterError, match=why):
        await stage.release(stage.first, admitted)
    assert not await stage.runs()


@pytest.mark.parametrize("name", HELD)
async def test_release_overtaken_by_a_stop_leaves_the_job_held(name: str) -> None:
    stage = await staged(name)
    admitted = await stage.decide("admitted")

    async def stop() -> None:
        await stage.stop(stage.second, await stage.decide("evicted"))

    stage.first.kube.meanwhile = stop
    await comes_to_nothing(stage, admitted, "is not the last one")


@pytest.mark.parametrize("name", HELD)
async def test_release_of_who_has_read_the_stopped_job_asks_for_the_last_decision(
    name: str,
) -> None:
    stage = await staged(name)
    admitted = await stage.decide("admitted")
    await stage.stop(stage.second, await stage.decide("evicted"))
    await stage.observe(stage.first)
    await comes_to_nothing(stage, admitted, "is not the last one")


@pytest.mark.parametrize("name", HELD)
async def test_release_that_conflicts_with_a_stop_reads_the_mark_of_it(name: str) -> None:
    stage = await staged(name)
    admitted = await stage.decide("admitted")

    async def stop_unseen() -> None:
        # The decision is published between the question for it and the second look at the job.
        await stage.mark("0.1.7")

    stage.first.kube.meanwhile = stop_unseen
    with acts(probes.RELEASE_TOO_LATE):
        await comes_to_nothing(stage, admitted, "stopped by a later decision")


@pytest.mark.parametrize("name", SUSPENDED)
async def test_release_of_a_job_that_ran_and_was_stopped_meanwhile_leaves_it_held(
    name: str,
) -> None:
    stage = await staged(name)
    admitted = await stage.decide("admitted")

    async def run_and_stop() -> None:
        await stage.release(stage.second, admitted)
        assert await stage.runs()
        await stage.stop(stage.second, await stage.decide("evicted"))

    stage.first.kube.meanwhile = run_and_stop
    await comes_to_nothing(stage, admitted, "is not the last one")


@pytest.mark.parametrize("name", HELD)
async def test_stop_that_meets_a_release_does_not_say_that_the_job_was_held(name: str) -> None:
    stage = await staged(name)
    admitted = await stage.decide("admitted")
    evicted = admission(stage.state, "evicted", number=2)  # Not on the view yet.

    async def release() -> None:
        await stage.release(stage.second, admitted)

    stage.first.kube.meanwhile = release
    if name in SUSPENDED:
        await stage.stop(stage.first, evicted)
        assert not await stage.runs()
    else:
        with pytest.raises(LaterError, match="meanwhile"):
            await stage.stop(stage.first, evicted)
        assert await stage.runs(), "the next attempt ends it"


@pytest.mark.parametrize("name", HELD)
async def test_next_admission_releases_a_job_that_was_stopped_before(name: str) -> None:
    stage = await staged(name)
    await stage.stop(stage.second, await stage.decide("evicted"))
    await stage.release(stage.first, await stage.decide("admitted"))
    assert await stage.runs()


@pytest.mark.parametrize("text", ["9.9.9", "nonsense", "", "1.2", "٣.1.1"])
async def test_mark_that_a_tenant_wrote_keeps_no_job_from_its_admission(text: str) -> None:
    stage = await staged("a Job")
    await stage.mark(text)
    await stage.observe(stage.first)
    await stage.release(stage.first, await stage.decide("admitted"))
    assert await stage.runs()


@pytest.mark.parametrize("name", HELD)
async def test_stop_of_a_job_that_is_held_writes_once(name: str) -> None:
    stage = await staged(name)
    evicted = await stage.decide("evicted")
    versions = set()
    for replica in (stage.first, stage.second, stage.first):
        await stage.stop(replica, evicted)
        job = await stage.first.kube.get(stage.kind, "team", "one")
        versions.add(job["metadata"]["resourceVersion"])
    assert len(versions) == 1
    assert job["metadata"]["annotations"][STOPPED_BY] == "0.1.1"


async def test_stop_of_a_running_job_writes_once_and_only_then_says_so() -> None:
    stage = await staged("a Job")
    await stage.release(stage.first, await stage.decide("admitted"))
    before = await stage.first.kube.get(JOB, "team", "one")
    await stage.stop(stage.first, await stage.decide("evicted"))
    after = await stage.first.kube.get(JOB, "team", "one")
    versions = [int(job["metadata"]["resourceVersion"]) for job in (before, after)]
    assert versions[1] == versions[0] + 1
    assert after["metadata"]["annotations"] == {STOPPED_BY: "0.1.2"}


class Full(Intercepted):
    """A client of a cluster in which a job has so many annotations that no other one fits."""

    async def patch(self, *where: Any, **options: Any) -> Any:
        written = [one for one in where[-1] if one["op"] != "test"]
        if STOPPED_BY.partition("/")[2] in str(written):
            text = "metadata.annotations: Too long: may not be more than 262144 bytes"
            raise RefusedError(text, status=422, reason="Invalid")
        return await super().patch(*where, **options)


@pytest.mark.parametrize("name", [*SUSPENDED, "a pod of a group"])
async def test_annotations_that_a_tenant_has_filled_up_keep_no_job_running(name: str) -> None:
    stage = await staged(name)
    evicted = await stage.decide("evicted")
    if name in SUSPENDED:
        released = await stage.decide("admitted")
        await stage.release(stage.first, released)
        evicted = await stage.decide("evicted")
    stage.first.kube.__class__ = Full
    await stage.stop(stage.first, evicted)
    assert not await stage.runs()
