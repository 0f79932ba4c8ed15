"""Document 003: quota and fair shares of GPUs, with its manifests."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, example, job, pool, priority, story

GPU = "nvidia.com/gpu"
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def gpus(
    name: str, count: int, *, team: str = "team-a", class_: str = "", seconds: float = 3600
) -> Object:
    """A job of one pod that asks for GPUs, at the door of its team."""
    asked = {"cpu": 1, "memory": "1Gi", GPU: count}
    return job(name, "gpu-queue", asked, namespace=team, priority_class=class_, seconds=seconds)


def other_team(name: str = "team-b", **spec: Any) -> list[Object]:
    """A second ClusterQueue of the cohort, from the document's, and its door."""
    _, queue, door = example("030-gpu-quota.yaml")
    queue["metadata"]["name"] = name
    queue["spec"] |= spec
    door["metadata"]["namespace"] = name
    door["spec"]["clusterQueue"] = name
    return [queue, door]


def tier(name: str, **labels: str) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": labels},
    }


def queue_of(
    name: str, groups: list[Object], namespace: str = "team-a", **spec: Any
) -> list[Object]:
    """A ClusterQueue with these groups, and a LocalQueue of its name."""
    made = pool(name, {}, namespaces=(namespace,), **spec)[1:]
    made[0]["spec"]["resourceGroups"] = groups
    return made


def group(quotas: Mapping[str, Mapping[str, object]]) -> Object:
    """Flavors in their order, with the quota of each resource."""
    covered = list(next(iter(quotas.values())))
    flavors = [
        {
            "name": flavor,
            "resources": [
                {"name": resource, "nominalQuota": str(quota[resource])} for resource in covered
            ],
        }
        for flavor, quota in quotas.items()
    ]
    return {"coveredResources": covered, "flavors": flavors}


async def pod_spec(stage: Stage, one: Object) -> Object:
    return dict((await stage.fresh(one))["spec"]["template"]["spec"])


async def flavor(stage: Stage, one: Object, resource: str = "cpu") -> str:
    [assigned] = (await stage.workload(one))["status"]["admission"]["podSetAssignments"]
    return str(assigned["flavors"][resource])


@says("003:5-6", "003:13-18", "003:89-110", "003:156-158")
@story()
async def test_the_gpu_job_is_held_reserved_admitted_and_runs_where_its_flavor_is(
    stage: Stage,
) -> None:
    await stage.create(*example("030-gpu-quota.yaml"))
    smoke = example("031-gpu-job.yaml")[0]
    del smoke["spec"]["suspend"]  # The webhook sets it.
    made = await stage.create(smoke)
    assert made["spec"]["suspend"] is True

    await stage.until_admitted(made)
    reserved = await stage.condition(made, "QuotaReserved")
    assert (reserved["status"], reserved["reason"]) == ("True", "QuotaReserved")
    await stage.until(partial(stage.runs, made))
    assert (await pod_spec(stage, made))["nodeSelector"] == H100
    workload = await stage.workload(made)
    [event] = await stage.events(workload, "Admitted")
    assert event.startswith("Admitted by ClusterQueue team-a")
    [pods] = workload["spec"]["podSets"]
    assert pods["count"] == 2


@says("003:5-6", "003:159")
@story()
async def test_a_job_above_nominal_and_borrowing_stays_suspended_and_is_told_why(
    stage: Stage,
) -> None:
    await stage.create(*example("030-gpu-quota.yaml"), *other_team())
    huge = await stage.create(gpus("huge", 32 + 16 + 1))

    reason = await stage.until_waits(huge, "insufficient quota for nvidia.com/gpu")
    assert "maximum capacity" in reason
    await stage.settle(60)
    assert (await stage.fresh(huge))["spec"]["suspend"] is True
    assert (await stage.condition(huge, "Admitted")).get("status") != "True"


@says("003:5-6")
@story()
async def test_workloads_above_quota_wait_in_line_instead_of_overcommitting(stage: Stage) -> None:
    await stage.create(*example("030-gpu-quota.yaml"))
    first = await stage.create(gpus("first", 32, seconds=60))
    second = await stage.create(gpus("second", 1, seconds=60))

    await stage.until_admitted(first)
    await stage.until_waits(second, "insufficient unused quota for nvidia.com/gpu")
    await stage.until_finished(first)
    await stage.until_admitted(second)


@says("003:7-12")
@story()
async def test_each_managed_job_has_a_workload_that_carries_the_conditions(stage: Stage) -> None:
    await stage.create(*example("030-gpu-quota.yaml"))
    one = await stage.create(gpus("one", 1))

    await stage.until_admitted(one)
    workload = await stage.workload(one)
    assert workload["status"]["admission"]["clusterQueue"] == "team-a"
    types = [c["type"] for c in workload["status"]["conditions"] if c["status"] == "True"]
    assert {"QuotaReserved", "Admitted"} <= set(types)


@says("003:37", "003:138-141", "003:160-163")
@story()
async def test_by_default_jobs_without_the_label_are_ignored_and_run_at_once(stage: Stage) -> None:
    await stage.create(*example("030-gpu-quota.yaml"))
    plain = await stage.create(job("plain", None, {GPU: 99}))

    await stage.settle()
    assert (await stage.fresh(plain))["status"]["active"] == 1
    assert await stage.workload(plain) == {}


MANAGE = {"manageJobsWithoutQueueName": True}


@says("003:37")
@story(configuration=MANAGE)
async def test_manage_jobs_without_queue_name_holds_every_job_until_somebody_gives_it_a_queue(
    stage: Stage,
) -> None:
    await stage.create(*example("030-gpu-quota.yaml"))
    plain = await stage.create(job("plain", None, {"cpu": 1}))
    assert plain["spec"]["suspend"] is True

    await stage.until_waits(plain, "LocalQueue  doesn't exist")
    await stage.patch(plain, {"metadata": {"labels": {names.QUEUE: "gpu-queue"}}})
    await stage.until_admitted(plain)


@says("003:37")
@story(configuration=MANAGE, services=())
async def test_what_ran_without_a_queue_before_jobs_were_managed_runs_on(stage: Stage) -> None:
    plugins = stage.system.api.admission.plugins
    webhooks = plugins.copy()
    plugins.clear()
    await stage.create(*pool("q", {"cpu": 1}))
    before = await stage.create(job("before", None, {"cpu": 9}))
    await stage.settle()
    plugins += webhooks
    for service in ("watcher", "classifier", "quota", "patcher"):
        stage.system.serve(service)
    await stage.until_admitted(await stage.create(job("after", "q", {"cpu": 1})))

    assert (await stage.fresh(before))["status"]["active"] == 1
    assert await stage.workload(before) == {}


@says("003:37")
@story(
    configuration={
        **MANAGE,
        "managedJobsNamespaceSelector": {"matchLabels": {"batch": "managed"}},
    }
)
async def test_only_namespaces_that_are_selected_are_managed_and_one_may_become_so(
    stage: Stage,
) -> None:
    await stage.create(*example("030-gpu-quota.yaml"))
    labels = {"batch": "managed"}
    managed = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "in", "labels": labels},
    }
    await stage.kube.create(kinds.NAMESPACE, managed)
    inside = await stage.create(job("inside", None, {"cpu": 1}, namespace="in"))
    outside = await stage.create(job("outside", "gpu-queue", {"cpu": 1}))

    assert inside["spec"]["suspend"] is True
    assert not outside["spec"].get("suspend")
    await stage.settle()
    assert await stage.workload(outside) == {}

    # A job that waits there by itself is taken in when its namespace is.
    paused = job("paused", "gpu-queue", {"cpu": 1})
    paused["spec"]["suspend"] = True
    paused = await stage.create(paused)
    await stage.settle()
    assert await stage.workload(paused) == {}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
    await stage.patch(namespace, {"metadata": {"labels": labels}})
    await stage.until_admitted(paused)


@says("003:37")
@story(configuration=MANAGE)
async def test_jobs_of_the_system_are_never_managed(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 1}, namespaces=("kube-system",)))
    plain = await stage.create(job("plain", "q", {"cpu": 9}, namespace="kube-system"))

    await stage.settle()
    assert (await stage.fresh(plain))["status"]["active"] == 1
    assert await stage.workload(plain) == {}


@says("003:37")
@story()
async def test_a_local_queue_called_default_is_that_of_jobs_that_name_none(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 1}, local="default"))
    plain = await stage.create(job("plain", None, {"cpu": 1}))

    assert plain["metadata"]["labels"][names.QUEUE] == "default"
    await stage.until_admitted(plain)


@says("003:38-39", "003:79-87")
@story()
async def test_the_order_of_the_manifests_does_not_matter_to_who_waits_for_them(
    stage: Stage,
) -> None:
    one = await stage.create(gpus("one", 1))
    flavor_, queue, door = example("030-gpu-quota.yaml")

    await stage.until_waits(one, "LocalQueue gpu-queue doesn't exist")
    await stage.create(door)
    await stage.until_waits(one, "ClusterQueue team-a doesn't exist")
    await stage.create(queue)
    await stage.settle()
    assert not await stage.is_admitted(one)
    await stage.create(flavor_)
    await stage.until_admitted(one)


@says("003:40-47", "003:111-115")
@story()
async def test_quota_is_counted_per_flavor_and_its_node_labels_select_the_nodes(
    stage: Stage,
) -> None:
    await stage.create(tier("fast", speed="fast"), tier("slow", speed="slow"))
    await stage.create(*queue_of("q", [group({"fast": {"cpu": 1}, "slow": {"cpu": 1}})]))
    first = await stage.create(job("first", "q", {"cpu": 1}))
    second = await stage.create(job("second", "q", {"cpu": 1}))

    await stage.until_admitted(first, second)
    assert [await flavor(stage, one) for one in (first, second)] == ["fast", "slow"]
    await stage.until(partial(stage.runs, second))
    assert (await pod_spec(stage, second))["nodeSelector"] == {"speed": "slow"}


@says("003:116-117")
@story()
async def test_taints_keep_out_who_does_not_tolerate_them_and_tolerations_are_added(
    stage: Stage,
) -> None:
    spot = tier("spot")
    spot["spec"]["nodeTaints"] = [{"key": "spot", "value": "true", "effect": "NoSchedule"}]
    added = tier("added")
    added["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    await stage.create(spot, added)
    await stage.create(*queue_of("q", [group({"spot": {"cpu": 1}, "added": {"cpu": 1}})]))
    plain = await stage.create(job("plain", "q", {"cpu": 1}))
    tolerant = {"tolerations": [{"key": "spot", "operator": "Equal", "value": "true"}]}
    bold = await stage.create(job("bold", "q", {"cpu": 1}, pod=tolerant))

    await stage.until_admitted(plain, bold)
    assert [await flavor(stage, one) for one in (plain, bold)] == ["added", "spot"]
    await stage.until(partial(stage.runs, plain))
    [toleration] = (await pod_spec(stage, plain))["tolerations"]
    assert toleration == {"key": "gpu", "operator": "Exists"}


@says("003:118-119")
@story()
async def test_a_queue_without_a_cohort_does_not_borrow(stage: Stage) -> None:
    await stage.create(*example("030-gpu-quota.yaml"), *pool("alone", {"cpu": 1}))
    one = await stage.create(job("one", "alone", {"cpu": 2}))

    await stage.until_waits(one, "maximum capacity (1)")


@says("003:120-121")
@story()
async def test_the_namespace_selector_says_whose_local_queues_may_use_it(stage: Stage) -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
    teams = ("team-a", "team-b")
    await stage.create(*pool("q", {"cpu": 9}, namespaces=teams, namespaceSelector=selector))
    ours = await stage.create(job("ours", "q", {"cpu": 1}))
    theirs = await stage.create(job("theirs", "q", {"cpu": 1}, namespace="team-b"))

    await stage.until_admitted(ours)
    await stage.until_waits(theirs, "namespace doesn't match ClusterQueue selector")


@says("003:122-125")
@story()
async def test_a_resource_that_no_group_covers_is_told_and_nominal_quota_is_guaranteed(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 4}))
    uncovered = await stage.create(job("uncovered", "q", {"cpu": 1, GPU: 1}))
    whole = await stage.create(job("whole", "q", {"cpu": 4}))

    await stage.until_waits(uncovered, "resource nvidia.com/gpu unavailable in ClusterQueue")
    await stage.until_admitted(whole)


@says("003:88", "003:48-78", "003:126-129")
@story()
async def test_idle_gpus_flow_to_whoever_waits_up_to_its_borrowing_and_the_others_lending_limit(
    stage: Stage,
) -> None:
    # Team B may lend 8 of its 32: team A gets 40, though it may borrow 16.
    await stage.create(*example("030-gpu-quota.yaml"), *other_team())
    nominal = await stage.create(gpus("nominal", 32))
    lent = await stage.create(gpus("lent", 8))
    more = await stage.create(gpus("more", 1))

    await stage.until_admitted(nominal, lent)
    await stage.until_waits(more, "insufficient unused quota for nvidia.com/gpu")
    own = await stage.create(gpus("own", 24, team="team-b"))
    await stage.until_admitted(own)


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
async def test_less_eager_reclaiming_spares_who_has_a_higher_priority(
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
async def test_a_borrower_preempts_peers_of_lower_priority_up_to_the_threshold(
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
async def test_within_the_cluster_queue_the_policy_says_who_gives_way(
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
async def test_when_can_borrow_says_whether_another_flavor_is_tried_first(
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
async def test_when_can_preempt_says_whether_another_flavor_is_tried_first(
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


@says("003:148-155")
@story()
async def test_a_local_queue_shows_how_many_are_admitted_and_pending(stage: Stage) -> None:
    await stage.create(*example("030-gpu-quota.yaml"))
    first = await stage.create(gpus("first", 32))
    await stage.create(gpus("second", 32))

    async def counted() -> bool:
        queue = await stage.kube.get(kinds.LOCAL_QUEUE, "team-a", "gpu-queue")
        status = queue.get("status") or {}
        return (status.get("admittedWorkloads"), status.get("pendingWorkloads")) == (1, 1)

    await stage.until(counted)
    labels = (await stage.workload(first))["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/job-uid"] == first["metadata"]["uid"]


@says("003:165-166")
@story()
async def test_what_is_counted_is_the_resource_that_the_pod_asks_for_whatever_it_stands_for(
    stage: Stage,
) -> None:
    slices = "nvidia.com/mig-1g.5gb"
    await stage.create(*pool("q", {slices: 7}))
    seven = await stage.create(job("seven", "q", {slices: 7}))
    eighth = await stage.create(job("eighth", "q", {slices: 1}))

    await stage.until_admitted(seven)
    await stage.until_waits(eighth, f"insufficient unused quota for {slices}")


@says("003:165-166")
@story(
    configuration={
        "resources": {
            "excludeResourcePrefixes": ["example.com/"],
            "transformations": [
                {
                    "input": "nvidia.com/mig-1g.5gb",
                    "strategy": "Replace",
                    "outputs": {"example.org/gpu-memory": "5Gi"},
                }
            ],
        }
    }
)
async def test_slices_may_be_counted_as_what_they_have_and_other_resources_not_at_all(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 9, "example.org/gpu-memory": "10Gi"}))
    asked = {"cpu": 1, "nvidia.com/mig-1g.5gb": 2, "example.com/licence": 50}
    first = await stage.create(job("first", "q", asked))
    second = await stage.create(job("second", "q", asked))

    await stage.until_admitted(first)
    [assigned] = (await stage.workload(first))["status"]["admission"]["podSetAssignments"]
    assert assigned["resourceUsage"] == {"cpu": "1", "example.org/gpu-memory": str(10 * 2**30)}
    await stage.until_waits(second, "insufficient unused quota for example.org/gpu-memory")
