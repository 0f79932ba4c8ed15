"""The demo compares waits only where comparing them says something."""

from datetime import UTC, datetime, timedelta

import pytest

from services.ctl.demo.check import (
    MEMBERS_MIN,
    machines_settled,
    queues_formed,
    waits_fall_with_priority,
)
from services.ctl.demo.create import Submitted
from services.ctl.demo.load import Arrival
from services.ctl.demo.results import JobResult, LoadResult
from services.ctl.demo.summary import machines, tier_rows
from services.simulator.judge.message_logs import read_logs
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.hosts import HostSlot, HostState, Machine, PlatformState
from shared.contracts.messages.workloads import PodSet, WorkloadState

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def case(*, priority: int, wait: float, cpu: str = "1", phase: str = "finished") -> JobResult:
    job = as_body({"metadata": {"namespace": "team-tenant", "name": "x", "uid": "u"}})
    arrival = Arrival(after_seconds=0.0, kind=kinds.JOB, object=job, tier=f"tier-{priority}")
    common = {"cluster": "hub", "namespace": "team-tenant", "name": "job-x", "uid": "u"}
    state = WorkloadState.model_validate(
        common
        | {
            "phase": phase,
            "priority": priority,
            "created_at": BEGAN,
            "pod_sets": [PodSet(name="main", count=1, requests={"cpu": cpu})],
        }
    )
    admission = Admission.model_validate(
        common
        | {
            "state": "admitted",
            "term": 1,
            "number": 1,
            "decided_at": BEGAN + timedelta(seconds=wait),
            "cluster_queue": "cq",
        }
    )
    return JobResult(
        submitted=Submitted(arrival=arrival, at=BEGAN, object=job),
        state=state,
        admission=admission,
        last=admission,
    )


def several(
    count: int = MEMBERS_MIN, *, priority: int, wait: float, cpu: str = "1"
) -> list[JobResult]:
    return [case(priority=priority, wait=wait, cpu=cpu) for _ in range(count)]


@pytest.mark.parametrize(
    ("cases", "wrong"),
    [
        pytest.param(
            [*several(priority=900, wait=1), *several(priority=300, wait=9)],
            0,
            id="the more important waited less",
        ),
        pytest.param(
            [*several(priority=900, wait=9), *several(priority=300, wait=1)],
            2,
            id="the more important waited longer",
        ),
        pytest.param(
            [*several(priority=900, wait=9), *several(priority=300, wait=1, cpu="2")],
            0,
            id="shapes that differ are not compared",
        ),
        pytest.param(
            [*several(3, priority=900, wait=9), *several(3, priority=300, wait=1)],
            0,
            id="three are too few for a mean",
        ),
        pytest.param(
            [*several(priority=900, wait=0.4), *several(priority=300, wait=0.1)],
            0,
            id="nobody waited: the rest is noise",
        ),
        pytest.param(
            [*several(priority=900, wait=5), *several(priority=300, wait=5)],
            1,
            id="all waited alike",
        ),
    ],
)
def test_mean_waits(cases: list[JobResult], wrong: int) -> None:
    assert len(waits_fall_with_priority(cases)) == wrong


def test_load_without_waiting_fails_the_queues_check() -> None:
    assert queues_formed(several(priority=1, wait=0.2))
    assert not queues_formed(several(priority=1, wait=3))


def test_95th_percentile_is_one_of_the_measured_waits() -> None:
    (row,) = tier_rows([case(priority=1, wait=wait) for wait in range(20)])
    assert (row.submitted, row.admitted, row.finished) == (20, 20, 20)
    assert row.mean_wait_seconds == pytest.approx(9.5)
    assert row.p95_wait_seconds == 18


def said(uid: str, state: str, seconds: float, host: str = "") -> HostState:
    return HostState.model_validate(
        {
            "cluster": "hub", "namespace": "team", "name": f"build-{uid}", "uid": uid,
            "platform": "linux/arm64", "provider": "fake", "state": state, "host": host,
            "at": BEGAN + timedelta(seconds=seconds),
        }
    )  # fmt: skip


def machine(*, shared: bool) -> Machine:
    return Machine(
        name="m", provider="fake", state="running", shared=shared, holder="a", task_run="team:build-a",
        launched_at=BEGAN, deadline=BEGAN,
    )  # fmt: skip


def result(*hosts: HostState, record: PlatformState | None = None) -> LoadResult:
    platforms = (record,) if record is not None else ()
    return LoadResult(message_logs=read_logs([]), cases=(), hosts=hosts, platforms=platforms)


def test_machines_are_counted_with_reuse_and_waits() -> None:
    [row] = machines(
        result(
            *(
                said("a", "launching", 0),
                said("a", "ready", 4, "m-1"),
                said("a", "ready", 9, "m-1"),
            ),
            *(said("b", "waiting", 2), said("b", "ready", 4, "m-1"), said("b", "released", 5)),
        )
    )
    assert (row.builds, row.launched, row.reused) == (2, 1, 1)
    assert (row.mean_wait_seconds, row.most_wait_seconds) == (3.0, 4.0)


def test_idle_shared_machine_does_not_count_as_left_behind() -> None:
    record = PlatformState(
        cluster="hub", platform="linux/arm64", machines=[machine(shared=True)], at=BEGAN
    )
    [row] = machines(result(said("a", "ready", 0, "m"), record=record))
    assert (row.kept, row.left) == (1, 0)
    assert machines_settled(result(said("a", "ready", 0, "m"), record=record)) == []


def test_machine_left_behind_or_request_without_answer_is_a_fault() -> None:
    seat = HostSlot(uid="a", namespace="team", name="build-a", host="m", address="10.0.0.1")
    record = PlatformState(
        cluster="hub",
        platform="linux/arm64",
        seats=[seat],
        machines=[machine(shared=False)],
        at=BEGAN,
    )
    told = machines_settled(result(said("a", "ready", 0), said("b", "waiting", 0), record=record))
    assert told == [
        "team/build-b asked for a machine and was never answered",
        "linux/arm64: 2 places or machines of builds that are over",
    ]
