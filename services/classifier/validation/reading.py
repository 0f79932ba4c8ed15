"""Reads objects leniently: an old object may have been stored under other rules."""

from collections.abc import Iterator
from typing import Any

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
