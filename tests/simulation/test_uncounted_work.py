"""What a tenant may write to let work run without quota, in a whole world: each way is stopped."""

from typing import Any

import pytest

from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.stage import Stage, job, pool, story

CPU = {"cpu": 1}
UNSUSPENDED = {"spec": {"suspend": False}}


async def is_suspended(stage: Stage, obj: Object) -> bool:
    """Whether a Job is suspended and none of its pods is left."""
    now = await stage.fresh(obj)
    status: dict[str, Any] = now.get("status") or {}
    pods = status.get("active", 0) + status.get("terminating", 0)
    return bool(now["spec"].get("suspend")) and not pods


@pytest.mark.parametrize("seed", range(3))
def test_job_unsuspended_by_hand_is_stopped_and_waits_for_its_turn(seed: int) -> None:
    @story(seed=seed)
    async def told(stage: Stage) -> None:
        await stage.create(*pool("q", CPU))
        first = await stage.create(job("first", "q", CPU, seconds=120))
        await stage.until_admitted(first)
        second = await stage.create(job("second", "q", CPU, seconds=120))
        await stage.until_waits(second, "insufficient")
        await stage.patch(second, UNSUSPENDED)
        await stage.until(lambda: stage.runs(second))

        async def stopped() -> bool:
            return await is_suspended(stage, second)

        await stage.until(stopped, seconds=30)
        await stage.settle(20)
        assert await is_suspended(stage, second)
        assert await stage.runs(first), "an admitted job is left alone"
        await stage.until_finished(first, second)

    told()


@story(services=("watcher", "classifier", "quota"))
async def test_quota_counts_an_unadmitted_job_until_its_pods_are_gone(stage: Stage) -> None:
    """Without a patcher nobody can stop it: nobody else is admitted on top of it."""
    await stage.create(*pool("q", CPU))
    wild = await stage.create(job("wild", "q", CPU))
    await stage.patch(wild, UNSUSPENDED)
    await stage.settle(20)
    other = await stage.create(job("other", "q", CPU))
    await stage.settle(20)
    assert not [
        record.message
        for record in stage.system.message_logs().admissions
        if record.message.name.startswith("job-other") and record.message.state == "admitted"
    ]
    stage.system.serve("patcher")
    # It was created first, so that its turn is next.
    await stage.until_admitted(wild)
    await stage.until_waits(other, "insufficient")
    assert not await stage.runs(other)


@story()
async def test_job_unsuspended_before_any_service_saw_it_is_stopped(stage: Stage) -> None:
    await stage.create(*pool("q", CPU))
    first = await stage.create(job("first", "q", CPU))
    await stage.until_admitted(first)
    for service in ("watcher", "classifier", "quota", "patcher"):
        stage.system.world.crash(f"{service}-1", down_seconds=20.0)
    wild = await stage.create(job("wild", "q", CPU))
    await stage.patch(wild, UNSUSPENDED)
    await stage.settle(5)
    assert not await is_suspended(stage, wild), "its pods run before anybody looks"

    async def stopped() -> bool:
        return await is_suspended(stage, wild)

    await stage.until(stopped, seconds=90)
    assert await stage.runs(first)


@story()
async def test_job_unsuspended_again_and_again_is_stopped_each_time(stage: Stage) -> None:
    await stage.create(*pool("q", CPU))
    first = await stage.create(job("first", "q", CPU, seconds=600))
    await stage.until_admitted(first)
    wild = await stage.create(job("wild", "q", CPU))

    async def stopped() -> bool:
        return await is_suspended(stage, wild)

    for pause in (0.0, 0.3, 1.0, 5.0):
        await stage.patch(wild, UNSUSPENDED)
        await stage.settle(pause + 0.01)
        await stage.until(stopped, seconds=30)
    await stage.settle(30)
    assert await stopped()
    assert await stage.runs(first)


@story()
async def test_job_unsuspended_while_it_names_no_existing_queue_is_stopped(stage: Stage) -> None:
    await stage.create(*pool("q", CPU))
    wild = await stage.create(job("wild", "never-existed", CPU))
    await stage.patch(wild, UNSUSPENDED)
    await stage.settle(2)

    async def stopped() -> bool:
        return await is_suspended(stage, wild)

    await stage.until(stopped, seconds=30)
    await stage.settle(30)
    assert await stopped()
