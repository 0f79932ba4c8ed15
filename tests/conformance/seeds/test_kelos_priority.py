"""Document 001: fair shares and priorities of Kelos tasks."""

import pytest

from shared.contracts.kube import names
from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.kelos_tasks import NAMESPACE, TASKS, prepare, task
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, example, pool, story


@says("001:39-41", "001:47-56", "001:60-69")
@story(settings={"quota": {"fair_sharing": ["LessThanOrEqualToFinalShare"]}})
async def test_spawners_of_one_cohort_share_by_their_weights(stage: Stage) -> None:
    def of(name: str, weight: str) -> list[Object]:
        return pool(
            name,
            {"cpu": 0},
            namespaces=(NAMESPACE,),
            cohortName="agents",
            fairSharing={"weight": weight},
            preemption={"reclaimWithinCohort": "Any"},
        )

    shared = pool("spare", {"cpu": 4}, namespaces=(NAMESPACE,), cohortName="agents")
    await stage.create(TASKS, *shared, *of("triage", "1"), *of("workers", "3"))
    one = {"cpu": 1}
    triage = [await task(stage, f"triage-{n}", "triage", requests=one) for n in range(4)]
    await stage.until_admitted(*triage)
    workers = [await task(stage, f"workers-{n}", "workers", requests=one) for n in range(3)]

    await stage.until_admitted(*workers)
    assert sum([await stage.runs(each) for each in triage]) == 1


@says("001:43-45", "001:229-281")
@story()
async def test_critical_tasks_preempt_standard_ones_by_the_default_priority_of_their_queues(
    stage: Stage,
) -> None:
    await prepare(stage, *example("021-agent-tiers.yaml"))
    standard = await task(stage, "triage", "kelos-standard", requests={"cpu": 16})
    await stage.until_admitted(standard)
    critical = await task(stage, "hotfix", "kelos-critical", requests={"cpu": 16}, seconds=60)

    await stage.until_admitted(critical)
    assert not await stage.runs(standard)
    specs = [(await stage.workload(one))["spec"] for one in (standard, critical)]
    assert [spec["priority"] for spec in specs] == [100, 1000]
    await stage.until_finished(critical)
    await stage.until_admitted(standard)


@says("001:229-281")
@story()
async def test_priority_class_of_a_task_overrides_the_default_of_its_queue(
    stage: Stage,
) -> None:
    low = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "WorkloadPriorityClass", "value": 5}
    low = {**low, "metadata": {"name": "low"}}
    await prepare(stage, *example("021-agent-tiers.yaml"), low)
    full = await task(stage, "full", "kelos-critical", requests={"cpu": 16})
    await stage.until_admitted(full)
    one = await task(stage, "one", "kelos-critical", priority_class="low")

    await stage.until_waits(one)
    assert (await stage.workload(one))["spec"]["priority"] == 5


@says("001:229-281")
@story()
async def test_default_priority_that_is_no_number_is_refused_or_reported(
    stage: Stage,
) -> None:
    await prepare(stage, *example("021-agent-tiers.yaml"))
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "kelos-critical", "namespace": NAMESPACE},
    }
    wrong = {"metadata": {"annotations": {names.DEFAULT_PRIORITY: "high"}}}

    with pytest.raises(Exception, match="must be a 32-bit integer"):
        await stage.patch(queue, wrong)
