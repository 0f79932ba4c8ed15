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
    pytest.param(
        {"console_oidc_issuer": "https://login.example"},
        "console_oidc_issuer is set and console_oidc_client_id is not",
        id="a provider without a client",
    ),
    pytest.param(
        {"console_oidc_issuer": "http://login.example", "console_oidc_client_id": "c"},
        "would send tokens in the clear",
        id="a provider in the clear",
    ),
    pytest.param(
        {"console_oidc_issuer": "https://a; script-src *", "console_oidc_client_id": "c"},
        "is no address such as",
        id="a provider that loosens the policy",
    ),
    pytest.param(
        {"console_oidc_origins": ["login.example"]}, "is no address such as", id="an origin"
    ),
    pytest.param({"console_job_url": "javascript:x"}, "is no address", id="a link that runs"),
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
