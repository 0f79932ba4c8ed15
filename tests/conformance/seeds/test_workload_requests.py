"""Document 004: what a workload is, what it asks for, and what quota counts of it."""

from typing import Any

import pytest

from shared.contracts.kube.kinds import Object
from shared.kube.port import RefusedError
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, job, pool, story


def workload(name: str, queue: str, *pod_sets: Object, **spec: Any) -> Object:
    """A Workload that somebody else's controller creates."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"active": True, "queueName": queue, "podSets": list(pod_sets), **spec},
    }


def pod_set(name: str, count: int, requests: Object) -> Object:
    container = {"name": "container", "image": "none", "resources": {"requests": requests}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"name": name, "count": count, "template": {"spec": spec}}


def limit_range(**item: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "range", "namespace": "team-a"},
        "spec": {"limits": [{"type": "Container", **item}]},
    }


def runtime_class(name: str, **pod: str) -> Object:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": name,
        "overhead": {"podFixed": pod},
    }


async def usage(stage: Stage, owner: Object) -> dict[str, str]:
    """What the admission of a workload says that it uses, over all pod sets."""
    admission = (await stage.workload(owner))["status"]["admission"]
    [assigned] = admission["podSetAssignments"]
    return dict(assigned["resourceUsage"])


@says("004:1-3", "004:32-40", "004:42-46")
@story()
async def test_workload_of_several_pod_sets_is_admitted_as_a_whole_by_requests_times_count(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 7, "memory": "2Gi"}))
    sets = (
        pod_set("driver", 1, {"cpu": "1", "memory": "200Mi"}),
        pod_set("worker", 3, {"cpu": "2", "memory": "500Mi"}),
    )
    whole = await stage.create(workload("whole", "q", *sets))
    more = await stage.create(workload("more", "q", pod_set("main", 1, {"cpu": "1"})))

    await stage.until_admitted(whole)
    admission = (await stage.workload(whole))["status"]["admission"]
    assert {a["name"]: a["resourceUsage"] for a in admission["podSetAssignments"]} == {
        "driver": {"cpu": "1", "memory": "200Mi"},
        "worker": {"cpu": "6", "memory": "1500Mi"},
    }
    await stage.until_waits(more, "insufficient unused quota for cpu")


@says("004:5-7", "004:9-23")
@story()
async def test_workload_object_is_created_for_each_job_and_decisions_and_statuses_are_synced(
    stage: Stage,
) -> None:
    await stage.create(*pool("team-a-queue", {"cpu": 3}))
    one = await stage.create(
        job("sample-job", "team-a-queue", {"cpu": 1, "memory": "200Mi"}, parallelism=3, seconds=30)
    )
    await stage.until(lambda: stage.workload(one))
    made = await stage.workload(one)
    assert made["spec"]["queueName"] == "team-a-queue"
    assert made["spec"]["active"] is True
    [main] = made["spec"]["podSets"]
    assert (main["name"], main["count"]) == ("main", 3)
    assert main["template"]["spec"] == one["spec"]["template"]["spec"]
    [owner] = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "sample-job", True)
    # Nobody has a quota for memory here: the object says so, and the job waits.
    await stage.until_waits(one, "resource memory unavailable in ClusterQueue")

    await stage.delete(one)
    other = await stage.create(job("other", "team-a-queue", {"cpu": 1}, seconds=30))
    await stage.until_finished(other)
    assert (await stage.condition(other, "Finished"))["reason"] == "Succeeded"


@says("004:28-30")
@story()
async def test_spec_queue_name_names_the_local_queue(stage: Stage) -> None:
    await stage.create(*pool("big", {"cpu": 9}), *pool("small", {"cpu": 1}))
    one = await stage.create(workload("one", "small", pod_set("main", 1, {"cpu": "2"})))

    await stage.until_waits(one, "maximum capacity (1)")
    await stage.patch(one, {"spec": {"queueName": "big"}})
    await stage.until_admitted(one)
    assert (await stage.workload(one))["status"]["admission"]["clusterQueue"] == "big"


@says("004:48-52")
@story()
async def test_limit_range_defaults_are_used_where_the_spec_provides_none(stage: Stage) -> None:
    await stage.create(
        *pool("q", {"cpu": 9}), limit_range(defaultRequest={"cpu": "2"}, default={"cpu": "3"})
    )
    silent = await stage.create(job("silent", "q"))
    explicit = await stage.create(job("explicit", "q", {"cpu": 1}))

    await stage.until_admitted(silent, explicit)
    assert await usage(stage, silent) == {"cpu": "2"}
    assert await usage(stage, explicit) == {"cpu": "1"}


@says("004:53")
@story()
async def test_overhead_of_a_runtime_class_is_counted(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 9}), runtime_class("kata", cpu="250m"))
    pod = {"runtimeClassName": "kata"}
    one = await stage.create(job("one", "q", {"cpu": 1}, pod=pod, parallelism=2))

    await stage.until_admitted(one)
    assert await usage(stage, one) == {"cpu": "2500m"}


@says("004:53")
@story()
async def test_runtime_class_that_does_not_exist_adds_no_overhead(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 9}))
    one = await stage.create(job("one", "q", {"cpu": 1}, pod={"runtimeClassName": "kata"}))
    await stage.until_admitted(one)
    assert await usage(stage, one) == {"cpu": "1"}


@says("004:54")
@story()
async def test_limits_are_treated_as_requests_where_only_limits_are_defined(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 9}))
    limited = job("limited", "q")
    [container] = limited["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"cpu": "4"}}
    one = await stage.create(limited)

    await stage.until_admitted(one)
    assert await usage(stage, one) == {"cpu": "4"}


RANGES: dict[str, tuple[Object, Object, str]] = {
    "above the maximum": (
        {"max": {"cpu": "2"}},
        {"cpu": "3"},
        "requests must not be above the limitRange max",
    ),
    "below the minimum": (
        {"min": {"cpu": "2"}},
        {"cpu": "1"},
        "requests must not be below the limitRange min",
    ),
    "past the ratio by a default": (
        {"maxLimitRequestRatio": {"cpu": "2"}, "default": {"cpu": "4"}},
        {"cpu": "1"},
        "limits must not exceed requests by more than the limitRange maxLimitRequestRatio",
    ),
    "below the minimum by a default": (
        {"min": {"cpu": "2"}, "defaultRequest": {"cpu": "500m"}, "default": {"cpu": "4"}},
        {},
        "requests must not be below the limitRange min",
    ),
}


@says("004:56-58")
@pytest.mark.parametrize("case", RANGES.values(), ids=RANGES)
@story()
async def test_workload_whose_adjusted_values_fail_the_range_validation_is_inadmissible(
    stage: Stage, case: tuple[Object, Object, str]
) -> None:
    item, requests, why = case
    await stage.create(*pool("q", {"cpu": 9}))
    ranged = await stage.create(limit_range(**item))
    one = await stage.create(job("one", "q", requests))
    other = await stage.create(job("other", "q", {"cpu": 2}))

    text = await stage.until_waits(one, why)
    assert text.startswith("resources didn't satisfy LimitRange constraints: spec.podSets[0]")
    # Kueue said `Inadmissible` here until 0.18; since then the token is `Misconfigured`.
    assert (await stage.condition(one, "QuotaReserved"))["reason"] == "Misconfigured"
    await stage.until_admitted(other)

    await stage.delete(ranged)
    await stage.until_admitted(one) if requests else await stage.settle()


@says("004:56-58")
@story()
async def test_limit_range_breach_is_reported_while_the_queue_is_full(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 1}), limit_range(max={"cpu": "2"}))
    first = await stage.create(job("first", "q", {"cpu": 1}))
    await stage.until_admitted(first)
    await stage.until_waits(await stage.create(job("second", "q", {"cpu": 1})), "insufficient")
    asks_the_same = job("third", "q", {"cpu": 1})
    [container] = asks_the_same["spec"]["template"]["spec"]["containers"]
    container["resources"]["limits"] = {"cpu": "3"}

    third = await stage.create(asks_the_same)
    await stage.until_waits(third, "requests must not be above the limitRange max")


@says("004:60-62")
@story()
async def test_pods_resource_name_is_reserved_in_a_pod_spec(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 9, "pods": 9}))

    with pytest.raises(RefusedError, match="the key is reserved for internal kueue use"):
        await stage.create(workload("one", "q", pod_set("main", 1, {"cpu": "1", "pods": "1"})))
    other = await stage.create(job("other", "q", {"cpu": 1, "pods": 1}))
    await stage.until(lambda: stage.events(other, "ErrWorkloadCompose"))
    [text] = await stage.events(other, "ErrWorkloadCompose")
    assert "the key is reserved for internal kueue use" in text
    assert not await stage.runs(other)


@says("004:60-62")
@story()
async def test_pods_in_a_cluster_queue_sets_a_quota_on_the_number_of_pods(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 9, "pods": 3}))
    two = await stage.create(job("two", "q", {"cpu": 1}, parallelism=2))
    more = await stage.create(job("more", "q", {"cpu": 1}, parallelism=2))

    await stage.until_admitted(two)
    assert await usage(stage, two) == {"cpu": "2", "pods": "2"}
    await stage.until_waits(more, "insufficient unused quota for pods")


@says("004:42-46")
@story()
async def test_pod_sets_above_any_quota_wait_with_the_sum_and_block_no_other(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 10}))
    sets = [pod_set(f"set-{n}", 2**31 - 1, {"cpu": "9223372036854775"}) for n in range(3)]
    huge = await stage.create(workload("huge", "q", *sets))
    one = await stage.create(job("one", "q", {"cpu": 10}))

    await stage.until_waits(huge, "must be less than or equal to")
    await stage.until_admitted(one)


@says("004:32-40")
@story()
async def test_min_count_above_count_is_refused(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 10}))
    wrong = pod_set("main", 2, {"cpu": "1"}) | {"minCount": 3}

    with pytest.raises(RefusedError, match="minCount should be positive and less or equal"):
        await stage.create(workload("one", "q", wrong))
    least = {"kueue.x-k8s.io/job-min-parallelism": "3"}
    with pytest.raises(RefusedError, match="should be between 0 and 1"):
        await stage.create(job("two", "q", {"cpu": 1}, parallelism=2, annotations=least))


@says("004:71-73")
@story()
async def test_any_custom_api_integrates_by_creating_a_workload_object(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 1}))
    first = await stage.create(workload("first", "q", pod_set("main", 1, {"cpu": "1"})))
    second = await stage.create(workload("second", "q", pod_set("main", 1, {"cpu": "1"})))
    await stage.until_admitted(first)
    await stage.until_waits(second)

    ended = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "done"}
    ended["lastTransitionTime"] = "2026-01-01T00:00:30Z"
    status = (await stage.workload(first))["status"]
    patch = {"status": {"conditions": [*status["conditions"], ended]}}
    await stage.patch(first, patch, subresource="status")
    await stage.until_admitted(second)
