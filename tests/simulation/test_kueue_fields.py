"""Fields of queues and cohorts, from a manifest to what comes of them (docs/reference/kueue-fields.md)."""

import functools
from typing import Any, Final

import pytest

from shared.contracts.kube import kinds
from shared.contracts.kube.conditions import find_condition
from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.stage import Stage, job, pool, priority, story

AFS: Final = {"admissionFairSharing": {"usageHalfLifeTime": "1h", "usageSamplingInterval": "1m"}}
SCOPE: Final = {"admissionMode": "UsageBasedAdmissionFairSharing"}
CPU: Final = {"cpu": 1}


async def active(stage: Stage, status: str, reason: str) -> bool:
    """Whether both queues say so of themselves."""
    queues = (
        await stage.kube.get(kinds.CLUSTER_QUEUE, None, "q"),
        await stage.kube.get(kinds.LOCAL_QUEUE, "team-a", "q"),
    )
    said = [find_condition(queue, "Active") for queue in queues]
    told = [(one["status"], one["reason"]) for one in said if one is not None]
    return [one for one, _ in told] == 2 * [status] and told[0][1] == reason


@story()
async def test_stopped_cluster_queue_admits_nobody_then_drains_and_says_so(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 2}))
    runs = await stage.create(job("runs", "q", CPU))
    await stage.until_admitted(runs)
    await stage.until(functools.partial(active, stage, "True", "Ready"))
    queue = await stage.kube.get(kinds.CLUSTER_QUEUE, None, "q")

    await stage.patch(queue, {"spec": {"stopPolicy": "Hold"}})
    await stage.until(functools.partial(active, stage, "False", "Stopped"))
    waits = await stage.create(job("waits", "q", CPU))
    await stage.until_waits(waits, "ClusterQueue q is inactive")
    assert await stage.is_admitted(runs)

    await stage.patch(queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    await stage.until_waits(runs)
    assert (await stage.condition(runs, "Evicted"))["reason"] == "ClusterQueueStopped"

    await stage.patch(queue, {"spec": {"stopPolicy": "None"}})
    await stage.until_admitted(runs, waits)
    await stage.until(functools.partial(active, stage, "True", "Ready"))


def two_flavors(name: str, first: int, second: int, **spec: Any) -> list[Object]:
    objects = [*pool(name, {"cpu": first}, flavor="first", **spec), *pool("x", {}, flavor="second")]
    flavors = objects[1]["spec"]["resourceGroups"][0]["flavors"]
    quota = {"name": "cpu", "nominalQuota": str(second)}
    flavors.append({"name": "second", "resources": [quota]})
    return [one for one in objects if one["metadata"]["name"] != "x"]


@pytest.mark.parametrize(
    ("preference", "flavor"),
    [("BorrowingOverPreemption", "second"), ("PreemptionOverBorrowing", "first")],
)
@story()
async def test_preference_decides_between_flavors_that_borrow_or_preempt(
    stage: Stage, preference: str, flavor: str
) -> None:
    try_both = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}
    spec: dict[str, Any] = {
        "cohortName": "all",
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "flavorFungibility": {**try_both, "preference": preference},
    }
    await stage.create(*two_flavors("q", 1, 0, **spec), priority("low", 1), priority("high", 100))
    await stage.create(pool("spare", {"cpu": 1}, flavor="second", cohortName="all")[1])
    low = await stage.create(job("low", "q", CPU, priority_class="low"))
    await stage.until_admitted(low)
    high = await stage.create(job("high", "q", CPU, priority_class="high"))
    await stage.until_admitted(high)
    [asked] = (await stage.workload(high))["status"]["admission"]["podSetAssignments"]
    assert asked["flavors"] == {"cpu": flavor}


@pytest.mark.parametrize(("weight", "left"), [("1", 2), ("3", 1)])
@story(configuration={"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}})
async def test_cohorts_share_what_is_above_them_by_their_weights(
    stage: Stage, weight: str, left: int
) -> None:
    def child(name: str, weight: str) -> list[Object]:
        cohort = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Cohort",
            "metadata": {"name": name},
            "spec": {"parentName": "all", "fairSharing": {"weight": weight}},
        }
        reclaims = {"reclaimWithinCohort": "Any"}
        return [cohort, *pool(f"q-{name}", {"cpu": 0}, cohortName=name, preemption=reclaims)]

    await stage.create(*pool("spare", {"cpu": 4}, cohortName="all"))
    await stage.create(*child("one", "1"), *child("other", weight))
    first = [await stage.create(job(f"first-{n}", "q-one", CPU)) for n in range(4)]
    await stage.until_admitted(*first)
    later = [await stage.create(job(f"later-{n}", "q-other", CPU)) for n in range(4 - left)]
    await stage.until_admitted(*later)
    await stage.settle()
    assert sum([await stage.runs(each) for each in first]) == left


@pytest.mark.parametrize(("weight", "next_"), [("1", "a"), ("4", "b")])
@story(configuration=AFS)
async def test_usage_of_a_local_queue_counts_by_its_weight(
    stage: Stage, weight: str, next_: str
) -> None:
    queues = pool("q", CPU, namespaces=("team-a", "team-b"), admissionScope=SCOPE)
    queues[-1]["spec"]["fairSharing"] = {"weight": weight}
    await stage.create(*queues)
    for team in ("team-a", "team-b"):
        done = await stage.create(job("done", "q", CPU, namespace=team, seconds=600))
        await stage.until_admitted(done, seconds=900)
    waiting = [
        await stage.create(job("next", "q", CPU, namespace=f"team-{team}")) for team in ("a", "b")
    ]
    await stage.until_finished(done, seconds=900)
    wanted, other = waiting if next_ == "a" else reversed(waiting)
    await stage.until_admitted(wanted, seconds=900)
    assert not await stage.is_admitted(other)


@story()
async def test_words_of_a_priority_class_are_kept(stage: Stage) -> None:
    words = "for what pages somebody"
    made = await stage.create({**priority("high", 100), "description": words})
    one = await stage.create(job("one", None, priority_class="high"))
    await stage.settle()
    assert (await stage.fresh(one))["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    assert (await stage.fresh(made))["description"] == words
