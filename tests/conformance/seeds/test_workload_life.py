"""Document 004: a workload that is put out, is not ready in time, backs off, or gives back what it had."""

from datetime import datetime

import pytest

from shared.contracts.kube.kinds import CLUSTER_QUEUE, NODE, PIPELINE_RUN, POD, Object
from shared.contracts.kube.names import QUEUE
from shared.kube.port import NotFoundError
from shared.testing.world.world import EPOCH
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, job, pipeline_run, pool, priority, story

WAIT = {"timeout": "5m", "requeuingStrategy": {"backoffLimitCount": 3}}
NOWHERE = {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}
"""A pod with this fits on no node until somebody adds one of that name."""


def at(value: str) -> float:
    """Seconds since the world began."""
    return (datetime.fromisoformat(value) - EPOCH).total_seconds()


async def requeue_state(stage: Stage, obj: Object) -> Object:
    return dict(((await stage.workload(obj)).get("status") or {}).get("requeueState") or {})


async def set_active(stage: Stage, obj: Object, active: bool) -> None:
    await stage.patch(await stage.workload(obj), {"spec": {"active": active}})


async def is_evicted(stage: Stage, obj: Object, reason: str) -> bool:
    evicted = await stage.condition(obj, "Evicted")
    return (evicted.get("status"), evicted.get("reason")) == ("True", reason)


async def in_use(stage: Stage, queue: str) -> dict[str, str]:
    """What the status of a ClusterQueue says is used of each resource of its flavor."""
    [flavor] = (await stage.kube.get(CLUSTER_QUEUE, None, queue))["status"]["flavorsUsage"]
    return {resource["name"]: resource["total"] for resource in flavor["resources"]}


@says("004:26")
@story()
async def test_active_false_evicts_and_blocks_and_true_admits_again(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 1}))
    one = await stage.create(job("one", "q", {"cpu": 1}))
    await stage.until_admitted(one)

    await set_active(stage, one, active=False)
    await stage.until_waits(one, "The workload is deactivated")
    assert await is_evicted(stage, one, "Deactivated")
    assert not await stage.runs(one)
    await stage.settle(60)
    assert not await stage.is_admitted(one)

    await set_active(stage, one, active=True)
    await stage.until_admitted(one)
    requeued = await stage.condition(one, "Requeued")
    assert (requeued["status"], requeued["reason"]) == ("True", "Reactivated")
    assert await stage.runs(one)


@says("004:26")
@story()
async def test_active_false_ends_a_pipeline_run_since_it_cannot_wait_again(stage: Stage) -> None:
    await stage.create(*pool("q", {"tekton.dev/pipelineruns": 1}))
    one = await stage.create(pipeline_run("one", labels={QUEUE: "q"}))
    await stage.until_admitted(one)
    await stage.until(lambda: started(stage, one))

    await set_active(stage, one, active=False)
    next_ = await stage.create(pipeline_run("next", labels={QUEUE: "q"}))
    await stage.until_admitted(next_)
    assert (await stage.fresh(one))["spec"]["status"] == "CancelledRunFinally"
    runs = (await stage.kube.list(PIPELINE_RUN, namespace="team-a")).items
    assert len(runs) == 2, "nothing waits in its place"


async def started(stage: Stage, run: Object) -> bool:
    return bool(((await stage.fresh(run)).get("status") or {}).get("startTime"))


@says("004:88-90", "004:92-94", "004:96-99")
@story(configuration={"waitForPodsReady": WAIT})
async def test_job_that_does_not_get_ready_in_time_is_evicted_and_requeued_with_growing_delays(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 1}))
    one = await stage.create(job("one", "q", {"cpu": 1}, pod=NOWHERE))
    for count, delay in ((1, 60), (2, 120), (3, 240)):
        await stage.until_admitted(one)
        ready = await stage.condition(one, "PodsReady")
        assert (ready["status"], ready["reason"]) == ("False", "WaitForStart")
        admitted = at((await stage.condition(one, "Admitted"))["lastTransitionTime"])

        async def backs_off() -> bool:
            state = await requeue_state(stage, one)
            return state.get("count") == count and "requeueAt" in state  # noqa: B023 - used at once

        await stage.until(backs_off, seconds=400)
        assert await is_evicted(stage, one, "PodsReadyTimeout")
        evicted = at((await stage.condition(one, "Evicted"))["lastTransitionTime"])
        assert 300 <= evicted - admitted <= 302
        wait = at((await requeue_state(stage, one))["requeueAt"]) - evicted
        assert delay - 1 <= wait <= delay + 1
        await stage.settle(5)
        requeued = await stage.condition(one, "Requeued")
        assert (requeued["status"], requeued["reason"]) == ("False", "PodsReadyTimeout")
        assert not await stage.runs(one)
    await stage.until_admitted(one, seconds=300)
    requeued = await stage.condition(one, "Requeued")
    assert (requeued["status"], requeued["reason"]) == ("True", "BackoffFinished")
    assert await requeue_state(stage, one) == {"count": 3}


@says("004:101")
@story(
    configuration={
        "waitForPodsReady": {"timeout": "30s", "requeuingStrategy": {"backoffLimitCount": 1}}
    }
)
async def test_workload_above_the_requeue_limit_is_deactivated_and_reactivation_resets_the_count(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 1}))
    one = await stage.create(job("one", "q", {"cpu": 1}, pod=NOWHERE))
    reason = "DeactivatedDueToRequeuingLimitExceeded"

    async def put_out() -> bool:
        return (await stage.workload(one)).get("spec", {}).get("active") is False

    await stage.until_admitted(one)
    await stage.until(put_out, seconds=300)
    await stage.settle()
    assert await is_evicted(stage, one, reason)
    assert (await stage.condition(one, "Evicted"))["message"] == (
        "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
    )
    assert await stage.condition(one, "DeactivationTarget") == {}
    assert await requeue_state(stage, one) == {}
    await stage.settle(300)
    assert not await stage.is_admitted(one)

    await set_active(stage, one, active=True)
    await stage.until_admitted(one)

    async def counted() -> bool:
        return bool((await requeue_state(stage, one)).get("count") == 1)

    await stage.until(counted)


@says("004:75-77", "004:79-84", "004:86")
@story()
async def test_finished_pods_free_quota_early_and_the_freed_amount_only_grows(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 2}))
    # The Job controller counts a success once and for all; another one may count again.
    described = job("two", "q", {"cpu": 1}, parallelism=2)
    described["spec"]["managedBy"] = "example.com/job-controller"
    two = await stage.create(described)
    await stage.until_admitted(two)
    next_ = await stage.create(job("next", "q", {"cpu": 1}))
    await stage.until_waits(next_)

    one: Object = {"status": {"active": 1, "succeeded": 1}}
    await stage.patch(two, one, subresource="status")
    await stage.until_admitted(next_)
    status = (await stage.workload(two))["status"]
    assert status["reclaimablePods"] == [{"name": "main", "count": 1}]

    # A job that counts fewer than before does not take back what others were given.
    fewer = {"status": {"succeeded": None}}
    await stage.patch(two, fewer, subresource="status")
    await stage.settle()
    assert not (await stage.fresh(two))["status"].get("succeeded"), "so it stays"
    assert await stage.is_admitted(two, next_)
    status = (await stage.workload(two))["status"]
    assert status["reclaimablePods"] == [{"name": "main", "count": 1}]
    assert await in_use(stage, "q") == {"cpu": "2"}
    # Nor does whoever takes it out of the Workload, past its webhook.
    less: Object = {"status": {"reclaimablePods": []}}
    await stage.patch(await stage.workload(two), less, subresource="status")
    await stage.settle()
    assert await in_use(stage, "q") == {"cpu": "2"}


@story(configuration={"waitForPodsReady": {"timeout": "5m", "recoveryTimeout": "1m"}})
async def test_ready_job_that_loses_a_pod_gets_the_recovery_timeout(stage: Stage) -> None:
    node: Object = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "only", "labels": {"team": "one"}},
        "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}},
    }
    await stage.create(*pool("q", {"cpu": 1}), node)
    here = {"nodeSelector": {"kubernetes.io/hostname": "only"}}
    await stage.kube.patch(
        NODE, None, "only", {"metadata": {"labels": {"kubernetes.io/hostname": "only"}}}
    )
    one = await stage.create(job("one", "q", {"cpu": 1}, pod=here))

    async def is_ready(status: str, reason: str) -> bool:
        ready = await stage.condition(one, "PodsReady")
        return (ready.get("status"), ready.get("reason")) == (status, reason)

    await stage.until(lambda: is_ready("True", "Started"))
    await stage.settle(600)
    assert await stage.is_admitted(one)

    await stage.kube.patch(NODE, None, "only", {"spec": {"unschedulable": True}})
    [pod] = (await stage.kube.list(POD, namespace="team-a")).items
    await stage.kube.delete(POD, "team-a", pod["metadata"]["name"])
    await stage.until(lambda: is_ready("False", "WaitForRecovery"))
    lost = at((await stage.condition(one, "PodsReady"))["lastTransitionTime"])
    await stage.until(lambda: is_evicted(stage, one, "PodsReadyTimeout"))
    evicted = at((await stage.condition(one, "Evicted"))["lastTransitionTime"])
    assert 60 <= evicted - lost <= 62


@story(configuration={"waitForPodsReady": {"timeout": "5m", "blockAdmission": True}})
async def test_unready_job_blocks_admission_in_every_queue(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 5}), *pool("other", {"cpu": 5}))
    slow = await stage.create(job("slow", "q", {"cpu": 1}, pod=NOWHERE))
    await stage.until_admitted(slow)
    same = await stage.create(job("same", "q", {"cpu": 1}, pod=NOWHERE))
    elsewhere = await stage.create(job("elsewhere", "other", {"cpu": 1}))
    text = "waiting for all admitted workloads to be in PodsReady condition"
    for waiting in (same, elsewhere):
        assert await stage.until_waits(waiting) == text
        reserved = await stage.condition(waiting, "QuotaReserved")
        assert reserved["reason"] == "WaitingForPodsReady"

    # It loses its quota after five minutes; then it is the turn of the next, one after the other.
    await stage.until_admitted(same, seconds=320)
    assert not await stage.is_admitted(elsewhere)
    await stage.delete(same)
    await stage.until_admitted(elsewhere)


@story()
async def test_execution_time_of_all_admissions_together_is_limited(stage: Stage) -> None:
    await stage.create(
        *pool("q", {"cpu": 1}, preemption={"withinClusterQueue": "LowerPriority"}),
        priority("urgent", 100),
    )
    limit = {"kueue.x-k8s.io/max-exec-time-seconds": "100"}
    one = await stage.create(job("one", "q", {"cpu": 1}, labels=limit))
    await stage.until_admitted(one)
    assert (await stage.workload(one))["spec"]["maximumExecutionTimeSeconds"] == 100
    await stage.settle(40)
    urgent = await stage.create(job("urgent", "q", {"cpu": 1}, seconds=30, priority_class="urgent"))
    await stage.until_finished(urgent)
    await stage.until_admitted(one)
    past = (await stage.workload(one))["status"]["accumulatedPastExecutionTimeSeconds"]
    assert 40 <= past <= 50
    admitted = at((await stage.condition(one, "Admitted"))["lastTransitionTime"])

    reason = "DeactivatedDueToMaximumExecutionTimeExceeded"
    await stage.until(lambda: is_evicted(stage, one, reason))
    evicted = at((await stage.condition(one, "Evicted"))["lastTransitionTime"])
    assert abs(evicted - admitted - (100 - past)) <= 2
    await stage.settle()
    workload = await stage.workload(one)
    assert workload["spec"]["active"] is False
    assert "accumulatedPastExecutionTimeSeconds" not in workload["status"]
    assert await stage.events(workload, "MaximumExecutionTimeExceeded") == [
        "The maximum execution time (100s) exceeded"
    ]
    assert not await stage.runs(one)


@story()
async def test_workload_that_is_deactivated_while_it_is_being_admitted_does_not_run(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 1}))
    first = await stage.create(job("first", "q", {"cpu": 1}, seconds=60))
    await stage.until_admitted(first)
    jobs = [await stage.create(job(f"next-{n}", "q", {"cpu": 1})) for n in range(2)]
    for waiting in jobs:
        await stage.until_waits(waiting)
    # At the very moment at which its quota becomes free, and again and again around it.
    await stage.delete(first)
    for _ in range(8):
        await set_active(stage, jobs[0], active=False)
        await stage.settle(0.03)
        await set_active(stage, jobs[0], active=True)
        await stage.settle(0.05)
    await set_active(stage, jobs[0], active=False)
    await stage.until_admitted(jobs[1])
    await stage.settle(30)
    assert not await stage.is_admitted(jobs[0])
    assert not await stage.runs(jobs[0])
    assert await stage.runs(jobs[1])


@story(
    configuration={
        "objectRetentionPolicies": {
            "workloads": {"afterFinished": "1h", "afterDeactivatedByKueue": "10m"}
        }
    }
)
async def test_finished_workload_is_kept_for_the_configured_retention(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 5}))
    done = await stage.create(job("done", "q", {"cpu": 1}, seconds=10))
    limit = {"kueue.x-k8s.io/max-exec-time-seconds": "30"}
    long = await stage.create(job("long", "q", {"cpu": 1}, labels=limit))
    stopped = await stage.create(job("stopped", "q", {"cpu": 1}))
    await stage.until_admitted(stopped)
    await set_active(stage, stopped, active=False)
    await stage.until_finished(done)

    await stage.settle(500)
    assert await stage.workload(done)
    assert await stage.workload(long)
    await stage.settle(300)
    with pytest.raises(NotFoundError):
        await stage.fresh(long)
    await stage.settle(3600)
    assert await stage.workload(done) == {}
    assert await stage.fresh(done), "the job itself is its user's"
    assert await stage.workload(stopped), "what a user deactivated is kept"
