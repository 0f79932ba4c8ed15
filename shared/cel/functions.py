"""Functions that expressions of Integrations have beside CEL's: each looks once at what it is given.

In CEL the same takes a loop, and a copy of its result for each item of the loop.
"""

import re
from typing import Any, Final

from cel_expr_python import cel

_PART_MAX: Final = 37
"""Characters of a range of two numbers of 64 bits. Many digits take long to read."""

_SIZE: Final = re.compile(r"([0-9]{1,18})([a-z]{0,2})")
_UNITS: Final = {"": 20, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
"""Bits by which the units of the JVM are larger than a byte."""

_BITS_MAX: Final = 62


def extension() -> Any:
    """`indexesBelow`, `mebibytes` and `valuesIn`, for an environment."""
    list_, map_ = cel.Type.List(cel.Type.DYN), cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    text, number = cel.Type.STRING, cel.Type.INT

    def method(name: str, returns: Any, parameters: list[Any], called: Any) -> Any:
        return cel.Overload(
            name, return_type=returns, parameters=parameters, is_member=True, impl=called
        )

    below = method("indexes_below", number, [text, number], _indexes_below)
    size = method("mebibytes", number, [text], _mebibytes)
    among = [
        method("values_of_map_in", number, [map_, list_], _values_in),
        method("values_of_list_in", number, [list_, list_], _values_in),
    ]
    return cel.CelExtension(
        "sluicegate",
        [
            cel.FunctionDecl("indexesBelow", [below]),
            cel.FunctionDecl("mebibytes", [size]),
            cel.FunctionDecl("valuesIn", among),
        ],
    )


def _indexes_below(text: str, limit: int) -> int:
    """Return how many whole numbers below `limit` a text such as `1,3-5` names.

    Raises `ValueError` for another text.
    """
    ranges: list[tuple[int, int]] = []
    single: set[int] = set()
    for part in text.split(","):
        if len(part) > _PART_MAX:
            raise ValueError(f"{part[:_PART_MAX]}… is no index")
        if "-" in part:
            first, last = part.split("-")
            ranges.append((int(first), int(last or first)))
        elif part:
            single.add(int(part))
    if not ranges:
        return sum(one < limit for one in single)
    count = following = 0
    for start, end in sorted([*ranges, *((one, one) for one in single)]):
        if end >= following:
            count += max(min(end + 1, limit) - max(start, following), 0)
            following = end + 1
    return count


def _mebibytes(text: str) -> int:
    """Return the whole MiB of a size as the JVM has it: `512m`, `4g`, `1tb`; a number alone is MiB.

    Raises `ValueError` for another text, or a size that no 64 bits hold.
    """
    found = _SIZE.fullmatch(text.strip().lower()) if len(text) <= _PART_MAX else None
    unit = (
        None
        if found is None
        else _UNITS.get(found[2] if found[2] == "b" else found[2].removesuffix("b"))
    )
    if found is None or unit is None:
        raise ValueError(f"{text[:_PART_MAX]!r} is no size such as 512m or 4g")
    size = int(found[1]) << unit
    if size.bit_length() > _BITS_MAX:
        raise ValueError(f"{text[:_PART_MAX]!r} is too large")
    return size >> _UNITS["m"]


def _values_in(values: Any, texts: list[Any]) -> int:
    """Return how many values of a map or a list are among those texts."""
    wanted = frozenset(text for text in texts if isinstance(text, str))
    found = values.values() if isinstance(values, dict) else values
    return sum(isinstance(one, str) and one in wanted for one in found)
