"""A Workload that a user wrote, and the job that names it."""

from typing import Any

import pytest

from services.simulator.cluster.kinds.catalogue import PODS
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import ORIGIN, PREBUILT_WORKLOAD, QUEUE, workload_name
from shared.kube.port import NotFoundError
from tests.conformance.seeds.stage import Stage, job, pool, priority, story

POOL = pool("pool", {"cpu": 4})


def train(name: str = "train", cpu: int = 2, **more: Any) -> Object:
    return job(name, "pool", {"cpu": cpu}, labels={PREBUILT_WORKLOAD: "plan"}, **more)


def plan(cpu: int = 2, **spec: Any) -> Object:
    """The Workload of `train`, as its user writes it."""
    template = train(cpu=cpu)["spec"]["template"]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "plan", "namespace": "team-a"},
        "spec": {
            "queueName": "pool",
            "podSets": [{"name": "main", "count": 1, "template": template}],
            **spec,
        },
    }


async def owner(stage: Stage) -> str | None:
    try:
        found = await stage.kube.get(kinds.WORKLOAD, "team-a", "plan")
    except NotFoundError:
        return None
    owners = found["metadata"].get("ownerReferences") or []
    return owners[0]["name"] if owners else None


async def until_said(stage: Stage, obj: Object, text: str) -> None:
    async def said() -> bool:
        return any(text in event for event in await stage.events(obj, "ErrWorkloadCompose"))

    await stage.until(said)


async def workloads(stage: Stage) -> list[str]:
    return [one["metadata"]["name"] for one in (await stage.kube.list(kinds.WORKLOAD)).items]


@story()
async def test_job_waits_for_its_workload_takes_it_and_runs(stage: Stage) -> None:
    await stage.create(*POOL)
    made = await stage.create(train(seconds=30))
    await until_said(stage, made, "Workload plan, which the job names, does not exist")
    assert await workloads(stage) == [], "it gets no other"
    await stage.create(plan())
    await stage.until(lambda: stage.runs(made))
    assert await owner(stage) == "train"
    stage.system.world.crash("classifier-1", down_seconds=1.0)
    stage.system.world.crash("quota-1", down_seconds=1.0)
    workload = await stage.kube.get(kinds.WORKLOAD, "team-a", "plan")
    await stage.until_finished(as_body({**workload, "kind": "Workload"}))
    assert await workloads(stage) == ["plan"]


@story()
async def test_workload_that_has_quota_keeps_it_for_its_job(stage: Stage) -> None:
    await stage.create(*POOL, priority("high", 100))
    theirs = await stage.create(plan(cpu=4))
    await stage.until_admitted(theirs)
    rival = await stage.create(job("rival", "pool", {"cpu": 4}, priority_class="high"))
    await stage.until_waits(rival)
    made = await stage.create(train(cpu=4, seconds=30))
    await stage.until(lambda: stage.runs(made))
    assert not await stage.is_admitted(rival), "the quota never was free"
    workload = await stage.fresh(theirs)
    conditions = {one["type"]: one["status"] for one in workload["status"]["conditions"]}
    assert "Evicted" not in conditions
    await stage.until_admitted(rival)


@story()
async def test_job_of_another_queue_starts_where_its_workload_has_quota(stage: Stage) -> None:
    await stage.create(*POOL, *pool("more", {"cpu": 4}))
    theirs = await stage.create(plan())
    await stage.until_admitted(theirs)
    ours = train(seconds=30)
    ours["metadata"]["labels"][QUEUE] = "more"
    made = await stage.create(ours)
    await stage.until(lambda: stage.runs(made))
    workload = await stage.fresh(theirs)
    assert workload["spec"]["queueName"] == "pool"
    assert workload["status"]["admission"]["clusterQueue"] == "pool"
    await stage.until_finished(as_body({**workload, "kind": "Workload"}))


@story()
async def test_waiting_workload_goes_to_the_queue_of_its_job(stage: Stage) -> None:
    await stage.create(*POOL, *pool("more", {"cpu": 4}), job("full", "pool", {"cpu": 4}))
    theirs = await stage.create(plan())
    await stage.until_waits(theirs)
    ours = train(seconds=30)
    ours["metadata"]["labels"][QUEUE] = "more"
    made = await stage.create(ours)
    await stage.until(lambda: stage.runs(made))
    workload = await stage.fresh(theirs)
    assert workload["spec"]["queueName"] == "more"
    assert workload["status"]["admission"]["clusterQueue"] == "more"


@pytest.mark.parametrize(
    ("written", "why"),
    [
        pytest.param(plan(cpu=3), "containers of pod set main are not those of the job", id="other requests"),
        pytest.param(plan(podSets=[{**plan()["spec"]["podSets"][0], "count": 2}]),
            "count of pod set main is 2, and 1 in the job", id="another count"),
        pytest.param(plan(maximumExecutionTimeSeconds=60),
            "spec.maximumExecutionTimeSeconds is not that of the job", id="another limit"),
    ],
)  # fmt: skip
def test_workload_that_does_not_fit_is_not_taken(written: Object, why: str) -> None:
    @story()
    async def told(stage: Stage) -> None:
        await stage.create(*POOL)
        await stage.create(written)
        made = await stage.create(train())
        await until_said(stage, made, why)
        assert not await stage.runs(made)
        assert await owner(stage) is None
        await stage.delete(written)
        await stage.create(plan())
        await stage.until(lambda: stage.runs(made))

    told()


@story()
async def test_second_job_waits_until_the_first_is_gone(stage: Stage) -> None:
    await stage.create(*POOL, plan())
    first = await stage.create(train())
    await stage.until(lambda: stage.runs(first))
    second = await stage.create(train("second"))
    await until_said(stage, second, "Workload plan, which the job names")
    assert await owner(stage) == "train"
    await stage.delete(first)
    await until_said(stage, second, "does not exist")
    await stage.create(plan())
    await stage.until(lambda: stage.runs(second))
    assert await owner(stage) == "second"


@pytest.mark.parametrize(
    ("asked", "pods", "origin"),
    [
        pytest.param({"cpu": 1, "memory": "100Gi"}, 1, False, id="another resource"),
        pytest.param({"cpu": 9}, 1, False, id="more of one"),
        pytest.param({"cpu": 1}, 9, False, id="more pods"),
        pytest.param({"cpu": 1, "memory": "100Gi"}, 1, True, id="as a hub's copy"),
    ],
)
def test_job_does_not_run_on_quota_of_a_smaller_workload_of_its_name(
    asked: dict[str, object], pods: int, origin: bool
) -> None:
    """Its user suspends it without a queue, has a Workload of its name admitted, and names a queue."""

    @story()
    async def told(stage: Stage) -> None:
        ran: list[Object] = []
        stage.system.api.store.subscribe(PODS, lambda event: ran.append(event.stored.obj))
        await stage.create(*pool("pool", {"cpu": 4, "memory": "4Gi"}))
        large = job("large", None, asked, parallelism=pods)
        large["spec"]["suspend"] = True
        made = await stage.create(large)
        name = workload_name(kind="Job", group="batch", name="large", uid=made["metadata"]["uid"])
        small = plan(cpu=1)
        small["metadata"]["name"] = name
        await stage.until_admitted(await stage.create(small))
        labels = {QUEUE: "pool"} | ({ORIGIN: "hub", PREBUILT_WORKLOAD: name} if origin else {})
        await stage.patch(made, {"metadata": {"labels": labels}})
        await stage.settle(60)
        assert ran == []

    told()
