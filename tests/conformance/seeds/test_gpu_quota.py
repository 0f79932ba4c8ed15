"""Document 003: quota of GPUs, its flavors and limits, with its manifests."""

from functools import partial

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.gpu_jobs import GPU, flavor, gpus, group, other_team, queue_of, tier
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, example, job, pool, story

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


async def pod_spec(stage: Stage, one: Object) -> Object:
    return dict((await stage.fresh(one))["spec"]["template"]["spec"])


@says("003:5-6", "003:13-18", "003:89-110", "003:156-158")
@story()
async def test_gpu_job_is_held_reserved_admitted_and_runs_where_its_flavor_is(
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
async def test_job_above_nominal_and_borrowing_quota_stays_suspended_with_the_reason(
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


@says("003:38-39", "003:79-87")
@story()
async def test_waiting_job_starts_whatever_the_order_of_the_manifests(
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
async def test_flavor_taints_exclude_intolerant_jobs_and_tolerations_are_added(
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
async def test_queue_without_a_cohort_does_not_borrow(stage: Stage) -> None:
    await stage.create(*example("030-gpu-quota.yaml"), *pool("alone", {"cpu": 1}))
    one = await stage.create(job("one", "alone", {"cpu": 2}))

    await stage.until_waits(one, "maximum capacity (1)")


@says("003:120-121")
@story()
async def test_namespace_selector_limits_which_local_queues_may_use_a_queue(stage: Stage) -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
    teams = ("team-a", "team-b")
    await stage.create(*pool("q", {"cpu": 9}, namespaces=teams, namespaceSelector=selector))
    ours = await stage.create(job("ours", "q", {"cpu": 1}))
    theirs = await stage.create(job("theirs", "q", {"cpu": 1}, namespace="team-b"))

    await stage.until_admitted(ours)
    await stage.until_waits(theirs, "namespace doesn't match ClusterQueue selector")


@says("003:122-125")
@story()
async def test_uncovered_resource_is_reported_and_nominal_quota_is_guaranteed(
    stage: Stage,
) -> None:
    await stage.create(*pool("q", {"cpu": 4}))
    uncovered = await stage.create(job("uncovered", "q", {"cpu": 1, GPU: 1}))
    whole = await stage.create(job("whole", "q", {"cpu": 4}))

    await stage.until_waits(uncovered, "resource nvidia.com/gpu unavailable in ClusterQueue")
    await stage.until_admitted(whole)


@says("003:88", "003:48-78", "003:126-129")
@story()
async def test_idle_gpus_are_borrowed_up_to_borrowing_and_lending_limits(
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


@says("003:148-155")
@story()
async def test_local_queue_shows_how_many_are_admitted_and_pending(stage: Stage) -> None:
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
async def test_quota_counts_the_requested_resource_name(
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
async def test_slices_are_counted_by_transformation_and_excluded_resources_are_not_counted(
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
