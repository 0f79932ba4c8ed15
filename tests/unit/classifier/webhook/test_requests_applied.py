"""Requests that expressions add: sums, and the second call for one object."""

import copy

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.classifier.webhook.mutation import RefusedError, mutate
from shared.contracts.kube import names
from shared.contracts.kube.names import REQUESTS_APPLIED
from tests.unit.classifier.webhook.objects import (
    ALLOWED,
    PENDING,
    R,
    annotations,
    expressions,
    patched,
    rules,
    run,
    texts,
)

PRESETS = {
    "a resource adds to what is there": ("3", "4"),
    "with a sign": ("+2", "3"),
    "below zero": ("-5", "-4"),
    "with leading zeros": ("007", "8"),
    "past the end of 64 bits it wraps": (str(2**63 - 1), str(-(2**63))),
}


@pytest.mark.parametrize(("preset", "sum_"), PRESETS.values(), ids=PRESETS.keys())
def test_preset_requests_are_summed(preset: str, sum_: str) -> None:
    made = mutate(run(annotations={f"{R}cpu": preset}), rules('resource("cpu", 1)')).object

    assert annotations(made) == {f"{R}cpu": sum_}


@pytest.mark.parametrize(
    "preset",
    ["500m", "abc", " 1", "1 ", "", "1.0", "0x1", "1_0", "٣", "--1", "9" * 30, "9" * 5000],
)
def test_preset_that_is_no_integer_is_refused_if_a_rule_adds_to_it(
    preset: str,
) -> None:
    given = run(annotations={f"{R}cpu": preset})

    with pytest.raises(RefusedError, match="failed to parse existing resource value") as refusal:
        mutate(given, rules('resource("cpu", 1)'))
    assert refusal.value.code == 500
    assert f"{R}cpu" in str(refusal.value)

    untouched = mutate(given, rules('resource("memory", 1)')).object
    assert untouched["metadata"]["annotations"][f"{R}cpu"] == preset


def test_mutations_apply_in_order_over_all_expressions() -> None:
    made = mutate(
        run(labels={"a": "0", names.PRIORITY_CLASS_LABEL: "mine"}),
        rules(
            '[resource("x", 1), annotation("k", "1")]',
            f'[annotation("k", "2"), label("a", "1"), resource("x", 2), annotation("{R}y", "5")]',
            '[resource("y", 1), priority("p")]',
        ),
    ).object

    assert annotations(made) == {f"{R}x": "3", "k": "2", f"{R}y": "6"}
    assert made["metadata"]["labels"]["a"] == "1"
    assert made["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] == "p"


presets = st.dictionaries(
    st.one_of(texts, texts.map(lambda t: R + t)), st.integers(-9, 9).map(str), max_size=3
)


@settings(max_examples=150)
@given(
    expressions=expressions,
    labels=st.none() | presets,
    present=st.none() | presets,
    override=st.booleans(),
    status=st.none() | st.sampled_from(["", PENDING, "Cancelled"]),
)
def test_second_call_changes_nothing_more(
    expressions: list[str],
    labels: dict[str, str] | None,
    present: dict[str, str] | None,
    override: bool,
    status: str | None,
) -> None:
    given = run(labels=labels, annotations=present)
    if status is not None:
        given["spec"]["status"] = status
    before = copy.deepcopy(given)
    configuration = rules(*expressions, multiKueueOverride=override)

    once = mutate(given, configuration, new_traceparent=lambda: "00-1")
    twice = mutate(once.object, configuration, new_traceparent=lambda: "00-2")

    assert patched(given, once.patch) == once.object
    assert all(operation["path"].startswith(ALLOWED) for operation in once.patch)
    assert twice.object == once.object
    assert twice.patch == ()
    assert given == before


ONCE = 'has(pipelineRun.metadata.labels.done) ? [] : [label("done", "yes"), resource("a", 1)]'


@pytest.mark.parametrize("preset", [None, "3"])
def test_rule_that_tests_its_own_label_keeps_its_request_on_second_call(preset: str | None) -> None:
    """What `sluice mutate` printed is created, or a run is copied with its labels."""
    given = run(annotations=None if preset is None else {f"{R}a": preset})
    once = mutate(given, rules(ONCE))
    twice = mutate(once.object, rules(ONCE))
    thrice = mutate(twice.object, rules('resource("a", 1)'))

    assert annotations(once.object) == {f"{R}a": "1" if preset is None else "4"}
    assert twice.patch == ()
    assert annotations(thrice.object) == annotations(once.object), "it is still not added twice"


def test_request_changed_between_calls_is_added_to() -> None:
    once = mutate(run(annotations={f"{R}a": "3"}), rules('resource("a", 1)')).object
    once["metadata"]["annotations"][f"{R}a"] = "7"

    assert annotations(mutate(once, rules('resource("a", 1)')).object) == {f"{R}a": "8"}


@pytest.mark.parametrize(
    "note", ["", "x", "[]", "1", '{"a": 1}', '{"a": [1, 2]}', '{"a": ["1"]}', '{"b": ["1", "2"]}']
)
def test_malformed_applied_requests_annotation_is_ignored(note: str) -> None:
    given = run(annotations={f"{R}a": "3", REQUESTS_APPLIED: note})

    made = mutate(given, rules('resource("a", 1)')).object

    assert annotations(made) == {f"{R}a": "4"}
    assert orjson.loads(made["metadata"]["annotations"][REQUESTS_APPLIED]) == {"a": ["3", "4"]}
