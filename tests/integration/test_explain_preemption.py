"""Explanations of workloads whose quota others hold: preemption, borrowing, flavors."""

from shared.contracts.kube import kinds
from tests.integration.explain_stage import Site


async def test_preemptor_is_shown_the_workloads_it_waits_for(site: Site) -> None:
    await site.queue(cpu=2, preemption={"withinClusterQueue": "LowerPriority"})
    await site.workload("mine", age=9, phase="running", pods_active=True, held=False)
    await site.workload(
        "theirs", age=9, phase="running", pods_active=True, held=False, namespace="others"
    )
    await site.synced()
    await site.explain("mine", "Admitted")
    await site.explain("theirs", "Admitted", namespace="others")
    await site.workload("urgent", cpu="2", priority=10)

    told = await site.explain("urgent", "WaitingForPreemptedWorkloads")

    assert (told.victims, told.victims_elsewhere) == (["mine"], 1)
    assert told.remedy == "their pods must end"
    assert (await site.explain("mine", "Preempted")).message.startswith("evicted (Preempted)")


async def test_borrowing_limit_of_the_own_queue_is_named(site: Site) -> None:
    await site.queue(cpu=2, cohortName="all", quota={"borrowingLimit": "1"})
    await site.queue("lender", cpu=9, cohortName="all")
    await site.workload("one", cpu="5")
    await site.synced()

    (shortage,) = (await site.explain("one", "ExceedsMaxQuota")).shortages

    assert (shortage.asked, shortage.free, shortage.borrowable, shortage.most) == (
        *("5", "3", "1", "3"),
    )


async def test_borrowers_of_lent_quota_are_named(site: Site) -> None:
    await site.queue(cpu=2, cohortName="all")
    await site.queue("lender", cpu=2, cohortName="all")
    await site.local("lending", to="lender")
    for name in ("a", "b", "c"):
        await site.workload(name, age=9, phase="running", pods_active=True, held=False)
    await site.synced()
    await site.explain("c", "Admitted")
    await site.workload("owner", cpu="2", queue="lending")

    (shortage,) = (await site.explain("owner", "WaitingForQuota")).shortages

    assert (shortage.asked, shortage.free, shortage.most) == ("2", "1", "4")
    assert [holder.name for holder in shortage.holders] == ["a", "b", "c"]


async def test_workload_waits_for_holders_of_higher_priority(site: Site) -> None:
    await site.queue(cpu=1, preemption={"withinClusterQueue": "LowerPriority"})
    await site.workload("important", priority=9, age=9)
    await site.workload("one", priority=1)
    await site.synced()

    told = await site.explain("one", "WaitingForQuota")

    assert told.victims == []
    assert [holder.name for holder in told.shortages[0].holders] == ["important"]


async def test_shortage_of_each_possible_flavor_is_named(site: Site) -> None:
    quota = [{"name": "cpu", "nominalQuota": "1"}]
    flavors = [{"name": name, "resources": quota} for name in ("default", "spot")]
    group = {"coveredResources": ["cpu"], "flavors": flavors}
    await site.observe(kinds.RESOURCE_FLAVOR, "spot", {})
    await site.observe(
        kinds.CLUSTER_QUEUE, "cq", {"namespaceSelector": {}, "resourceGroups": [group]}
    )
    for age, name in enumerate(("late", "second", "first")):
        await site.workload(name, age=age)
    await site.synced()

    told = await site.explain("late", "WaitingForQuota")

    assert [(s.flavor, s.asked, s.free) for s in told.shortages] == [
        *(("default", "1", "0"), ("spot", "1", "0")),
    ]
    assert [[holder.name for holder in s.holders] for s in told.shortages] == [
        ["first"],
        ["second"],
    ]
    assert told.remedy == (
        "1 more cpu in flavor default must become free; or "
        "1 more cpu in flavor spot must become free"
    )
