"""Document 004: a workload that is put out, is not ready in time, backs off, or gives back what it had."""

from datetime import datetime

from shared.contracts.kinds import Object
from shared.testing.world.world import EPOCH
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, job, pool, story

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


@says("004:26")
@story()
async def test_active_false_evicts_and_keeps_out_and_true_lets_it_in_again(stage: Stage) -> None:
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


@says("004:88-90", "004:92-94", "004:96-99")
@story(configuration={"waitForPodsReady": WAIT})
async def test_a_job_that_does_not_get_ready_in_time_is_evicted_and_requeued_with_growing_delays(
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
async def test_past_the_limit_it_is_deactivated_and_re_activation_counts_anew(
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
        return (await requeue_state(stage, one)).get("count") == 1

    await stage.until(counted)
