"""When a workload starts, in words."""

from datetime import UTC, datetime, timedelta

import pytest

from services.ctl.inspect.explain import expected

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATE = {
    "expected_earliest": "2026-01-02T11:30:00Z",
    "expected_start_unknown_because": "it does not start within 24 h in most futures",
}


def test_forecast_says_how_many_runs_it_knows() -> None:
    soon = (NOW + timedelta(minutes=5)).isoformat()
    item = {"expected_start": soon, "expected_earliest": soon, "expected_latest": soon}
    assert "from 1 run of its kind" in expected(item | {"expected_from_runs": 1}, NOW)
    assert "from 2 runs of its kind" in expected(item | {"expected_from_runs": 2}, NOW)


@pytest.mark.parametrize("reason", ["Misconfigured", "ExceedsMaxQuota"])
def test_workload_that_needs_a_fix_has_no_expected_start(reason: str) -> None:
    assert expected({"reason": reason, **LATE}, NOW) == "never, unless that is put right"


def test_what_waits_for_quota_starts_late() -> None:
    said = expected({"reason": "WaitingForQuota", **LATE}, NOW)
    assert said.startswith("in 23h at the earliest: ")
