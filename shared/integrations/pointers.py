"""Field paths and JSON pointers of an object: find, change in a copy, and say which a patch may write."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from shared.contracts.kube.kinds import Object

Tokens = tuple[str, ...]


def found(value: Any, path: Sequence[str]) -> Any:
    """The value at the path; None if there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def entries(value: Any) -> Iterator[tuple[str, Any]]:
    """The items of a list with their indexes, or of a map with their keys, in order."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield str(place), item


def pointer(path: Sequence[str]) -> str:
    """The JSON pointer of a path: `/spec/template`."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path)


def tokens(path: str) -> Tokens:
    """The path of a JSON pointer."""
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:])


def without(value: Any, path: Sequence[str]) -> Any:
    """A copy of `value` without what is at `path`; `value` itself if there is nothing."""
    step, *rest = path
    if not isinstance(value, dict) or step not in value:
        return value
    if not rest:
        return {key: item for key, item in value.items() if key != step}
    below = without(value[step], rest)
    return value if below is value[step] else {**value, step: below}


def written(value: Object, path: Sequence[str], new: Any) -> Object:
    """A copy of `value` with `new` at `path`. Missing maps on the way are created."""
    step, *rest = path
    if isinstance(value, list) and (not step.isdigit() or int(step) >= len(value)):
        value = {}  # Where a map was expected: what was there cannot be meant.
    if isinstance(value, list):
        at = int(step)
        item = written(value[at], rest, new) if rest else new
        return [*value[:at], item, *value[at + 1 :]]
    if not rest:
        return {**value, step: new}
    below = value.get(step)
    return {**value, step: written(below if isinstance(below, dict | list) else {}, rest, new)}


def with_missing_maps(obj: Object, operations: Sequence[Object]) -> list[Object]:
    """The operations of a JSON patch, so that each `add` finds the map to which it adds."""
    result = []
    for operation in operations:
        path = tokens(operation["path"])
        if operation["op"] != "add" or found(obj, path[:-1]) is not None:
            result.append(operation)
            if operation["op"] == "add" and found(obj, path) is None and path[-1] != "-":
                obj = written(obj, path, operation["value"])
            continue
        there = next(at for at in range(len(path) - 1, -1, -1) if found(obj, path[:at]) is not None)
        value: Any = operation["value"]
        for step in reversed(path[there + 1 :]):
            value = {step: value}
        result.append({"op": "add", "path": pointer(path[: there + 1]), "value": value})
        obj = written(obj, path, operation["value"])
    return result


# What patches of documents may write ---------------------------------------------------------------

SCALARS: Final = ("bool", "int", "double", "string", "null")
"""Types of a value that holds or starts a job."""

BOUNDED: Final = ("hold", "release", "stop", "end", "cancel")
"""Patches that hold, start, stop or end a job."""

_CONTENTS: Final = frozenset(
    (
        *("args", "command", "containers", "entrypoint", "env", "ephemeralContainers", "finally"),
        *("image", "initContainers", "params", "pipelineRef", "pipelineSpec", "script"),
        *("securityContext", "serviceAccountName", "steps", "taskRef", "taskRunSpecs", "taskSpec"),
        *("tasks", "template", "templates", "volumes", "workspaces"),
    )
)
"""Names of fields that say what runs, and as whom. So does what ends in `Template`."""


def why_beyond(path: str, value: Any) -> str | None:
    """Why a patch that holds or starts a job may not write a value at a JSON pointer; None: it may."""
    if isinstance(value, dict | list) and value:
        return (
            "what holds or starts a job is a text, a number, true or false, not an object or list"
        )
    first, *parts = path.split("/")[1:] or [""]
    if first == "metadata":
        named = len(parts) == 2 and parts[0] in {"annotations", "labels"}
        return None if named else "of metadata it writes one annotation or label"
    if first != "spec" or not parts:
        return "it writes below /spec/, or one annotation or label"
    for part in parts:
        if part in _CONTENTS or part.endswith("Template"):
            return f"{part} says what runs, not whether it runs"
        if part == "-" or part.isdecimal():
            return f"{part} is an item of a list, not a field that holds or starts a job"
    return None


def beyond_shipped(
    patches: Sequence[tuple[str, str]], permitted: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Fields of a document whose patches write what the one that ships does not, each with the reason.

    `patches`: field and JSON pointer of each operation. `permitted`: pointers of the one that ships.
    """
    places = ", ".join(sorted(permitted)) or "nothing"
    for field, path in patches:
        if path not in permitted:
            yield (
                field,
                f"{path}: for this kind, which ships with Sluicegate, patches write {places}",
            )
