"""Attempts to run without quota: none of them evades the queue."""

from collections.abc import Callable
from typing import Any

import pytest

from services.simulator.cluster.admission import AdmissionRequest
from services.simulator.cluster.errors import bad_request
from services.simulator.cluster.kinds.registry import Obj
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import QUEUE
from shared.kube.port import RefusedError
from tests.conformance.seeds.stage import Stage, job, pipeline_run, pool, story
from tests.simulation.tenants.hostile_input import CPU, SLOT, used, workload


@story()
async def test_workload_that_claims_another_job_gets_no_quota_and_frees_none(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 2}))
    victim = await stage.create(job("victim", "q", CPU))
    await stage.until_admitted(victim)
    claim = workload("claim", "q")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "victim", "controller": True}
    claim["metadata"]["ownerReferences"] = [{**owner, "uid": victim["metadata"]["uid"]}]
    made = await stage.create(claim)
    await stage.settle(60)

    assert not await stage.is_admitted(made)
    assert await used(stage, "q") == "1"
    assert await stage.runs(victim)
    await stage.delete(made)
    await stage.settle()
    assert await stage.is_admitted(victim)


@story()
async def test_workload_that_claims_a_job_once_it_is_admitted_keeps_its_quota(
    stage: Stage,
) -> None:
    """Its own controller goes by its conditions, which say Admitted."""
    await stage.create(*pool("q", {"cpu": 2}))
    victim = await stage.create(job("victim", "q", CPU))
    theirs = await stage.create(workload("theirs", "q"))
    await stage.until_admitted(victim, theirs)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "victim", "controller": True}
    owners = [{**owner, "uid": victim["metadata"]["uid"]}]
    await stage.patch(theirs, {"metadata": {"ownerReferences": owners}})
    later = await stage.create(job("later", "q", CPU))
    await stage.settle(30)

    assert await stage.is_admitted(victim, theirs)
    assert await used(stage, "q") == "2"
    assert not await stage.is_admitted(later)
    await stage.delete(theirs)
    await stage.until_admitted(later)
    assert await stage.runs(victim)


HANDS: dict[str, tuple[Callable[[], Object], Any, str]] = {
    "a Job": (
        lambda: job("hand", "q", CPU, seconds=600),
        {"spec": {"suspend": False}},
        "cpu",
    ),
    "a PipelineRun": (
        lambda: pipeline_run("hand", seconds=600, labels={QUEUE: "q"}),
        {"spec": {"status": None}},
        "tekton.dev/pipelineruns",
    ),
}


async def one_runs_and_one_waits(stage: Stage, make: Callable[[], Object]) -> tuple[Object, Object]:
    await stage.create(*pool("q", {"cpu": 1, "tekton.dev/pipelineruns": 1}))
    first = make()
    first["metadata"]["name"] = "first"
    runs = await stage.create(first)
    await stage.until_admitted(runs)
    hand = await stage.create(make())
    await stage.until_waits(hand)
    return runs, hand


@pytest.mark.parametrize(("make", "patch", "resource"), HANDS.values(), ids=HANDS.keys())
@story()
async def test_manually_started_job_counts_against_quota(
    stage: Stage, make: Callable[[], Object], patch: Any, resource: str
) -> None:
    """It runs on quota that it was not given: others wait until that is paid back."""
    runs, hand = await one_runs_and_one_waits(stage, make)
    await stage.patch(hand, patch)
    await stage.settle(30)
    later = make()
    later["metadata"]["name"] = "later"
    waits = await stage.create(later)
    await stage.settle(30)

    running = [
        one for one in (runs, hand) if await stage.runs(one) and not await stage.finished(one)
    ]
    assert await used(stage, "q", resource) == str(len(running)), "nothing runs uncounted"
    assert not await stage.is_admitted(waits)
    await stage.until_finished(runs, seconds=900)


@pytest.mark.parametrize(("make", "patch", "resource"), HANDS.values(), ids=HANDS.keys())
@story()
async def test_manually_started_job_counts_in_its_former_queue(
    stage: Stage, make: Callable[[], Object], patch: Any, resource: str
) -> None:
    _, hand = await one_runs_and_one_waits(stage, make)
    await stage.patch(hand, {"metadata": {"labels": {QUEUE: "nowhere"}}})
    await stage.settle()
    await stage.patch(hand, patch)

    async def stopped() -> bool:
        return await used(stage, "q", resource) == "1" and (
            # One that cannot be suspended is cancelled.
            await stage.finished(hand) or not await stage.runs(hand)
        )

    await stage.until(stopped, seconds=30)


@story()
async def test_manually_started_job_that_cannot_be_counted_is_stopped(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 1}))
    hand = await stage.create(job("hand", "nowhere", CPU, seconds=600))
    await stage.until_waits(hand, "LocalQueue nowhere doesn't exist")
    await stage.patch(hand, {"spec": {"suspend": False}})
    await stage.settle(30)
    assert not await stage.runs(hand)
    evicted = await stage.condition(hand, "Evicted")
    assert evicted["message"] == "It runs without quota: LocalQueue nowhere doesn't exist"
    assert await used(stage, "q") == "0"


@pytest.mark.parametrize(("make", "patch", "resource"), HANDS.values(), ids=HANDS.keys())
@story()
async def test_job_that_bypassed_the_webhook_is_held_or_counted(
    stage: Stage, make: Callable[[], Object], patch: Any, resource: str
) -> None:
    """With failurePolicy Ignore, while no classifier answers."""
    del patch
    await stage.create(*pool("q", {"cpu": 1, "tekton.dev/pipelineruns": 1}))
    first = make()
    first["metadata"]["name"] = "first"
    runs = await stage.create(first)
    await stage.until_admitted(runs)
    plugins = stage.system.api.admission.plugins
    [webhook] = [plugin for plugin in plugins if plugin.name == "sluicegate"]
    plugins.remove(webhook)
    slipped = await stage.create(make())
    plugins.append(webhook)
    await stage.settle(30)
    later = make()
    later["metadata"]["name"] = "later"
    waits = await stage.create(later)
    await stage.settle(30)

    assert await stage.workload(slipped), "it is known"
    running = [one for one in (runs, slipped) if await stage.runs(one)]
    assert await used(stage, "q", resource) == str(len(running)), "nothing runs uncounted"
    assert not await stage.is_admitted(waits)


class NoSecondTries:
    """Somebody's policy: a Job starts only if it is not tried again."""

    name = "no-second-tries"

    async def mutate(self, request: AdmissionRequest) -> Obj | None:
        return request.obj

    async def validate(self, request: AdmissionRequest) -> None:
        obj = request.obj or {}
        spec = obj.get("spec") or {}
        starts = obj.get("kind") == "Job" and not spec.get("suspend")
        if starts and spec.get("backoffLimit") != 0:
            raise bad_request('admission webhook "policy" denied the request: no second tries')


@pytest.mark.parametrize("by", ["changing the job", "changing the policy and resuming"])
@story()
async def test_job_whose_start_is_refused_frees_its_quota_and_starts_after_the_repair(
    stage: Stage, by: str
) -> None:
    await stage.create(*pool("q", {"cpu": 1}))
    policy = NoSecondTries()
    stage.system.api.admission.plugins.append(policy)
    bad = await stage.create(job("bad", "q", CPU, seconds=60))
    await stage.until_waits(bad, "no second tries")
    good = job("good", "q", CPU, seconds=60)
    good["spec"]["backoffLimit"] = 0
    await stage.until_finished(await stage.create(good))
    assert len(await stage.events(bad, "ReleaseRefused")) == 1, "it is not tried over and over"

    if by == "changing the job":
        await stage.patch(bad, {"spec": {"backoffLimit": 0}})
    else:
        stage.system.api.admission.plugins.remove(policy)
        for active in (False, True):
            await stage.patch(await stage.workload(bad), {"spec": {"active": active}})
            await stage.settle()
    await stage.until_finished(bad)


@story()
async def test_job_with_a_deleted_workload_object_waits_again_with_a_new_one(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 1}))
    runs = await stage.create(job("runs", "q", CPU, seconds=300))
    waits = await stage.create(job("waits", "q", CPU, seconds=300))
    await stage.until_admitted(runs)
    await stage.until_waits(waits)
    before = {one["metadata"]["name"]: await stage.workload(one) for one in (runs, waits)}
    for workload_ in before.values():
        await stage.delete(workload_)
    await stage.settle(30)

    assert await stage.events(runs, "Stopped") == ["The workload is deleted"]
    for one in (runs, waits):
        now = (await stage.workload(one))["metadata"]
        assert now["uid"] != before[one["metadata"]["name"]]["metadata"]["uid"]
        assert "deletionTimestamp" not in now
    assert [await stage.runs(one) for one in (runs, waits)].count(True) == 1
    assert await used(stage, "q") == "1"
    await stage.until_finished(runs, waits, seconds=1200)


@pytest.mark.parametrize(("make", "patch", "resource"), HANDS.values(), ids=HANDS.keys())
@pytest.mark.parametrize("count", [1, 2], ids=["that runs", "that waits"])
@story()
async def test_job_deleted_in_foreground_disappears(
    stage: Stage, make: Callable[[], Object], patch: Any, resource: str, count: int
) -> None:
    """The Workload object is one of those dependants, and our finalizer is on it."""
    del patch
    await stage.create(*pool("q", {"cpu": 1, "tekton.dev/pipelineruns": 1}))
    for number in range(count):
        obj = make()
        obj["metadata"]["name"] = f"hand-{number}"
        made = await stage.create(obj)
        await stage.settle()
    metadata = made["metadata"]
    await stage.kube.delete(
        stage.kind(made), metadata["namespace"], metadata["name"], dependants_first=True
    )

    async def gone() -> bool:
        left = (await stage.kube.list(stage.kind(made))).items
        return metadata["name"] not in [one["metadata"]["name"] for one in left]

    await stage.until(gone)
    await stage.settle()
    assert not await stage.workload(made)
    assert await used(stage, "q", resource) == str(count - 1)


@story()
async def test_more_pods_than_were_admitted_stop_the_job_until_there_is_room(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 3}))
    grows = await stage.create(job("grows", "q", CPU, parallelism=2, completions=50, seconds=600))
    await stage.until_admitted(grows)
    await stage.patch(grows, {"spec": {"parallelism": 20}})
    await stage.until_waits(grows)
    assert any("20 pods in main" in text for text in await stage.events(grows, "Stopped"))
    await stage.settle()
    assert not await stage.runs(grows)
    assert await used(stage, "q") == "0"

    await stage.patch(grows, {"spec": {"parallelism": 3}})
    await stage.until_admitted(grows)
    await stage.settle()
    assert await stage.runs(grows)
    assert await used(stage, "q") == "3"


@story()
async def test_with_partial_admission_the_parallelism_of_a_running_job_stays(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 3}))
    least = {"kueue.x-k8s.io/job-min-parallelism": "2"}
    obj = job("part", "q", CPU, parallelism=5, completions=50, annotations=least, seconds=600)
    part = await stage.create(obj)
    await stage.until_admitted(part)
    assert (await stage.fresh(part))["spec"]["parallelism"] == 3
    with pytest.raises(RefusedError, match="cannot change when partial admission is enabled"):
        await stage.patch(part, {"spec": {"parallelism": 5}})
    await stage.settle()
    assert await used(stage, "q") == "3"


@story()
async def test_running_job_cannot_change_its_queue(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 1}), *pool("other", {"cpu": 1}))
    runs = await stage.create(job("runs", "q", CPU))
    await stage.until_admitted(runs)
    for value in ("other", None):
        with pytest.raises(RefusedError, match="field is immutable"):
            await stage.patch(runs, {"metadata": {"labels": {QUEUE: value}}})
    waits = await stage.create(job("waits", "q", CPU))
    await stage.until_waits(waits)
    await stage.patch(waits, {"metadata": {"labels": {QUEUE: "other"}}})
    await stage.until_admitted(waits)
    await stage.settle()
    assert (await used(stage, "q"), await used(stage, "other")) == ("1", "1")


@pytest.mark.parametrize("label", ["other", None], ids=["changed", "removed"])
@story()
async def test_running_job_keeps_its_quota_when_its_label_changes(
    stage: Stage, label: str | None
) -> None:
    """Nobody is asked before a PipelineRun's labels change."""
    await stage.create(*pool("q", SLOT), *pool("other", SLOT))
    run = await stage.create(pipeline_run("run", seconds=600, labels={QUEUE: "q"}))
    await stage.until_admitted(run)
    await stage.patch(run, {"metadata": {"labels": {QUEUE: label}}})
    next_ = await stage.create(pipeline_run("next", seconds=60, labels={QUEUE: "q"}))
    await stage.settle(60)

    resource = "tekton.dev/pipelineruns"
    assert (await used(stage, "q", resource), await used(stage, "other", resource)) == ("1", "0")
    assert not await stage.is_admitted(next_)
    await stage.until_finished(run, seconds=1200)
    await stage.until_admitted(next_)
