"""Windows in which workloads may start, by cron expressions and the clock on the wall."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts.windows import TIME_ZONE, WINDOWS, WindowsError, read_windows

NIGHTS = "0 22 * * mon-thu for 8h\n0 22 * * fri for 58h"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Case:
    windows: str
    now: str
    open: bool
    until: str
    zone: str = "UTC"


CASES = {
    "closed before the first opening": Case(
        windows=NIGHTS, now="2026-01-05T12:00", open=False, until="2026-01-05T22:00"
    ),
    "open from the opening time": Case(
        windows=NIGHTS, now="2026-01-05T22:00", open=True, until="2026-01-06T06:00"
    ),
    "open over midnight": Case(
        windows=NIGHTS, now="2026-01-06T03:00", open=True, until="2026-01-06T06:00"
    ),
    "closed at the closing time": Case(
        windows=NIGHTS, now="2026-01-06T06:00", open=False, until="2026-01-06T22:00"
    ),
    "a long window is open days after it opened": Case(
        windows=NIGHTS, now="2026-01-11T23:59", open=True, until="2026-01-12T08:00"
    ),
    "the first opening of several windows": Case(
        windows="0 9 * * * for 1h\n0 8 * * * for 1h",
        now="2026-01-05T07:00",
        open=False,
        until="2026-01-05T08:00",
    ),
    "the last close of several open windows": Case(
        windows="0 8 * * * for 4h\n0 9 * * * for 1h",
        now="2026-01-05T09:30",
        open=True,
        until="2026-01-05T12:00",
    ),
    "a window in another time zone": Case(
        windows="0 22 * * * for 8h",
        zone="Europe/Berlin",
        now="2026-07-01T19:00",
        open=False,
        until="2026-07-01T20:00",
    ),
    "open until the local closing time in a night with an additional hour": Case(
        windows="0 22 * * * for 8h",
        zone="Europe/Berlin",
        now="2026-10-25T04:30",
        open=True,
        until="2026-10-25T05:00",
    ),
    "steps, lists and ranges": Case(
        windows="*/20,5 8-10/2 1,15 jan-mar * for 5m",
        now="2026-01-15T08:41",
        open=True,
        until="2026-01-15T08:45",
    ),
    "day of month and day of week are alternatives where both are given": Case(
        windows="0 0 13 * fri for 1h", now="2026-01-03T00:00", open=False, until="2026-01-09T00:00"
    ),
    "seven is Sunday too": Case(
        windows="0 0 * * 7 for 24h", now="2026-01-04T12:00", open=True, until="2026-01-05T00:00"
    ),
    "a day of every fourth year comes": Case(
        windows="0 0 29 2 * for 1h", now="2026-01-01T00:00", open=False, until="2028-02-29T00:00"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_window_is_open_or_closed_at_a_moment(case: Case) -> None:
    stand = read_windows({WINDOWS: case.windows, TIME_ZONE: case.zone}).stand(at(case.now))

    assert (stand.open, stand.changes_at) == (case.open, at(case.until))


def test_window_that_never_opens_is_detected() -> None:
    stand = read_windows({WINDOWS: "0 0 30 2 * for 1h"}).stand(at("2026-01-01T00:00"))

    assert (stand.open, stand.changes_at) == (False, None)


WRONG = {
    "": "no window",
    "0 22 * * *": "expected five fields",
    "0 22 * * for 8h": "expected five fields",
    "60 22 * * * for 8h": "minute: '60' is not from 0 to 59",
    "0 24 * * * for 8h": "hour: '24'",
    "0 22 0 * * for 8h": "day of month: '0'",
    "0 22 * 13 * for 8h": "month: '13'",
    "0 22 * * fry for 8h": "day of week: 'fry'",
    "0 22-20 * * * for 8h": "ends before it begins",
    "*/0 * * * * for 8h": "a step is a number",
    "0 22 * * * for 8": "no duration",
    "0 22 * * * for 0m": "no duration",
    "0 22 * * * for 800h": "no duration",
    "0 22 * * * for \uff18h": "no duration",
    "1" * 5000: "expected five fields",
    "\n".join(["0 0 * * * for 1h"] * 51): "more than 50 lines",
}


@pytest.mark.parametrize("text", WRONG, ids=[text[:20] or "nothing" for text in WRONG])
def test_unreadable_window_is_quoted_in_the_error(text: str) -> None:
    with pytest.raises(WindowsError, match=WRONG[text]):
        read_windows({WINDOWS: text})


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", ""])
def test_unknown_time_zone_is_quoted_in_the_error(zone: str) -> None:
    with pytest.raises(WindowsError, match="is no known time zone"):
        read_windows({WINDOWS: "0 0 * * * for 1h", TIME_ZONE: zone})


@given(
    minutes=st.integers(0, 2 * 366 * 24 * 60),
    hour=st.integers(0, 23),
    weekday=st.integers(0, 6),
    lasts=st.integers(1, 100),
)
def test_state_differs_before_and_after_each_change(
    minutes: int, hour: int, weekday: int, lasts: int
) -> None:
    windows = read_windows({WINDOWS: f"0 {hour} * * {weekday} for {lasts}h"})
    now = at("2026-01-01T00:00") + timedelta(minutes=minutes)

    stand = windows.stand(now)

    assert stand.changes_at is not None
    assert stand.changes_at > now
    assert windows.stand(stand.changes_at).open is not stand.open
    assert windows.stand(stand.changes_at - timedelta(seconds=1)).open is stand.open
