"""Document 004: priorities, and what becomes of them when classes come, change and go."""

from shared.contracts.kube import names
from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, job, pool, priority, story


def pod_class(name: str, value: int, *, everybody: bool = False) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "globalDefault": everybody,
    }


async def recorded(stage: Stage, owner: Object) -> tuple[int, str | None]:
    """What the Workload object says: priority, and the name of the class that it is from."""
    spec = (await stage.workload(owner)).get("spec") or {}
    return spec.get("priority", 0), (spec.get("priorityClassRef") or {}).get("name")


async def full(stage: Stage) -> Object:
    """A queue with one place, and a job in it."""
    await stage.create(*pool("q", {"cpu": 1}))
    first = await stage.create(job("first", "q", {"cpu": 1}, seconds=120))
    await stage.until_admitted(first)
    return first


@says("004:65")
@story()
async def test_priority_influences_the_order_in_which_a_cluster_queue_admits(
    stage: Stage,
) -> None:
    first = await full(stage)
    await stage.create(priority("low", 1), priority("high", 100))
    low = await stage.create(job("low", "q", {"cpu": 1}, priority_class="low", seconds=60))
    high = await stage.create(job("high", "q", {"cpu": 1}, priority_class="high", seconds=60))

    await stage.until_finished(first)
    await stage.until_admitted(high)
    assert not await stage.is_admitted(low)
    await stage.until_admitted(low)


@says("004:67")
@story()
async def test_jobs_priority_is_that_of_its_pod_template(stage: Stage) -> None:
    await full(stage)
    await stage.create(pod_class("batch", 7), pod_class("usual", 3, everybody=True))
    named = await stage.create(job("named", "q", {"cpu": 1}, pod={"priorityClassName": "batch"}))
    plain = await stage.create(job("plain", "q", {"cpu": 1}))

    await stage.until_waits(named)
    await stage.until_waits(plain)
    assert await recorded(stage, named) == (7, "batch")
    assert await recorded(stage, plain) == (3, "usual")


@says("004:69")
@story()
async def test_workload_priority_class_manages_priority_apart_from_the_pods_priority(
    stage: Stage,
) -> None:
    await full(stage)
    await stage.create(pod_class("batch", 7), priority("urgent", 100))
    pod = {"priorityClassName": "batch"}
    one = await stage.create(job("one", "q", {"cpu": 1}, priority_class="urgent", pod=pod))

    await stage.until_waits(one)
    assert await recorded(stage, one) == (100, "urgent")
    assert one["spec"]["template"]["spec"]["priorityClassName"] == "batch"


@says("004:69")
@story()
async def test_workload_with_a_missing_class_waits_with_a_reason_and_blocks_no_other(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 1}, queueingStrategy="StrictFIFO"))
    lost = await stage.create(job("lost", "q", {"cpu": 1}, priority_class="nonesuch"))
    next_ = await stage.create(job("next", "q", {"cpu": 1}, seconds=30))

    await stage.until_waits(lost, 'WorkloadPriorityClass "nonesuch" not found')
    assert (await stage.condition(lost, "QuotaReserved"))["reason"] == "Misconfigured"
    await stage.until_finished(next_)
    await stage.create(priority("nonesuch", 5))
    await stage.until_admitted(lost)
    assert await recorded(stage, lost) == (5, "nonesuch")


@says("004:69")
@story()
async def test_class_changed_while_waiting_changes_the_order(stage: Stage) -> None:
    first = await full(stage)
    await stage.create(priority("low", 1), priority("middle", 50), priority("high", 100))
    one = await stage.create(job("one", "q", {"cpu": 1}, priority_class="low", seconds=60))
    two = await stage.create(job("two", "q", {"cpu": 1}, priority_class="middle", seconds=60))

    label = {"metadata": {"labels": {names.PRIORITY_CLASS_LABEL: "high"}}}
    await stage.patch(one, label)
    await stage.until_finished(first)
    await stage.until_admitted(one)
    assert await recorded(stage, one) == (100, "high")
    assert not await stage.is_admitted(two)


@says("004:69")
@story()
async def test_class_changed_while_admitted_decides_who_is_preempted(stage: Stage) -> None:
    preemption = {"withinClusterQueue": "LowerPriority"}
    await stage.create(*pool("q", {"cpu": 2}, preemption=preemption))
    await stage.create(priority("low", 1), priority("middle", 50), priority("high", 100))
    one = await stage.create(job("one", "q", {"cpu": 1}, priority_class="low"))
    two = await stage.create(job("two", "q", {"cpu": 1}, priority_class="low"))
    await stage.until_admitted(one, two)

    await stage.patch(two, {"metadata": {"labels": {names.PRIORITY_CLASS_LABEL: "high"}}})

    async def followed() -> bool:
        return await recorded(stage, two) == (100, "high")

    await stage.until(followed)
    # Of two alike the one that came later would go; by its new class it stays.
    three = await stage.create(job("three", "q", {"cpu": 1}, priority_class="middle"))
    await stage.until_admitted(three)
    assert await stage.runs(two)
    assert not await stage.runs(one)


@says("004:69")
@story()
async def test_changed_class_value_applies_to_waiting_and_running_workloads_and_deletion_changes_nothing(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 1}))
    class_ = await stage.create(priority("class", 10))
    runs = await stage.create(job("runs", "q", {"cpu": 1}, priority_class="class"))
    waits = await stage.create(job("waits", "q", {"cpu": 1}, priority_class="class"))
    await stage.until_admitted(runs)
    await stage.until_waits(waits)

    await stage.patch(class_, {"value": 20})

    async def both() -> bool:
        return {await recorded(stage, runs), await recorded(stage, waits)} == {(20, "class")}

    await stage.until(both)
    await stage.delete(class_)
    await stage.settle()
    assert await both()
    assert "not found" not in await stage.waits(waits)
