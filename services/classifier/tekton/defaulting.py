"""Decodes and defaults a PipelineRun as Tekton does, for the expressions.

An API server calls this webhook before Tekton's, so the defaults are not there yet. The rules are those of
Tekton Pipelines 1.11 with its built-in configuration (default timeout one hour, API fields "beta"); a
cluster's own configuration is unknown here. The result is only read, never written back.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from services.classifier.tekton.durations import format_duration, parse_duration
from services.classifier.tekton.reading import (
    OBJECT_FIELDS,
    InvalidPipelineRunError,
    as_doubles,
    as_json,
    described,
    listed,
    mapping,
    mappings,
    param_type,
    without_empty,
)
from shared.contracts.kube.kinds import Object

_DEFAULT_TIMEOUT: Final = "1h0m0s"

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
"""Objects that stay even if they are empty."""


def decode(pipeline_run: Mapping[str, Any]) -> Object:
    """Return a copy of a PipelineRun as Tekton's Go types hold it after defaulting.

    Unknown fields and empty values are dropped. Parameter values are strings, lists of strings or maps of
    strings; durations have Go's spelling; every number is a double, as in JSON. Raises
    `InvalidPipelineRunError` for a value of a wrong type.
    """
    metadata = mapping(pipeline_run.get("metadata"), "metadata")
    run: Object = {
        "apiVersion": pipeline_run.get("apiVersion", ""),
        "kind": pipeline_run.get("kind", ""),
        "metadata": as_doubles(without_empty(metadata, "metadata")),
        "spec": _spec(mapping(pipeline_run.get("spec"), "spec")),
        "status": as_doubles(mapping(pipeline_run.get("status"), "status")),
    }
    for field in ("labels", "annotations"):
        for key, value in mapping(metadata.get(field), f"metadata.{field}").items():
            if not isinstance(value, str):
                raise InvalidPipelineRunError(
                    f"metadata.{field}[{key}]: must be a string, got {described(value)}"
                )
    return run


def as_it_is(obj: Mapping[str, Any]) -> Object:
    """Return a copy of an object of another kind: every number a double, no nulls.

    Raises `InvalidPipelineRunError` if it is nested too deeply.
    """
    return as_doubles(dict(obj))


def _spec(raw: Object) -> Object:
    spec = _known(raw, _SPEC_FIELDS, "")
    _replace(spec, "", {"pipelineRef": _reference, "pipelineSpec": _pipeline, "params": _params})
    for field in ("workspaces", "taskRunSpecs"):
        if field in spec:
            spec[field] = [
                without_empty(item, f"{field}[{place}]", keep=tuple(OBJECT_FIELDS))
                for place, item in mappings(spec[field], field)
            ]
    for place, item in enumerate(spec.get("taskRunSpecs", [])):
        if "timeout" in item:
            item["timeout"] = _duration(item["timeout"], f"taskRunSpecs[{place}].timeout")
    timeouts = _durations(mapping(spec.get("timeouts"), "timeouts"), "timeouts")
    timeouts.setdefault("pipeline", _DEFAULT_TIMEOUT)
    spec["timeouts"] = timeouts
    template = without_empty(
        mapping(spec.get("taskRunTemplate"), "taskRunTemplate"), "taskRunTemplate"
    )
    template.setdefault("serviceAccountName", "default")
    spec["taskRunTemplate"] = template
    return as_doubles(spec)


def _pipeline(raw: Any, path: str) -> Object:
    pipeline = _known(mapping(raw, path), _PIPELINE_FIELDS, path)
    _replace(
        pipeline,
        path,
        {"params": _param_specs, "workspaces": _objects, "tasks": _tasks, "finally": _tasks},
    )
    return pipeline


def _tasks(raw: Any, path: str) -> list[Object]:
    return [_task(task, f"{path}[{place}]") for place, task in enumerate(raw)]


def _task(raw: Any, path: str) -> Object:
    task = _known(mapping(raw, path), _TASK_FIELDS, path)
    _replace(
        task,
        path,
        {
            "params": _params,
            "taskRef": _task_reference,
            "taskSpec": _task_spec,
            "pipelineRef": _reference,
            "pipelineSpec": _pipeline,
            "matrix": _matrix,
            "when": _objects,
            "timeout": _duration,
        },
    )
    return task


def _task_reference(raw: Any, path: str) -> Object:
    reference = _reference(raw, path)
    if not reference.get("resolver"):
        reference.setdefault("kind", "Task")
    return reference


def _task_spec(raw: Any, path: str) -> Object:
    spec = without_empty(mapping(raw, path), path)
    spec["metadata"] = mapping(spec.get("metadata"), f"{path}.metadata")
    _replace(spec, path, {"params": _param_specs})
    for field in ("steps", "sidecars"):
        if field in spec:
            spec[field] = [
                {"name": "", "computeResources": {}}
                | without_empty(step, f"{path}.{field}[{place}]")
                for place, step in mappings(spec[field], f"{path}.{field}")
            ]
    return spec


def _matrix(raw: Any, path: str) -> Object:
    matrix = without_empty(mapping(raw, path), path)
    _replace(matrix, path, {"params": _params})
    if "include" in matrix:
        matrix["include"] = [
            without_empty(entry, f"{path}.include[{place}]")
            | {"params": _params(entry.get("params"), f"{path}.include[{place}].params")}
            for place, entry in mappings(matrix["include"], f"{path}.include")
        ]
    return matrix


def _reference(raw: Any, path: str) -> Object:
    reference = without_empty(mapping(raw, path), path)
    _replace(reference, path, {"params": _params})
    return reference


def _objects(raw: Any, path: str) -> list[Object]:
    return [without_empty(item, f"{path}[{place}]") for place, item in mappings(raw, path)]


def _replace(
    obj: Object,
    path: str,
    decoders: Mapping[str, Callable[[Any, str], Object | list[Object] | str]],
) -> None:
    """Decode the fields of `obj` that it has, in the order of the table."""
    for field, decoded in decoders.items():
        if field in obj:
            obj[field] = decoded(obj[field], f"{path}.{field}" if path else field)


def _params(raw: Any, path: str) -> list[Object]:
    params = []
    for place, item in enumerate(listed(raw, path)):
        param = mapping(item, f"{path}[{place}]")
        name = param.get("name") or ""
        if not isinstance(name, str):
            raise InvalidPipelineRunError(
                f"{path}[{place}].name: must be a string, got {described(name)}"
            )
        if "value" not in param:
            raise InvalidPipelineRunError(f"missing field(s): {path}[{place}].value")
        params.append({"name": name, "value": _param_value(param["value"])})
    return params


def _param_value(raw: Any) -> str | list[str] | dict[str, str]:
    """Return a parameter value. As in Tekton, a value of another type becomes its JSON text."""
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
            return as_json(raw)


def _param_specs(raw: Any, path: str) -> list[Object]:
    specs = []
    for place, item in enumerate(listed(raw, path)):
        where = f"{path}[{place}]"
        spec = without_empty(mapping(item, where), where, keep=("default", "properties"))
        spec["name"] = spec.get("name", "")
        if spec.get("default") is None:
            spec.pop("default", None)
        else:
            spec["default"] = _param_value(spec["default"])
        if properties := mapping(spec.get("properties"), f"{where}.properties"):
            spec["properties"] = {
                key: {"type": "string"} | without_empty(mapping(value, where), where)
                for key, value in properties.items()
            }
        declared_object = spec.get("properties") is not None
        spec.setdefault("type", "object" if declared_object else param_type(spec.get("default")))
        specs.append(spec)
    return specs


def _durations(raw: Object, path: str) -> Object:
    return {
        field: _duration(value, f"{path}.{field}")
        for field, value in raw.items()
        if value is not None and field in {"pipeline", "tasks", "finally"}
    }


def _duration(raw: Any, path: str) -> str:
    if not isinstance(raw, str):
        raise InvalidPipelineRunError(
            f"{path}: must be a duration like 1h30m, got {described(raw)}"
        )
    return format_duration(parse_duration(raw, path))


def _known(raw: Object, fields: frozenset[str], path: str) -> Object:
    return {k: v for k, v in without_empty(raw, path, keep=_NAMED).items() if k in fields}
