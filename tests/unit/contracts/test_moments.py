"""A time in a message is one that clocks count, whatever its writer says."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import pytest

from shared.contracts.messages.outcomes import Outcome
from shared.telemetry.spans import nanoseconds

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, tzinfo=UTC)
NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)

TIMES: Final = {
    "2026-01-01T12:00:00Z": NOON,
    "2026-01-01T12:00:00": NOON,
    "2026-01-01T14:00:00+02:00": NOON,
    "1970-01-01T00:00:01Z": EARLIEST + timedelta(seconds=1),
    "1970-01-01T00:00:00+14:00": EARLIEST,
    "0001-01-01T00:00:00": EARLIEST,
    "0001-01-01T00:00:00+14:00": EARLIEST,
    "2261-12-31T23:59:59-14:00": LATEST,
    "9999-12-31T23:59:59": LATEST,
    "9999-12-31T23:59:59.999999-14:00": LATEST,
    1767268800: NOON,
    -1e11: EARLIEST,
    1.9e10: LATEST,
}


@pytest.mark.parametrize(("told", "read"), TIMES.items(), ids=map(str, TIMES))
def test_time_is_read_as_the_nearest_that_clocks_count(told: Any, read: datetime) -> None:
    body = Outcome(
        cluster="hub", namespace="team", name="w", uid="u", action="suspend", result="applied", term=1,
        number=1, at=NOON,
    ).model_dump()  # fmt: skip
    found = Outcome.model_validate({**body, "at": told}).at

    assert found == read
    assert 0 <= nanoseconds(found) < 2**63
    assert (
        found.astimezone(timezone(timedelta(hours=14))) + timedelta(days=365 * 7000)
    ).year < 9999
