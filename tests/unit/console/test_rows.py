"""How queues and workloads are shown, from what is on the log about them."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.console.documents import QueueRow, WorkloadRow
from services.console.rows import queue_row, workload_row
from shared.contracts.kube import kinds
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.queues import FlavorUsage, ResourceUsage
from shared.contracts.messages.workloads import PodSet
from shared.contracts.refs import QueueRef, WorkloadRef
from shared.testing.builders import cluster_queue_spec
from tests.unit.console.stage import START, Stage, decision, ended, play, status, workload

FIRST = WorkloadRef("hub", "team", "job-first")
WAITS = workload("first")
RUNS = workload("first", phase="running")


async def shown(stage: Stage, *messages: Any) -> WorkloadRow:
    """The row of `first` after that was said."""
    await stage.basics()
    await stage.say(*messages)
    await stage.start()
    assert await stage.view.wait_until_read(5.0)
    row = workload_row(stage.view, FIRST)
    assert row is not None
    return row


def rows(check: Callable[[WorkloadRow], object], *messages: Any) -> None:
    async def scene(stage: Stage) -> None:
        check(await shown(stage, *messages))

    play(scene)


def decided(state: str, **more: Any) -> Admission:
    return decision(WAITS, state, 1, **more)


STATUSES: list[Any] = [
    pytest.param([WAITS], "PENDING", "", id="nobody has decided"),
    pytest.param(
        [WAITS, decided("waiting", reason="WaitingForQuota")], "PENDING", "WaitingForQuota",
        id="it waits",
    ),
    pytest.param(
        [workload("first", inadmissible="no such class")], "PENDING", "Misconfigured",
        id="it can never be admitted",
    ),
    pytest.param([WAITS, decided("reserved")], "QUOTARESERVED", "Reserved", id="its checks are pending"),
    pytest.param([RUNS, decided("admitted", reason="Admitted")], "ADMITTED", "Admitted", id="it runs"),
    pytest.param([RUNS, decided("evicted", reason="Preempted")], "EVICTED", "Preempted", id="it is put out"),
    pytest.param([ended("first", after=60.0)], "FINISHED", "Succeeded", id="it is done"),
    pytest.param([ended("first", after=60.0, success=False)], "FINISHED", "Failed", id="it failed"),
    pytest.param(
        [workload("first", uid="later"), decided("admitted")], "PENDING", "",
        id="another of its name was admitted before",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "expected", "reason"), STATUSES)
def test_workload_row_has_the_status_of_the_last_decision(
    messages: list[Any], expected: str, reason: str
) -> None:
    def check(row: WorkloadRow) -> None:
        assert (row.status, row.reason) == (expected, reason)

    rows(check, *messages)


EVICTED_AT = datetime(2026, 1, 1, 11, 58, tzinfo=UTC)
EVICTIONS: list[Any] = [
    pytest.param([RUNS, decided("evicted")], True, id="it is put out"),
    pytest.param(
        [workload("first", evicted_at=EVICTED_AT), decided("waiting")], True, id="it waits again"
    ),
    pytest.param([RUNS, decided("admitted")], False, id="it has quota"),
]


@pytest.mark.parametrize(("messages", "is_told"), EVICTIONS)
def test_workload_row_says_when_it_was_evicted(messages: list[Any], is_told: bool) -> None:
    def check(row: WorkloadRow) -> None:
        assert (row.evicted_at is not None) is is_told

    rows(check, *messages)


def test_workload_row_has_job_queues_and_total_requests() -> None:
    two = workload(
        "first",
        priority=7,
        pod_sets=[
            PodSet(name="driver", count=1, requests={"cpu": "500m", "memory": "1Gi"}),
            PodSet(name="workers", count=3, requests={"cpu": "2"}),
            PodSet(name="odd", count=1, requests={"cpu": "a lot"}),
        ],
    )

    def check(row: WorkloadRow) -> None:
        assert row.wire() == {
            "cluster": "hub",
            "namespace": "team",
            "name": "job-first",
            "job": {"kind": "Job", "name": "first"},
            "queue": "main",
            "clusterQueue": "cq",
            "priority": 7,
            "status": "PENDING",
            "reason": "",
            "message": "",
            "asks": {"cpu": "6500m", "memory": "1Gi"},
            "createdAt": "2026-01-01T11:55:00Z",
        }

    rows(check, two)


def test_workload_row_shows_the_admitting_cluster_queue() -> None:
    admitted = decided("admitted", cluster_queue="before", spoke="east", admitted_at=START)

    def check(row: WorkloadRow) -> None:
        assert (row.cluster_queue, row.spoke, row.admitted_at) == ("before", "east", START)

    rows(check, RUNS, admitted)


def test_row_of_a_copy_is_marked_as_copied() -> None:
    def check(row: WorkloadRow) -> None:
        assert row.wire()["copied"] is True

    rows(check, workload("first", labels={ORIGIN: "multikueue"}))


def test_finished_workload_row_has_start_and_end() -> None:
    def check(row: WorkloadRow) -> None:
        assert row.admitted_at == START - timedelta(seconds=60)
        assert (row.finished_at, row.succeeded) == (START, True)

    rows(check, ended("first", after=60.0))


# Queues -----------------------------------------------------------------------------------------


def queues(scene: Callable[[Stage], Awaitable[None]]) -> None:
    async def run(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        await scene(stage)

    play(run)


def used(**amounts: tuple[str, str]) -> list[FlavorUsage]:
    """Resource to what is reserved and borrowed of it."""
    resources = [ResourceUsage(name=n, total=t, borrowed=b) for n, (t, b) in amounts.items()]
    return [FlavorUsage(name="default", resources=resources)]


def row_of(stage: Stage, namespace: str = "", name: str = "cq") -> QueueRow:
    row = queue_row(stage.view, QueueRef("hub", namespace, name))
    assert row is not None
    return row


def test_queue_without_status_shows_its_configuration() -> None:
    async def scene(stage: Stage) -> None:
        await asyncio.sleep(1.0)
        row = row_of(stage)
        assert (row.kind, row.active, row.pending) == ("ClusterQueue", None, None)
        [cpu] = row.flavors[0].resources
        assert (cpu.nominal, cpu.reserved, cpu.share) == ("4", "0", 0.0)
        local = row_of(stage, "team", "main")
        assert (local.kind, local.cluster_queue, local.flavors) == ("LocalQueue", "cq", [])

    queues(scene)


def test_queue_row_has_counts_and_usage() -> None:
    async def scene(stage: Stage) -> None:
        reservation = used(cpu=("5", "1"), gpu=("1", "0"))
        await stage.say(status(pending=3, reserving=2, admitted=1, reservation=reservation))
        row = row_of(stage)
        assert (row.pending, row.reserving, row.admitted, row.active) == (3, 2, 1, True)
        cpu, gpu = row.flavors[0].resources
        assert (cpu.reserved, cpu.borrowed, cpu.share) == ("5", "1", 1.25)
        # In use and not configured any more: there is no share of nothing.
        assert (gpu.nominal, gpu.reserved, gpu.share) == (None, "1", None)

    queues(scene)


SHARES = [("0", "0", 0.0), ("0", "1", 1.0), ("4", "1", 0.25), ("4", "500m", 0.125)]


@pytest.mark.parametrize(("nominal", "reserved", "share"), SHARES)
def test_share_is_reserved_divided_by_nominal(nominal: str, reserved: str, share: float) -> None:
    async def scene(stage: Stage) -> None:
        await stage.say(
            stage.cluster_queue(int(nominal)), status(reservation=used(cpu=(reserved, "0")))
        )
        assert row_of(stage).flavors[0].resources[0].share == share

    queues(scene)


@pytest.mark.parametrize(
    ("namespace", "name", "reason", "remedy"),
    [
        (None, "cq", "Stopped", "if that is over: `sluice resume clusterqueue cq`"),
        ("team", "main", "Stopped", "if that is over: `sluice resume localqueue main -n team`"),
        (None, "cq", "FlavorNotFound", "create the ResourceFlavor, or take it out"),
        ("team", "main", "ClusterQueueDoesNotExist", "create its ClusterQueue, or name one"),
        (None, "cq", "Unheard", "correct what the message names"),
    ],
)
def test_inactive_queue_says_what_makes_it_active_again(
    namespace: str | None, name: str, reason: str, remedy: str
) -> None:
    async def scene(stage: Stage) -> None:
        await stage.say(status(name, namespace, active=False, reason=reason))
        assert row_of(stage, namespace or "", name).remedy.startswith(remedy)
        await stage.say(status(name, namespace))
        assert row_of(stage, namespace or "", name).remedy == ""

    queues(scene)


TRAINING: dict[str, Any] = {
    "queueingStrategy": "StrictFIFO",
    "cohortName": "ml",
    "namespaceSelector": {
        "matchLabels": {"team": "a"}, "matchExpressions": [{"key": "gpu", "operator": "Exists"}],
    },
    "preemption": {"withinClusterQueue": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority"}},
    "admissionChecksStrategy": {"admissionChecks": [{"name": "spokes"}]},
    "flavorFungibility": {"whenCanBorrow": "TryNextFlavor"},
}  # fmt: skip


def configured(stage: Stage, **spec: Any) -> Observed:
    return stage.observed(kinds.CLUSTER_QUEUE, "cq", cluster_queue_spec(4, **spec))


def test_cluster_queue_row_says_how_it_is_configured_and_what_surprises() -> None:
    async def scene(stage: Stage) -> None:
        await asyncio.sleep(1.0)
        row = row_of(stage)
        assert row.configuration == {
            "Order": "BestEffortFIFO",
            "Namespaces": "all",
            "Preempts in the queue": "Never",
            "Preempts to borrow": "Never",
            "Takes lent quota back": "Never",
            "Admission checks": "none",
        }
        assert row.advice == []
        await stage.say(configured(stage, **TRAINING))
        row = row_of(stage)
        assert row.configuration == {
            "Order": "StrictFIFO",
            "Namespaces": "team=a; gpu Exists",
            "Preempts in the queue": "LowerPriority",
            "Preempts to borrow": "LowerPriority",
            "Takes lent quota back": "Never",
            "Admission checks": "spokes",
            "May borrow before the next flavor": "TryNextFlavor",
        }
        [lent] = row.advice
        assert "spec.preemption.reclaimWithinCohort is Never" in lent
        reclaims = {**TRAINING, "preemption": {"reclaimWithinCohort": "Any"}}
        await stage.say(configured(stage, **{**reclaims, "namespaceSelector": None}))
        row = row_of(stage)
        assert row.configuration["Takes lent quota back"] == "Any"
        assert row.advice == [
            "Nobody may use it: spec.namespaceSelector is not set ({} selects every namespace)"
        ]
        assert row_of(stage, "team", "main").configuration == {}

    queues(scene)


def test_cluster_queue_row_says_what_it_may_borrow_and_lend_at_most() -> None:
    spec = cluster_queue_spec(4, cohortName="shared")
    [quota] = spec["resourceGroups"][0]["flavors"][0]["resources"]

    async def scene(stage: Stage) -> None:
        await asyncio.sleep(1.0)
        for limits, told in (
            ({"borrowingLimit": "0"}, {"Borrows at most": "0 cpu in default"}),
            ({"lendingLimit": 2}, {"Lends at most": "2 cpu in default"}),
            ({"borrowingLimit": None}, {}),
        ):
            limited = {**quota, **limits}
            spec["resourceGroups"][0]["flavors"][0]["resources"] = [limited]
            await stage.say(stage.observed(kinds.CLUSTER_QUEUE, "cq", spec))
            lines = row_of(stage).configuration.items()
            assert {line for line in lines if line[0].endswith("at most")} == set(told.items())

    queues(scene)


def test_unconfigured_queue_has_no_row() -> None:
    async def scene(stage: Stage) -> None:
        await stage.say(status("gone", pending=1))
        assert queue_row(stage.view, QueueRef("hub", "", "gone")) is None
        assert workload_row(stage.view, FIRST) is None

    queues(scene)
