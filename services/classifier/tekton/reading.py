"""Reads a PipelineRun strictly: a field of a wrong type is an error that names its path."""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from shared.contracts.kube.kinds import Object

NESTING_MAX: Final = 100
"""Levels of nested lists and objects. Real pipelines have about fifteen."""

_STRING_FIELDS: Final = frozenset(
    {
        "apiVersion",
        "cel",
        "description",
        "image",
        "input",
        "kind",
        "managedBy",
        "name",
        "onError",
        "operator",
        "pipelineTaskName",
        "resolver",
        "script",
        "serviceAccountName",
        "status",
        "type",
        "workingDir",
    }
)

_LIST_FIELDS: Final = frozenset(
    {
        "enum",
        "env",
        "finally",
        "include",
        "params",
        "results",
        "sidecars",
        "steps",
        "taskRunSpecs",
        "tasks",
        "when",
        "workspaces",
    }
)

_STRING_LIST_FIELDS: Final = frozenset({"args", "command", "runAfter", "values"})

OBJECT_FIELDS: Final = frozenset(
    {
        "configMap",
        "csi",
        "emptyDir",
        "persistentVolumeClaim",
        "projected",
        "secret",
        "volumeClaimTemplate",
    }
)


class InvalidPipelineRunError(ValueError):
    """The PipelineRun is invalid: Tekton would refuse it too."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"pipelinerun validation failed: invalid pipelinerun: {problem}")


def without_empty(raw: Object, path: str, keep: tuple[str, ...] = ()) -> Object:
    """Drop what Go's `omitempty` drops; an object in `keep` stays even if it is empty.

    Checks types by the field's name: a field has the same type wherever it occurs.
    """
    for key, value in raw.items():
        where = f"{path}.{key}".lstrip(".")
        if key in _STRING_FIELDS and not isinstance(value, str | None):
            raise InvalidPipelineRunError(f"{where}: must be a string, got {described(value)}")
        if key in _LIST_FIELDS or key in _STRING_LIST_FIELDS:
            for place, item in enumerate(listed(value, where)):
                if key in _STRING_LIST_FIELDS and not isinstance(item, str):
                    problem = f"{where}[{place}]: must be a string, got {described(item)}"
                    raise InvalidPipelineRunError(problem)
                if key in _LIST_FIELDS and key != "enum":
                    mapping(item, f"{where}[{place}]")
        if key in OBJECT_FIELDS:
            mapping(value, where)
        if key == "retries" and type(value) is not int and value is not None:
            raise InvalidPipelineRunError(
                f"{where}: must be a whole number, got {described(value)}"
            )
    return {
        key: value
        for key, value in raw.items()
        if value or (key in keep and value is not None and not isinstance(value, str))
    }


def as_doubles(value: Any, depth: int = 0) -> Any:
    """Return a copy of a JSON value with every integer as a double, and without nulls."""
    if depth > NESTING_MAX:
        raise InvalidPipelineRunError(f"nested more than {NESTING_MAX} levels deep")
    if isinstance(value, dict):
        # Most values are strings: skipping the call for them halves the time.
        return {
            key: item if type(item) is str else as_doubles(item, depth + 1)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [item if type(item) is str else as_doubles(item, depth + 1) for item in value]
    return float(value) if type(value) is int else value


def as_json(value: Any) -> str:
    """Return the JSON text of a value. Raises `InvalidPipelineRunError` if it is nested too deeply."""
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:  # orjson allows 254 levels
        raise InvalidPipelineRunError(f"nested more than {NESTING_MAX} levels deep") from error


def mapping(raw: Any, path: str) -> Object:
    """Return an object; an empty one for None. Raises `InvalidPipelineRunError`."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise InvalidPipelineRunError(f"{path}: must be an object, got {described(raw)}")
    return raw


def mappings(raw: Any, path: str) -> Iterator[tuple[int, Object]]:
    """Yield the index and object of each item in a list. Raises `InvalidPipelineRunError`."""
    for place, item in enumerate(listed(raw, path)):
        yield place, mapping(item, f"{path}[{place}]")


def listed(raw: Any, path: str) -> list[Any]:
    """Return a list; an empty one for None. Raises `InvalidPipelineRunError`."""
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise InvalidPipelineRunError(f"{path}: must be a list, got {described(raw)}")
    return raw


def param_type(value: Any) -> str:
    """Return Tekton's type of a parameter value: `array`, `object` or `string`."""
    if isinstance(value, list):
        return "array"
    return "object" if isinstance(value, dict) else "string"


def described(value: Any) -> str:
    """Return the JSON type of a value and the start of its text, for an error message."""
    names = {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}
    return f"{names.get(type(value), 'number')} {as_json(value)[:60]}"
