"""What an operator may not set."""

from typing import Any

import pytest
from pydantic import ValidationError

from services.console.settings import ConsoleSettings

REFUSED: list[Any] = [
    pytest.param(
        {"console_authorization": "none", "console_host": "0.0.0.0"},
        "for loopback only, not for 0.0.0.0",
        id="everybody from anywhere",
    ),
    pytest.param(
        {"console_authorization": "none", "console_host": "example.org"},
        "for loopback only, not for example.org",
        id="everybody by a name",
    ),
    pytest.param(
        {"console_idle_seconds": 59}, "59 is shorter than an answer may take", id="no patience"
    ),
    pytest.param({"console_idle_seconds": -1}, "greater than or equal to 0", id="time backwards"),
]


@pytest.mark.parametrize(("given", "problem"), REFUSED)
def test_unsafe_settings_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ConsoleSettings(**given)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_authorisation_may_be_off_on_loopback(host: str) -> None:
    assert ConsoleSettings(console_authorization="none", console_host=host).console_host == host


@pytest.mark.parametrize("seconds", [0, 60, 3600])
def test_idle_seconds_is_zero_or_at_least_a_minute(seconds: float) -> None:
    assert ConsoleSettings(console_idle_seconds=seconds).console_idle_seconds == seconds
