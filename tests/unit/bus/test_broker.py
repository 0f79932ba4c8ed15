"""The connection's words."""

from pathlib import Path

import pytest

from shared.bus.nats.broker import make_broker, without_secrets
from shared.settings.access import Access


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
        ("nats://user:secret@host:4222", "nats://host:4222"),
        ("nats://token@a:1,tls://u:p@b:2", "nats://a:1,tls://b:2"),
        ("user:secret@host", "host"),
    ],
)
def test_url_is_shown_without_its_secrets(url: str, expected: str) -> None:
    assert without_secrets(url) == expected


def test_broker_with_credentials_is_made_without_a_warning() -> None:
    pytest.importorskip("nkeys", reason="comes with nats-py[nkeys]")

    make_broker("nats://nowhere", Access(credentials=Path("watcher.creds")).options())
