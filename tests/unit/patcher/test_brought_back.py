"""A decision that a killed server brought back is done with: the log has a later one about its work."""

from datetime import timedelta

import pytest

from tests.unit.patcher.stage import NOON
from tests.unit.patcher.test_late_release import staged

CASES = {
    "a release is the end": ("released", 3.0, "", True),
    "a decision of a moment ago is waited for": ("admitted", 0.0, "released", False),
    "an older one whose work has ended": ("admitted", 3.0, "released", True),
    "an older one that is the last": ("admitted", 3.0, "", False),
    "an older one behind which another came": ("evicted", 3.0, "waiting", True),
}


@pytest.mark.parametrize(("state", "age", "last", "over"), CASES.values(), ids=CASES)
async def test_decision_about_an_unknown_workload_ends_as_the_log_says(
    state: str, age: float, last: str, *, over: bool
) -> None:
    stage = await staged("a Job")
    decided = (await stage.decide(state)).replace(decided_at=NOON - timedelta(seconds=age))
    if last:
        await stage.decide(last)
    assert await stage.first.jobs.is_over(decided) is over
