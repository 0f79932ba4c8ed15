"""The CEL expressions of one document: checked one by one, evaluated together.

One program evaluates all expressions for an object, because handing over the object and starting an
evaluation cost more than most expressions. If that program fails, each expression runs alone: the wrong
one is named, and the others still return a value.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from shared.cel import syntax
from shared.cel.explain import explain, explain_budget, in_words
from shared.cel.paths import Wanted, merge, pruned, wanted
from shared.cel.values import plain, scalar
from shared.contracts.kube.kinds import Object

_ROOTS: Final = ("object", "metadata", "spec", "status", "conditions")
_ITEM: Final = "item"
_KEY: Final = "key"
_ERROR: Final = cel.Type.ERROR
_PLACE: Final = re.compile(r"^line \d+, column \d+: ")
"""Position in the compiled form, which the author of the document never saw."""

_GROUPS_MAX: Final = 10
"""Maximum number of pod sets with `forEach`. A document has the same limit."""

Items = Sequence[tuple[str, Any]]
"""Key and item of a list or map."""


class RefusedExpressionError(ValueError):
    """An expression is invalid. `line` counts the lines of its text, from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """An expression that passed the type check."""

    text: str
    runnable: str
    """The compiled form."""

    wanted: Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Takes the place of a result if the evaluation fails."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Expressions that are evaluated for each item of a list or map."""

    variable: str
    expressions: tuple[Checked, ...]
    item: Wanted | None
    """The fields of an item that the expressions read."""

    with_key: bool

    @classmethod
    def of(cls, place: int, expressions: Sequence[Checked]) -> "Group":
        """The group of the pod set at `place` of the document."""
        fields: Wanted = {}
        for expression in expressions:
            merge(fields, expression.wanted)
        return cls(
            variable=_variable(place),
            expressions=tuple(expressions),
            item=fields.get(_ITEM, {}),
            with_key=_KEY in fields,
        )

    def text(self, expressions: Sequence[Checked]) -> str:
        """CEL that returns a list for each item, with the results of `expressions`."""
        body = f"[{','.join(one.runnable for one in expressions)}]"
        if not self.with_key:
            return f"{self.variable}.map({_ITEM}, {body})"
        bound = f"cel.bind({_ITEM}, entry_.item, cel.bind({_KEY}, entry_.key, {body}))"
        return f"{self.variable}.map(entry_, {bound})"

    def given(self, items: Items) -> list[Any]:
        """The value of the variable: of each item only the fields that are read."""
        seen = [
            pruned(item, self.item) if self.item is not None and isinstance(item, dict) else item
            for _, item in items
        ]
        if not self.with_key:
            return seen
        return [{_ITEM: item, _KEY: key} for item, (key, _) in zip(seen, items, strict=True)]


@cache
def _checking(*, each: bool) -> Any:
    variables = dict.fromkeys(_ROOTS, cel.Type.Map(cel.Type.STRING, cel.Type.DYN))
    if each:
        variables |= {_ITEM: cel.Type.DYN, _KEY: cel.Type.STRING}
    return cel.NewEnv(variables=variables, extensions=_extensions())


@cache
def _running() -> Any:
    variables = dict.fromkeys(_ROOTS, cel.Type.Map(cel.Type.STRING, cel.Type.DYN))
    groups = {_variable(place): cel.Type.List(cel.Type.DYN) for place in range(_GROUPS_MAX)}
    return cel.NewEnv(variables={**variables, **groups}, extensions=_extensions())


def _variable(place: int) -> str:
    return f"each{place}_"


def _extensions() -> list[Any]:
    count = cel.Overload(
        "indexes_below",
        return_type=cel.Type.INT,
        parameters=[cel.Type.STRING, cel.Type.INT],
        is_member=True,
        impl=_indexes_below,
    )
    return [
        ext_optional.ExtOptional(),
        ext_bindings.ExtBindings(),
        ext_strings.ExtStrings(),
        cel.CelExtension("indexes", [cel.FunctionDecl("indexesBelow", [count])]),
    ]


def _indexes_below(text: str, limit: int) -> int:
    """Return how many whole numbers below `limit` a text such as `1,3-5` names.

    Raises `ValueError` for another text.
    """
    ranges = (part.partition("-") for part in text.split(",") if part)
    count, following = 0, 0
    for first, last in sorted((int(first), int(last or first)) for first, _, last in ranges):
        end = min(last + 1, limit)
        count += max(end - max(first, following), 0)
        following = max(following, end)
    return count


def check(text: str, *, returns: Sequence[str], each: bool = False) -> Checked:
    """Check an expression. Raises `RefusedExpressionError`.

    `returns`: the CEL types that it may return ("bool", "int", …); None allows any type. `each`: the
    expression may use `item` and `key`.
    """
    try:
        text.encode()  # The library cannot read half a character (YAML's "\ud800").
        compiled = _checking(each=each).compile(text)
        fields = wanted(syntax.parse(compiled.serialize()))
    except (RuntimeError, ValueError) as error:
        reason = in_words(str(error))
        raise RefusedExpressionError(_line(reason), reason) from error
    type_ = compiled.return_type().name().lower()
    bare = type_.removeprefix("optional_type<").removesuffix(">") if "<" in type_ else type_
    if returns and bare != "dyn" and bare not in returns:
        raise RefusedExpressionError(1, f"must return {' or '.join(returns)}, but returns {type_}")
    # A newline, because a comment may end the text.
    inner = f"({text}\n)"
    return Checked(text=text, runnable=scalar(inner, type_) if returns else inner, wanted=fields)


def _line(reason: str) -> int:
    """The line number in a message of the library: `line 2, column 5: …`. 1 if it has none."""
    _, found, rest = reason.partition("line ")
    number = rest.partition(",")[0]
    return int(number) if found and number.isdigit() else 1


def value_of(expression: Checked, obj: Object) -> Any:
    """The result of a single expression, of any type, or a `Failure`."""
    data = _given(obj, expression.wanted)
    outcome = _run(_compiled(expression.runnable), data, explained=True)
    return outcome if isinstance(outcome, Failure) else plain(outcome)


@cache
def _compiled(runnable: str) -> Any:
    return _running().compile(runnable)


class Programs:
    """Expressions that are evaluated together: single ones, and those for each item."""

    def __init__(self, singles: Sequence[Checked], groups: Sequence[Group] = ()) -> None:
        self._singles = tuple(singles)
        self._groups = tuple(groups)
        self._wanted: Wanted = {}
        for expression in (*singles, *(one for group in groups for one in group.expressions)):
            merge(self._wanted, expression.wanted)
        self._all = self._together() if singles or groups else None

    def _together(self) -> Any:
        """None if the expressions are nested too deeply for one program."""
        texts = [one.runnable for one in self._singles]
        texts += [f"dyn({group.text(group.expressions)})" for group in self._groups]
        try:
            return _running().compile(f"[{','.join(texts)}]")
        except RuntimeError:
            return None

    def evaluate(self, obj: Object, items: Mapping[str, Items]) -> list[Any]:
        """The results: one for each single expression, then for each group a list for each item.

        A result is a scalar, `NULL`, `MAP` or a `Failure`. `items` holds the items of each group, by
        variable.
        """
        if not self._singles and not self._groups:
            return []
        data = _given(obj, self._wanted)
        for group in self._groups:
            data[group.variable] = group.given(items[group.variable])
        if self._all is not None:
            value = _run(self._all, data)
            if not isinstance(value, Failure):
                results: list[Any] = value.plain_value()
                return results
        return [
            *(_alone(one.runnable, data) for one in self._singles),
            *(_by_item(group, data, len(items[group.variable])) for group in self._groups),
        ]


def _by_item(group: Group, data: Object, count: int) -> list[list[Any]]:
    columns = []
    for expression in group.expressions:
        found = _alone(group.text([expression]), data)
        columns.append([found] * count if isinstance(found, Failure) else [row[0] for row in found])
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[]] * count


def _alone(runnable: str, data: Object) -> Any:
    found = _run(_compiled(runnable), data, explained=True)
    return found if isinstance(found, Failure) else found.plain_value()


def _run(program: Any, data: Object, *, explained: bool = False) -> Any:
    """The value of the library, or a `Failure` for an error value."""
    try:
        activation = _running().Activation(data)
        value = program.eval(activation)
        if value.type() != _ERROR:
            return value
        error = str(value.value())
        if explained:
            error = explain(error, syntax.parse(program.serialize()), _running(), activation)
        return Failure(reason=_PLACE.sub("", error))
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        return Failure(reason=explain_budget(str(error)))


def _given(obj: Object, fields: Wanted) -> Object:
    """The variables of an expression: only the parts of the object that it reads."""
    data: Object = {}
    for root in _ROOTS:
        if root in fields:
            value, sub = _root(obj, root), fields[root]
            data[root] = value if sub is None else pruned(value, sub)
    return data


def _root(obj: Object, root: str) -> Object:
    if root == "object":
        return obj
    if root == "conditions":
        status = obj.get("status")
        found = status.get("conditions") if isinstance(status, dict) else None
        if not isinstance(found, list):
            return {}
        return {
            c["type"]: c for c in found if isinstance(c, dict) and isinstance(c.get("type"), str)
        }
    value = obj.get(root)
    return value if isinstance(value, dict) else {}
