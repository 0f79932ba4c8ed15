"""Enough of PromQL to evaluate what our dashboards and rules ask, the way Prometheus does.

The parser is Prometheus' own grammar (`promql-parser`); the evaluation is ours, and held to the real one:
where `promtool` is on the PATH it answers the same questions (`test_promql.py`). What is not needed is
refused, not guessed.
"""

import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import promql_parser as ast

from tests.monitoring.promql_operators import (
    UnsupportedError,
    Vector,
    apply_operator,
    apply_to_each,
    only,
    without,
    without_name,
)
from tests.monitoring.recording import NAME, Labels, Recording

__all__ = ["STALE_SECONDS", "UnsupportedError", "Vector", "evaluate", "metrics_in"]

STALE_SECONDS: Final = 300.0
"""A sample older than this is not there."""

Samples = list[tuple[float, float]]
"""Moment and value, the oldest first."""


def evaluate(expression: str, recording: Recording, at: float) -> Vector | float:
    """What Prometheus would answer at that moment; 0 is the first of the recording."""
    return _Evaluation(recording, float(at)).of(ast.parse(expression))


def metrics_in(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each selector's metric, and the labels that it asks for."""
    found: list[ast.VectorSelector] = []

    def visit(node: Any) -> None:
        match node:
            case ast.MatrixSelector():
                found.append(node.vector_selector)
            case ast.VectorSelector():
                found.append(node)
            case _:
                pass

    ast.walk(ast.parse(expression), visit)
    for selector in found:
        assert selector.name is not None, f"{selector}: a selector without a name"
        yield selector.name, {matcher.name for matcher in selector.matchers.matchers}


class _Evaluation:
    def __init__(self, recording: Recording, at: float) -> None:
        self._recording = recording
        self._at = at

    def of(self, node: Any) -> Vector | float:
        match node:
            case ast.NumberLiteral():
                return float(node.val)
            case ast.ParenExpr():
                return self.of(node.expr)
            case ast.UnaryExpr():
                return without_name(apply_to_each(self.of(node.expr), operator.neg))
            case ast.VectorSelector():
                return {
                    labels: samples[-1][1] for labels, samples in self._select(node, STALE_SECONDS)
                }
            case ast.AggregateExpr():
                return self._aggregate(node)
            case ast.BinaryExpr():
                return apply_operator(node, self.of(node.lhs), self.of(node.rhs))
            case ast.Call():
                return self._call(node)
            case _:
                raise UnsupportedError(str(node))

    def _vector(self, node: Any) -> Vector:
        found = self.of(node)
        if isinstance(found, float):
            raise UnsupportedError(f"a vector is needed: {node}")
        return found

    def _select(self, node: ast.VectorSelector, seconds: float) -> Iterator[tuple[Labels, Samples]]:
        """The samples that each series has in the last so many seconds."""
        if node.offset is not None or node.at is not None:
            raise UnsupportedError(f"offset and @: {node}")
        accepts = [_matcher(matcher) for matcher in node.matchers.matchers]
        step = self._recording.step_seconds
        for series in self._recording.series:
            labels = dict(series.labels)
            if labels[NAME] != node.name or not all(accept(labels) for accept in accepts):
                continue
            samples = [
                (index * step, value)
                for index, value in enumerate(series.values)
                if value is not None and self._at - seconds <= index * step <= self._at
            ]
            if samples:
                # A label that is empty is one that is not there.
                yield frozenset(pair for pair in series.labels if pair[1]), samples

    # --- functions ---------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Vector | float:
        name, arguments = node.func.name, node.args
        if name in _OVER_TIME:
            return self._over_time(_OVER_TIME[name], arguments[0])
        if name in _EACH:
            return without_name(apply_to_each(self._vector(arguments[0]), _EACH[name]))
        match name:
            case "time":
                return self._at
            case "vector":
                return {frozenset(): float(self._number(arguments[0]))}
            case "absent":
                return {} if self._vector(arguments[0]) else {_equalities(arguments[0]): 1.0}
            case "clamp_max" | "clamp_min":
                bound, choose = self._number(arguments[1]), min if name == "clamp_max" else max
                return without_name(
                    apply_to_each(self._vector(arguments[0]), lambda value: choose(value, bound))
                )
            case "histogram_quantile":
                return _quantiles(self._number(arguments[0]), self._vector(arguments[1]))
            case _:
                raise UnsupportedError(name)

    def _number(self, node: Any) -> float:
        found = self.of(node)
        assert isinstance(found, float), node
        return found

    def _over_time(self, function: "_OverTime", node: Any) -> Vector:
        if not isinstance(node, ast.MatrixSelector):
            raise UnsupportedError(f"only a selector has a range here: {node}")
        seconds = node.range.total_seconds()
        found: Vector = {}
        for labels, samples in self._select(node.vector_selector, seconds):
            value = function(samples, self._at - seconds, self._at)
            if value is not None:
                found[without(labels, {NAME})] = value
        return found

    # --- aggregation -------------------------------------------------------------------------------

    def _aggregate(self, node: ast.AggregateExpr) -> Vector:
        groups: dict[Labels, list[tuple[Labels, float]]] = defaultdict(list)
        for labels, value in self._vector(node.expr).items():
            groups[_grouped(labels, node.modifier)].append((labels, value))
        name = str(node.op)
        if name in {"topk", "bottomk"}:
            return self._best(node, groups.values(), largest=name == "topk")
        if name not in _AGGREGATES:
            raise UnsupportedError(name)
        return {
            labels: _AGGREGATES[name]([value for _, value in members])
            for labels, members in groups.items()
        }

    def _best(
        self,
        node: ast.AggregateExpr,
        groups: Iterable[list[tuple[Labels, float]]],
        *,
        largest: bool,
    ) -> Vector:
        count = int(self._number(node.param))
        return {
            labels: value
            for members in groups
            for labels, value in sorted(members, key=lambda one: one[1], reverse=largest)[:count]
        }


# --- selectors and labels --------------------------------------------------------------------------


def _matcher(matcher: ast.Matcher) -> Callable[[dict[str, str]], bool]:
    name, value, op = matcher.name, matcher.value, matcher.op
    if op == ast.MatchOp.Equal or op == ast.MatchOp.NotEqual:  # noqa: PLR1714 - they have no hash
        return lambda labels: (labels.get(name, "") == value) == (op == ast.MatchOp.Equal)
    pattern = re.compile(value)
    return lambda labels: (
        (pattern.fullmatch(labels.get(name, "")) is not None) == (op == ast.MatchOp.Re)
    )


def _equalities(node: Any) -> Labels:
    """What `absent` says of what is not there."""
    if not isinstance(node, ast.VectorSelector):
        return frozenset()
    equal = [m for m in node.matchers.matchers if m.op == ast.MatchOp.Equal]
    return frozenset((matcher.name, matcher.value) for matcher in equal)


def _grouped(labels: Labels, modifier: ast.AggModifier | None) -> Labels:
    if modifier is None:
        return frozenset()
    names = set(modifier.labels)
    if modifier.type == ast.AggModifierType.By:
        return only(labels, names)
    return without(labels, names | {NAME})


# --- over time -------------------------------------------------------------------------------------

_OverTime = Callable[[Samples, float, float], float | None]


def _extrapolated(samples: Samples, start: float, end: float, *, rate: bool) -> float | None:
    """Prometheus' `extrapolatedRate`: as far as half an interval beyond the samples, never below zero."""
    if len(samples) < 2:
        return None
    increase = samples[-1][1] - samples[0][1]
    for (_, before), (_, after) in pairwise(samples):
        increase += before if after < before else 0.0
    covered = samples[-1][0] - samples[0][0]
    average = covered / (len(samples) - 1)
    to_start, to_end = samples[0][0] - start, end - samples[-1][0]
    if increase > 0 and samples[0][1] >= 0:
        to_start = min(to_start, covered * samples[0][1] / increase)
    for distance in (to_start, to_end):
        covered += distance if distance < average * 1.1 else average / 2
    factor = covered / (samples[-1][0] - samples[0][0])
    return increase * factor / ((end - start) if rate else 1.0)


def _changes(samples: Samples, _start: float, _end: float) -> float:
    values = [value for _, value in samples]
    return float(sum(a != b for a, b in pairwise(values)))


_OVER_TIME: Final[dict[str, _OverTime]] = {
    "rate": lambda samples, start, end: _extrapolated(samples, start, end, rate=True),
    "increase": lambda samples, start, end: _extrapolated(samples, start, end, rate=False),
    "max_over_time": lambda samples, _start, _end: max(value for _, value in samples),
    "min_over_time": lambda samples, _start, _end: min(value for _, value in samples),
    "avg_over_time": lambda samples, _start, _end: sum(v for _, v in samples) / len(samples),
    "changes": _changes,
}
_EACH: Final[dict[str, Callable[[float], float]]] = {
    "abs": abs, "ceil": lambda value: float(math.ceil(value)),
}  # fmt: skip
_AGGREGATES: Final[dict[str, Callable[[list[float]], float]]] = {
    "sum": math.fsum,
    "count": lambda values: float(len(values)),
    "min": min,
    "max": max,
    "avg": lambda values: math.fsum(values) / len(values),
}


def _quantiles(wanted: float, buckets: Vector) -> Vector:
    """`histogram_quantile` of classic buckets."""
    groups: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for labels, count in buckets.items():
        bound = dict(labels).get("le")
        if bound is not None:
            groups[without(labels, {NAME, "le"})].append(
                (float(bound.replace("Inf", "inf")), count)
            )
    return {labels: _quantile(wanted, sorted(group)) for labels, group in groups.items()}


def _quantile(wanted: float, buckets: list[tuple[float, float]]) -> float:
    total = buckets[-1][1]
    if len(buckets) < 2 or total == 0:
        return math.nan
    rank = wanted * total
    index = next(i for i, (_, count) in enumerate(buckets) if count >= rank)
    if index == len(buckets) - 1:
        return buckets[-2][0]
    start, below = buckets[index - 1] if index else (0.0, 0.0)
    end, count = buckets[index]
    if index == 0 and end <= 0:
        return end
    return start + (end - start) * (rank - below) / (count - below)
