"""The quota service on a bus in memory: decisions, evictions and statuses."""

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from services.quota.wire.outbound import bypass_cause
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.messages.workloads import Finish, JobRef, PodSet, WorkloadState
from shared.contracts.reasons import NOT_ADMITTED, NOT_ADMITTED_HELD
from shared.testing.waiting import eventually
from tests.unit.quota.service_setup import NOON, Setup, became

JOB = JobRef(api_version="batch/v1", kind="Job", plural="jobs", name="j", uid="u-j")


async def test_workload_that_fits_is_admitted_and_other_gets_reason(setup: Setup) -> None:
    await setup.cluster()
    for name in "xyz":
        await setup.workload(name)
    await setup.start_quota()
    await became(setup, "y", "admitted")
    await became(setup, "z", "waiting")
    waiting = await setup.last("z")
    assert waiting.reason == "WaitingForQuota"
    assert "1 more needed" in waiting.message
    assert (await setup.last("x")).pod_sets[0].usage == {"cpu": "1"}


async def test_cluster_that_is_not_synced_gets_no_decisions(setup: Setup) -> None:
    await setup.workload("x")
    await setup.start_quota()
    await asyncio.sleep(0.2)
    assert await setup.log() == []
    await setup.cluster()
    await became(setup, "x", "admitted")


async def test_finished_workload_gives_quota_to_next(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    await setup.workload("y")
    await became(setup, "y", "waiting")
    await setup.workload("x", phase="finished", finish=Finish(success=True))
    await became(setup, "y", "admitted")
    assert await setup.states("x") == ["admitted", "released"]


async def test_deleted_queues_and_cohorts_leave_no_metrics(setup: Setup) -> None:
    registry, label = CollectorRegistry(), 'name="q"'

    async def told() -> bool:
        return label in generate_latest(registry).decode()

    async def forgotten() -> bool:
        return not await told()

    await setup.cluster(cohort="all")
    await setup.start_quota(registry=registry)
    await setup.workload("x")
    await eventually(told)
    await setup.workload("x", phase="finished", finish=Finish(success=True))
    await setup.workload("x", phase="gone")
    await setup.observe(kinds.LOCAL_QUEUE, "q", {}, namespace="team", deleted=True)
    await eventually(forgotten)
    assert 'cluster_queue="cq"' in generate_latest(registry).decode()
    label = 'cohort="all"'
    assert await told()
    await setup.observe(kinds.CLUSTER_QUEUE, "cq", {}, deleted=True)
    await eventually(forgotten)


async def test_preempted_workload_frees_quota_after_suspended_state_is_observed(
    setup: Setup,
) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("low")
    await became(setup, "low", "admitted")
    await setup.workload("low", phase="running", pods_active=True, held=False, version="4")
    await setup.workload("high", priority=9)
    await became(setup, "low", "evicted")
    evicted = await setup.last("low")
    assert evicted.preempted_by == "team/high"
    assert evicted.pod_sets, "it still holds what it was given"
    await setup.outcome(evicted, "suspend", "applied", version="6")
    await setup.workload("low", held=True, version="5")  # Read before the suspension.
    await asyncio.sleep(0.1)
    assert (await setup.states("high"))[-1:] != ["admitted"]
    await setup.workload("low", held=True, version="6")
    await became(setup, "high", "admitted")
    await became(setup, "low", "waiting")


async def test_refused_release_frees_quota_and_waits_for_change(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    await setup.workload("y")
    await setup.outcome(await setup.last("x"), "release", "refused", message="spec is immutable")
    await became(setup, "y", "admitted")
    await became(setup, "x", "waiting")
    assert "spec is immutable" in (await setup.last("x")).message
    await setup.workload("y", phase="finished", finish=Finish(success=True))
    await setup.workload("x", generation=1, cpu="500m")
    await became(setup, "x", "admitted")


async def test_running_job_with_more_pods_is_evicted_and_queues_again(setup: Setup) -> None:
    """Its parallelism was raised behind the quota's back."""
    await setup.cluster(cpus=4)
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    running: dict[str, Any] = {"phase": "running", "pods_active": True, "held": False}
    await setup.workload("x", version="4", outgrown={"main": 1}, **running)
    await setup.workload("y")
    await became(setup, "y", "admitted")
    assert await setup.states("x") == ["admitted"], "an older state of the cluster's, no growth"

    await setup.workload("x", version="5", outgrown={"main": 3}, **running)
    await became(setup, "x", "evicted")
    evicted = await setup.last("x")
    assert evicted.reason == "NoMatchingWorkload"
    assert "3 pods in main, admitted 1" in evicted.message
    await setup.workload("x", version="5", outgrown={"main": 3}, **running)
    await setup.outcome(evicted, "suspend", "applied", version="6")
    await setup.workload("x", held=True, version="6")
    await became(setup, "x", "admitted")
    assert await setup.states("x") == ["admitted", "evicted", "waiting", "admitted"]


GROWN: dict[str, tuple[dict[str, Any], str]] = {
    "pods that had ended": (
        {"pod_sets": [PodSet(name="main", count=4, reclaimable=3, requests={"cpu": "1"})]},
        "asks for 4 pods in main, of which 3 had ended: it is stopped and waits",
    ),
    "what nobody can count": (
        {"pod_sets": [], "inadmissible": "spec.groups: 2 pod sets have the name 'a'"},
        "asks for what cannot be counted (spec.groups: 2 pod sets have the name 'a')",
    ),
}


@pytest.mark.parametrize(("now", "says"), GROWN.values(), ids=GROWN.keys())
async def test_running_job_that_asks_for_what_has_no_quota_is_evicted(
    setup: Setup, now: dict[str, Any], says: str
) -> None:
    await setup.cluster(cpus=4)
    await setup.start_quota()
    asked = [PodSet(name="main", count=4, requests={"cpu": "1"})]
    await setup.workload("x", pod_sets=asked)
    await became(setup, "x", "admitted")
    outgrown = {"main": 5 if "inadmissible" in now else 4}
    running: dict[str, Any] = {"phase": "running", "pods_active": True, "held": False}
    await setup.workload("x", version="5", outgrown=outgrown, **running, **now)
    await became(setup, "x", "evicted")
    assert says in (await setup.last("x")).message


async def test_running_job_that_asks_for_a_resource_without_quota_is_evicted(setup: Setup) -> None:
    await setup.cluster(cpus=4)
    await setup.start_quota()
    await setup.workload("x", cpu="1")
    await became(setup, "x", "admitted")
    running: dict[str, Any] = {"phase": "running", "pods_active": True, "held": False}
    more = [PodSet(name="main", count=1, requests={"cpu": "1", "example.com/gpu": "8"})]
    await setup.workload("x", version="5", pod_sets=more, enlarged=True, **running)
    await became(setup, "x", "evicted")
    text = (await setup.last("x")).message
    assert "8 example.com/gpu for each of 1 pods in main, admitted 0 for all" in text


async def test_running_job_with_larger_pods_is_evicted_and_queues_again(setup: Setup) -> None:
    await setup.cluster(cpus=4)
    await setup.start_quota()
    await setup.workload("x", cpu="1")
    await became(setup, "x", "admitted")
    running: dict[str, Any] = {"phase": "running", "pods_active": True, "held": False}
    await setup.workload("x", version="4", cpu="1", enlarged=True, **running)
    await setup.workload("y", cpu="1")
    await became(setup, "y", "admitted")
    assert await setup.states("x") == ["admitted"], "an older state of the cluster's, no growth"

    await setup.workload("x", version="5", cpu="2", enlarged=True, **running)
    await became(setup, "x", "evicted")
    evicted = await setup.last("x")
    assert evicted.reason == "NoMatchingWorkload"
    assert "2 cpu for each of 1 pods in main, admitted 1 for all" in evicted.message


async def test_pod_of_a_group_that_has_finished_is_counted_and_stopped(setup: Setup) -> None:
    of = JobRef(api_version="v1", kind="Pod", plural="pods", name="g", uid="u-g", is_group=True)
    owner: dict[str, Any] = {"owner": of}
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("g", **owner)
    await became(setup, "g", "admitted")
    running = {**owner, "phase": "running", "pods_active": True, "held": False}
    ended = {**owner, "phase": "finished", "finish": Finish(success=True)}
    await setup.workload("g", **running)
    await setup.workload("g", **ended)
    await became(setup, "g", "released")
    await setup.workload("g", version="7", generation=1, **running)
    await setup.workload("x")
    await became(setup, "x", "waiting")
    await became(setup, "g", "evicted")
    assert (await setup.last("g")).unplanned
    await setup.workload("g", version="9", generation=1, **ended)
    await became(setup, "x", "admitted")
    assert (await setup.states("g"))[-1] == "released"


async def test_job_running_without_admission_holds_quota_unplanned(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    before = unplanned_so_far()
    await setup.workload("wild", phase="running", pods_active=True, held=False)
    await became(setup, "wild", "admitted")
    assert (await setup.last("wild")).unplanned
    await setup.workload("x")
    await became(setup, "x", "waiting")
    assert unplanned_so_far() == before + 1
    await setup.stop_quota()
    await setup.start_quota("b")
    await setup.workload("y")
    await became(setup, "y", "waiting")
    assert unplanned_so_far() == before + 1, "what is known already is not counted again"


async def test_unadmitted_job_is_evicted_and_holds_quota_until_its_pods_are_gone(
    setup: Setup,
) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    runs = {"phase": "running", "pods_active": True, "held": False, "owner": JOB}
    await setup.workload("wild", **runs)
    await became(setup, "wild", "evicted")
    evicted = await setup.last("wild")
    assert (evicted.reason, evicted.unplanned) == ("NotAdmitted", True)
    await setup.workload("x")
    await became(setup, "x", "waiting")
    await setup.outcome(evicted, "suspend", "applied", version="2")
    await setup.workload("wild", version="2", **runs | {"held": True})
    await setup.workload("y")
    await became(setup, "y", "waiting")
    assert await setup.states("x") == ["waiting"], "its pods still run"
    await setup.workload("wild", version="3", owner=JOB)

    async def takes_its_turn() -> bool:
        return await setup.states("wild") == ["admitted", "evicted", "waiting", "admitted"]

    await eventually(takes_its_turn)
    assert not (await setup.last("wild")).unplanned


UNADMITTED: dict[str, tuple[dict[str, Any], dict[str, Any] | None, bool]] = {
    "its pods run without any decision": ({"pods_active": True}, None, True),
    "its pods run while it waits": ({"pods_active": True}, {"state": "waiting"}, True),
    "its pods run while its checks are pending": (
        {"pods_active": True},
        {"state": "reserved"},
        True,
    ),
    "an earlier leader only counted it": (
        {"held": False},
        {"state": "admitted", "unplanned": True},
        True,
    ),
    "it is suspended and its pods end": (
        {"held": True, "pods_active": True},
        {"state": "waiting"},
        True,
    ),
    "it is admitted": ({"pods_active": True}, {"state": "admitted"}, False),
    "it is being stopped": ({"pods_active": True}, {"state": "evicted"}, False),
    "it waits": ({"held": True}, {"state": "waiting"}, False),
    "another of its name is admitted": (
        {"pods_active": True},
        {"state": "admitted", "uid": "other"},
        True,
    ),
    "somebody else controls it": ({"pods_active": True, "owner": None}, None, False),
}


@pytest.mark.parametrize(("job", "decided", "stopped"), UNADMITTED.values(), ids=UNADMITTED)
def test_what_runs_without_admission_is_stopped(
    job: dict[str, Any], decided: dict[str, Any] | None, stopped: bool
) -> None:
    about = {"cluster": "hub", "namespace": "team", "name": "x", "uid": "u"}
    state = WorkloadState(
        **{**about, "phase": "running", "held": False, "owner": JOB, "created_at": NOON, **job}
    )
    more = {**about, "term": 1, "number": 1, "decided_at": NOON}
    decision = None if decided is None else Admission(**{**more, **decided})
    cause = bypass_cause(state, decision, on_bypass="stop", on_missed="report")
    assert (cause is not None) is stopped


@pytest.mark.parametrize("on_eviction", ["run-on", "recreate"])
@pytest.mark.parametrize(
    ("was_held", "policies", "reason"),
    [
        (True, ("stop", "report"), NOT_ADMITTED),
        (True, ("hold", "report"), NOT_ADMITTED_HELD),
        (True, ("report", "stop"), None),
        (False, ("stop", "report"), None),
        (False, ("report", "stop"), NOT_ADMITTED),
        (False, ("report", "hold"), NOT_ADMITTED_HELD),
    ],
)
@pytest.mark.parametrize("active", [True, False])
def test_policy_chooses_the_end_of_a_workload_that_cannot_be_suspended(
    on_eviction: str, was_held: bool, policies: tuple[Any, Any], reason: str | None, active: bool
) -> None:
    state = WorkloadState.model_validate(
        {
            "cluster": "hub",
            "namespace": "team",
            "name": "x",
            "uid": "u",
            "owner": JOB,
            "phase": "running",
            "held": False,
            "created_at": NOON,
            "pods_active": active,
            "on_eviction": on_eviction,
            "was_held": was_held,
        }
    )
    cause = bypass_cause(state, None, on_bypass=policies[0], on_missed=policies[1])
    assert (cause and cause[0]) == (reason if active else None)


def unplanned_so_far() -> float:
    name = "sluicegate_unplanned_workloads_total"
    return REGISTRY.get_sample_value(name, {"cluster_queue": "cq"}) or 0.0


async def test_suspended_unplanned_job_is_admitted_like_any_other(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("wild", phase="running", pods_active=True, held=False)
    await became(setup, "wild", "admitted")
    await setup.workload("wild", held=True)

    async def let_in() -> bool:
        return await setup.states("wild") == ["admitted", "waiting", "admitted"]

    await eventually(let_in)
    assert not (await setup.last("wild")).unplanned


async def test_status_of_queues_is_published(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    for name in "xy":
        await setup.workload(name)
    await setup.start_quota()
    status = QueueStatus(
        cluster="hub", kind="ClusterQueue", name="cq", pending=0, reserving=0, admitted=0,
        active=True, reason="", message="", at=NOON,
    )  # fmt: skip

    async def told() -> bool:
        entry = await setup.bus.latest("QUEUES", status.subject)
        if entry is None:
            return False
        found = QueueStatus.decode(entry.data)
        return (found.pending, found.reserving, found.admitted) == (1, 1, 1)

    await eventually(told)
