"""What expressions return, and what is said when they fail."""

import gc
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from services.classifier.cel import (
    AddRequest,
    CelEngine,
    EvaluationError,
    Mutation,
    SetAnnotation,
    SetLabel,
    SetManager,
    Variables,
)

ENGINE = CelEngine()
RUN: dict[str, Any] = {
    "metadata": {"name": "p", "labels": {"x": "1"}},
    "spec": {"params": [{"name": "foo", "value": "3"}], "retries": 3.0},
}
INT64_MAX = 2**63 - 1
STATM = Path("/proc/self/statm")
ONES = f"[{','.join('1' * 110)}]"


def evaluate(*expressions: str, run: dict[str, Any] | None = None) -> list[Mutation]:
    return ENGINE.compile(expressions).evaluate(
        Variables(
            pipeline_run=RUN if run is None else run,
            namespace="ns",
            pac_event_type="push",
            pac_test_event_type="",
        )
    )


def request(resource: str, amount: int) -> AddRequest:
    return AddRequest(key=f"kueue.konflux-ci.dev/requests-{resource}", amount=amount)


@dataclass(frozen=True, kw_only=True)
class Case:
    expression: str
    mutations: list[Mutation] = field(default_factory=list)


CASES = {
    "label": Case(expression='label("a", "b")', mutations=[SetLabel(key="a", value="b")]),
    "annotation": Case(
        expression='annotation("a", "b c\\nü")', mutations=[SetAnnotation(key="a", value="b c\nü")]
    ),
    "priority is a label": Case(
        expression='priority("high")',
        mutations=[SetLabel(key="kueue.x-k8s.io/priority-class", value="high")],
    ),
    "priority's value is not checked": Case(
        expression='priority("not a label value!")',
        mutations=[SetLabel(key="kueue.x-k8s.io/priority-class", value="not a label value!")],
    ),
    "resource": Case(expression='resource("cpu", 2)', mutations=[request("cpu", 2)]),
    "nothing of a resource": Case(expression='resource("cpu", 0)', mutations=[request("cpu", 0)]),
    "as much as there can be": Case(
        expression=f'resource("cpu", {INT64_MAX})', mutations=[request("cpu", INT64_MAX)]
    ),
    "a resource with a domain": Case(
        expression='resource("nvidia.com/gpu", 1)', mutations=[request("nvidia.com/gpu", 1)]
    ),
    "an amount of which the type shows late": Case(
        expression='resource("a", dyn(2))', mutations=[request("a", 2)]
    ),
    "an amount counted": Case(
        expression='resource("a", pipelineRun.spec.params.size())', mutations=[request("a", 1)]
    ),
    "replace replaces every one": Case(
        expression='label("a", replace(replace("l/a/x_y", "/", "-"), "_", "-"))',
        mutations=[SetLabel(key="a", value="l-a-x-y")],
    ),
    "replace with nothing": Case(
        expression='label("a", replace("abc", "b", ""))', mutations=[SetLabel(key="a", value="ac")]
    ),
    "replace nothing, as Go does": Case(
        expression='annotation("a", replace("ab", "", "-"))',
        mutations=[SetAnnotation(key="a", value="-a-b-")],
    ),
    "another controller": Case(
        expression='managedBy("example.com/me")', mutations=[SetManager(manager="example.com/me")]
    ),
    "another cluster": Case(expression="multiKueue()", mutations=[SetManager(manager=None)]),
    "another cluster, by a queue": Case(
        expression='[multiKueue("far"), label("managedBy", "x")]',
        mutations=[
            SetManager(manager=None, queue="far"),
            SetLabel(key="managedBy", value="x"),
        ],
    ),
    "no mutation": Case(expression='pacEventType == "pull" ? [priority("a")] : []'),
    "several, in order": Case(
        expression='[resource("a", 1), label("b", "c"), resource("a", 2)]',
        mutations=[request("a", 1), SetLabel(key="b", value="c"), request("a", 2)],
    ),
    "a loop over the keys of a map": Case(
        expression='pipelineRun.metadata.labels.map(k, label("k", k))',
        mutations=[SetLabel(key="k", value="x")],
    ),
    "what a function returned can be read": Case(
        expression='[resource("cpu", 7)].map(r, annotation("r", r.type + r.key + r.value))',
        mutations=[
            SetAnnotation(key="r", value="resourcekueue.konflux-ci.dev/requests-cpu7"),
        ],
    ),
    "what a function returned can be passed on": Case(
        expression='[label("a", "b"), label("c", "d")].filter(m, m.key == "c")',
        mutations=[SetLabel(key="c", value="d")],
    ),
    "calls inside strings and comments are text": Case(
        expression=(
            """[annotation("a", 'label("x", "y")'), // label("no", "no")\n"""
            """ annotation(r"b", '''replace("a",\n"b","c")'''), annotation("c", r'\\d"')]"""
        ),
        mutations=[
            SetAnnotation(key="a", value='label("x", "y")'),
            SetAnnotation(key="b", value='replace("a",\n"b","c")'),
            SetAnnotation(key="c", value='\\d"'),
        ],
    ),
    "numbers of the object are doubles": Case(
        expression='label("a", string(pipelineRun.spec.retries == 3) + string(3.5))',
        mutations=[SetLabel(key="a", value="true3.5")],
    ),
    "false and empty constants survive": Case(
        expression='[false ? label("a", "b") : label("c", "" + string(0) + string(false))]',
        mutations=[SetLabel(key="c", value="0false")],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_expression_returns_mutations(case: Case) -> None:
    assert evaluate(case.expression) == case.mutations


FAILS = {
    "a map literal is no mutation": (
        '{"type": "label", "key": "a", "value": "b"}',
        "resource(), managedBy() or multiKueue() returns, got a map with keys key, type, value",
    ),
    "a map literal in a list is none either": ('[{"type": "label"}]', "list item 0: expected"),
    "the object is no mutation": ("pipelineRun", "got a map with keys metadata, spec"),
    "a map of mutations": ('{"a": label("a", "b")}', "got a map with keys a"),
    "no key": ('label("", "b")', "label key cannot be empty"),
    "no resource": ('resource("", 1)', "resource key cannot be empty"),
    "no resource, before its amount": ('resource("", -1)', "resource key cannot be empty"),
    "no label value": ('label("a", "")', "mutation value cannot be empty"),
    "no annotation value": ('annotation("a", "")', "mutation value cannot be empty"),
    "no priority": ('priority("")', "mutation value cannot be empty"),
    "no controller": ('managedBy("")', "managedBy value cannot be empty"),
    "no queue": ('multiKueue("")', "multiKueue queue name cannot be empty"),
    "a queue that is no label": ('multiKueue("a b")', "multiKueue queue name 'a b' is invalid"),
    "a number as controller": ("managedBy(dyn(1))", "no such overload: managedBy(int)"),
    "less than nothing": ('resource("a", -1)', "resource value must be positive (>= 0), got -1"),
    "a key that begins with a dash": ('label("-a", "b")', "name part must consist of alphanumeric"),
    "a key that ends with a dash": ('annotation("a-", "b")', "name part must consist of"),
    "a key with two slashes": ('label("a/b/c", "d")', "a qualified name must consist of"),
    "a key without a name": ('label("a.b/", "d")', "name part must be non-empty"),
    "a key without a prefix": ('label("/a", "d")', "prefix part must be non-empty"),
    "a key with a bad prefix": ('label("A_b/c", "d")', "prefix part a lowercase RFC 1123"),
    "a key too long": (f'label("{"a" * 64}", "d")', "no more than 63 bytes"),
    "a prefix too long": (f'label("{"a" * 254}/a", "d")', "no more than 253 bytes"),
    "a resource that is no name": ('resource("a:b", 1)', "resource key 'a:b' is invalid"),
    "a label value with spaces": ('label("a", "b c")', "a valid label must be an empty string or"),
    "a label value too long": (f'label("a", "{"b" * 64}")', "no more than 63 bytes"),
    "priority's label with a bad value": (
        'label("kueue.x-k8s.io/priority-class", "b c")',
        "a valid label must be",
    ),
    "an annotation too large": (
        'annotation("a", replace("' + "x" * 1000 + '", "x", "' + "y" * 263 + '"))',
        "annotation value is too long: 263000 bytes, maximum allowed is 262144 bytes",
    ),
    "a double where a whole number belongs": (
        'resource("a", dyn(1.5))',
        "line 1, column 9: no such overload: resource(string, double)",
    ),
    "a number of the object is no whole number": (
        'resource("a", pipelineRun.spec.retries)',
        "no such overload: resource(string, double)",
    ),
    "a list where text belongs": (
        'label("a", replace(dyn(["x"]), "a", "b"))',
        "line 1, column 19: no such overload: replace(list, string, string)",
    ),
    "a list where text belongs, in a loop": (
        '["a"].map(x, label("a", replace(dyn([x]), "a", "b")))',
        "no such overload: replace(list, string, string)",
    ),
    "a number as label": ('label("a", dyn(1))', "no such overload: label(string, int)"),
    "a missing key": (
        'label("a",\n pipelineRun.metadata.labels["nope"])',
        "line 2, column 29: no such key: nope",
    ),
    "a missing parent": ("has(pipelineRun.a.b) ? [priority('a')] : []", "no such key: a"),
    "text that is no number": ('resource("a", int("x"))', "cannot convert string to int"),
    "a loop over text": (
        "pipelineRun.spec.params[0].value.map(x, resource(x, 1))",
        "line 1, column 37: no such overload: got 'types.String', expected iterable type",
    ),
    "division by nothing": ('resource("a", 1 / 0)', "divide by zero"),
    "an overflow": (f'resource("a", {INT64_MAX} + 1)', "overflow"),
    "more loop steps than allowed": (
        f"{ONES}.map(x, {ONES}.map(y, x).size()).map(x, label('a', 'b'))",
        "more than 10,000 loop steps",
    ),
}


@pytest.mark.parametrize(("expression", "problem"), FAILS.values(), ids=FAILS.keys())
def test_expression_fails_with_index_and_reason(expression: str, problem: str) -> None:
    with pytest.raises(EvaluationError) as failure:
        evaluate('label("fine", "fine")', expression)

    assert problem in str(failure.value)
    assert str(failure.value).startswith("cel.expressions[1] (")
    assert failure.value.index == 1


def test_expression_does_not_see_mutations_of_others() -> None:
    mutations = evaluate(
        'label("x", "2")', 'label("seen", pipelineRun.metadata.labels["x"])', 'label("x", "3")'
    )

    assert SetLabel(key="seen", value="1") in mutations


def test_variables_have_the_names_of_the_configuration() -> None:
    mutations = evaluate(
        'annotation("all", plrNamespace + pacEventType + pacTestEventType + '
        "pipelineRun.metadata.name)"
    )

    assert mutations == [SetAnnotation(key="all", value="nspushp")]


@pytest.mark.skipif(not STATM.exists(), reason="needs Linux' /proc to see the memory in use")
def test_repeated_evaluation_does_not_leak_memory() -> None:
    programs = ENGINE.compile(['["a/b", "c/d"].map(p, resource(replace(p, "/", "-"), 1))'])
    variables = Variables(
        pipeline_run=RUN, namespace="ns", pac_event_type="", pac_test_event_type=""
    )
    for _ in range(1000):
        programs.evaluate(variables)
    gc.collect()
    before = resident_bytes()

    for _ in range(10_000):
        programs.evaluate(variables)

    gc.collect()
    # A Python function in the environment would have cost 200 bytes and more each time.
    assert resident_bytes() - before < 1_000_000


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * 4096


def test_null_in_result_is_refused() -> None:
    # The library gives away a reference of None for each null that it returns.
    programs = ENGINE.compile(['[{"a": null, "b": [null]}]'])
    variables = Variables(
        pipeline_run={}, namespace="ns", pac_event_type="", pac_test_event_type=""
    )
    before = sys.getrefcount(None)
    for _ in range(300):
        with pytest.raises(EvaluationError, match="a map with keys a, b"):
            programs.evaluate(variables)
    assert sys.getrefcount(None) > before - 200
