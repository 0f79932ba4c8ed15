"""The quota service on a bus in memory: leading, standing by, restarting, being told that it failed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from services.quota.app import assemble
from services.quota.auditor import contradictions
from services.quota.engine import QuotaEngine
from services.quota.settings import QuotaSettings
from shared.bus.port import CaughtUp, FencedError
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import Admission, AdmissionState, Term
from shared.contracts.messages.effects import CheckState, Outcome
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.messages.workloads import Finish, PodSet, WorkloadState
from shared.contracts.windows import CONTROLLER as WINDOWS
from shared.testing.waiting import eventually
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECONDS_MAX = 8.0
SETTINGS = QuotaSettings(reason_delay_seconds=0, audit_seconds=0.05)


class Setup:
    """A bus with one queue of two cpus on it; the test plays watcher, classifier and patcher."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.bus = MemoryBus(self.server, instance="test")
        self._processes: list[tuple[asyncio.Task[None], MemoryBus]] = []
        self._version = 0

    async def start_quota(
        self,
        name: str = "a",
        *,
        bus: MemoryBus | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        bus = bus or MemoryBus(self.server, instance=f"quota-{name}")
        service = assemble(
            settings=SETTINGS, bus=bus, now=lambda: datetime.now(UTC), registry=registry
        )
        await bus.start()
        self._processes.append((asyncio.create_task(service.run()), bus))

    async def stop_quota(self) -> None:
        task, bus = self._processes.pop(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.stop()

    async def close(self) -> None:
        while self._processes:
            await self.stop_quota()
        await self.bus.stop()

    async def cluster(self, *, cpus: int = 2, checks: Sequence[str] = ()) -> None:
        flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": str(cpus)}]}
        group = {"coveredResources": ["cpu"], "flavors": [flavor]}
        queue = {"namespaceSelector": {}, "resourceGroups": [group], "preemption": PREEMPTION}
        await self.observe(kinds.NAMESPACE, "team", {})
        for name in checks:
            await self.observe(kinds.ADMISSION_CHECK, name, {"controllerName": WINDOWS})
        queue["admissionChecksStrategy"] = {"admissionChecks": [{"name": n} for n in checks]}
        await self.observe(kinds.RESOURCE_FLAVOR, "f", {})
        await self.observe(kinds.CLUSTER_QUEUE, "cq", queue)
        await self.observe(kinds.LOCAL_QUEUE, "q", {"clusterQueue": "cq"}, namespace="team")
        await self.bus.publish(Synced(cluster="hub", epoch="1", kinds=[], at=NOON))

    async def observe(
        self,
        kind: Kind,
        name: str,
        spec: dict[str, Any],
        *,
        namespace: str | None = None,
        deleted: bool = False,
    ) -> None:
        self._version += 1
        metadata = {"name": name, "namespace": namespace, "uid": name}
        await self.bus.publish(
            Observed(
                cluster="hub", group=kind.group, version=kind.version, plural=kind.plural,
                kind=kind.kind, namespace=namespace, name=name, uid=name,
                resource_version=str(self._version), object={"metadata": metadata, "spec": spec},
                deleted=deleted,
            )
        )  # fmt: skip

    async def workload(self, name: str, **more: Any) -> WorkloadState:
        cpu = more.pop("cpu", "1")
        state = WorkloadState(
            cluster="hub", namespace="team", name=name, uid=f"u-{name}", queue="q", created_at=NOON,
            pod_sets=[PodSet(name="main", count=1, requests={"cpu": cpu})],
            **{"phase": "waiting", "version": "1", **more},
        )  # fmt: skip
        await self.bus.publish(state)
        return state

    async def outcome(self, admission: Admission, action: str, result: Any, **more: Any) -> None:
        await self.bus.publish(
            Outcome(
                cluster="hub", namespace="team", name=admission.name, uid=admission.uid,
                action=action, result=result, term=admission.term, number=admission.number,
                at=NOON, **more,
            )
        )  # fmt: skip

    async def log(self) -> list[Admission]:
        found = []
        async with aclosing(self.bus.replay("ADMISSIONS", "sluice.admission.>")) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    break
                found.append(Admission.decode(item.data, item.headers))
        return found

    async def states(self, name: str) -> list[str]:
        return [a.state for a in await self.log() if a.name == name]

    async def last(self, name: str) -> Admission:
        return [a for a in await self.log() if a.name == name][-1]


PREEMPTION = {"withinClusterQueue": "LowerPriority"}


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    subject = Setup()
    await subject.bus.start()
    yield subject
    await subject.close()


async def became(setup: Setup, name: str, state: str) -> None:
    async def yes() -> bool:
        return (await setup.states(name))[-1:] == [state]

    await eventually(yes)


async def test_what_fits_is_admitted_and_what_does_not_is_told_why(setup: Setup) -> None:
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


async def test_nothing_is_decided_for_a_cluster_of_which_not_all_was_listed(setup: Setup) -> None:
    await setup.workload("x")
    await setup.start_quota()
    await asyncio.sleep(0.2)
    assert await setup.log() == []
    await setup.cluster()
    await became(setup, "x", "admitted")


async def test_an_end_gives_quota_to_the_next(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    await setup.workload("y")
    await became(setup, "y", "waiting")
    await setup.workload("x", phase="finished", finish=Finish(success=True))
    await became(setup, "y", "admitted")
    assert await setup.states("x") == ["admitted", "released"]


async def test_a_local_queue_that_is_deleted_takes_its_metrics_with_it(setup: Setup) -> None:
    registry = CollectorRegistry()

    async def told() -> bool:
        return 'name="q"' in generate_latest(registry).decode()

    async def forgotten() -> bool:
        return not await told()

    await setup.cluster()
    await setup.start_quota(registry=registry)
    await setup.workload("x")
    await eventually(told)
    await setup.workload("x", phase="finished", finish=Finish(success=True))
    await setup.workload("x", phase="gone")
    await setup.observe(kinds.LOCAL_QUEUE, "q", {}, namespace="team", deleted=True)
    await eventually(forgotten)
    assert 'cluster_queue="cq"' in generate_latest(registry).decode()


async def test_a_restart_admits_nothing_twice_and_forgets_nobody(setup: Setup) -> None:
    await setup.cluster()
    for name in "xyz":
        await setup.workload(name)
    await setup.start_quota()
    await became(setup, "z", "waiting")
    await setup.stop_quota()
    before = await setup.log()
    await setup.start_quota("b")
    await setup.workload("x", phase="finished", finish=Finish(success=True))
    await became(setup, "z", "admitted")
    new = (await setup.log())[len(before) :]
    assert [(a.name, a.state, a.term) for a in new] == [("x", "released", 2), ("z", "admitted", 2)]


async def test_a_stale_leader_is_refused_by_the_server(setup: Setup) -> None:
    await setup.cluster()
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    last = await setup.bus.last_sequence("ADMISSIONS")
    stale = (await setup.last("x")).model_copy(update={"state": "released", "number": 99})
    with pytest.raises(FencedError):
        await setup.bus.publish(stale, expect_last=last - 1)


async def test_a_leader_that_sees_another_term_begins_anew(setup: Setup) -> None:
    await setup.cluster()
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    last = await setup.bus.last_sequence("ADMISSIONS")
    await setup.bus.publish(Term(term=7, holder="other", began_at=NOON), expect_last=last)
    await setup.workload("y")
    await became(setup, "y", "admitted")
    assert (await setup.last("y")).term == 8


class Overtaken(MemoryBus):
    """A bus on which the leader before goes on deciding until the next one begins."""

    decided: Admission | None = None

    async def last_sequence(self, stream: str) -> int:
        if stream == "ADMISSIONS" and self.decided is not None:
            await self.publish(self.decided)
            self.decided = None
        return await super().last_sequence(stream)


@pytest.mark.parametrize("state", ["admitted", "evicted", "waiting"])
async def test_what_the_leader_before_decided_last_is_all_that_counts_of_its_decisions(
    setup: Setup, state: AdmissionState
) -> None:
    await setup.cluster(checks=["safe"])
    await setup.workload("x")
    await setup.start_quota()
    await became(setup, "x", "reserved")
    await setup.stop_quota()
    reserved = await setup.last("x")
    ready = CheckState(
        cluster="hub", namespace="team", name="x", uid="u-x", check="safe", state="Ready",
        message="", attempt=reserved.number, at=reserved.decided_at,
    )  # fmt: skip
    await setup.bus.publish(ready)
    bus = Overtaken(setup.server, instance="quota-b")
    bus.decided = reserved.model_copy(update={"state": state, "number": reserved.number + 1})
    await setup.start_quota("b", bus=bus)
    await setup.workload("y")
    await became(setup, "y", "reserved")
    after = (await setup.states("x"))[1:]
    assert after == ([state] if state != "waiting" else ["waiting", "reserved"])


async def test_where_the_log_has_lost_its_terms_a_later_one_than_any_that_decided_begins(
    setup: Setup,
) -> None:
    await setup.cluster()
    decided = Admission(
        cluster="hub", namespace="team", name="z", uid="u-z", state="released", term=7, number=1,
        decided_at=NOON, cluster_queue="cq",
    )  # fmt: skip
    await setup.bus.publish(decided)
    await setup.workload("x")
    await setup.start_quota()
    await became(setup, "x", "admitted")
    assert (await setup.last("x")).term == 8


async def test_a_preempted_workload_frees_quota_when_its_suspended_state_was_observed(
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


async def test_a_refused_release_gives_quota_back_and_waits_for_a_change(setup: Setup) -> None:
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


async def test_a_job_that_grows_while_it_runs_is_stopped_and_waits_again(setup: Setup) -> None:
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


async def test_a_job_whose_pods_grow_while_it_runs_is_stopped_and_waits_again(setup: Setup) -> None:
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


async def test_a_log_that_is_nearly_full_takes_ends_but_no_beginnings(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.quota.term.FULLNESS_INTERVAL_SECONDS", 0.02)
    await setup.cluster(cpus=30)
    await setup.start_quota()
    for number in range(29):
        await setup.workload(f"w{number}")
    await setup.workload("x")
    await became(setup, "x", "admitted")
    stream = setup.server.stream("ADMISSIONS")
    stream._bytes_max = int(stream.bytes / 0.85)
    await asyncio.sleep(0.2)

    await setup.workload("y")
    await setup.workload("x", phase="finished", finish=Finish(success=True))
    await became(setup, "x", "released")
    await asyncio.sleep(0.2)
    assert await setup.states("y") == []

    stream._bytes_max = stream.bytes * 10
    await became(setup, "y", "admitted")


async def test_what_runs_unasked_holds_quota_unplanned(setup: Setup) -> None:
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


def unplanned_so_far() -> float:
    name = "sluicegate_unplanned_workloads_total"
    return REGISTRY.get_sample_value(name, {"cluster_queue": "cq"}) or 0.0


async def test_what_ran_unasked_and_waits_again_is_let_in_like_any_other(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("wild", phase="running", pods_active=True, held=False)
    await became(setup, "wild", "admitted")
    await setup.workload("wild", held=True)

    async def let_in() -> bool:
        return await setup.states("wild") == ["admitted", "waiting", "admitted"]

    await eventually(let_in)
    assert not (await setup.last("wild")).unplanned


async def test_if_the_log_is_lost_what_the_cluster_records_is_adopted(setup: Setup) -> None:
    await setup.cluster(cpus=1)
    assigned = {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}
    recorded = {"clusterQueue": "cq", "podSetAssignments": [assigned]}
    running = {"phase": "running", "pods_active": True, "held": False}
    await setup.workload("x", admission=recorded, **running)
    await setup.workload("y")
    await setup.start_quota()
    await became(setup, "y", "waiting")
    assert all(a.state != "admitted" or a.name == "x" for a in await setup.log())


async def test_queues_tell_how_they_stand(setup: Setup) -> None:
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


def test_an_audit_names_who_holds_by_the_log_and_not_by_the_engine() -> None:
    admission = Admission(
        cluster="hub", namespace="team", name="x", uid="u", state="admitted", term=1, number=1,
        decided_at=NOON, cluster_queue="cq",
    )  # fmt: skip
    [problem] = contradictions(QuotaEngine(), [admission])
    assert problem == "hub: team/x holds quota of cq by the log, not by the engine"
    released = admission.model_copy(update={"state": "released"})
    assert contradictions(QuotaEngine(), [released]) == []
