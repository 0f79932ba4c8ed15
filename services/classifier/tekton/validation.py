"""What Tekton would refuse about a PipelineRun, said before the run is classified.

These are the rules of `PipelineRunSpec.Validate` in Tekton Pipelines 1.11 that a run can break
without a cluster to ask. Tekton's own webhook comes later and has the last word: a rule that is
missing here delays a refusal, it does not lose it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from services.classifier.cel.mutations import explain_qualified_name
from services.classifier.tekton.defaulting import (
    InvalidPipelineRunError,
    format_duration,
    parse_duration,
)
from shared.contracts.kube.kinds import Object

__all__ = ["validate"]

PROBLEMS_MAX: Final = 20
DNS_LABEL_MAX: Final = 63

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_URL_LIKE = re.compile(r"[\w-]+://")
_VARIABLE = re.compile(r"\$\(([^()$]+)\)")
_RESULT = re.compile(r"(tasks|finally)\.[^.]+\.results\.\S+")
_TASK_RESULT = re.compile(r"tasks\.([^.]+)\.results\.\S+")
_PARAM = re.compile(
    r"params(?:\.([_a-zA-Z][-.\w]*)|\[\s*[\"']([-.\w]+)[\"']\s*\])(?:\[[^\]]*\])?", re.ASCII
)
_PARAM_TYPES: Final = ("string", "array", "object")
_STATUSES: Final = ("Cancelled", "CancelledRunFinally", "StoppedRunFinally", "PipelineRunPending")
_VOLUME_SOURCES: Final = (
    "persistentVolumeClaim",
    "volumeClaimTemplate",
    "emptyDir",
    "configMap",
    "secret",
    "projected",
    "csi",
)
_SOURCE_NAMES: Final = {
    "persistentVolumeClaim": "claimName",
    "configMap": "name",
    "secret": "secretName",
    "csi": "driver",
    "projected": "sources",
}
_STEP_FIELDS: Final = ("script", "image", "command", "args", "env", "workingDir")

Problems = Iterator[str]


def validate(seen: Object) -> None:
    """Raise `InvalidPipelineRunError` with all that is wrong; `seen` comes from `tekton.decode`."""
    problems = list(dict.fromkeys(_spec(seen["spec"])))
    if problems:
        more = len(problems) - PROBLEMS_MAX
        told = problems[:PROBLEMS_MAX] + ([f"and {more} more"] if more > 0 else [])
        raise InvalidPipelineRunError("; ".join(told))


def _spec(spec: Object) -> Problems:
    reference, pipeline = spec.get("pipelineRef"), spec.get("pipelineSpec")
    if reference is None and pipeline is None:
        yield "expected exactly one, got neither: pipelineRef, pipelineSpec"
    if reference is not None and pipeline is not None:
        yield "expected exactly one, got both: pipelineRef, pipelineSpec"
    if reference is not None:
        yield from _reference(reference, "pipelineRef")
    if pipeline is not None:
        yield from _pipeline(pipeline, "pipelineSpec")
        yield from _propagated(spec, pipeline)
    yield from _run_params(spec.get("params", []))
    yield from _timeouts(spec["timeouts"])
    for place, task in enumerate(spec.get("taskRunSpecs", [])):
        yield from _task_run_spec(task, spec["timeouts"], f"taskRunSpecs[{place}]")
    status = spec.get("status", "")
    if status and status not in _STATUSES:
        yield f"invalid value: {status} should be {', '.join(_STATUSES[:3])} or {_STATUSES[3]}: status"
    yield from _workspaces(spec.get("workspaces", []))


def _reference(reference: Object, path: str) -> Problems:
    name, resolver = reference.get("name", ""), reference.get("resolver", "")
    params = reference.get("params")
    if resolver or params is not None:
        if params is not None and name:
            yield f"expected exactly one, got both: {path}.name, {path}.params"
        if not resolver:
            yield f"missing field(s): {path}.resolver"
        if resolver and name and not _URL_LIKE.search(str(name)):
            yield f"invalid value: invalid URI for request: {path}.name"
        for twice in _twice(param["name"] for param in params or []):
            yield f"expected exactly one, got both: {path}[{twice}].name"
    elif not name:
        yield f"missing field(s): {path}.name"
    elif _URL_LIKE.search(str(name)):
        yield f"missing field(s): {path}.resolver"
    elif problem := explain_qualified_name(str(name)):
        yield f"invalid value: {problem}: {path}.name"


def _run_params(params: list[Object]) -> Problems:
    for twice in _twice(param["name"] for param in params):
        yield f"expected exactly one, got both: params[{twice}].name"
    for param in params:
        results = [v for v in _variables(param["value"]) if _RESULT.fullmatch(v)]
        if results:
            yield (
                f"invalid value: cannot use result expressions in {results} as PipelineRun "
                f"parameter values: params[{param['name']}].value"
            )


def _pipeline(pipeline: Object, path: str) -> Problems:
    if not pipeline:
        yield (
            "expected at least one, got none: "
            + ", ".join(f"{path}.{f}" for f in ("description", "params", "resources", "tasks"))
            + f", {path}.workspaces"
        )
    tasks, final = pipeline.get("tasks", []), pipeline.get("finally", [])
    names: dict[str, None] = {}
    for field, listed in (("tasks", tasks), ("finally", final)):
        for place, task in enumerate(listed):
            yield from _task(task, names, f"{path}.{field}[{place}]")
    yield from _graph(tasks, f"{path}.tasks")
    yield from _param_specs(pipeline.get("params", []), f"{path}.params")
    if final and not tasks:
        yield (
            f"invalid value: spec.tasks is empty but spec.finally has {len(final)} tasks: "
            f"{path}.finally"
        )
    yield from _final_tasks(tasks, final, path)
    yield from _declared_workspaces(pipeline.get("workspaces", []), f"{path}.workspaces")


def _task(task: Object, names: dict[str, None], path: str) -> Problems:
    name = task.get("name", "")
    if len(name) > DNS_LABEL_MAX or not _DNS_LABEL.fullmatch(name):
        yield f'invalid value "{name}": {path}.name (a task name must be a valid DNS label)'
    if name in names:
        yield f"expected exactly one, got both: {path}.name"
    names[name] = None
    given = [f for f in ("taskRef", "taskSpec", "pipelineRef", "pipelineSpec") if f in task]
    for field in ("pipelineRef", "pipelineSpec"):
        if field in task:
            yield (
                f'{field} requires "enable-api-fields" feature gate to be "alpha" '
                f'but it is "beta": {path}'
            )
    if len(given) > 1:
        both = ", ".join(f"{path}.{field}" for field in given)
        yield f"expected exactly one, got multiple: {both}"
    if not given:
        yield f"expected exactly one, got neither: {path}.taskRef, {path}.taskSpec"
    yield from _params_once(task.get("params", []), f"{path}.params")
    yield from _task_kind(task, path)
    yield from _matrix(task, path)
    yield from _when(task.get("when", []), f"{path}.when")
    on_error = task.get("onError", "")
    if on_error and on_error not in {"continue", "stopAndFail"} and not _variables(on_error):
        yield (f'invalid value: {on_error}: {path}.onError (must be "continue" or "stopAndFail")')
    if on_error == "continue" and task.get("retries", 0) > 0:
        yield f'onError cannot be "continue" when retries is greater than 0: {path}'


def _task_kind(task: Object, path: str) -> Problems:
    """A task of Tekton's own, or one that another controller runs."""
    reference, spec = task.get("taskRef"), task.get("taskSpec")
    for field, given in (("taskRef", reference), ("taskSpec", spec)):
        if given is None:
            continue
        kind, version = given.get("kind", ""), given.get("apiVersion", "")
        if kind not in {"", "Task"} or version:
            if not kind:
                yield f"invalid value: custom task must specify kind: {path}.{field}.kind"
            if not re.fullmatch(r"[^/]+/[^/]+", version):
                yield (
                    f"invalid value: custom task must specify apiVersion as group/version, "
                    f'got "{version}": {path}.{field}.apiVersion'
                )
        elif field == "taskRef":
            yield from _reference(given, f"{path}.taskRef")
        elif not given.get("steps"):
            yield f"missing field(s): {path}.taskSpec.steps"
        else:
            yield from _param_specs(given.get("params", []), f"{path}.taskSpec.params")
            if not given.get("stepTemplate"):  # a template may fill in what a step lacks
                yield from _steps(given["steps"], f"{path}.taskSpec.steps")


def _steps(steps: list[Object], path: str) -> Problems:
    for place, step in enumerate(steps):
        if not step.get("image") and not step.get("ref"):
            yield f"missing field(s): {path}[{place}].image"
        if step.get("script") and step.get("command"):
            yield f"script cannot be used with command: {path}[{place}].script"
    for twice in _twice(step["name"] for step in steps if step.get("name")):
        yield f'invalid value: step name "{twice}" is used more than once: {path}'


def _matrix(task: Object, path: str) -> Problems:
    matrix = task.get("matrix", {})
    listed = [("matrix.params", matrix.get("params", []))]
    for place, include in enumerate(matrix.get("include", [])):
        listed.append((f"matrix.include[{place}].params", include.get("params", [])))
    own = {param["name"] for param in task.get("params", [])}
    for field, params in listed:
        yield from _params_once(params, f"{path}.{field}")
        for param in params:
            if param["name"] in own:
                name = param["name"]
                yield f"expected exactly one, got both: {path}.matrix[{name}], params[{name}]"


def _when(expressions: list[Object], path: str) -> Problems:
    for place, expression in enumerate(expressions):
        if not expression:
            yield f"missing field(s): {path}[{place}]"
        elif expression.get("cel"):
            yield f"feature flag enable-cel-in-whenexpression should be set to true: {path}[{place}]"
        elif expression.get("operator") not in {"in", "notin"}:
            yield (
                f'invalid value: operator "{expression.get("operator", "")}" is not recognized. '
                f"valid operators: in,notin: {path}[{place}]"
            )
        elif not expression.get("values"):
            yield f"invalid value: expecting non-empty values field: {path}[{place}]"


def _graph(tasks: list[Object], path: str) -> Problems:
    """Order by `runAfter` and by results: every name known, and no circle."""
    needs = {task.get("name", ""): list(dict.fromkeys(_needed(task))) for task in tasks}
    for name, needed in needs.items():
        for other in needed:
            if other not in needs:
                yield (
                    f"invalid value: couldn't add link between {name} and {other}: "
                    f"task {name} depends on {other} but {other} wasn't present in Pipeline: {path}"
                )
    left = {name: {n for n in needed if n in needs} for name, needed in needs.items()}
    while ready := {name for name, waits_for in left.items() if not waits_for}:
        left = {name: waits_for - ready for name, waits_for in left.items() if name not in ready}
    if left:
        yield f"invalid value: cycle detected among tasks {', '.join(sorted(left))}: {path}"


def _needed(task: Object) -> Iterator[str]:
    yield from task.get("runAfter", [])
    values = [*task.get("params", []), *task.get("matrix", {}).get("params", [])]
    for variable in _variables([[p["value"] for p in values], task.get("when", [])]):
        if match := _TASK_RESULT.fullmatch(variable):
            yield match[1]


def _final_tasks(tasks: list[Object], final: list[Object], path: str) -> Problems:
    names = {task.get("name", "") for task in tasks}
    for place, task in enumerate(final):
        where = f"{path}.finally[{place}]"
        if task.get("runAfter"):
            yield (
                "invalid value: no runAfter allowed under spec.finally, "
                f"final task {task.get('name', '')} has runAfter specified: {where}"
            )
        for other in _needed({**task, "runAfter": []}):
            if other not in names:
                yield (
                    "invalid value: invalid task result reference, final task has task result "
                    f"reference from a task {other} which is not defined in the pipeline: {where}"
                )


def _param_specs(specs: list[Object], path: str) -> Problems:
    for twice in _twice(spec["name"] for spec in specs):
        yield f"parameter appears more than once: {path}[{twice}]"
    for spec in specs:
        name, type_ = spec["name"], spec["type"]
        if type_ not in _PARAM_TYPES:
            yield f"invalid value: {type_}: {path}.{name}.type"
        elif "default" in spec:
            match spec["default"]:
                case list():
                    default = "array"
                case dict():
                    default = "object"
                case _:
                    default = "string"
            if default != type_:
                yield (
                    f'"{type_}" type does not match default value\'s type: "{default}": '
                    f"{path}.{name}.default.type, {path}.{name}.type"
                )
        if spec.get("enum"):
            yield f"feature flag `enable-param-enum` should be set to true to use Enum: {path}.{name}"


def _params_once(params: list[Object], path: str) -> Problems:
    names: dict[str, None] = {}
    for place, param in enumerate(params):
        if param["name"] in names:
            yield (
                f'parameter names must be unique, the parameter "{param["name"]}" '
                f"is also defined at: {path}[{place}].name"
            )
        names[param["name"]] = None


def _propagated(spec: Object, pipeline: Object) -> Problems:
    """Parameters may be used without being declared where they are used, but someone declares them."""
    known = {param["name"] for param in [*spec.get("params", []), *pipeline.get("params", [])]}
    tasks = pipeline.get("tasks", [])
    for task in tasks:
        known.update(p["name"] for p in task.get("params", []))
        known.update(p["name"] for p in (task.get("taskSpec") or {}).get("params", []))
    for place, task in enumerate(tasks):
        path = f"pipelineSpec.tasks[{place}]"
        for param in task.get("params", []):
            yield from _unknown(param["value"], known, f"{path}.params[{param['name']}]")
        for param in task.get("matrix", {}).get("params", []):
            yield from _unknown(param["value"], known, f"{path}.matrix.params[{param['name']}]")
        yield from _unknown(task.get("when", []), known, f"{path}.when")
        for number, step in enumerate((task.get("taskSpec") or {}).get("steps", [])):
            used = [step.get(field) for field in _STEP_FIELDS]
            yield from _unknown(used, known, f"{path}.taskSpec.steps[{number}]")


def _unknown(value: Any, known: set[str], path: str) -> Problems:
    for variable in _variables(value):
        match = _PARAM.fullmatch(variable)
        if match is None:
            continue
        name = match[1] or match[2]
        # `params.a.b` is the parameter "a.b" or key "b" of the object "a".
        if name not in known and name.partition(".")[0] not in known:
            yield f'non-existent variable `{name}` in "$({variable})": {path}'


def _timeouts(timeouts: Mapping[str, str]) -> Problems:
    limits = {field: parse_duration(text, f"timeouts.{field}") for field, text in timeouts.items()}
    for field, limit in limits.items():
        if limit < 0:
            yield f"invalid value: {timeouts[field]} should be >= 0: timeouts.{field}"
    whole = limits["pipeline"]
    given = {field: limits[field] for field in ("tasks", "finally") if field in limits}
    for field, limit in given.items():
        if whole and (limit > whole or limit == 0):
            said = timeouts[field] + (" (no timeout)" if limit == 0 else "")
            yield f"invalid value: {said} should be <= pipeline duration: timeouts.{field}"
    # Zero is "no timeout" above, but not in the reference's sum: 0 + anything is compared as it is.
    if len(given) > 1 and sum(given.values()) > whole:
        said = f"{timeouts['tasks']} + {timeouts['finally']} should be <= pipeline duration"
        yield f"invalid value: {said}: timeouts.finally, timeouts.tasks"


def _task_run_spec(task: Object, timeouts: Mapping[str, str], path: str) -> Problems:
    text = task.get("timeout")
    if text is None:
        return
    limit = parse_duration(text, f"{path}.timeout")
    if limit < 0:
        yield f"invalid value: {format_duration(limit)} should be >= 0: {path}.timeout"
    field = "tasks" if "tasks" in timeouts else "pipeline"
    most = parse_duration(timeouts[field], f"timeouts.{field}")
    source = "pipeline tasks duration" if field == "tasks" else "pipeline duration"
    if most and limit > most:
        yield (
            f"invalid value: {format_duration(limit)} should be <= {source} {timeouts[field]}: "
            f"{path}.timeout"
        )


def _workspaces(workspaces: list[Object]) -> Problems:
    for place, workspace in enumerate(workspaces):
        path = f"workspaces[{place}]"
        sources = [source for source in _VOLUME_SOURCES if workspace.get(source) is not None]
        if not workspace:
            yield f"missing field(s): {path}"
        elif len(sources) != 1:
            got = "both" if sources else "neither"
            fields = ", ".join(f"{path}.{source.lower()}" for source in _VOLUME_SOURCES[:5])
            yield f"expected exactly one, got {got}: {fields}"
        elif (needed := _SOURCE_NAMES.get(sources[0])) and not workspace[sources[0]].get(needed):
            yield f"missing field(s): {path}.{sources[0].lower()}.{needed.lower()}"
    yield from _repeated_workspaces(workspaces)


def _repeated_workspaces(workspaces: list[Object]) -> Problems:
    first: dict[str, int] = {}
    for place, workspace in enumerate(workspaces):
        name = workspace.get("name", "")
        if name in first:
            yield (
                f'workspace "{name}" provided by pipelinerun more than once, '
                f"at index {first[name]} and {place}: workspaces[{place}].name"
            )
        first[name] = place


def _declared_workspaces(workspaces: list[Object], path: str) -> Problems:
    names = [workspace.get("name", "") for workspace in workspaces]
    for place, name in enumerate(names):
        if not name:
            yield f"invalid value: workspace {place} has empty name: {path}[{place}]"
    for twice in _twice(names):
        yield f'invalid value: workspace with name "{twice}" appears more than once: {path}'


def _twice(names: Iterable[str]) -> Iterator[str]:
    """Each name that is there more than once, once, in order."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    yield from (name for name, times in seen.items() if times > 1)


def _variables(value: Any) -> list[str]:
    """What stands between `$(` and `)` default_context in a value."""
    found: list[str] = []
    _each_text(value, lambda text: found.extend(_VARIABLE.findall(text)))
    return found


def _each_text(value: Any, visit: Callable[[str], None]) -> None:
    match value:
        case str():
            if "$(" in value:
                visit(value)
        case list():
            for item in value:
                _each_text(item, visit)
        case dict():
            for item in value.values():
                _each_text(item, visit)
        case _:
            pass
