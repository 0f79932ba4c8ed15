"""Operators of PromQL between vectors and numbers, with the label matching of Prometheus."""

import math
import operator
from collections.abc import Callable
from typing import Final

import promql_parser as ast

from tests.monitoring.recording import NAME, Labels

Vector = dict[Labels, float]
"""Labels of a series to its value."""


class UnsupportedError(Exception):
    """Part of the language that is not evaluated here."""


def without(labels: Labels, names: set[str]) -> Labels:
    return frozenset(pair for pair in labels if pair[0] not in names)


def only(labels: Labels, names: set[str]) -> Labels:
    return frozenset(pair for pair in labels if pair[0] in names)


def without_name(vector: Vector | float) -> Vector | float:
    if isinstance(vector, float):
        return vector
    return {without(labels, {NAME}): value for labels, value in vector.items()}


def _divided(left: float, right: float) -> float:
    if right != 0:
        return left / right
    return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left)


_ARITHMETIC: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divided,
}  # fmt: skip
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt, ">=": operator.ge,
    "<=": operator.le,
}  # fmt: skip


def apply_to_each(vector: Vector | float, function: Callable[[float], float]) -> Vector | float:
    if isinstance(vector, float):
        return function(vector)
    return {labels: function(value) for labels, value in vector.items()}


def apply_operator(
    node: ast.BinaryExpr, left: Vector | float, right: Vector | float
) -> Vector | float:
    name = str(node.op)
    if name in {"and", "or", "unless"}:
        assert isinstance(left, dict)
        assert isinstance(right, dict)
        return _of_sets(name, node.modifier, left, right)
    if name not in _ARITHMETIC and name not in _COMPARISONS:
        raise UnsupportedError(name)
    if isinstance(left, dict) and isinstance(right, dict):
        return _of_vectors(name, node.modifier, left, right)
    if isinstance(left, float) and isinstance(right, float):
        if name not in _ARITHMETIC:
            raise UnsupportedError(f"a comparison of numbers: {node}")
        return _ARITHMETIC[name](left, right)
    return _with_number(name, node.modifier, left, right)


def _with_number(
    name: str, modifier: ast.BinModifier | None, left: Vector | float, right: Vector | float
) -> Vector:
    found: Vector = {}
    vector = left if isinstance(left, dict) else right
    assert isinstance(vector, dict)
    for labels, value in vector.items():
        one = value if isinstance(left, dict) else left
        other = value if isinstance(right, dict) else right
        assert isinstance(one, float)
        assert isinstance(other, float)
        result = _result(name, modifier, one, other, kept=value)
        if result is not None:
            keeps = name in _COMPARISONS and not _is_bool(modifier)
            found[labels if keeps else without(labels, {NAME})] = result
    return found


def _is_bool(modifier: ast.BinModifier | None) -> bool:
    return modifier is not None and modifier.return_bool


def _result(
    name: str, modifier: ast.BinModifier | None, left: float, right: float, *, kept: float
) -> float | None:
    """None: filtered away."""
    if name in _ARITHMETIC:
        return _ARITHMETIC[name](left, right)
    holds = _COMPARISONS[name](left, right)
    if _is_bool(modifier):
        return float(holds)
    return kept if holds else None


def _key(labels: Labels, modifier: ast.BinModifier | None) -> Labels:
    """What two samples must have in common to be matched."""
    matching = None if modifier is None else modifier.matching
    if matching is None:
        return without(labels, {NAME})
    names = set(matching.labels)
    if matching.type == ast.LabelModifierType.Include:
        return only(labels, names)
    return without(labels, names | {NAME})


def _of_sets(name: str, modifier: ast.BinModifier | None, left: Vector, right: Vector) -> Vector:
    there = {_key(labels, modifier) for labels in right}
    if name == "or":
        here = {_key(labels, modifier) for labels in left}
        more = {labels: v for labels, v in right.items() if _key(labels, modifier) not in here}
        return left | more
    wanted = name == "and"
    return {labels: v for labels, v in left.items() if (_key(labels, modifier) in there) == wanted}


def _of_vectors(name: str, modifier: ast.BinModifier | None, left: Vector, right: Vector) -> Vector:
    card = None if modifier is None else modifier.card
    if card == ast.VectorMatchCardinality.OneToMany:
        raise UnsupportedError("group_right")
    one_side: dict[Labels, tuple[Labels, float]] = {}
    for labels, value in right.items():
        key = _key(labels, modifier)
        assert key not in one_side, f"many-to-many matching is not allowed: {dict(key)}"
        one_side[key] = (labels, value)
    many = card == ast.VectorMatchCardinality.ManyToOne
    found: Vector = {}
    for labels, value in left.items():
        key = _key(labels, modifier)
        if key not in one_side:
            continue
        others, other = one_side[key]
        result = _result(name, modifier, value, other, kept=value)
        if result is not None:
            into = (
                _joined(name, modifier, labels, others) if many else _single(name, modifier, labels)
            )
            assert into not in found, f"many-to-one matching must be explicit: {dict(key)}"
            found[into] = result
    return found


def _single(name: str, modifier: ast.BinModifier | None, labels: Labels) -> Labels:
    if name in _COMPARISONS and not _is_bool(modifier):
        matching = None if modifier is None else modifier.matching
        if matching is None:
            return labels
        names = set(matching.labels)
        if matching.type == ast.LabelModifierType.Include:
            return only(labels, names)
        return without(labels, names)
    return _key(labels, modifier)


def _joined(name: str, modifier: ast.BinModifier | None, labels: Labels, others: Labels) -> Labels:
    assert modifier is not None
    keeps = name in _COMPARISONS and not _is_bool(modifier)
    kept = labels if keeps else without(labels, {NAME})
    brought = set(modifier.group_labels or ())
    return without(kept, brought) | only(others, brought)
