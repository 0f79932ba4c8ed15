"""The evaluation that the other tests here rely on, held to Prometheus' own."""

import math
from pathlib import Path

import pytest

from services.reference.dashboards import dashboards, expressions
from tests.monitoring.asked import every_rule, filled_in
from tests.monitoring.promql import UnsupportedError, Vector, evaluate
from tests.monitoring.promtool import PROMTOOL, answers
from tests.monitoring.recording import Recording, Series, read, series_of, values_of

SOME = """
a{x="1", le="0.5"}   | 0 1 2 3 4 5
a{x="2", le="0.5"}   | 0 2 4 1 2 4
a{x="1", le="+Inf"}  | 0 2 4 6 8 10
a{x="2", le="+Inf"}  | 0 3 6 2 4 8
b{x="1"}             | 4 4 4 4 4 4
b{x="3", y="z"}      | 1 _ _ 7 _ 9
c                    | 1 1 0 0 0 0
""".strip().splitlines()

QUESTIONS = """
a
a{x!="1"}
a{le=~"0.*", x!~"2"}
-b
sum(a)
sum by (x) (a)
max without (le) (a)
count by (le) (a)
avg(a) + 1
topk(2, a)
bottomk(1, b)
rate(a[20s])
increase(a[30s])
max_over_time(b[20s])
min_over_time(b[1m])
avg_over_time(b[1m])
changes(b[30s])
histogram_quantile(0.5, a)
histogram_quantile(0.9, sum by (le) (rate(a[30s])))
histogram_quantile(0.1, a)
a / on (x) group_left b
a * on (x) group_left (y) b
sum by (x) (a) / b
sum by (x) (a) > b
b > bool 4
b == 4
4 < b
a > on (x) group_left b
a and on (x) b
a unless on (x) b
b or c
b or sum by (x) (a)
absent(c)
absent(nothing{x="1", y=~"2"})
absent(nothing)
vector(2) * 3
1 + 2
time() - b
clamp_max(b, 3)
b / 0
c / 0
""".strip().splitlines()


def some() -> Recording:
    lines = (line.split(" | ") for line in SOME)
    return Recording(5.0, tuple(Series(series_of(name.strip()), values_of(v)) for name, v in lines))


def as_vector(answer: Vector | float) -> Vector:
    """A number is told as a vector that has no labels."""
    return {frozenset(): answer} if isinstance(answer, float) else answer


def equal(ours: Vector, theirs: Vector) -> bool:
    return ours.keys() == theirs.keys() and all(
        math.isclose(value, theirs[labels], rel_tol=1e-9)
        or (math.isnan(value) and math.isnan(theirs[labels]))
        for labels, value in ours.items()
    )


def test_promql_answers_worked_out_by_hand() -> None:
    at = {"x": "1"}
    assert evaluate("b{x='1'} * 2", some(), 25) == {frozenset(at.items()): 8.0}
    [rate] = as_vector(evaluate("sum(rate(a{le='+Inf', x='1'}[20s]))", some(), 25)).values()
    assert rate == pytest.approx(0.4)
    assert evaluate("b > 4", some(), 25) == {series_of('b{x="3",y="z"}'): 9.0}


def test_unsupported_promql_is_refused() -> None:
    for expression in ("a offset 5m", "stddev(a)", "deriv(a[5m])", "rate(a[5m:1m])", "a ^ 2"):
        with pytest.raises(UnsupportedError):
            evaluate(expression, some(), 25)


def test_unmatched_vectors_give_no_result() -> None:
    with pytest.raises(AssertionError, match="many-to-one matching must be explicit"):
        evaluate("a / on (x) b", some(), 25)
    with pytest.raises(AssertionError, match="many-to-many matching is not allowed"):
        evaluate("b / on (x) a", some(), 25)


needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not on the PATH: nobody says what Prometheus answers"
)


@needs_promtool
def test_promql_parts_match_prometheus(tmp_path: Path) -> None:
    theirs = answers(QUESTIONS, some(), 25, tmp_path)
    assert sum(map(bool, theirs.values())) > len(QUESTIONS) * 0.9, "most have an answer"
    for expression in QUESTIONS:
        ours = as_vector(evaluate(expression, some(), 25))
        assert equal(ours, theirs[expression]), f"{expression}\n{ours}\n{theirs[expression]}"


@needs_promtool
def test_dashboard_and_rule_expressions_match_prometheus(tmp_path: Path) -> None:
    asked = {filled_in(expr) for page in dashboards() for _, expr in expressions(page)}
    asked |= {rule["expr"] for rule in every_rule()}
    recording = read()
    theirs = answers(sorted(asked), recording, 30, tmp_path)
    for expression in sorted(asked):
        ours = as_vector(evaluate(expression, recording, 30))
        assert equal(ours, theirs[expression]), f"{expression}\n{ours}\n{theirs[expression]}"
