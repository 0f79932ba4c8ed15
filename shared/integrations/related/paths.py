"""Follows paths that are data: texts such as `template.spec.jobs[0].template`. Pure."""

import re
from collections.abc import Iterator
from typing import Any, Final

from shared.contracts.kube.kinds import Object

PATH_CHARS_MAX: Final = 512
"""Length of a path. Longer ones lead nowhere: each step is a field of the object or a place in a list."""

_FIRST: Final = re.compile(r"[^.\[\]]+")
_NEXT: Final = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]")


class PathError(ValueError):
    """A path leads nowhere. The text names the path and the place where it ends."""


def _steps_of(path: Any) -> tuple[str, ...]:
    """The names and places of which a path consists. Raises `PathError`."""
    if not isinstance(path, str) or not path:
        raise PathError("must be a text that says where the pod template is")
    if len(path) > PATH_CHARS_MAX:
        raise PathError(f"{path[:40]!r}…: must have at most {PATH_CHARS_MAX} characters")
    return tuple(_steps(path))


def _steps(path: str) -> Iterator[str]:
    first = _FIRST.match(path)
    if first is None:
        raise PathError(f"{path!r}: must begin with the name of a field")
    yield first[0]
    at = first.end()
    while at < len(path):
        step = _NEXT.match(path, at)
        if step is None:
            raise PathError(
                f"{path!r}: after {path[:at]!r} must come .name of a field or [place] in a list"
            )
        yield step[1] or step[2]
        at = step.end()


def follow(root: Object, path: Any) -> tuple[tuple[str, ...], Object]:
    """The steps of a path, and the map to which it leads. Raises `PathError`."""
    steps, value = _steps_of(path), root
    for place, step in enumerate(steps):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise PathError(f"{path!r}: {_lacks(value, '.'.join(steps[:place]) or 'it', step)}")
    if not isinstance(value, dict):
        raise PathError(f"{path!r}: is {_named(value)}, not a map")
    return steps, value


def _lacks(value: Any, where: str, step: str) -> str:
    if isinstance(value, list):
        return f"{where} is a list of {len(value)}, which has no {step!r}"
    if isinstance(value, dict):
        return f"{where} has no {step!r}"
    return f"{where} is {_named(value)}, which has no {step!r}"


def _named(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
