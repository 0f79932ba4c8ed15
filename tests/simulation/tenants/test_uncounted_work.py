"""What a tenant may write to let work run without quota, in a whole world: each way is stopped."""

from typing import Any

import pytest

from services.simulator.cluster.kinds.catalogue import JOBS
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import QUEUE
from tests.conformance.seeds.stage import Stage, job, pipeline_run, pool, story
from tests.simulation.kinds.test_integrations import JOB_SETS, job_set

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


def controlled_by(owner: Object, **more: Any) -> list[Object]:
    """A list of owner references to this controller."""
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            **more,
        }
    ]


OWNERS = ("a waiting job", "an admitted job", "a finished job", "a job without a queue", "itself")


async def an_owner(stage: Stage, which: str) -> Object:
    """A Job that a tenant may name as controller; none for `itself`."""
    match which:
        case "a waiting job":
            return await stage.create(job("owner", "full", CPU))
        case "an admitted job" | "a finished job":
            seconds = 1 if which == "a finished job" else 3600
            owner = await stage.create(job("owner", "other", CPU, seconds=seconds))
            await (stage.until_finished if seconds == 1 else stage.until_admitted)(owner)
            return owner
        case "a job without a queue":
            return await stage.create(job("owner", None, CPU))
        case _:
            return {}


@pytest.mark.parametrize("which", OWNERS)
@story()
async def test_running_job_that_names_a_controller_keeps_its_quota(
    stage: Stage, which: str
) -> None:
    await stage.create(*pool("q", CPU), *pool("other", CPU), *pool("full", {"cpu": 0}))
    runs = await stage.create(job("runs", "q", CPU))
    await stage.until_admitted(runs)
    owner = await an_owner(stage, which) or runs
    await stage.patch(runs, {"metadata": {"ownerReferences": controlled_by(owner)}})
    later = await stage.create(job("later", "q", CPU))
    await stage.settle(30)
    for service in ("classifier", "quota"):
        stage.system.world.crash(f"{service}-1", down_seconds=3.0)
    await stage.settle(30)
    assert await stage.runs(runs)
    assert not await stage.runs(later)
    await stage.delete(runs)
    await stage.until_admitted(later)


UNCOVERED = ("a waiting job", "an admitted job", "a finished job", "a job without a queue")


@pytest.mark.parametrize("which", UNCOVERED)
@pytest.mark.parametrize("build", ["job", "run"])
@story()
async def test_child_of_a_controller_without_quota_for_it_waits_by_itself(
    stage: Stage, which: str, build: str
) -> None:
    pools = {"q": CPU, "other": CPU, "full": {"cpu": 0}}
    await stage.create(*(each for name, quota in pools.items() for each in pool(name, quota)))
    await stage.create(*pool("pipelines-queue", {"tekton.dev/pipelineruns": 0}))
    child = job("child", "full", CPU) if build == "job" else pipeline_run("child")
    child["metadata"]["ownerReferences"] = controlled_by(await an_owner(stage, which))
    made = await stage.create(child)
    await stage.settle(20)
    assert not await stage.runs(made)
    if build == "job":
        await stage.patch(made, UNSUSPENDED)
        await stage.settle(3)

        async def stopped() -> bool:
            return await is_suspended(stage, made)

        await stage.until(stopped, seconds=30)
        await stage.settle(20)
        assert await stopped()
    assert await stage.waits(made)


@pytest.mark.parametrize("kind", ["TaskRun", "CustomRun", "PipelineRun"])
@story()
async def test_run_that_names_a_controller_that_never_existed_is_held(
    stage: Stage, kind: str
) -> None:
    await stage.create(*pool("pipelines-queue", {"tekton.dev/pipelineruns": 0}))
    run = pipeline_run("run")
    metadata = {"name": "o", "uid": "00000000-0000-0000-0000-000000000000"}
    owner = {"apiVersion": "tekton.dev/v1", "kind": kind, "metadata": metadata}
    run["metadata"]["ownerReferences"] = controlled_by(owner)
    made = await stage.kube.create(kinds.PIPELINE_RUN, run)
    assert made["spec"]["status"] == "PipelineRunPending"


@story()
async def test_jobs_that_name_each_other_in_a_circle_each_wait(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 0}))
    names = ("a", "b", "c")
    made = {name: await stage.create(job(name, "q", CPU)) for name in names}
    for service in ("watcher", "classifier"):
        stage.system.world.crash(f"{service}-1", down_seconds=10.0)
    for name, owner in zip(names, ("b", "c", "a"), strict=True):
        references = controlled_by(made[owner])
        await stage.patch(made[name], {"metadata": {"ownerReferences": references}, **UNSUSPENDED})
    await stage.settle(60)
    for each in made.values():
        assert await is_suspended(stage, each)


@story()
async def test_child_of_an_admitted_run_waits_for_a_slot_of_its_own(stage: Stage) -> None:
    await stage.create(*pool("pipelines-queue", {"tekton.dev/pipelineruns": 1}))
    parent = await stage.create(pipeline_run("parent", seconds=60))
    await stage.until_admitted(parent)
    child = pipeline_run("child", seconds=20)
    child["metadata"]["ownerReferences"] = controlled_by(parent)
    made = await stage.create(child)
    await stage.settle(20)
    assert not await stage.runs(made)
    await stage.until_finished(parent, made)


@story()
async def test_queue_labelled_children_run_on_the_quota_of_their_jobset_only(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 4}))
    wanted = job_set("set", workers=2)
    wanted["metadata"]["labels"] = {QUEUE: "q"}
    wanted["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"labels": {QUEUE: "q"}}
    made = await stage.kube.create(JOB_SETS, wanted)
    await stage.until_admitted(made)
    await stage.settle(20)
    jobs = (await stage.kube.list(kinds.JOB, namespace="team-a")).items
    assert [one["spec"]["suspend"] for one in jobs] == [False, False]
    workloads = (await stage.kube.list(kinds.WORKLOAD, namespace="team-a")).items
    assert len(workloads) == 1
    extra = job("extra", "q", CPU)
    extra["metadata"]["ownerReferences"] = controlled_by(made)
    third = await stage.create(extra)

    async def stopped() -> bool:
        return await is_suspended(stage, third)

    await stage.until(stopped, seconds=30)
    assert await stage.waits(third)
    assert [(await stage.fresh(one))["spec"]["suspend"] for one in jobs] == [False, False]
    await stage.until_finished(made)


@story()
async def test_two_controllers_do_not_fight_over_an_admitted_job(stage: Stage) -> None:
    """A JobSet that waits suspends whatever names it as its controller, as often as it is released."""
    await stage.create(*pool("q", CPU))
    running = await stage.create(job("runs", "q", CPU))
    waits = job_set("waits", workers=1)
    waits["metadata"]["labels"] = {}
    waits["spec"]["suspend"] = True
    sets = await stage.kube.create(JOB_SETS, waits)
    await stage.until_admitted(running)
    writes: list[str] = []
    stage.system.api.store.subscribe(JOBS, lambda event: writes.append(event.type))
    about = {"name": "waits", "uid": sets["metadata"]["uid"], "controller": True}
    owner = {"apiVersion": JOB_SETS.api_version, "kind": "JobSet", **about}
    await stage.patch(running, {"metadata": {"ownerReferences": [owner]}})
    await stage.settle(120)
    assert len(writes) < 100
    await stage.patch(running, {"metadata": {"ownerReferences": None}})
    await stage.until(lambda: stage.runs(running))


@story()
async def test_jobs_with_a_queue_below_a_set_without_one_are_held_without_a_fight(
    stage: Stage,
) -> None:
    """The JobSet starts its Jobs as often as they are held: no pod of theirs gets anywhere."""
    await stage.create(*pool("q", CPU))
    free = job_set("free", workers=1)
    free["metadata"]["labels"] = {}
    template = free["spec"]["replicatedJobs"][0]["template"]
    template["metadata"] = {"labels": {QUEUE: "nowhere"}}
    writes: list[str] = []
    stage.system.api.store.subscribe(JOBS, lambda event: writes.append(event.type))
    await stage.kube.create(JOB_SETS, free)
    await stage.settle(10)
    began = len(writes)
    await stage.settle(20)
    assert len(writes) - began < 300
    for one in (await stage.kube.list(kinds.JOB, namespace="team-a")).items:
        assert not (one.get("status") or {}).get("succeeded")
