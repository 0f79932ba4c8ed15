"""Document 000: PipelineRuns are held, wait for slots of one queue, and go by priority."""

from functools import partial

from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.pipeline_queues import QUEUE, SLOT, TENANT, of_size
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, example, pipeline_run, pool, priority, story


@says("000:9-11", "000:62")
@story()
async def test_only_a_controlled_number_of_pipeline_runs_is_active_and_the_next_waits_for_a_slot(
    stage: Stage,
) -> None:
    await stage.create(*pool("cluster-pipeline-queue", {SLOT: 2}, local=QUEUE))
    runs = [await stage.create(pipeline_run(f"run-{n}", seconds=60)) for n in range(1, 4)]

    await stage.until_admitted(*runs[:2])
    await stage.until_waits(runs[2], SLOT)
    assert [await stage.runs(run) for run in runs] == [True, True, False]

    await stage.until_finished(*runs[:2])
    await stage.until_admitted(runs[2])


@says("000:9-11", "000:40-60")
@story()
async def test_manifest_limits_the_cluster_to_200_runs_and_a_burst_waits_at_its_limit(
    stage: Stage,
) -> None:
    manifests = example("010-pipeline-quota.yaml")
    [queue] = [obj for obj in manifests if obj["kind"] == "ClusterQueue"]
    [flavor] = queue["spec"]["resourceGroups"][0]["flavors"]
    assert flavor["resources"] == [{"name": SLOT, "nominalQuota": 200}]

    await stage.create(*of_size(manifests, 20))  # A tenth, so that it is played sooner.
    for number in range(25):
        run = pipeline_run(f"run-{number}", namespace=TENANT)
        await stage.kube.create(kinds.PIPELINE_RUN, run)

    async def active() -> int:
        runs = (await stage.kube.list(kinds.PIPELINE_RUN, namespace=TENANT)).items
        return sum((run.get("status") or {}).get("startTime") is not None for run in runs)

    async def full() -> bool:
        return await active() == 20

    await stage.until(full)
    await stage.settle(60)
    assert await active() == 20


@says("000:13")
@story()
async def test_run_that_waits_does_not_run_into_its_timeout(stage: Stage) -> None:
    await stage.create(*pool("cluster-pipeline-queue", {SLOT: 1}, local=QUEUE))
    first = await stage.create(pipeline_run("first", seconds=300))
    await stage.until_admitted(first)
    second = await stage.create(pipeline_run("second", seconds=60, timeouts={"pipeline": "2m"}))

    await stage.until_finished(first, second)
    finished = await stage.condition(second, "Finished")
    assert (finished["status"], finished["reason"]) == ("True", "Succeeded")


@says("000:21-30", "000:32")
@story()
async def test_created_run_is_set_to_pending_gets_a_queue_and_a_workload_and_starts_when_admitted(
    stage: Stage,
) -> None:
    await stage.create(*pool("cluster-pipeline-queue", {SLOT: 1}, local=QUEUE))
    run = await stage.create(pipeline_run("run", seconds=60))
    assert run["spec"]["status"] == "PipelineRunPending"
    assert run["metadata"]["labels"][names.QUEUE] == QUEUE

    await stage.until_admitted(run)
    [pod_set] = (await stage.workload(run))["spec"]["podSets"]
    [container] = pod_set["template"]["spec"]["containers"]
    assert (pod_set["count"], container["resources"]["requests"]) == (1, {SLOT: "1"})
    await stage.until(partial(stage.runs, run))
    await stage.until_finished(run)


@says("000:36-38")
@story(rules="queueName: other-queue\n")
async def test_runs_go_to_the_local_queue_that_is_configured(stage: Stage) -> None:
    await stage.create(*pool("cluster-pipeline-queue", {SLOT: 1}, local="other-queue"))
    run = await stage.create(pipeline_run("run"))

    await stage.until_admitted(run)
    assert run["metadata"]["labels"][names.QUEUE] == "other-queue"


@says("000:64-72", "000:74")
@story()
async def test_local_queues_of_all_tenants_share_the_quota_of_one_cluster_queue(
    stage: Stage,
) -> None:
    other = pool("cluster-pipeline-queue", {}, namespaces=("other-tenant",), local=QUEUE)[-1]
    await stage.create(*of_size(example("010-pipeline-quota.yaml"), 2), other)
    runs = [
        await stage.create(pipeline_run("run", namespace=TENANT)),
        await stage.create(pipeline_run("run", namespace="other-tenant")),
    ]
    late = [
        await stage.create(pipeline_run("late", namespace=TENANT)),
        await stage.create(pipeline_run("late", namespace="other-tenant")),
    ]

    await stage.until_admitted(*runs)
    for one in late:
        await stage.until_waits(one, "insufficient unused quota")
    await stage.settle(60)
    assert not await stage.is_admitted(late[0])
    assert not await stage.is_admitted(late[1])


@says("000:64-72")
@story()
async def test_run_of_a_tenant_without_a_queue_waits_with_the_reason(stage: Stage) -> None:
    await stage.create(*example("010-pipeline-quota.yaml"))
    run = await stage.create(pipeline_run("run", namespace="new-tenant"))

    await stage.until_waits(run, "LocalQueue pipelines-queue doesn't exist")
    queue = pool("cluster-pipeline-queue", {}, namespaces=("new-tenant",), local=QUEUE)[-1]
    await stage.create(queue)
    await stage.until_admitted(run)


def contested(*, opted_in: str = "") -> list[Object]:
    """A queue of one slot in which the higher priority preempts, with the annotation on its door."""
    preemption = {"withinClusterQueue": "LowerPriority"}
    made = pool("builds", {SLOT: 1}, local=QUEUE, preemption=preemption)
    if opted_in:
        made[-1]["metadata"]["annotations"] = {names.ON_PREEMPTION: opted_in}
    return [*made, priority("low", 1), priority("high", 100)]


def by_class(name: str, class_: str, **more: str) -> Object:
    labels = {names.PRIORITY_CLASS_LABEL: class_, **more}
    return pipeline_run(name, seconds=60, labels=labels, params=[{"name": "a", "value": "b"}])


@says("000:19")
@story()
async def test_running_pipeline_run_is_not_preempted_by_default(
    stage: Stage,
) -> None:
    await stage.create(*contested())
    low = await stage.create(by_class("low", "low"))
    await stage.until_admitted(low)
    await stage.settle()
    high = await stage.create(by_class("high", "high"))

    await stage.until_waits(high, "insufficient unused quota")
    await stage.until_finished(low, high)
    assert (await stage.condition(low, "Finished"))["reason"] == "Succeeded"
    assert await stage.condition(low, "Evicted") == {}


@says("000:19")
@story()
async def test_running_pipeline_run_is_stopped_and_a_copy_waits_if_its_queue_allows_it(
    stage: Stage,
) -> None:
    await stage.create(*contested(opted_in=names.STOP_AND_RECREATE))
    low = await stage.create(by_class("low", "low", team="x"))
    await stage.until_admitted(low)
    await stage.settle()
    high = await stage.create(by_class("high", "high"))

    await stage.until_admitted(high)
    stopped = await stage.fresh(low)
    copies = (await stage.kube.list(kinds.PIPELINE_RUN, labels="team=x")).items
    [copy] = [one for one in copies if one["metadata"]["uid"] != low["metadata"]["uid"]]
    noted = copy["metadata"]["annotations"]
    assert stopped["spec"]["status"] == "CancelledRunFinally"
    assert stopped["metadata"]["annotations"][names.RECREATED_AS] == copy["metadata"]["name"]
    assert noted[names.RECREATED_FROM] == f"low/{low['metadata']['uid']}"
    assert (noted[names.RECREATED_FIRST], noted[names.RECREATIONS]) == ("low", "1")
    assert copy["metadata"]["labels"] == low["metadata"]["labels"]
    assert copy["spec"]["params"] == low["spec"]["params"]

    await stage.until_waits(copy, "insufficient unused quota")
    await stage.until_finished(high, copy)
    assert (await stage.condition(copy, "Finished"))["reason"] == "Succeeded"
    assert (await stage.condition(low, "Finished"))["reason"] == "Failed"


@says("000:19")
@story()
async def test_copy_that_is_stopped_again_keeps_count(stage: Stage) -> None:
    await stage.create(*contested(opted_in=names.STOP_AND_RECREATE))
    low = await stage.create(by_class("low", "low", team="x"))
    for number in (1, 2):
        await stage.until(partial(_one_runs, stage))
        await stage.create(by_class(f"high-{number}", "high"))
        await stage.until(partial(_copies, stage, number))
    copies = (await stage.kube.list(kinds.PIPELINE_RUN, labels="team=x")).items
    last = max(copies, key=lambda one: one["metadata"]["annotations"].get(names.RECREATIONS, "0"))
    assert last["metadata"]["annotations"][names.RECREATED_FIRST] == low["metadata"]["name"]
    assert last["metadata"]["annotations"][names.RECREATIONS] == "2"
    assert last["metadata"]["name"].startswith("low-r2-")
    await stage.until_finished(last)


async def _one_runs(stage: Stage) -> bool:
    runs = (await stage.kube.list(kinds.PIPELINE_RUN, labels="team=x")).items
    return any(
        (run.get("status") or {}).get("startTime")
        and not (run.get("status") or {}).get("completionTime")
        for run in runs
    )


async def _copies(stage: Stage, number: int) -> bool:
    runs = (await stage.kube.list(kinds.PIPELINE_RUN, labels="team=x")).items
    return len(runs) == number + 1
