"""Decoding and defaulting of PipelineRuns, and durations."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.classifier.tekton.defaulting import decode
from services.classifier.tekton.durations import format_duration, parse_duration
from services.classifier.tekton.reading import InvalidPipelineRunError
from tests.unit.classifier.tekton.runs import inline, run, task


def test_defaults_are_filled_in_and_the_original_is_unchanged() -> None:
    given = run()

    seen = decode(given)

    assert seen["spec"] == {
        "pipelineRef": {"name": "q"},
        "timeouts": {"pipeline": "1h0m0s"},
        "taskRunTemplate": {"serviceAccountName": "default"},
    }
    assert seen["status"] == {}
    assert given == run()


def test_empty_and_unknown_fields_are_dropped() -> None:
    seen = decode(run(params=[], workspaces=None, status="", surprise=1))

    assert seen["spec"].keys() == {"pipelineRef", "timeouts", "taskRunTemplate"}


def test_numbers_become_doubles() -> None:
    seen = decode(inline(task(retries=3)))

    retries = seen["spec"]["pipelineSpec"]["tasks"][0]["retries"]
    assert (retries, type(retries)) == (3, float)


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        pytest.param("text", "text", id="text"),
        pytest.param(["a", "b"], ["a", "b"], id="a list of text"),
        pytest.param([], [], id="an empty list"),
        pytest.param({"a": "b"}, {"a": "b"}, id="an object of text"),
        pytest.param(7, "7", id="a number becomes text"),
        pytest.param(True, "true", id="a boolean becomes text"),
        pytest.param([1, 2], "[1,2]", id="a list of numbers becomes one text"),
        pytest.param([["a"]], '[["a"]]', id="a list of lists becomes one text"),
        pytest.param({"a": 1}, '{"a":1}', id="an object with a number becomes one text"),
        pytest.param(None, "", id="null becomes empty text"),
        pytest.param([None, "a"], ["", "a"], id="null in a list becomes empty text"),
    ],
)
def test_parameter_value_is_decoded_as_in_tekton(given: Any, seen: Any) -> None:
    decoded = decode(run(params=[{"name": "p", "value": given}]))

    assert decoded["spec"]["params"] == [{"name": "p", "value": seen}]


def test_pipeline_tasks_get_defaults() -> None:
    step = {"image": "busybox"}
    seen = decode(
        inline(
            task(timeout="90m"),
            {"name": "b", "taskRef": {"resolver": "git"}},
            {"name": "c", "taskSpec": {"steps": [step], "params": [{"name": "x"}]}},
            params=[{"name": "l", "default": ["a"]}, {"name": "o", "properties": {"k": {}}}],
        )
    )["spec"]["pipelineSpec"]

    assert seen["tasks"][0] == task(timeout="1h30m0s", taskRef={"name": "t", "kind": "Task"})
    assert seen["tasks"][1]["taskRef"] == {"resolver": "git"}
    assert seen["tasks"][2]["taskSpec"] == {
        "metadata": {},
        "steps": [{"name": "", "computeResources": {}, "image": "busybox"}],
        "params": [{"name": "x", "type": "string"}],
    }
    assert [param["type"] for param in seen["params"]] == ["array", "object"]


@pytest.mark.parametrize(
    ("text", "nanoseconds", "spelled"),
    [
        ("0", 0, "0s"),
        ("1h", 3_600_000_000_000, "1h0m0s"),
        ("90m", 5_400_000_000_000, "1h30m0s"),
        ("1h0m0.5s", 3_600_500_000_000, "1h0m0.5s"),
        ("-1m", -60_000_000_000, "-1m0s"),
        (".5s", 500_000_000, "500ms"),
        ("1.s", 1_000_000_000, "1s"),
        ("1500us", 1_500_000, "1.5ms"),
        ("2µs", 2_000, "2µs"),
        ("7ns", 7, "7ns"),
        ("25h", 90_000_000_000_000, "25h0m0s"),
    ],
)
def test_duration_is_parsed_and_formatted_as_in_go(
    text: str, nanoseconds: int, spelled: str
) -> None:
    assert parse_duration(text, "timeouts.tasks") == nanoseconds
    assert format_duration(nanoseconds) == spelled


@pytest.mark.parametrize("text", ["", "1", "h", "1d", " 1h", "1h ", "1,5h", "--1h", "99999999h"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidPipelineRunError, match=r"timeouts\.tasks: .*duration"):
        parse_duration(text, "timeouts.tasks")


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_formatted_duration_parses_to_the_same_value(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds), "") == nanoseconds
