"""Which expressions a configuration may hold. A wrong one is refused when it is loaded."""

import re
from dataclasses import dataclass

import pytest

from services.classifier.cel import EXPRESSION_CHARS_MAX, CelEngine, CompileError

ENGINE = CelEngine()

COMPILES = {
    "one mutation": 'label("a", "b")',
    "a list of mutations": '[label("a", "b"), annotation("c", "d")]',
    "an empty list beside a full one": 'true ? [label("a", "b")] : []',
    "an empty list added to a full one": '[] + [label("a", "b")]',
    "a loop that makes mutations": '["a"].map(x, label(x, "b"))',
    "a loop with a condition": '["a"].map(x, x != "", label(x, "b"))',
    "a loop over something untyped": 'pipelineRun.spec.params.map(p, label(p.name, "b"))',
    "a trailing comma": '[label("a", "b"),]',
    "a comment": 'label("a", "b") // why not',
    "a map literal, which only fails when it runs": '{"type": "label"}',
    "an empty map beside a mutation": 'true ? label("a", "b") : {}',
    "the whole object, which only fails when it runs": "pipelineRun",
    "a variable named like a function": '["a"].map(label, label(label, "x"))',
    "a function by its global name": '.label("a", "b")',
    "one element of a list": '[label("a", "b")][0]',
    "a value of a map": '{"x": label("a", "b")}["x"]',
    "something untyped as an amount": 'resource("a", dyn(1.5))',
    "standard functions": 'label("a", string("abc".matches("^a") && size("x") == 1))',
    "times": 'timestamp("2020-01-01T00:00:00Z").getFullYear() == 2020 ? priority("a") '
    ': priority("b")',
    "thirty branches": " ".join(f'pacEventType == "{n}" ? priority("x") :' for n in range(30))
    + ' priority("z")',
    "the longest text": f'label("a", "{"x" * (EXPRESSION_CHARS_MAX - 14)}")',
}


@pytest.mark.parametrize("expression", COMPILES.values(), ids=COMPILES.keys())
def test_expression_compiles(expression: str) -> None:
    assert len(ENGINE.compile([expression])) == 1


@dataclass(frozen=True, kw_only=True)
class Wrong:
    expression: str
    problem: str
    """Part of what is said about it."""


RESULT = "must return a mutation or a list of mutations"

REFUSED = {
    "nothing": Wrong(expression="", problem="the expression is empty"),
    "space": Wrong(expression=" \n", problem="the expression is empty"),
    "only a comment": Wrong(expression="// later", problem="line 1, column 9: Syntax error"),
    "a syntax error": Wrong(expression='label("a",', problem="line 1, column 11: Syntax error"),
    "an empty list, of nothing in particular": Wrong(expression="[]", problem=RESULT),
    "an empty map, of nothing in particular": Wrong(expression="{}", problem=RESULT),
    "a list of empty maps": Wrong(expression="[{}]", problem=RESULT),
    "a map with numbers as keys": Wrong(expression='{1: "a"}', problem=RESULT),
    "mutations mixed with text": Wrong(expression='[label("a", "b"), "x"]', problem=RESULT),
    "lists in a list": Wrong(expression='[[label("a", "b")]]', problem=RESULT),
    "an untyped value": Wrong(expression='dyn(label("a", "b"))', problem=RESULT),
    "an untyped field": Wrong(expression="pipelineRun.metadata", problem=RESULT),
    "a list of untyped values": Wrong(expression="[pipelineRun.spec]", problem=RESULT),
    "text": Wrong(expression="plrNamespace", problem="but returns string"),
    "null": Wrong(expression="null", problem="but returns null"),
    "a comparison": Wrong(expression='label("a", "b") == label("a", "b")', problem="returns bool"),
    "branches that differ": Wrong(
        expression='true ? label("a", "b") : []', problem="found no matching overload for '_?_:_'"
    ),
    "an unknown name": Wrong(
        expression='label("a",\n  nope)', problem="line 2, column 3: undeclared reference to 'nope'"
    ),
    "an unknown function": Wrong(expression='nofn("x")', problem="undeclared reference to 'nofn'"),
    "too few arguments": Wrong(expression='annotation("k")', problem="'annotation'"),
    "too many arguments": Wrong(expression='priority("a", "b")', problem="'priority'"),
    "a number as key": Wrong(expression='annotation(1, "v")', problem="(int, string)"),
    "text as amount": Wrong(expression='resource("a", "b")', problem="(string, string)"),
    "a double as amount": Wrong(expression='resource("a", 1.0)', problem="(string, double)"),
    "an unsigned amount": Wrong(expression='resource("a", 1u)', problem="(string, uint)"),
    "null as value": Wrong(expression='label("a", null)', problem="(string, null_type)"),
    "replace as a method": Wrong(
        expression='label("a", "b".replace("b", "c"))', problem="'replace'"
    ),
    "a function as a method": Wrong(expression='"a".label("b")', problem="'label'"),
    "the strings extension": Wrong(
        expression='label("a", "A".lowerAscii())', problem="'lowerAscii'"
    ),
    "optionals": Wrong(expression="optional.of(1)", problem="'optional'"),
    "optional fields": Wrong(expression="pipelineRun.?a.orValue({})", problem="'.?'"),
    "bindings": Wrong(expression='cel.bind(x, "a", label(x, x))', problem="'cel'"),
    "fields in backticks": Wrong(
        expression='label("a", pipelineRun.metadata.`b/c`)', problem="field `b/c` in backticks"
    ),
    "a loop over text": Wrong(
        expression='plrNamespace.map(x, label("a", "b"))', problem="cannot be the range"
    ),
    "a text one character too long": Wrong(
        expression=f'label("a", "{"x" * (EXPRESSION_CHARS_MAX - 13)}")',
        problem="100001 characters, at most 100000 are allowed",
    ),
    "too many branches": Wrong(
        expression=" ".join(f'pacEventType == "{n}" ? priority("x") :' for n in range(60))
        + ' priority("z")',
        problem="nested too deeply",
    ),
    "too many parentheses": Wrong(
        expression=f'{"(" * 99}label("a", "b"){")" * 99}', problem="nested too deeply"
    ),
    "half a character": Wrong(expression='label("a", "\ud800")', problem="surrogates not allowed"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_invalid_expression_is_refused_with_index_and_reason(case: Wrong) -> None:
    with pytest.raises(CompileError, match=re.escape(case.problem)) as refusal:
        ENGINE.compile(['priority("good")', case.expression])

    assert str(refusal.value).startswith("cel.expressions[1] (")
    assert refusal.value.index == 1


def test_expression_in_error_message_is_shortened() -> None:
    with pytest.raises(CompileError) as refusal:
        ENGINE.compile([f'label("{"x" * 5000}", nope)'])

    assert len(str(refusal.value)) < 400
    assert "undeclared reference to 'nope'" in str(refusal.value)
