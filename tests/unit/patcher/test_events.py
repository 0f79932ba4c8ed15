"""Kubernetes events with Kueue's reasons and messages, at a bounded rate."""

import asyncio
from datetime import timedelta
from functools import partial

from services.patcher.cluster.events import PENDING_MAX, EventRecorder
from services.simulator.local import LocalKube
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.kube.port import ThrottledError
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import NOON, Setup, projected

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {
        "suspend": True,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}},
    },
}


async def test_lifecycle_of_a_workload_causes_kueues_events(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "waiting", reason="WaitingForQuota", message="1 more needed")
    await eventually(lambda: told(setup, "WaitingForQuota"))
    await setup.decide(state, "admitted")
    await eventually(lambda: told(setup, "Started"))
    message = "Preempted to accommodate a workload (UID: u-9) due to prioritization"
    await setup.decide(
        state, "evicted", reason="InClusterQueue", preempted_by="team/x", message=message
    )
    await eventually(lambda: told(setup, "Stopped"))
    finish = {"success": True, "message": "done", "at": NOON}
    await setup.bus.publish(projected(await setup.job(), phase="finished", finish=finish))
    await eventually(lambda: told(setup, "FinishedWorkload"))
    preempted = (
        "Preempted to accommodate a workload (UID: UNKNOWN, JobUID: UNKNOWN) due to prioritization"
    )
    name = state.name
    assert await setup.events() == [
        ("Job", "CreatedWorkload", f"Created Workload: default/{name}"),
        ("Workload", "WaitingForQuota", "1 more needed"),
        (
            "Workload",
            "QuotaReserved",
            "Quota reserved in ClusterQueue cq, wait time since queued was 0s",
        ),
        (
            "Workload",
            "Admitted",
            "Admitted by ClusterQueue cq, wait time since reservation was 0s",
        ),
        ("Job", "Started", "Admitted by clusterQueue cq"),
        ("Workload", "EvictedDueToPreempted", preempted),
        ("Workload", "Preempted", preempted),
        ("Job", "Stopped", preempted),
        ("Job", "FinishedWorkload", f"Workload 'default/{name}' is declared finished"),
    ]


async def told(setup: Setup, reason: str) -> bool:
    return any(found == reason for _, found, _ in await setup.events())


async def test_unreadable_job_causes_an_event(setup: Setup) -> None:
    job = await setup.kube.create(
        kinds.JOB,
        {
            "metadata": {
                "name": "train",
                "namespace": "default",
                "annotations": {"kueue.x-k8s.io/job-min-parallelism": "many"},
            },
            "spec": {"suspend": True, "template": {"spec": {"containers": []}}},
        },
    )
    await setup.observe(kinds.JOB, job)
    await setup.bus.publish(projected(job))
    await eventually(lambda: told(setup, "ErrWorkloadCompose"))


class Slow(LocalKube):
    """Takes nothing for a while."""

    refuses = 1

    async def create(self, kind: kinds.Kind, obj: kinds.Object) -> kinds.Object:
        if self.refuses > 0:
            self.refuses -= 1
            raise ThrottledError("not so fast", retry_after_seconds=1.0)
        return await super().create(kind, obj)


def writer(kube: LocalKube, *, per_second: float = 1000.0) -> EventRecorder:
    return EventRecorder(kube=kube, now=lambda: NOON + timedelta(seconds=1), per_second=per_second)


def job(uid: str = "u") -> kinds.Object:
    return {"metadata": {"name": f"job-{uid}", "namespace": "default", "uid": uid}}


async def settle(events: EventRecorder, *, seconds: float = 0.2) -> None:
    running = asyncio.create_task(events.run())
    await asyncio.sleep(seconds)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_unplanned_admission_causes_a_warning(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "admitted", unplanned=True)
    await eventually(lambda: told(setup, "AdmittedUnplanned"))
    text = "It ran before it was admitted, and counts in ClusterQueue cq all the same"
    assert ("Workload", "AdmittedUnplanned", text) in await setup.events()


async def test_repeated_event_raises_its_count() -> None:
    setup = Setup()
    events = writer(setup.kube)

    async def counts(number: int) -> bool:
        return [one["count"] for one in (await setup.kube.list(kinds.EVENT)).items] == [number]

    for _ in range(3):
        events.record(kinds.JOB, job(), "Stopped", "again")
    running = asyncio.create_task(events.run())
    await eventually(partial(counts, 3))
    events.record(kinds.JOB, job(), "Stopped", "again")
    await eventually(partial(counts, 4))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_full_backlog_drops_the_oldest_event_without_blocking() -> None:
    setup = Setup()
    events = writer(setup.kube, per_second=1.0)
    for number in range(PENDING_MAX + 7):
        events.record(kinds.JOB, job(str(number)), "Started", "now")
    await settle(events)
    written = [one["involvedObject"]["uid"] for one in (await setup.kube.list(kinds.EVENT)).items]
    assert len(written) <= 21, "a burst, then one a second"
    assert "7" in written
    assert not {str(number) for number in range(7)} & {*written}


async def test_throttled_event_is_written_later() -> None:
    setup = Setup()
    kube = Slow(setup.kube._api)
    events = writer(kube)
    events.record(kinds.JOB, job(), "Started", "now")
    running = asyncio.create_task(events.run())

    async def written() -> bool:
        return bool((await setup.kube.list(kinds.EVENT)).items)

    await eventually(written)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len((await setup.kube.list(kinds.EVENT)).items) == 1


async def test_rate_zero_writes_no_events() -> None:
    setup = Setup()
    events = writer(setup.kube, per_second=0.0)
    events.record(kinds.JOB, job(), "Started", "now")
    await settle(events)
    assert not (await setup.kube.list(kinds.EVENT)).items


async def test_preemption_has_an_event_on_both_workloads(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    spec = {"queueName": "q", "priority": 7, "podSets": []}
    created = await setup.kube.create(
        kinds.WORKLOAD,
        as_body({"metadata": {"name": "x", "namespace": "default"}, "spec": spec}),
    )
    await setup.observe(kinds.WORKLOAD, created)
    await setup.decide(state, "admitted", priority=3)
    await eventually(lambda: told(setup, "Started"))
    await setup.decide(
        state, "evicted", reason="InClusterQueue", preempted_by="default/x", priority=3
    )
    for reason in ("PreemptedWorkload", "Preempted"):
        await eventually(partial(told, setup, reason))
    workload = await setup.workload(state)
    assert workload is not None
    priorities = (
        "preemptor effective priority: 7 (base: 7, boost: 0); "
        "preemptee effective priority: 3 (base: 3, boost: 0)"
    )
    uid = workload["metadata"]["uid"]
    expected = (
        f"Preempted workload default/{state.name} (UID: {uid}) in ClusterQueue cq; {priorities}"
    )
    messages = {reason: message for _, reason, message in await setup.events()}
    assert messages["PreemptedWorkload"] == expected
    assert messages["Preempted"].endswith(f"; {priorities}")


async def test_missing_priority_class_has_an_event_on_the_job(setup: Setup) -> None:
    text = 'WorkloadPriorityClass "high" not found'
    job = await setup.kube.create(kinds.JOB, as_body(JOB))
    await setup.observe(kinds.JOB, job)
    await setup.bus.publish(projected(job, priority_class="high", unresolved=text))
    await eventually(lambda: told(setup, "WorkloadPriorityClassNotFound"))
    assert ("Job", "WorkloadPriorityClassNotFound", text) in await setup.events()
