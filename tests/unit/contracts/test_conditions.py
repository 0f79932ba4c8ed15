"""Conditions are read from any object, and set as apimachinery sets them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.contracts.kube.conditions import (
    Conditions,
    conditions_by_type,
    conditions_of,
    find_condition,
    has_status,
    is_true,
    timestamp,
    transition_time,
)
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.spokes import CopyState

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 11, 1, 13, tzinfo=UTC)


def _body(*conditions: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "generation": 3}, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    "obj",
    [
        None,
        {},
        {"status": None},
        {"status": "text"},
        {"status": {"conditions": None}},
        {"status": {"conditions": {"type": "Active"}}},
        {"status": {"conditions": ["Active"]}},
    ],
)
def test_object_without_proper_conditions_has_none(obj: dict[str, Any] | None) -> None:
    assert conditions_of(obj) == []
    assert conditions_by_type(obj) == {}
    assert find_condition(obj, "Active") is None
    assert not is_true(obj, "Active")


def test_of_several_conditions_of_a_type_the_last_is_kept() -> None:
    body = _body({"type": "A", "status": "True"}, {"type": "A", "status": "False"}, {"type": 1})

    assert conditions_by_type(body) == {"A": {"type": "A", "status": "False"}}


def test_condition_is_found_by_type() -> None:
    body = _body({"type": "A", "status": "True"}, {"type": "B", "status": "Unknown"})

    assert find_condition(body, "B") == {"type": "B", "status": "Unknown"}
    assert is_true(body, "B", "A")
    assert not is_true(body, "B")
    assert has_status(body, "B", "Unknown", "False")
    assert not has_status(body, "C", "True")


def test_transition_time_is_none_where_the_condition_does_not_say() -> None:
    assert transition_time(None) is None
    assert transition_time({"type": "A", "status": "True"}) is None
    at = {"type": "A", "status": "True", "lastTransitionTime": timestamp(NOON)}
    assert transition_time(find_condition(_body(at), "A")) == NOON


def test_transition_time_moves_only_with_the_status() -> None:
    conditions = Conditions.of(_body(), at=NOON)
    conditions.set("Active", True, "Ready", "it is ready")
    body = _body(*conditions.items)

    same = Conditions.of(body, at=LATER)
    same.set("Active", True, "Still", "it still is")
    other = Conditions.of(body, at=LATER)
    other.set("Active", False, "Stopped", "it is not")

    assert transition_time(same.get("Active")) == NOON
    assert transition_time(other.get("Active")) == LATER
    assert [c.get("observedGeneration") for c in same.items] == [3]


def test_setting_a_condition_leaves_the_object_alone() -> None:
    body = _body({"type": "Active", "status": "True", "message": "fine"})
    conditions = Conditions.of(body, at=NOON)

    conditions.clear("Active", "Gone")
    conditions.remove("Absent")

    assert is_true(body, "Active")
    assert not conditions.is_true("Active")
    assert [c.get("message") for c in conditions.items] == ["Previously: fine"]


@pytest.mark.parametrize("conditions", ["Complete", ["Complete"], [{"type": 1}], {"type": "x"}])
def test_spoke_cannot_report_conditions_that_no_api_server_has(conditions: object) -> None:
    told = CopyState(
        spoke="east", cluster="hub", namespace="team", name="job-a", uid="u", number=1,
        state="gone", ended={"conditions": []}, at=NOON,
    )  # fmt: skip
    body = json.loads(told.encode()) | {"ended": {"conditions": conditions}}
    assert CopyState.decode(told.encode()) == told
    with pytest.raises(UndecodableError, match="each must be an object of strings"):
        CopyState.decode(json.dumps(body).encode())
