"""A workload that has ended counts if it runs again, and waits no more if it does not."""

import pytest

from tests.unit.quota.test_lifecycle_timers import RUNS, Stage


@pytest.mark.parametrize("end", ["gone", "finished"])
def test_job_that_runs_after_its_end_is_counted(end: str) -> None:
    """A job that names a Workload has its own name before and after: it goes and comes with one uid.

    What ended a Workflow of Argo can be taken back: it runs again.
    """
    stage = Stage(delay=1)
    stage.see("other")
    stage.see("x")
    stage.see("x", phase=end)
    told = [(one.state, one.unplanned) for one in stage.see("x", **RUNS)]
    assert told == [("admitted", True)]
    assert [one.reason for one in stage.see("x", phase="finished")] == ["Finished"]


def test_job_that_waits_after_its_end_is_not_admitted_again() -> None:
    stage = Stage(delay=1)
    stage.see("x")
    stage.see("x", phase="finished")
    assert stage.see("x") == []
