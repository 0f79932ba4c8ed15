"""Why does it wait? Asked from the real quota service, for each kind of waiting."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.contracts.kube import kinds
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.workloads import Finish, JobRef, PodSet
from tests.integration.explain_stage import NOON, SETTLED_SECONDS, Json, Site


async def test_workload_without_quota_is_shown_free_amount_and_holders(site: Site) -> None:
    await site.queue(cpu=4)
    await site.workload("mine", cpu="2", age=30)
    await site.workload("theirs", cpu="1", age=20, namespace="others")
    await site.workload("big", cpu="2", age=10)
    await site.synced()

    told = await site.explain("big", "WaitingForQuota")

    (shortage,) = told.shortages
    assert (shortage.flavor, shortage.resource) == ("default", "cpu")
    assert (shortage.asked, shortage.free, shortage.most) == ("2", "1", "4")
    assert [(holder.name, holder.amount) for holder in shortage.holders] == [("mine", "2")]
    assert (shortage.holders_elsewhere, shortage.held_elsewhere) == (1, "1")
    assert told.remedy == "1 more cpu in flavor default must become free"
    assert told.position == 1
    assert told.expected_start is None
    assert told.expected_start_unknown_because


async def test_names_of_workloads_ahead_are_shown_only_in_the_own_namespace(site: Site) -> None:
    await site.queue(cpu=1)
    await site.workload("running", age=99)
    for age, (name, namespace) in enumerate(
        (("last", "team"), ("b", "others"), ("a", "others"), ("first", "team"))
    ):
        await site.workload(name, age=age, namespace=namespace)
    await site.synced()

    told = await site.explain("last", "WaitingForQuota")

    assert (told.position, told.position_in_local_queue) == (4, 2)
    assert told.ahead == ["first"]
    assert (told.ahead_here, told.ahead_elsewhere) == (1, 2)
    assert "others/" not in told.model_dump_json()


async def test_borrowable_amount_is_shown_separately(site: Site) -> None:
    await site.queue(cpu=2, cohortName="all")
    await site.queue("lender", cpu=3, cohortName="all")
    await site.workload("first", cpu="1", age=9)
    await site.workload("second", cpu="5", age=8)
    await site.synced()

    (shortage,) = (await site.explain("second", "WaitingForQuota")).shortages

    assert (shortage.asked, shortage.free, shortage.borrowable, shortage.most) == (
        *("5", "4", "3", "5"),
    )


async def test_request_above_the_maximum_capacity_is_explained(site: Site) -> None:
    await site.queue(cpu=4)
    await site.workload("huge", cpu="9")
    await site.synced()

    told = await site.explain("huge", "ExceedsMaxQuota")

    assert told.shortages[0].most == "4"
    assert told.remedy == "raise the quota of cpu in flavor default above 4, or ask for less"


STOPPED: list[Any] = [
    pytest.param(
        {"queue": "none"}, "Misconfigured", "LocalQueue none doesn't exist",
        id="its LocalQueue does not exist",
    ),
    pytest.param(
        {"queue": "lost"}, "Misconfigured", "ClusterQueue nowhere doesn't exist",
        id="its LocalQueue points nowhere",
    ),
    pytest.param(
        {"queue": "held"}, "Suspended", "LocalQueue held is inactive",
        id="its LocalQueue is stopped",
    ),
    pytest.param(
        {"queue": "shut"}, "Suspended", "ClusterQueue shut is inactive",
        id="its ClusterQueue is stopped",
    ),
    pytest.param(
        {"queue": "broken"}, "Suspended", "ClusterQueue broken is inactive",
        id="its ClusterQueue names a flavor that is not there",
    ),
    pytest.param(
        {"queue": "picky"}, "Misconfigured", "doesn't match ClusterQueue selector",
        id="its namespace is not selected",
    ),
    pytest.param(
        {"queue": "tainted"}, "NoMatchingFlavor", "untolerated taint",
        id="it does not tolerate the only flavor",
    ),
    pytest.param(
        {"active": False}, "Deactivated", "The workload is deactivated",
        id="somebody deactivated it",
    ),
    pytest.param(
        {"on_hold": "paused by its user"}, "OnHold", "paused by its user", id="its user holds it"
    ),
    pytest.param(
        {"inadmissible": "WorkloadPriorityClass urgent not found"}, "Misconfigured",
        "WorkloadPriorityClass urgent not found", id="its priority class is missing",
    ),
]  # fmt: skip


MISNAMED: list[Any] = [
    pytest.param(
        {"queue": "hold"}, "label kueue.x-k8s.io/queue-name: did you mean 'held'?",
        id="a typo in its LocalQueue",
    ),
    pytest.param(
        {"queue": ""}, "name a LocalQueue in the job's label", id="no LocalQueue"
    ),
    pytest.param(
        {"queue": "lost"}, "correct spec.clusterQueue of LocalQueue team/lost",
        id="a LocalQueue that points nowhere",
    ),
    pytest.param(
        {"unresolved": 'WorkloadPriorityClass "hihg" not found'},
        "correct the job's label kueue.x-k8s.io/priority-class", id="a typo in its priority class",
    ),
    pytest.param(
        {"unresolved": 'PriorityClass "hihg" not found'},
        "correct spec.priorityClassName of the job's pods", id="a typo in its pods' priority class",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("how", "remedy"), MISNAMED)
async def test_remedy_names_the_field_to_correct(site: Site, how: Json, remedy: str) -> None:
    await site.queue()
    await site.local("lost", to="nowhere-at-all")
    await site.local("held", stopPolicy="Hold")
    await site.workload("one", **how)
    await site.synced()

    told = await site.explain("one", "Misconfigured")

    assert remedy in told.remedy
    assert "nowhere" not in told.remedy, "no names of ClusterQueues"


@pytest.mark.parametrize(("how", "reason", "message"), STOPPED)
async def test_workload_that_quota_cannot_help_is_explained(
    site: Site, how: Json, reason: str, message: str
) -> None:
    await site.queue()
    await site.queue("shut", stopPolicy="Hold")
    await site.queue("broken", flavor="missing")
    await site.queue("picky", namespaceSelector={"matchLabels": {"a": "b"}})
    await site.queue("tainted", flavor="tainted")
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    await site.observe(kinds.RESOURCE_FLAVOR, "tainted", {"nodeTaints": [taint]})
    for name in ("shut", "broken", "picky", "tainted"):
        await site.local(name, to=name)
    await site.local("lost", to="nowhere")
    await site.local("held", stopPolicy="Hold")
    await site.workload("one", **how)
    await site.synced()

    told = await site.explain("one", reason)

    assert message in told.message
    assert told.remedy, "it says what would help"


async def test_end_of_the_back_off_is_shown(site: Site) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    await site.queue()
    await site.workload("one", requeue_at=until)
    await site.synced()

    told = await site.explain("one", "PendingEvaluation")

    assert told.requeue_at is not None
    assert told.requeue_at == until
    assert told.remedy == "its back-off must end"


async def test_resource_that_no_queue_offers_is_named(site: Site) -> None:
    await site.queue()
    await site.workload("one", pod_sets=[PodSet(name="main", count=1, requests={"gpu": "1"})])
    await site.synced()

    told = await site.explain("one", "NoMatchingFlavor")

    assert "resource gpu unavailable in ClusterQueue" in told.message
    assert told.remedy.startswith("offer the resource")


async def test_workload_of_a_cluster_that_is_still_being_listed_must_wait(
    site: Site,
) -> None:
    await site.queue()
    await site.workload("one")

    told = await site.explain("one", "PendingEvaluation")

    assert told.message == "Cluster hub has not been listed to the end yet"
    assert told.remedy == "the watcher of hub must finish its first list"


async def test_quota_of_a_workload_that_started_without_admission_is_counted(site: Site) -> None:
    await site.queue(cpu=1)
    for name in ("first", "one"):
        await site.workload(name, phase="running", pods_active=True, held=False)
    await site.synced()

    assert "nobody admitted it" in (await site.explain("one", "Admitted")).message


async def test_admission_checks_of_a_reserved_workload_are_named(site: Site) -> None:
    check = {"controllerName": "sluicegate.dev/machines"}
    await site.observe(kinds.ADMISSION_CHECK, "machines", check)
    await site.observe(kinds.ADMISSION_CHECK, "window", check)
    await site.queue(admissionChecks=["machines", "window"])
    await site.workload("one")
    await site.synced()
    told = await site.explain("one", "Reserved")
    assert told.checks == {"machines": "Pending", "window": "Pending"}

    await site.bus.publish(
        CheckState(
            cluster="hub", namespace="team", name="one", uid="u-one", check="window",
            state="Ready", at=datetime.now(UTC),
        )
    )  # fmt: skip
    async with asyncio.timeout(SETTLED_SECONDS):
        while told.checks["window"] != "Ready":
            told = await site.explain("one", "Reserved")
    assert told.checks == {"machines": "Pending", "window": "Ready"}


async def test_workload_is_found_by_its_job_and_shown_as_finished(site: Site) -> None:
    await site.queue()
    owner = JobRef(api_version="batch/v1", kind="Job", plural="jobs", name="train", uid="j")
    await site.workload("job-train-1", owner=owner)
    await site.synced()
    told = await site.explain("train", "Admitted")
    assert (told.name, told.job) == ("job-train-1", "Job train")

    finish = Finish(success=False, message="OOM", at=NOON)
    await site.workload("job-train-1", owner=owner, phase="finished", finish=finish)
    assert (await site.explain("train", "Finished")).message == "It failed: OOM"
