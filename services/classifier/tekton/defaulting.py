"""A PipelineRun as expressions see it: decoded, defaulted and validated as Tekton does it.

Admission comes before Tekton's own webhook, so what Tekton would fill in is not there yet. The
rules are those of Tekton Pipelines 1.11 with its compiled-in configuration (default timeout one
hour, API fields "beta"): what a cluster configured differently is not known here. What is made
here is only ever looked at; none of it is written back.
"""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

import orjson

from shared.contracts.kube.kinds import Object

__all__ = [
    "DEFAULT_TIMEOUT_NANOSECONDS",
    "InvalidPipelineRunError",
    "as_it_is",
    "decode",
    "format_duration",
    "parse_duration",
]

SECOND: Final = 1_000_000_000
DEFAULT_TIMEOUT_NANOSECONDS: Final = 3_600 * SECOND
INT64_MAX: Final = 2**63 - 1

NESTING_MAX: Final = 100
"""Levels of lists and objects in one another. Real pipelines have about fifteen."""

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3_600 * SECOND,
}
_DURATION = re.compile(r"[-+]?((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+")
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")

_SPEC_FIELDS: Final = frozenset(
    {
        "pipelineRef",
        "pipelineSpec",
        "params",
        "status",
        "timeouts",
        "taskRunTemplate",
        "workspaces",
        "taskRunSpecs",
        "managedBy",
    }
)
_PIPELINE_FIELDS: Final = frozenset(
    {
        "displayName",
        "description",
        "tasks",
        "params",
        "workspaces",
        "results",
        "finally",
    }
)
_TASK_FIELDS: Final = frozenset(
    {
        "name",
        "displayName",
        "description",
        "taskRef",
        "taskSpec",
        "when",
        "retries",
        "runAfter",
        "params",
        "matrix",
        "workspaces",
        "timeout",
        "pipelineRef",
        "pipelineSpec",
        "onError",
    }
)
_NAMED: Final = ("pipelineRef", "pipelineSpec", "taskRef", "taskSpec", "timeouts")
"""Objects that count as given even when they are empty."""

_TEXTS: Final = frozenset(
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
_LISTS: Final = frozenset(
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
_LISTS_OF_TEXTS: Final = frozenset({"args", "command", "runAfter", "values"})
_OBJECTS: Final = frozenset(
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
    """The PipelineRun is at fault: Tekton would refuse it as well."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"pipelinerun validation failed: invalid pipelinerun: {problem}")


def decode(pipeline_run: Mapping[str, Any]) -> Object:
    """Copy a PipelineRun as Tekton's types would hold it after defaulting.

    Unknown fields and empty values are gone, parameter values are strings, lists of strings or
    maps of strings, durations are spelled as Go spells them, and every number is a double: that
    is what JSON has. Raises `InvalidPipelineRunError` where a value has the wrong type.
    """
    metadata = _mapping(pipeline_run.get("metadata"), "metadata")
    seen: Object = {
        "apiVersion": pipeline_run.get("apiVersion", ""),
        "kind": pipeline_run.get("kind", ""),
        "metadata": _doubles(_without_empty(metadata, "metadata")),
        "spec": _spec(_mapping(pipeline_run.get("spec"), "spec")),
        "status": _doubles(_mapping(pipeline_run.get("status"), "status")),
    }
    for field in ("labels", "annotations"):
        for key, value in _mapping(metadata.get(field), f"metadata.{field}").items():
            if not isinstance(value, str):
                raise InvalidPipelineRunError(
                    f"metadata.{field}[{key}]: must be a string, got {_kind(value)}"
                )
    return seen


def as_it_is(obj: Mapping[str, Any]) -> Object:
    """Copy an object of another kind for the same expressions: every number a double, no nulls.

    Raises `InvalidPipelineRunError` where it is nested too deeply.
    """
    shown: Object = _doubles(dict(obj))
    return shown


def _spec(raw: Object) -> Object:
    spec = _known(raw, _SPEC_FIELDS, "")
    if "pipelineRef" in spec:
        spec["pipelineRef"] = _reference(spec["pipelineRef"], "pipelineRef")
    if "pipelineSpec" in spec:
        spec["pipelineSpec"] = _pipeline(spec["pipelineSpec"], "pipelineSpec")
    if "params" in spec:
        spec["params"] = _params(spec["params"], "params")
    for field in ("workspaces", "taskRunSpecs"):
        if field in spec:
            spec[field] = [
                _without_empty(item, f"{field}[{place}]", keep=tuple(_OBJECTS))
                for place, item in _objects(spec[field], field)
            ]
    for place, item in enumerate(spec.get("taskRunSpecs", [])):
        if "timeout" in item:
            item["timeout"] = _duration(item["timeout"], f"taskRunSpecs[{place}].timeout")
    timeouts = _durations(_mapping(spec.get("timeouts"), "timeouts"), "timeouts")
    timeouts.setdefault("pipeline", format_duration(DEFAULT_TIMEOUT_NANOSECONDS))
    spec["timeouts"] = timeouts
    template = _without_empty(
        _mapping(spec.get("taskRunTemplate"), "taskRunTemplate"), "taskRunTemplate"
    )
    template.setdefault("serviceAccountName", "default")
    spec["taskRunTemplate"] = template
    doubled: Object = _doubles(spec)
    return doubled


def _pipeline(raw: Any, path: str) -> Object:
    pipeline = _known(_mapping(raw, path), _PIPELINE_FIELDS, path)
    if "params" in pipeline:
        pipeline["params"] = _param_specs(pipeline["params"], f"{path}.params")
    if "workspaces" in pipeline:
        pipeline["workspaces"] = [
            _without_empty(workspace, f"{path}.workspaces[{place}]")
            for place, workspace in _objects(pipeline["workspaces"], f"{path}.workspaces")
        ]
    for field in ("tasks", "finally"):
        if field in pipeline:
            pipeline[field] = [
                _task(task, f"{path}.{field}[{place}]")
                for place, task in enumerate(pipeline[field])
            ]
    return pipeline


def _task(raw: Any, path: str) -> Object:
    task = _known(_mapping(raw, path), _TASK_FIELDS, path)
    if "params" in task:
        task["params"] = _params(task["params"], f"{path}.params")
    if "taskRef" in task:
        task["taskRef"] = _reference(task["taskRef"], f"{path}.taskRef")
        if not task["taskRef"].get("resolver"):
            task["taskRef"].setdefault("kind", "Task")
    if "taskSpec" in task:
        task["taskSpec"] = _task_spec(task["taskSpec"], f"{path}.taskSpec")
    if "pipelineRef" in task:
        task["pipelineRef"] = _reference(task["pipelineRef"], f"{path}.pipelineRef")
    if "pipelineSpec" in task:
        task["pipelineSpec"] = _pipeline(task["pipelineSpec"], f"{path}.pipelineSpec")
    if "matrix" in task:
        task["matrix"] = _matrix(task["matrix"], f"{path}.matrix")
    if "when" in task:
        task["when"] = [
            _without_empty(expression, f"{path}.when[{place}]")
            for place, expression in _objects(task["when"], f"{path}.when")
        ]
    if "timeout" in task:
        task["timeout"] = _duration(task["timeout"], f"{path}.timeout")
    return task


def _task_spec(raw: Any, path: str) -> Object:
    spec = _without_empty(_mapping(raw, path), path)
    spec["metadata"] = _mapping(spec.get("metadata"), f"{path}.metadata")
    if "params" in spec:
        spec["params"] = _param_specs(spec["params"], f"{path}.params")
    for field in ("steps", "sidecars"):
        if field in spec:
            spec[field] = [
                {"name": "", "computeResources": {}}
                | _without_empty(step, f"{path}.{field}[{place}]")
                for place, step in _objects(spec[field], f"{path}.{field}")
            ]
    return spec


def _matrix(raw: Any, path: str) -> Object:
    matrix = _without_empty(_mapping(raw, path), path)
    if "params" in matrix:
        matrix["params"] = _params(matrix["params"], f"{path}.params")
    if "include" in matrix:
        matrix["include"] = [
            _without_empty(entry, f"{path}.include[{place}]")
            | {"params": _params(entry.get("params"), f"{path}.include[{place}].params")}
            for place, entry in _objects(matrix["include"], f"{path}.include")
        ]
    return matrix


def _reference(raw: Any, path: str) -> Object:
    reference = _without_empty(_mapping(raw, path), path)
    if "params" in reference:
        reference["params"] = _params(reference["params"], f"{path}.params")
    return reference


def _params(raw: Any, path: str) -> list[Object]:
    params = []
    for place, item in enumerate(_list(raw, path)):
        param = _mapping(item, f"{path}[{place}]")
        name = param.get("name") or ""
        if not isinstance(name, str):
            raise InvalidPipelineRunError(
                f"{path}[{place}].name: must be a string, got {_kind(name)}"
            )
        if "value" not in param:
            raise InvalidPipelineRunError(f"missing field(s): {path}[{place}].value")
        params.append({"name": name, "value": _param_value(param["value"])})
    return params


def _param_value(raw: Any) -> str | list[str] | dict[str, str]:
    """Read a value as Tekton reads it: what is not string, strings or map of strings is its text."""
    match raw:
        case None:
            return ""
        case str():
            return raw
        case list() if all(item is None or isinstance(item, str) for item in raw):
            return [item or "" for item in raw]
        case dict() if all(item is None or isinstance(item, str) for item in raw.values()):
            return {key: item or "" for key, item in raw.items()}
        case _:
            return _json(raw)


def _param_specs(raw: Any, path: str) -> list[Object]:
    specs = []
    for place, item in enumerate(_list(raw, path)):
        where = f"{path}[{place}]"
        spec = _without_empty(_mapping(item, where), where, keep=("default", "properties"))
        spec["name"] = spec.get("name", "")
        if spec.get("default") is None:
            spec.pop("default", None)
        else:
            spec["default"] = _param_value(spec["default"])
        if properties := _mapping(spec.get("properties"), f"{where}.properties"):
            spec["properties"] = {
                key: {"type": "string"} | _without_empty(_mapping(value, where), where)
                for key, value in properties.items()
            }
        spec.setdefault("type", _type_of_spec(spec))
        specs.append(spec)
    return specs


def _type_of_spec(spec: Mapping[str, Any]) -> str:
    if spec.get("properties") is not None:
        return "object"
    match spec.get("default"):
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "string"


def _durations(raw: Object, path: str) -> Object:
    return {
        field: _duration(value, f"{path}.{field}")
        for field, value in raw.items()
        if value is not None and field in {"pipeline", "tasks", "finally"}
    }


def _duration(raw: Any, path: str) -> str:
    if not isinstance(raw, str):
        raise InvalidPipelineRunError(f"{path}: must be a duration like 1h30m, got {_kind(raw)}")
    return format_duration(parse_duration(raw, path))


def parse_duration(text: str, path: str) -> int:
    """Read a duration as Go does, in nanoseconds. Raises `InvalidPipelineRunError` naming `path`."""
    if text in {"0", "+0", "-0"}:
        return 0
    if not _DURATION.fullmatch(text):
        raise InvalidPipelineRunError(f'{path}: invalid duration "{text}"')
    total = sum(
        int(Fraction(f"0{number}" if number.startswith(".") else number.rstrip(".")) * _UNITS[unit])
        for number, unit in _DURATION_PART.findall(text)
    )
    if total > INT64_MAX:
        raise InvalidPipelineRunError(f'{path}: duration "{text}" is out of range')
    return -total if text.startswith("-") else total


def format_duration(nanoseconds: int) -> str:
    """Spell a duration as Go does: `1h30m0s`, `1m0s`, `1.5s`, `20ms`, `0s`."""
    sign, left = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if left < SECOND:
        for unit in ("ms", "µs", "ns"):
            if left >= _UNITS[unit]:
                return f"{sign}{_decimal(left, _UNITS[unit])}{unit}"
        return "0s"
    minutes, rest = divmod(left, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, SECOND)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return sign + (f"{hours}h{text}" if hours else text)


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0").rstrip(".") if rest else str(whole)


def _known(raw: Object, fields: frozenset[str], path: str) -> Object:
    return {k: v for k, v in _without_empty(raw, path, keep=_NAMED).items() if k in fields}


def _without_empty(raw: Object, path: str, keep: tuple[str, ...] = ()) -> Object:
    """Drop what Go's `omitempty` drops; an object in `keep` stays even when it is empty.

    A field has one type wherever it occurs, so types are checked here by name.
    """
    for key, value in raw.items():
        where = f"{path}.{key}".lstrip(".")
        if key in _TEXTS and not isinstance(value, str | None):
            raise InvalidPipelineRunError(f"{where}: must be a string, got {_kind(value)}")
        if key in _LISTS or key in _LISTS_OF_TEXTS:
            for place, item in enumerate(_list(value, where)):
                if key in _LISTS_OF_TEXTS and not isinstance(item, str):
                    problem = f"{where}[{place}]: must be a string, got {_kind(item)}"
                    raise InvalidPipelineRunError(problem)
                if key in _LISTS and key != "enum":
                    _mapping(item, f"{where}[{place}]")
        if key in _OBJECTS:
            _mapping(value, where)
        if key == "retries" and type(value) is not int and value is not None:
            raise InvalidPipelineRunError(f"{where}: must be a whole number, got {_kind(value)}")
    return {
        key: value
        for key, value in raw.items()
        if value or (key in keep and value is not None and not isinstance(value, str))
    }


def _doubles(value: Any, depth: int = 0) -> Any:
    """Copy `value` with every integer as a double, and without nulls."""
    if depth > NESTING_MAX:
        raise InvalidPipelineRunError(f"nested more than {NESTING_MAX} levels deep")
    if isinstance(value, dict):
        # Most values are text; not calling for each of them halves the time.
        return {
            key: item if type(item) is str else _doubles(item, depth + 1)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [item if type(item) is str else _doubles(item, depth + 1) for item in value]
    return float(value) if type(value) is int else value


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:  # orjson's own limit, 254 levels
        raise InvalidPipelineRunError(f"nested more than {NESTING_MAX} levels deep") from error


def _mapping(raw: Any, path: str) -> Object:
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise InvalidPipelineRunError(f"{path}: must be an object, got {_kind(raw)}")
    return raw


def _objects(raw: Any, path: str) -> Iterator[tuple[int, Object]]:
    for place, item in enumerate(_list(raw, path)):
        yield place, _mapping(item, f"{path}[{place}]")


def _list(raw: Any, path: str) -> list[Any]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise InvalidPipelineRunError(f"{path}: must be a list, got {_kind(raw)}")
    return raw


def _kind(value: Any) -> str:
    names = {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}
    return f"{names.get(type(value), 'number')} {_json(value)[:60]}"
