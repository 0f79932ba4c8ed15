"""Reads objects leniently: an old object may have been stored under other rules."""

from collections.abc import Iterator
from typing import Any, Final

from shared.contracts.kube.kinds import Object
from shared.contracts.kube.quantities import QuantityError, parse_quantity


def at(obj: Any, *path: str) -> Any:
    """Return the value at `path`; None if it is missing."""
    for step in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(step)
    return obj


def mapping(obj: Any, *path: str) -> Object:
    """Return the mapping at `path`; an empty one if it is missing."""
    found = at(obj, *path)
    return found if isinstance(found, dict) else {}


def listed(obj: Any, *path: str) -> list[Any]:
    """Return the list at `path`; an empty one if it is missing."""
    found = at(obj, *path)
    return found if isinstance(found, list) else []


def indexed(field: str, items: list[Any]) -> Iterator[tuple[str, Object]]:
    """Yield the path and the value of each mapping in a list."""
    for index, item in enumerate(items):
        if isinstance(item, dict):
            yield f"{field}[{index}]", item


def keyed(items: list[Any], key: str = "name", default: str = "") -> dict[str, Object]:
    """Return the mappings in a list, by one of their fields."""
    return {str(item.get(key, default)): item for item in items if isinstance(item, dict)}


def number(obj: Any, field: str, default: int) -> int:
    """Return the integer in a field; `default` if there is none."""
    value = at(obj, field)
    return value if isinstance(value, int) else default


def quantity(value: Any) -> int | None:
    """Return a quantity in billionths; None if it is missing or cannot be read."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return parse_quantity(str(value))
    except QuantityError:
        return None


_QUANTITIES: Final = frozenset({"requests", "limits", "resourceUsage"})
"""Fields whose values are quantities by resource."""


def is_same(one: Any, other: Any) -> bool:
    """Whether two values mean the same: quantities count by amount, and what is empty counts as absent.

    That is how an API server compares (`equality.Semantic` of k8s.io/apimachinery). Clients in Go leave out
    what is empty, and write quantities in a form of their own.
    """
    return one == other or bool(_meaning(one) == _meaning(other))


def _meaning(value: Any, *, of_quantities: bool = False) -> Any:
    if isinstance(value, dict):
        known = {
            key: _meaning(each, of_quantities=key in _QUANTITIES) for key, each in value.items()
        }
        if of_quantities:
            known = {key: _amount(each) for key, each in value.items()}
        return {key: each for key, each in known.items() if each is not None} or None
    if isinstance(value, list):
        return [_meaning(each) for each in value] or None
    return value


def _amount(value: Any) -> Any:
    amount = quantity(value)
    return value if amount is None else amount
