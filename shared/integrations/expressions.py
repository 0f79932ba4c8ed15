"""The CEL expressions of one document: checked one by one, evaluated together.

One program evaluates all expressions for an object, because handing over the object and starting an
evaluation cost more than most expressions. If that program fails, each expression runs alone: the wrong
one is named, and the others still return a value.

A program is given at most what its limits say, so that one evaluation ends soon, whatever the object: see
`shared/cel/cost.py`. An expression that reads more than that fails.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from shared.cel import functions, syntax
from shared.cel.cost import LEAST, RESULT_MAX, Cost, cost_of, has_loops, limits_for
from shared.cel.explain import explain, explain_budget, in_words
from shared.cel.extent import Limits, Meter, TooMuchError
from shared.cel.paths import Wanted, merge, pruned, wanted
from shared.cel.values import plain, scalar
from shared.contracts.kube.conditions import conditions_by_type
from shared.contracts.kube.kinds import Object

_ROOTS: Final = ("object", "metadata", "spec", "status", "conditions")
_ITEM: Final = "item"
_KEY: Final = "key"
_ERROR: Final = cel.Type.ERROR
_PLACE: Final = re.compile(r"^line \d+, column \d+: ")
"""Position in the compiled form, which the author of the document never saw."""

_EXPLAINED: Final = Limits(elements=500, items=500, text=10_000)
"""The most data on which the parts of a failing expression are tried one by one."""

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
    each: bool
    """True if it may use `item` and `key`."""

    loops: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Takes the place of a result if the evaluation fails."""

    reason: str
    too_much: bool = False
    """True if the object is too large for the expression: nothing like it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Expressions that are evaluated for each item of a list or map."""

    variable: str
    expressions: tuple[Checked, ...]
    item: Wanted | None
    """The fields of an item that the expressions read."""

    with_key: bool
    most: int
    """Items that are looked at."""

    @classmethod
    def of(cls, place: int, expressions: Sequence[Checked], most: int) -> "Group":
        """The group of the pod set at `place` of the document, which has at most so many items."""
        fields: Wanted = {}
        for expression in expressions:
            merge(fields, expression.wanted)
        return cls(
            variable=_variable(place),
            expressions=tuple(expressions),
            item=fields.get(_ITEM, {}),
            with_key=_KEY in fields,
            most=most,
        )

    def text(self, expressions: Sequence[Checked]) -> str:
        """CEL that returns a list for each item, with the results of `expressions`."""
        body = f"[{','.join(one.runnable for one in expressions)}]"
        if not self.with_key:
            return f"{self.variable}.map({_ITEM}, {body})"
        bound = f"cel.bind({_ITEM}, entry_.item, cel.bind({_KEY}, entry_.key, {body}))"
        return f"{self.variable}.map(entry_, {bound})"

    def given(self, items: Items, meter: Meter | None) -> list[Any]:
        """The value of the variable: of each item only the fields that are read. Raises `TooMuchError`."""
        seen = [self._read(item, key, meter) for key, item in items]
        if not self.with_key:
            return seen
        return [{_ITEM: item, _KEY: key} for item, (key, _) in zip(seen, items, strict=True)]

    def _read(self, item: Any, key: str, meter: Meter | None) -> Any:
        try:
            if self.item is not None and isinstance(item, dict):
                return pruned(item, self.item, meter)
            return item if meter is None else meter.whole([item, key])[0]
        except TooMuchError as error:
            error.inside(f"item {key}")
            raise


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
    return [
        ext_optional.ExtOptional(),
        ext_bindings.ExtBindings(),
        ext_strings.ExtStrings(),
        functions.extension(),
    ]


def check(text: str, *, returns: Sequence[str], each: bool = False) -> Checked:
    """Check an expression. Raises `RefusedExpressionError`.

    `returns`: the CEL types that it may return ("bool", "int", …); None allows any type. `each`: the
    expression may use `item` and `key`.
    """
    try:
        text.encode()  # The library cannot read half a character (YAML's "\ud800").
        compiled = _checking(each=each).compile(text)
        tree = syntax.parse(compiled.serialize())
    except (RuntimeError, ValueError) as error:
        reason = in_words(str(error))
        raise RefusedExpressionError(_line(reason), reason) from error
    type_ = compiled.return_type().name().lower()
    bare = type_.removeprefix("optional_type<").removesuffix(">") if "<" in type_ else type_
    if returns and bare != "dyn" and bare not in returns:
        raise RefusedExpressionError(1, f"must return {' or '.join(returns)}, but returns {type_}")
    if cost_of(tree.expr, LEAST).longest > RESULT_MAX:
        raise RefusedExpressionError(
            1,
            "what it makes of a short text could fill the memory: it doubles or repeats too often",
        )
    # A newline, because a comment may end the text.
    inner = f"({text}\n)"
    return Checked(
        text=text,
        runnable=scalar(inner, type_) if returns else inner,
        wanted=wanted(tree),
        each=each,
        loops=has_loops(tree.expr),
    )


def _line(reason: str) -> int:
    """The line number in a message of the library: `line 2, column 5: …`. 1 if it has none."""
    _, found, rest = reason.partition("line ")
    number = rest.partition(",")[0]
    return int(number) if found and number.isdigit() else 1


_spent: ContextVar[list[float] | None] = ContextVar("spent", default=None)
"""The sum of the parts of their limits that programs have used up inside of `together`."""


@contextmanager
def together() -> Iterator[None]:
    """All programs that run inside are given no more than one alone: each a part of its own limits."""
    before = _spent.set([0.0])
    try:
        yield
    finally:
        _spent.reset(before)


def value_of(expression: Checked, obj: Object) -> Any:
    """The result of a single expression, of any type, or a `Failure`."""
    outcome = _alone(expression, obj)
    return outcome if isinstance(outcome, Failure) else plain(outcome)


def excess(expression: Checked, obj: Object) -> str | None:
    """Why an object is too large for an expression, which is not evaluated; None if it is not."""
    try:
        _handed_over_to(expression, obj)
    except TooMuchError as error:
        return str(error)
    return None


def _alone(expression: Checked, obj: Object) -> Any:
    try:
        data, meter = _handed_over_to(expression, obj)
    except TooMuchError as error:
        return Failure(reason=str(error), too_much=True)
    return _run(_compiled(expression.runnable), data, explained=_is_small(meter))


@cache
def _compiled(runnable: str) -> Any:
    return _running().compile(runnable)


def _handed_over_to(expression: Checked, obj: Object) -> tuple[Object, Meter]:
    return _handed_over(partial(_given, obj, expression.wanted), lambda: _limits(expression))


def _handed_over(
    given: Callable[[Meter], Object], limits: Callable[[], Limits]
) -> tuple[Object, Meter]:
    """What a program is given, measured. Raises `TooMuchError`.

    Its limits are worked out once an object is not small: that takes longer than an evaluation.
    """
    spent = _spent.get()
    if spent is None:
        meter = Meter(LEAST)
        try:
            return given(meter), meter
        except TooMuchError:
            pass
    meter = Meter(limits())
    data = given(meter)
    if spent is not None:
        spent[0] += meter.share
        if spent[0] > 1:
            raise TooMuchError(
                "the objects inside are together too large for their expressions: make them smaller"
            )
    return data, meter


def _is_small(meter: Meter) -> bool:
    elements, text = meter.counted
    return elements <= _EXPLAINED.elements and text <= _EXPLAINED.text


def _tree(text: str, *, each: bool) -> Any:
    return syntax.parse(_checking(each=each).compile(text).serialize()).expr


def _limits(expression: Checked) -> Limits:
    return _limits_of(expression.text, each=expression.each)


@cache
def _limits_of(text: str, *, each: bool) -> Limits:
    tree = _tree(text, each=each)
    return limits_for(lambda limits: cost_of(tree, limits, items=(_ITEM, _KEY)))


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

    @cached_property
    def limits(self) -> Limits:
        """How much an object may hand over to all expressions together."""
        passes = [(one, 1) for one in self._singles]
        passes += [(one, group.most) for group in self._groups for one in group.expressions]
        trees = [(_tree(one.text, each=one.each), times) for one, times in passes]

        def costs(limits: Limits) -> Cost:
            whole = Cost()
            for tree, times in trees:
                whole.add(cost_of(tree, limits, passes=times, items=(_ITEM, _KEY)))
            return whole

        return limits_for(costs)

    def evaluate(self, obj: Object, items: Mapping[str, Items]) -> list[Any]:
        """The results: one for each single expression, then for each group a list for each item.

        A result is a scalar, `NULL`, `MAP` or a `Failure`. `items` holds the items of each group, by
        variable.
        """
        if not self._singles and not self._groups:
            return []

        def given(meter: Meter) -> Object:
            data = _given(obj, self._wanted, meter)
            for group in self._groups:
                data[group.variable] = group.given(items[group.variable], meter)
            return data

        try:
            data, meter = _handed_over(given, lambda: self.limits)
        except TooMuchError:
            return self._apart(obj, items, Meter(self.limits), explained=False)
        if self._all is not None:
            value = _run(self._all, data)
            if not isinstance(value, Failure):
                results: list[Any] = value.plain_value()
                return results
        return self._apart(obj, items, None, explained=_is_small(meter))

    def _apart(
        self, obj: Object, items: Mapping[str, Items], meter: Meter | None, *, explained: bool
    ) -> list[Any]:
        """The results of each expression by itself.

        `meter`: what they are given in all; None if that is known not to be too much. After one for which the
        object is too large, none with a loop is tried.
        """
        tried = _Tries(meter=meter, explained=explained)
        results: list[Any] = [
            one if isinstance(one, Failure) else one.plain_value()
            for one in (
                tried.run(single, single.runnable, partial(_given, obj, single.wanted))
                for single in self._singles
            )
        ]
        groups = (_by_item(group, obj, items[group.variable], tried) for group in self._groups)
        return [*results, *groups]


@dataclass(slots=True)
class _Tries:
    """Runs expressions one by one."""

    meter: Meter | None
    explained: bool
    too_much: Failure | None = None

    def run(
        self, expression: Checked, runnable: str, given: Callable[[Meter | None], Object]
    ) -> Any:
        """The value of the library, or a `Failure`."""
        if self.too_much is not None and expression.loops:
            return self.too_much
        before = None if self.meter is None else self.meter.counted
        try:
            data = given(self.meter)
        except TooMuchError as error:
            if self.meter is not None and before is not None:
                self.meter.counted = before  # What is not handed over does not count.
            return Failure(reason=str(error), too_much=True)
        found = _run(_compiled(runnable), data, explained=self.explained)
        if isinstance(found, Failure) and found.too_much:
            self.too_much = found
        return found


def _by_item(group: Group, obj: Object, items: Items, tried: _Tries) -> list[list[Any]]:
    columns, count = [], len(items)
    for expression in group.expressions:

        def given(meter: Meter | None, fields: Wanted = expression.wanted) -> Object:
            data = _given(obj, fields, meter)
            data[group.variable] = group.given(items, meter)
            return data

        found = tried.run(expression, group.text([expression]), given)
        columns.append(
            [found] * count
            if isinstance(found, Failure)
            else [row[0] for row in found.plain_value()]
        )
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[]] * count


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
    except MemoryError:
        return Failure(reason="it needs more memory than there is", too_much=True)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        text = explain_budget(str(error))
        return Failure(reason=text, too_much=text != str(error))


def _given(obj: Object, fields: Wanted, meter: Meter | None) -> Object:
    """The variables of an expression: only the parts of the object that it reads. Raises `TooMuchError`."""
    data: Object = {}
    for root in _ROOTS:
        if root not in fields:
            continue
        value, sub = _root(obj, root), fields[root]
        try:
            if sub is not None:
                data[root] = pruned(value, sub, meter)
            else:
                data[root] = value if meter is None else meter.whole(value)
        except TooMuchError as error:
            error.inside(root)
            raise
    return data


def _root(obj: Object, root: str) -> Object:
    if root == "object":
        return obj
    if root == "conditions":
        return conditions_by_type(obj)
    value = obj.get(root)
    return value if isinstance(value, dict) else {}
