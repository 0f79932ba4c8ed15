"""The one screen of `sluice status`."""

from typing import Any

from services.ctl.doctor.configuration import configuration
from services.ctl.doctor.findings import Finding
from services.ctl.get.snapshot import Snapshot
from services.ctl.inspect.status import counts, screen, waiting
from shared.bus.stream_reader import Seen
from shared.contracts.kube.names import ORIGIN
from tests.unit.ctl.test_get import (
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    NOW,
    admission,
    ago,
    observed,
    queue_status,
    workload,
)


def read(*messages: Seen) -> Snapshot:
    snapshot = Snapshot()
    for message in messages:
        snapshot.apply(message)
    return snapshot


def waits(name: str, minutes: int, reason: str = "WaitingForQuota") -> list[Seen]:
    created: dict[str, Any] = {"created_at": ago(minutes=minutes)}
    return [workload(name, **created), admission(name, "waiting", reason=reason)]


def test_screen_says_what_waits_and_what_to_do() -> None:
    running = [workload("job-r", phase="running"), admission("job-r", "admitted")]
    snapshot = read(
        *waits("job-a", 5), *waits("job-b", 50), *waits("job-c", 9, "Misconfigured"), *running
    )
    broken = Finding(where="lease quota", problem="nobody holds it", advice="start quota")

    lines = list(screen(snapshot, [broken], waiting(snapshot), NOW))

    assert lines[:2] == ["Healthy: no, 1 wrong", "Workloads: 3 wait, 1 have quota"]
    table = [line.split() for line in lines if line.startswith(("WaitingForQuota", "Misconf"))]
    assert table == [
        ["WaitingForQuota", "2", "50m", "team/job-b"],
        ["Misconfigured", "1", "9m", "team/job-c"],
    ]
    assert "`sluice explain team/job-b` says why, and what would help" in lines
    assert lines[-3:] == ["What to do:", "  lease quota: nobody holds it", "    start quota"]
    assert counts(snapshot) == {"PENDING": 3, "ADMITTED": 1}


def test_screen_of_an_idle_system_is_short_and_shows_queues_on_hold() -> None:
    snapshot = read(CLUSTER_QUEUE, LOCAL_QUEUE, queue_status("ClusterQueue", "cq", pending=0))

    lines = list(screen(snapshot, [], waiting(snapshot), NOW))

    assert lines[:2] == ["Healthy: yes", "Workloads: 0 wait, 0 have quota"]
    assert lines[-1].split("  ")[0] == "cq (on hold)"
    assert len(lines) == 5


def test_copies_on_spokes_are_not_counted_and_queues_of_one_name_are_told_apart() -> None:
    copied: dict[str, Any] = {"labels": {ORIGIN: "multikueue"}, "cluster": "east"}
    running = [workload("job-r", phase="running"), admission("job-r", "admitted")]
    snapshot = read(
        *running,
        workload("job-r", phase="running", **copied),
        workload("job-of-a-hub-elsewhere", **copied),
        CLUSTER_QUEUE,
        observed("ClusterQueue", "clusterqueues", "cq", {}, cluster="east"),
    )

    lines = list(screen(snapshot, [], waiting(snapshot), NOW))

    assert lines[1] == "Workloads: 1 wait, 1 have quota"
    table = [line.split()[:2] for line in lines[3:6]]
    assert table == [["CLUSTER", "CLUSTERQUEUE"], ["east", "cq"], ["hub", "cq"]]


def test_workloads_in_a_queue_on_hold_wait_for_that() -> None:
    snapshot = read(CLUSTER_QUEUE, LOCAL_QUEUE, *waits("job-a", 5))

    assert [(each.reason, each.count) for each in waiting(snapshot)] == [("ClusterQueueStopped", 1)]


def test_jobs_that_can_never_start_leave_the_system_healthy() -> None:
    large = [workload("job-l"), admission("job-l", "waiting", reason="ExceedsMaxQuota")]
    snapshot = read(
        CLUSTER_QUEUE, LOCAL_QUEUE, *large, workload("job-i", inadmissible="asks 0 pods"),
        workload("job-s", queue="none"), workload("job-p", priority_class="none"),
    )  # fmt: skip
    findings = configuration(snapshot)
    told = "\n".join(f"{each.where}: {each.problem}" for each in findings if not each.wrong)

    assert all(name in told for name in ("job-l", "job-i", "job-s", "job-p")), told
    assert "job-" not in "".join(each.problem for each in findings if each.wrong)
