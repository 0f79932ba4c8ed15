"""Where in an object something is: field paths and JSON pointers, and changes by them."""

from collections.abc import Iterator, Sequence
from typing import Any

from shared.contracts.kube.kinds import Object

Tokens = tuple[str, ...]


def found(value: Any, path: Sequence[str]) -> Any:
    """What is there; None for nothing."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def entries(value: Any) -> Iterator[tuple[str, Any]]:
    """The items of a list with their places, or of a map with their names, in order."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield str(place), item


def pointer(path: Sequence[str]) -> str:
    """`/spec/template`, as a JSON patch has it."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path)


def tokens(path: str) -> Tokens:
    """The steps of a JSON pointer."""
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:])


def without(value: Any, path: Sequence[str]) -> Any:
    """A copy of `value` that lacks what is at `path`; `value` itself where nothing is there."""
    step, *rest = path
    if not isinstance(value, dict) or step not in value:
        return value
    if not rest:
        return {key: item for key, item in value.items() if key != step}
    below = without(value[step], rest)
    return value if below is value[step] else {**value, step: below}


def written(value: Object, path: Sequence[str], new: Any) -> Object:
    """A copy of `value` with `new` at `path`; maps on the way are made."""
    step, *rest = path
    if not rest:
        return {**value, step: new}
    below = value.get(step)
    return {**value, step: written(below if isinstance(below, dict) else {}, rest, new)}
