"""The answer of a window check by the clock; `tests/conformance/seeds` tests the whole check."""

from datetime import UTC, datetime

import pytest

from services.dispatcher.windows import UNREADABLE_SECONDS, window_answer
from shared.contracts.windows import WINDOWS, read_windows

NIGHTS = read_windows({WINDOWS: "0 22 * * * for 8h"})


@pytest.mark.parametrize(
    ("now", "state", "message", "wait"),
    [
        pytest.param(
            "23:00", "Ready", "The window is open until 2026-01-02T06:00:00Z", None, id="in it"
        ),
        pytest.param(
            "21:00", "Retry", "The next window opens at 2026-01-01T22:00:00Z", 3601.0, id="before"
        ),
    ],
)
def test_answer_inside_and_before_a_window(
    now: str, state: str, message: str, wait: float | None
) -> None:
    at = datetime.fromisoformat(f"2026-01-01T{now}").replace(tzinfo=UTC)

    assert window_answer(NIGHTS, at) == (state, message, wait)


def test_window_that_never_opens_rejects() -> None:
    never = read_windows({WINDOWS: "0 0 30 feb * for 1h"})

    assert window_answer(never, datetime(2026, 1, 1, tzinfo=UTC))[0] == "Rejected"


def test_unreadable_windows_retry_with_reason() -> None:
    answer = window_answer(
        "annotation sluicegate.dev/windows: no window", datetime(2026, 1, 1, tzinfo=UTC)
    )

    assert answer == ("Retry", "annotation sluicegate.dev/windows: no window", UNREADABLE_SECONDS)
