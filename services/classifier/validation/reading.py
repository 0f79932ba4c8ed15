"""Reads objects of which nothing is certain: an old one may have been stored under other rules."""

from collections.abc import Iterator
from typing import Any

from shared.contracts.kube.kinds import Object
from shared.contracts.kube.quantities import QuantityError, parse_quantity

__all__ = ["at", "holds", "indexed", "keyed", "listed", "mapping", "number", "quantity"]


def at(obj: Any, *path: str) -> Any:
    """The value at `path`, None where there is none."""
    for step in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(step)
    return obj


def mapping(obj: Any, *path: str) -> Object:
    """The mapping at `path`, an empty one where there is none."""
    found = at(obj, *path)
    return found if isinstance(found, dict) else {}


def listed(obj: Any, *path: str) -> list[Any]:
    """The list at `path`, an empty one where there is none."""
    found = at(obj, *path)
    return found if isinstance(found, list) else []


def indexed(field: str, items: list[Any]) -> Iterator[tuple[str, Object]]:
    """The mappings of a list, each with its path."""
    for index, item in enumerate(items):
        if isinstance(item, dict):
            yield f"{field}[{index}]", item


def keyed(items: list[Any], key: str = "name", default: str = "") -> dict[str, Object]:
    """The mappings of a list by one of their fields."""
    return {str(item.get(key, default)): item for item in items if isinstance(item, dict)}


def holds(obj: Object | None, condition: str) -> bool:
    """Whether a condition of the object is True."""
    found = keyed(listed(obj, "status", "conditions"), "type").get(condition, {})
    return bool(found.get("status") == "True")


def number(obj: Any, field: str, otherwise: int) -> int:
    """The integer in a field, `otherwise` where there is none."""
    value = at(obj, field)
    return value if isinstance(value, int) else otherwise


def quantity(value: Any) -> int | None:
    """The quantity in billionths, None where there is none that can be read."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return parse_quantity(str(value))
    except QuantityError:
        return None
