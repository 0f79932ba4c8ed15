"""A log from a backup, older than the cluster: what was admitted since runs on, and nothing else does."""

from typing import Any

import pytest

from shared.contracts.messages.admissions import HOLDING
from shared.contracts.messages.workloads import JobRef, PodSet
from tests.unit.quota.test_lifecycle_timers import RECORD, RUNS, Stage, at

WAITED_AT = 100
OWNER = JobRef(api_version="batch/v1", kind="Job", plural="jobs", name="x", uid="u-job")


def restored(reasons: int = 1, **now: Any) -> Stage:
    """A queue for one. In the backup `first` runs and `x` waits. `first` has ended, and `x` is as told.

    With more reasons the leader that read the backup has given others to wait before it knew how `x` is.
    """
    stage = Stage()
    stage.see("first")
    stage.after(WAITED_AT)
    stage.see("x")
    assert stage.last("x").state == "waiting"
    stage.see("first", phase="finished")
    # What was decided then is not in the backup: the end, and that x is admitted.
    del stage.log[-2:]
    stage.seen.pop("x")
    stage.after(0)
    stage.restart()
    for cpus in range(2, reasons + 1):
        stage.after(WAITED_AT)
        stage.see("x", pod_sets=[PodSet(name="main", count=1, requests={"cpu": str(cpus)})])
    stage.see("x", **RUNS, owner=OWNER, **now)
    return stage


@pytest.mark.parametrize("reasons", [1, 2], ids=["for one reason", "for two"])
def test_job_that_was_admitted_after_the_backup_runs_on_and_holds_its_quota(reasons: int) -> None:
    stage = restored(reasons, admission=RECORD, admitted_at=at(WAITED_AT + 1))
    decided = [one for one in stage.log if one.name == "x"]
    assert [one.state for one in decided] == [*["waiting"] * reasons, "admitted"]
    assert len({one.message for one in decided}) == reasons + 1
    assert not stage.last("x").unplanned
    stage.see("rival")
    assert stage.last("rival").state == "waiting"


@pytest.mark.parametrize(
    "now",
    [
        pytest.param({}, id="that no Workload records"),
        pytest.param(
            {"admission": RECORD, "admitted_at": at(WAITED_AT - 1)},
            id="that was before the decision",
        ),
    ],
)
def test_job_that_waits_and_runs_without_an_admission_of_later_is_stopped(now: Any) -> None:
    stage = restored(**now)
    assert stage.last("x").reason == "NotAdmitted"
    assert stage.last("x").state in HOLDING
