"""The expressions of one document: checked each by itself, evaluated all at once.

One object is looked at by one program that returns everything, because handing over an object and
starting an evaluation cost more than most expressions. Where that program fails, each expression is run
by itself, so that one that is wrong names itself and the others still answer.
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
"""Of the form that is evaluated, which nobody wrote."""

_GROUPS_MAX: Final = 10
"""How many pod sets may have `forEach`: as many as a document may have."""

Items = Sequence[tuple[str, Any]]
"""Key and item of a list or map."""


class RefusedExpressionError(ValueError):
    """An expression is wrong in itself. `line` is that of the text, from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """An expression that type-checks."""

    text: str
    runnable: str
    """The form in which it is evaluated."""

    wanted: Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What stands where a result would be."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Expressions that are evaluated for each item of something."""

    variable: str
    expressions: tuple[Checked, ...]
    item: Wanted | None
    """What is wanted of an item."""

    with_key: bool

    @classmethod
    def of(cls, place: int, expressions: Sequence[Checked]) -> "Group":
        """The group of the pod set at `place`."""
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
        """A list for each item, with what each of `expressions` returns."""
        body = f"[{','.join(one.runnable for one in expressions)}]"
        if not self.with_key:
            return f"{self.variable}.map({_ITEM}, {body})"
        bound = f"cel.bind({_ITEM}, entry_.item, cel.bind({_KEY}, entry_.key, {body}))"
        return f"{self.variable}.map(entry_, {bound})"

    def given(self, items: Items) -> list[Any]:
        """What the variable holds: no more of the items than is looked at."""
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
    return [ext_optional.ExtOptional(), ext_bindings.ExtBindings(), ext_strings.ExtStrings()]


def check(text: str, *, returns: Sequence[str], each: bool = False) -> Checked:
    """Check an expression that must return one of the CEL types `returns` ("bool", "int", …).

    None: it may return anything. `each`: it knows `item` and `key`. Raises `RefusedExpressionError`.
    """
    try:
        text.encode()  # half a character (YAML's "\ud800") cannot reach the library
        compiled = _checking(each=each).compile(text)
        fields = wanted(syntax.parse(compiled.serialize()))
    except (RuntimeError, ValueError) as error:
        reason = in_words(str(error))
        raise RefusedExpressionError(_line(reason), reason) from error
    type_ = compiled.return_type().name().lower()
    bare = type_.removeprefix("optional_type<").removesuffix(">") if "<" in type_ else type_
    if returns and bare != "dyn" and bare not in returns:
        raise RefusedExpressionError(1, f"must return {' or '.join(returns)}, but returns {type_}")
    # The line's end, because a comment may be the last of the text.
    inner = f"({text}\n)"
    return Checked(text=text, runnable=scalar(inner, type_) if returns else inner, wanted=fields)


def _line(reason: str) -> int:
    """The library says `line 2, column 5: …`."""
    _, found, rest = reason.partition("line ")
    number = rest.partition(",")[0]
    return int(number) if found and number.isdigit() else 1


def value_of(expression: Checked, obj: Object) -> Any:
    """What a single expression returns, of whatever type, or a `Failure`."""
    data = _given(obj, expression.wanted)
    outcome = _run(_compiled(expression.runnable), data, explained=True)
    return outcome if isinstance(outcome, Failure) else plain(outcome)


@cache
def _compiled(runnable: str) -> Any:
    return _running().compile(runnable)


class Programs:
    """Expressions that are wanted together: single ones, and those for each item of something."""

    def __init__(self, singles: Sequence[Checked], groups: Sequence[Group] = ()) -> None:
        self._singles = tuple(singles)
        self._groups = tuple(groups)
        self._wanted: Wanted = {}
        for expression in (*singles, *(one for group in groups for one in group.expressions)):
            merge(self._wanted, expression.wanted)
        self._all = self._together() if singles or groups else None

    def _together(self) -> Any:
        """None where all of them are nested too deeply to be one program."""
        texts = [one.runnable for one in self._singles]
        texts += [f"dyn({group.text(group.expressions)})" for group in self._groups]
        try:
            return _running().compile(f"[{','.join(texts)}]")
        except RuntimeError:
            return None

    def evaluate(self, obj: Object, items: Mapping[str, Items]) -> list[Any]:
        """A result for each single expression, then for each group a list for each item.

        Results are scalars, `NULL`, `MAP` or a `Failure`. `items` are those of the groups, by variable.
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
    """The library's value, which is no error, or a `Failure`."""
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
    """The variables of an expression: no more of the object than it looks at."""
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
