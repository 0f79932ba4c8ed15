"""Document 004: the queue that a workload is in, and what a change of it means when."""

from functools import partial
from typing import Any

import pytest

from shared.contracts.kube import names
from shared.contracts.kube.kinds import Object
from shared.kube.port import RefusedError
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, job, pipeline_run, pool, story

SLOT = "tekton.dev/pipelineruns"


def label(queue: str | None) -> Object:
    return {"metadata": {"labels": {names.QUEUE: queue}}}


async def two_queues(stage: Stage) -> None:
    await stage.create(*pool("first", {SLOT: 1, "cpu": 1}), *pool("second", {SLOT: 1, "cpu": 1}))


def run(name: str, queue: str, **more: Any) -> Object:
    return pipeline_run(name, labels={names.QUEUE: queue}, **more)


async def queue_of(stage: Stage, one: Object) -> str:
    return str((await stage.workload(one))["spec"].get("queueName"))


@says("004:28-30")
@story()
async def test_job_that_waits_moves_with_its_label(stage: Stage) -> None:
    await two_queues(stage)
    full = await stage.create(job("full", "first", {"cpu": 1}))
    await stage.until_admitted(full)
    one = await stage.create(job("one", "first", {"cpu": 1}))
    await stage.until_waits(one)

    await stage.patch(one, label("second"))
    await stage.until_admitted(one)
    assert await queue_of(stage, one) == "second"


@says("004:28-30")
@pytest.mark.parametrize("queue", ["second", None])
@story()
async def test_label_of_a_running_job_is_immutable(stage: Stage, queue: str | None) -> None:
    await two_queues(stage)
    one = await stage.create(job("one", "first", {"cpu": 1}))
    await stage.until_admitted(one)
    await stage.until(partial(stage.runs, one))

    with pytest.raises(RefusedError, match="field is immutable"):
        await stage.patch(one, label(queue))


@says("004:28-30")
@pytest.mark.parametrize("queue", ["second", None])
@story()
async def test_label_changed_or_removed_while_running_frees_no_quota(
    stage: Stage, queue: str | None
) -> None:
    await two_queues(stage)
    one = await stage.create(run("one", "first", seconds=120))
    await stage.until_admitted(one)
    await stage.settle(5)

    await stage.patch(one, label(queue))
    next_ = await stage.create(run("next", "first", seconds=30))
    await stage.until_waits(next_, "insufficient unused quota")
    other = await stage.create(run("other", "second", seconds=30))
    await stage.until_admitted(other)
    assert await queue_of(stage, one) == "first"
    assert await stage.runs(one)

    await stage.until_finished(one)
    assert (await stage.condition(one, "Finished"))["reason"] == "Succeeded"
    await stage.until_finished(next_)


@says("004:28-30")
@story()
async def test_label_removed_while_it_waits_leaves_it_in_its_queue(stage: Stage) -> None:
    await two_queues(stage)
    full = await stage.create(run("full", "first", seconds=60))
    await stage.until_admitted(full)
    one = await stage.create(run("one", "first", seconds=30))
    await stage.until_waits(one)

    await stage.patch(one, label(None))
    await stage.until_finished(full, one)
    assert await queue_of(stage, one) == "first"
