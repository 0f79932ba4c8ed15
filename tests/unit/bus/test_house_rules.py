"""Ways round the bus that lose messages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = sorted([*ROOT.glob("services/**/*.py"), *ROOT.glob("shared/**/*.py")])

BANNED = {
    r"\bpublish_async\(": "never resolves on an error acknowledgement: use Bus.publish",
    r"\.subscriber\(": "FastStream's default terminates on an exception: use Bus.work",
    r"\bNatsBroker\(": "gives up after 60 attempts: use shared.bus.nats.broker.make_broker",
    r"@\w+\.publisher\(": "no retry, no fence: use Bus.publish",
}

ALLOWED = {
    ("shared/bus/nats/broker.py", r"\bNatsBroker\("),
    ("shared/bus/nats/work/durables.py", r"\.subscriber\("),
    # A page, never connected.
    ("shared/bus/admin/asyncapi.py", r"\bNatsBroker\("),
    ("shared/bus/admin/asyncapi.py", r"\.subscriber\("),
}


@pytest.mark.parametrize("pattern", BANNED)
def test_no_service_uses_nats_outside_the_bus(pattern: str) -> None:
    found = [
        f"{name}: {BANNED[pattern]}"
        for path in SOURCES
        if re.search(pattern, path.read_text())
        and ((name := path.relative_to(ROOT).as_posix()), pattern) not in ALLOWED
    ]

    assert not found


def test_house_rules_find_source_files() -> None:
    assert len(SOURCES) > 20


def test_every_subscriber_acknowledges_by_hand() -> None:
    text = (ROOT / "shared/bus/nats/broker.py").read_text()

    assert "ack_policy=AckPolicy.MANUAL" in text
    assert "max_reconnect_attempts=-1" in text
