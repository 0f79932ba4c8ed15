"""Document 003: preemption, borrowing between queues, and the choice of flavors."""

from typing import Any

import pytest

from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.gpu_jobs import flavor, gpus, group, other_team, queue_of, tier
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, example, job, pool, priority, story


@says("003:88", "003:130-131", "003:164")
@story()
async def test_reclaim_within_cohort_pulls_lent_capacity_back_from_any_priority(
    stage: Stage,
) -> None:
    await stage.create(*example("030-gpu-quota.yaml"), *other_team(), priority("high", 1000))
    borrows = await stage.create(gpus("borrows", 40, class_="high"))
    await stage.until_admitted(borrows)
    back = await stage.create(gpus("back", 32, team="team-b"))

    await stage.until_admitted(back)
    assert (await stage.condition(borrows, "Preempted"))["reason"] == "InCohortReclamation"
    assert not await stage.runs(borrows)


@says("003:130-131", "003:164")
@pytest.mark.parametrize("policy", ["Never", "LowerPriority"])
@story()
async def test_reclaiming_with_a_stricter_policy_spares_higher_priority(
    stage: Stage, policy: str
) -> None:
    preemption = {"reclaimWithinCohort": policy}
    team_b = other_team(preemption=preemption)
    await stage.create(*example("030-gpu-quota.yaml"), *team_b, priority("high", 1000))
    borrows = await stage.create(gpus("borrows", 40, class_="high"))
    await stage.until_admitted(borrows)
    back = await stage.create(gpus("back", 32, team="team-b"))

    await stage.until_waits(back)
    await stage.settle(60)
    assert await stage.runs(borrows)


@says("003:132-133")
@story()
async def test_borrower_preempts_peers_of_lower_priority_up_to_the_threshold(
    stage: Stage,
) -> None:
    classes = [priority("low", 50), priority("middle", 150), priority("high", 1000)]
    none = {"reclaimWithinCohort": "Never"}
    borrower = other_team("team-b", preemption=none)
    other = other_team("team-c", preemption=none)
    await stage.create(*example("030-gpu-quota.yaml"), *borrower, *other, *classes)
    spared = await stage.create(gpus("spared", 36, team="team-b", class_="middle"))
    victim = await stage.create(gpus("victim", 36, team="team-c", class_="low"))
    await stage.until_admitted(spared, victim)
    # Each keeps 24 and lends 8; the peers have 12 of those 24 each. With 4 of others' it needs 12.
    high = await stage.create(gpus("high", 36, class_="high"))

    await stage.until_admitted(high)
    reason = (await stage.condition(victim, "Preempted"))["reason"]
    assert reason == "InCohortReclaimWhileBorrowing"
    assert await stage.runs(spared)


@says("003:134-135")
@pytest.mark.parametrize("policy", ["Never", "LowerPriority", "LowerOrNewerEqualPriority"])
@story()
async def test_within_cluster_queue_policy_selects_preempted_workloads(
    stage: Stage, policy: str
) -> None:
    await stage.create(*pool("q", {"cpu": 1}, preemption={"withinClusterQueue": policy}))
    await stage.create(priority("low", 1), priority("high", 100))
    low = await stage.create(job("low", "q", {"cpu": 1}, priority_class="low"))
    await stage.until_admitted(low)
    high = await stage.create(job("high", "q", {"cpu": 1}, priority_class="high"))

    await stage.until_waits(high) if policy == "Never" else await stage.until_admitted(high)
    await stage.settle(30)
    assert await stage.runs(low) is (policy == "Never")


FUNGIBILITY: dict[str, tuple[Object, str]] = {
    "another flavor before borrowing": ({"whenCanBorrow": "TryNextFlavor"}, "second"),
    "borrowing before another flavor": ({"whenCanBorrow": "MayStopSearch"}, "first"),
}


@says("003:136-137")
@pytest.mark.parametrize("case", FUNGIBILITY.values(), ids=FUNGIBILITY)
@story()
async def test_when_can_borrow_decides_whether_the_next_flavor_is_tried(
    stage: Stage, case: tuple[Object, str]
) -> None:
    fungibility, wanted = case
    await stage.create(tier("first", n="1"), tier("second", n="2"))
    both = [group({"first": {"cpu": 1}, "second": {"cpu": 4}})]
    spare = [group({"first": {"cpu": 4}})]
    own: dict[str, Any] = {"cohortName": "all", "flavorFungibility": fungibility}
    await stage.create(*queue_of("q", both, **own))
    await stage.create(*queue_of("spare", spare, cohortName="all"))
    one = await stage.create(job("one", "q", {"cpu": 2}))

    await stage.until_admitted(one)
    assert await flavor(stage, one) == wanted


@says("003:136-137")
@pytest.mark.parametrize(
    ("when", "wanted"), [("TryNextFlavor", "second"), ("MayStopSearch", "first")]
)
@story()
async def test_when_can_preempt_decides_whether_the_next_flavor_is_tried(
    stage: Stage, when: str, wanted: str
) -> None:
    await stage.create(tier("first", n="1"), tier("second", n="2"))
    await stage.create(priority("low", 1), priority("high", 100))
    both = [group({"first": {"cpu": 1}, "second": {"cpu": 1}})]
    more: dict[str, Any] = {
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "flavorFungibility": {"whenCanPreempt": when},
    }
    await stage.create(*queue_of("q", both, **more))
    low = await stage.create(job("low", "q", {"cpu": 1}, priority_class="low"))
    await stage.until_admitted(low)
    high = await stage.create(job("high", "q", {"cpu": 1}, priority_class="high"))

    await stage.until_admitted(high)
    assert await flavor(stage, high) == wanted
