"""What an expression may cost at most, as a function of how much data it is given: found from its tree.

The library counts steps of loops, 10,000 for one program. It counts neither what a step does with a text,
such as a search through all of it, nor what is made of it: `map` and `filter` copy their result for each
item, `replace` multiplies, and `a + a` bound to a name ten times is 1,024 times as long. So a program is
given less data if its expressions make more of it. All figures are upper bounds, measured on one core.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, NamedTuple

from shared.cel.extent import Limits
from shared.cel.syntax import children

STEPS: Final = 10_000
"""Steps of all loops of one program, which the library allows."""

NANOSECONDS_MAX: Final = 80_000_000
"""For one program, beside the conversion of its data and 1 µs for each step."""

MADE_MAX: Final = 16 << 20
"""Bytes that one program may make: none is freed before its end."""

RESULT_MAX: Final = 64 << 20
"""Characters of a text, made of the least data. An expression that could make more is refused."""

LEAST: Final = Limits(elements=200, items=100, text=4_000)
"""Every program may be given this much."""

ELEMENT_NS: Final = 600
"""For an element that a function of `TAKING_LISTS` is given."""

TAKING_LISTS: Final = frozenset({"valuesIn"})
"""Functions in Python: a list is converted for each call."""

_BETTER: Final = 0.97
"""What is not even this much cheaper is no way."""

_COPY_NS: Final = 50
_COPY_BYTES: Final = 36
_PART_BYTES: Final = 48
_SEARCH_NS: Final = 0.02
"""For each character of the text and each of what is searched."""


class Size(NamedTuple):
    """Upper bounds of a value."""

    items: float = 0
    """Entries of its longest list or map."""

    text: float = 0
    level: int = -1
    """The loop whose items it is part of: 0 outside of loops; -1 for a constant."""

    times: float = 0
    """How many times a value of this size is seen in all passes of that loop together."""


@dataclass(slots=True)
class Cost:
    """Upper bounds of what a program costs."""

    nanoseconds: float = 0
    made: float = 0
    """Bytes."""

    longest: float = 0
    """Characters of the longest text that is made."""

    def add(self, other: "Cost", times: float = 1) -> None:
        """Add another one, paid several times."""
        self.nanoseconds += other.nanoseconds * times
        self.made += other.made * times
        self.longest = max(self.longest, other.longest)

    @property
    def share(self) -> float:
        """How much of what a program may cost; above 1: too much."""
        return max(self.nanoseconds / NANOSECONDS_MAX, self.made / MADE_MAX)


Called = Callable[[Sequence[Size]], tuple[float, float, Size]]
"""Sizes of the arguments to nanoseconds, bytes that are made, and size of the result."""


def cost_of(tree: Any, limits: Limits, *, passes: int = 1, items: Iterable[str] = ()) -> Cost:
    """The cost of an expression that is given as much as `limits` allow.

    `passes`: how many times it is evaluated; the variables `items` are then different parts of the data.
    """
    walk = _Walk(limits, Size(limits.items, limits.text, 0, passes))
    parts = {name: Size(limits.items, limits.text, 0, 1) for name in items}
    walk.size(tree, parts, _At(0, passes))
    return walk.cost


def limits_for(costs: Callable[[Limits], Cost]) -> Limits:
    """The most data that a program may be given so that it does not cost too much.

    Of what makes it cheaper, the best is taken first. Where one step makes nothing cheaper, because loops are
    cut off anyway, the whole way decides.
    """

    @cache
    def share(limits: Limits) -> float:
        return costs(limits).share

    limits = Limits()
    while (now := share(limits)) > 1:
        for to, names in _WAYS:
            ways = [(share(to(limits, name)), name) for name in names]
            cheapest, name = min(ways)
            if cheapest < now * _BETTER:
                break
        else:
            break
        limits = _step(limits, name)
    return limits


def _step(limits: Limits, name: str) -> Limits:
    return _with(limits, name, max(getattr(limits, name) * 3 // 4, getattr(LEAST, name)))


def _floor(limits: Limits, name: str) -> Limits:
    return _with(limits, name, getattr(LEAST, name))


def _with(limits: Limits, name: str, most: int) -> Limits:
    changed = replace(limits, **{name: most})
    return replace(changed, items=min(changed.items, changed.elements))


_WAYS: Final[tuple[tuple[Callable[[Limits, str], Limits], tuple[str, ...]], ...]] = (
    (_step, ("items", "text")),
    (_floor, ("items", "text")),
    (_step, ("elements",)),
)


def has_loops(tree: Any) -> bool:
    """Whether an expression goes through a list or a map."""
    loop = tree.HasField("comprehension_expr") and not _binds(tree.comprehension_expr)
    return loop or any(map(has_loops, children(tree)))


def _binds(loop: Any) -> bool:
    """Whether a loop has no passes: it is how `cel.bind` gives a name to a value."""
    return loop.iter_range.HasField("list_expr") and not loop.iter_range.list_expr.elements


class _At(NamedTuple):
    """Where in an expression: inside of how many loops, and how often that is passed in all."""

    level: int
    passes: float


@dataclass(slots=True)
class _Walk:
    """Goes once through the tree of an expression."""

    limits: Limits
    everything: Size
    """A variable that is no part of another value."""

    cost: Cost = field(default_factory=Cost)

    def size(self, expr: Any, scope: Mapping[str, Size], at: _At) -> Size:
        if expr.HasField("const_expr"):
            return Size(text=len(expr.const_expr.string_value))
        if expr.HasField("ident_expr"):
            return scope.get(expr.ident_expr.name.removeprefix("."), self.everything)
        if expr.HasField("select_expr"):
            return self.size(expr.select_expr.operand, scope, at)
        if expr.HasField("call_expr"):
            return self._call(expr.call_expr, scope, at)
        if expr.HasField("comprehension_expr"):
            return self._loop(expr.comprehension_expr, scope, at)
        parts = [self.size(one, scope, at) for one in children(expr)]
        return Size(
            items=max([len(parts), *(one.items for one in parts)]),
            text=sum(one.text for one in parts),
            level=at.level,
            times=_times(parts, at),
        )

    def _call(self, call: Any, scope: Mapping[str, Size], at: _At) -> Size:
        given = [self.size(call.target, scope, at)] if call.HasField("target") else []
        given += [self.size(one, scope, at) for one in call.args]
        times = _times(given, at)
        if call.function in _PARTS:
            items = max((one.items for one in given), default=0)
            return Size(items, max((one.text for one in given), default=0), at.level, times)
        nanoseconds, made, result = _FUNCTIONS.get(call.function, _linear)(given)
        if call.function in TAKING_LISTS:
            nanoseconds += ELEMENT_NS * self.limits.elements
        self.cost.add(Cost(nanoseconds, made, result.text), times)
        return result._replace(level=at.level, times=times)

    def _loop(self, loop: Any, scope: Mapping[str, Size], at: _At) -> Size:
        if _binds(loop):
            named = {**scope, loop.accu_var: self.size(loop.accu_init, scope, at)}
            return self.size(loop.result, named, at)
        over = self.size(loop.iter_range, scope, at)
        times, entries = _times([over], at), min(over.items, STEPS)
        below = _At(at.level + 1, min(at.passes * entries, STEPS))
        item = over._replace(level=below.level, times=times)
        inside = {**scope, loop.iter_var: item, loop.accu_var: Size()}
        self.size(loop.loop_condition, inside, below)
        one = self.size(loop.loop_step, inside, below)
        if not loop.accu_init.HasField("list_expr"):
            return self.size(loop.result, {**scope, loop.accu_var: Size()}, at)
        copies = min(times * entries, STEPS) * entries / 2
        self.cost.add(Cost(_COPY_NS * copies, _COPY_BYTES * copies))
        whole = one.level == below.level and one.times <= times
        text = one.text if whole else one.text * entries
        return Size(max(over.items, one.items), text, at.level, times)


def _times(sizes: Iterable[Size], at: _At) -> float:
    """How many times values of these sizes are met there: parts of one value together once."""
    data = [one.times if one.level == at.level else at.passes for one in sizes if one.level >= 0]
    return max(data, default=at.passes)


def _text(given: Sequence[Size]) -> float:
    return sum(one.text for one in given)


def _items(given: Sequence[Size]) -> float:
    return max((one.items for one in given), default=0)


def _linear(given: Sequence[Size]) -> tuple[float, float, Size]:
    """Of a function that makes no more than it is given, such as `lowerAscii`."""
    text, items = _text(given), sum(one.items for one in given)
    return 5 * text + 20 * items, 2 * text + 16 * items, Size(items, text)


def _added(given: Sequence[Size]) -> tuple[float, float, Size]:
    """`+`, also of lists."""
    text, items = _text(given), sum(one.items for one in given)
    return 2 * text + 20 * items, 2 * text + 16 * items, Size(items, text)


def _compared(given: Sequence[Size]) -> tuple[float, float, Size]:
    """The shorter one decides."""
    text = min((one.text for one in given), default=0)
    return 0.05 * text + 10 * min((one.items for one in given), default=0), 0, Size()


def _within(given: Sequence[Size]) -> tuple[float, float, Size]:
    """`in`: compares with each item of a list."""
    return 0.05 * _text(given) + 10 * _items(given[1:]), 0, Size()


def _measured(given: Sequence[Size]) -> tuple[float, float, Size]:
    return _text(given), 0, Size()


def _searched(given: Sequence[Size]) -> tuple[float, float, Size]:
    text, what = given[0].text, _text(given[1:])
    return 0.5 * text + _SEARCH_NS * text * what, 0, Size()


def _matched(given: Sequence[Size]) -> tuple[float, float, Size]:
    text, pattern = given[0].text, _text(given[1:])
    return 500 * pattern + text * (5 + 0.5 * pattern), 0, Size()


def _replaced(given: Sequence[Size]) -> tuple[float, float, Size]:
    text, new = given[0].text, given[2].text if len(given) > 2 else 0
    result = (text + 1) * max(new, 1)
    searched, _, _ = _searched(given[:2])
    return searched + 3 * result, 2 * result, Size(0, result)


def _split(given: Sequence[Size]) -> tuple[float, float, Size]:
    text = given[0].text
    return 100 * text, _PART_BYTES * text, Size(text + 1, text)


def _joined(given: Sequence[Size]) -> tuple[float, float, Size]:
    result = given[0].text + given[0].items * _text(given[1:])
    return 10 * result, 2 * result, Size(0, result)


def _formatted(given: Sequence[Size]) -> tuple[float, float, Size]:
    result = given[0].text * (1 + _text(given[1:]))
    return 10 * result, 2 * result, Size(0, result)


def _indexes(given: Sequence[Size]) -> tuple[float, float, Size]:
    return 50 * given[0].text, 0, Size()


def _nothing(_given: Sequence[Size]) -> tuple[float, float, Size]:
    return 0, 0, Size()


_PARTS: Final = frozenset(
    {
        *("_?_:_", "_[_]", "_[?_]", "_?._", "orValue", "or", "value", "dyn"),
        *("optional.of", "optional.ofNonZeroValue", "optional.none"),
    }
)
"""Functions that return one of their arguments, or a part of it."""

_FUNCTIONS: Final[Mapping[str, Called]] = {
    **dict.fromkeys(
        ("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith"), _compared
    ),
    **dict.fromkeys(("_&&_", "_||_", "!_", "hasValue", "type", "@not_strictly_false"), _nothing),
    **dict.fromkeys(("_-_", "-_", "_*_", "_/_", "_%_"), _nothing),
    **dict.fromkeys(("int", "uint", "double", "bool", "size"), _measured),
    "_+_": _added,
    "@in": _within,
    **dict.fromkeys(("contains", "indexOf", "lastIndexOf"), _searched),
    "matches": _matched,
    "replace": _replaced,
    "split": _split,
    "join": _joined,
    "format": _formatted,
    "indexesBelow": _indexes,
    "mebibytes": _measured,
    "valuesIn": _nothing,
}
