"""What one review may hold, measured before anything is computed from it."""

from typing import Any

import pytest

from services.classifier.evaluation.budget import Budget, measure

BUDGET = Budget()


def nested(levels: int, kind: str) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value] if kind == "list" else {"a": value}
    return value


def test_values_items_and_levels_are_counted_with_the_longest_path() -> None:
    found = measure({"spec": {"params": [{"name": "p", "value": ["a"] * 7}]}})
    assert found.values == 13
    assert (found.longest, found.longest_path, found.levels) == (7, "spec.params[0].value", 5)


@pytest.mark.parametrize("kind", ["list", "object"])
def test_deep_nesting_is_refused_without_recursion(kind: str) -> None:
    excess = BUDGET.check_object(measure(nested(5_000, kind)))
    assert excess is not None
    assert excess.cause == "levels"
    assert "5000 levels" in str(excess)
    assert "at most 100" in str(excess)
    assert len(str(excess)) < 500


WIDE = {
    "platforms": {"spec": {"params": [{"name": "build-platforms", "value": ["p"] * 9_000}]}},
    "tasks": {"spec": {"pipelineSpec": {"tasks": [{"name": "t"}] * 4_000}}},
    "matrix parameters": {"spec": {"matrix": {"params": [{"name": "n"}] * 1_001}}},
    "volumes": {"spec": {"podTemplate": {"volumes": [{}] * 2_000}}},
    "annotations": {"metadata": {"annotations": {f"a{n}": "" for n in range(1_001)}}},
    "labels": {"metadata": {"labels": {f"ä{n}": "" for n in range(1_001)}}},
}


@pytest.mark.parametrize("obj", WIDE.values(), ids=WIDE)
def test_long_list_is_refused_for_expressions_with_path_limit_and_advice(obj: Any) -> None:
    found = measure(obj)
    excess = BUDGET.check_expressions(found)
    assert excess is not None
    assert excess.cause == "items"
    assert str(excess).startswith(found.longest_path)
    assert "at most 1000" in str(excess)
    assert "SLUICE_WEBHOOK_ITEMS" in str(excess)
    assert BUDGET.check_object(found) is None


def test_many_short_lists_are_refused_by_their_sum() -> None:
    tasks = [{"name": "t", "params": [{"name": "p", "value": "v"}] * 20} for _ in range(900)]
    excess = BUDGET.check_expressions(measure({"spec": {"tasks": tasks}}))
    assert excess is not None
    assert (excess.cause, "at most 20000" in str(excess)) == ("values", True)


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"0,", b'"",'])
def test_dense_body_is_refused_before_it_is_parsed(unit: bytes) -> None:
    excess = BUDGET.check_body(b"[" + unit * 1_000_001 + b"0]")
    assert excess is not None
    assert excess.cause == "values"


def test_large_script_full_of_commas_is_accepted() -> None:
    body = b'{"script":"' + b"echo a, b, c [x]; " * 80_000 + b'"}'
    assert len(body) > 1_400_000
    assert BUDGET.check_body(body) is None
