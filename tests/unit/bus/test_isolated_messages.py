"""A message that nobody can use harms only what it is about: the reader counts it, and reads on."""

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from shared.bus.direct_read import SOURCE, source_sequence
from shared.bus.follow import dispatch
from shared.bus.headers import TYPE
from shared.bus.port import BusError, Entry
from shared.contracts.messages.base import SCHEMA_VERSION, UndecodableError
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.outcomes import Outcome

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG = "n" * 254


def outcome(
    name: str = "job", *, subject: str = "sluice.outcome.hub.team.job", **headers: str
) -> Entry:
    body = Outcome.model_construct(
        cluster="hub", namespace="team", name=name, uid="u", result="applied", action="release", term=1,
        number=1, at=NOW,
    )  # fmt: skip
    found = {TYPE: Outcome.type, **headers}
    return Entry(subject=subject, data=body.encode(), headers=found, sequence=1, time=NOW)


def counted(stream: str) -> float:
    return REGISTRY.get_sample_value("sluicegate_bus_unreadable_total", {"stream": stream}) or 0.0


UNREADABLE = {
    "a name that no subject can hold": outcome(LONG),
    "a schema version of 5,000 digits": outcome(**{SCHEMA_VERSION: "9" * 5000}),
    "a schema version in digits of another script": outcome(**{SCHEMA_VERSION: "٣"}),
}


@pytest.mark.parametrize("entry", UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_entry_is_skipped_and_the_next_one_is_read(entry: Entry) -> None:
    read: list[str] = []
    for one in (entry, outcome()):
        dispatch(one, {Outcome: lambda message, _: read.append(message.name)})
    assert read == ["job"]


def test_source_of_5000_digits_is_no_sequence() -> None:
    assert source_sequence({SOURCE: "OUTCOMES " + "9" * 5000}) is None


@pytest.mark.parametrize(
    "error", [TypeError("a list"), KeyError("spec"), AssertionError("no namespace")]
)
def test_handler_failing_on_contents_is_counted_and_logged_once(error: Exception) -> None:
    def fail(_message: Outcome, _entry: Entry) -> None:
        raise error

    before = counted("OUTCOMES")
    name = type(error).__name__.lower()
    with capture_logs() as logs:
        for _ in range(3):
            dispatch(outcome(name, subject=f"sluice.outcome.hub.team.{name}"), {Outcome: fail})
    assert counted("OUTCOMES") == before + 3
    assert [line["log_level"] for line in logs] == ["error"]


def test_error_of_the_bus_ends_the_reading() -> None:
    def fail(_message: Outcome, _entry: Entry) -> None:
        raise BusError("the lease is lost")

    with pytest.raises(BusError):
        dispatch(outcome(), {Outcome: fail})


SHAPES: dict[str, dict[str, Any]] = {
    "a spec that is true": {"spec": True},
    "a status that is a list": {"status": [1]},
    "conditions that are an object": {"status": {"conditions": {"type": "Ready"}}},
    "a condition that is a text": {"status": {"conditions": ["Ready"]}},
    "a condition whose time is a number": {
        "status": {"conditions": [{"type": "Ready", "lastTransitionTime": 5}]}
    },
}


@pytest.mark.parametrize("parts", SHAPES.values(), ids=SHAPES)
def test_object_of_no_kinds_shape_is_undecodable(parts: dict[str, Any]) -> None:
    metadata = {"name": "a", "namespace": "team", "uid": "u"}
    message = Observed(
        cluster="hub", group="batch", version="v1", plural="jobs", kind="Job", namespace="team", name="a",
        uid="u", resource_version="1",
        object={"metadata": metadata, **parts},
    )  # fmt: skip
    with pytest.raises(UndecodableError, match=r"object\.(spec|status)"):
        Observed.decode(message.encode())
