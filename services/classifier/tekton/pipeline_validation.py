"""What Tekton would refuse about a pipeline: references, tasks, parameters and their order."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from services.classifier.cel.mutations import explain_qualified_name
from services.classifier.tekton.reading import param_type
from services.classifier.tekton.variables import repeated, variables_in
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import is_dns_label

NAMES_SHOWN_MAX: Final = 20
"""Limit for the tasks that one message names."""

_URL_LIKE = re.compile(r"[\w-]://")  # `+` would make a search quadratic
_TASK_RESULT = re.compile(r"tasks\.([^.]+)\.results\.\S+")
_PARAM_TYPES: Final = ("string", "array", "object")

Problems = Iterator[str]
"""Each ends with the path of its field, as in Tekton's messages."""


def reference_problems(reference: Object, path: str) -> Problems:
    """Yield what is wrong with a `pipelineRef` or `taskRef`."""
    name, resolver = reference.get("name", ""), reference.get("resolver", "")
    params = reference.get("params")
    if resolver or params is not None:
        if params is not None and name:
            yield f"expected exactly one, got both: {path}.name, {path}.params"
        if not resolver:
            yield f"missing field(s): {path}.resolver"
        if resolver and name and not _URL_LIKE.search(str(name)):
            yield f"invalid value: invalid URI for request: {path}.name"
        for name in repeated(param["name"] for param in params or []):
            yield f"expected exactly one, got both: {path}[{name}].name"
    elif not name:
        yield f"missing field(s): {path}.name"
    elif _URL_LIKE.search(str(name)):
        yield f"missing field(s): {path}.resolver"
    elif problem := explain_qualified_name(str(name)):
        yield f"invalid value: {problem}: {path}.name"


def pipeline_problems(pipeline: Object, path: str) -> Problems:
    """Yield what is wrong with an embedded pipeline."""
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
            yield from _task_problems(task, names, f"{path}.{field}[{place}]")
    yield from _graph_problems(tasks, f"{path}.tasks")
    yield from _param_spec_problems(pipeline.get("params", []), f"{path}.params")
    if final and not tasks:
        yield (
            f"invalid value: spec.tasks is empty but spec.finally has {len(final)} tasks: "
            f"{path}.finally"
        )
    yield from _finally_problems(tasks, final, path)
    yield from _declared_workspace_problems(pipeline.get("workspaces", []), f"{path}.workspaces")


def _task_problems(task: Object, names: dict[str, None], path: str) -> Problems:
    name = task.get("name", "")
    if not is_dns_label(name):
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
    yield from _repeated_params(task.get("params", []), f"{path}.params")
    yield from _task_kind_problems(task, path)
    yield from _matrix_problems(task, path)
    yield from _when_problems(task.get("when", []), f"{path}.when")
    on_error = task.get("onError", "")
    if on_error and on_error not in {"continue", "stopAndFail"} and not variables_in(on_error):
        yield (f'invalid value: {on_error}: {path}.onError (must be "continue" or "stopAndFail")')
    if on_error == "continue" and task.get("retries", 0) > 0:
        yield f'onError cannot be "continue" when retries is greater than 0: {path}'


def _task_kind_problems(task: Object, path: str) -> Problems:
    """Check a Task, or a custom task that another controller runs."""
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
            yield from reference_problems(given, f"{path}.taskRef")
        elif not given.get("steps"):
            yield f"missing field(s): {path}.taskSpec.steps"
        else:
            yield from _param_spec_problems(given.get("params", []), f"{path}.taskSpec.params")
            if not given.get("stepTemplate"):  # a template may fill in what a step lacks
                yield from _step_problems(given["steps"], f"{path}.taskSpec.steps")


def _step_problems(steps: list[Object], path: str) -> Problems:
    for place, step in enumerate(steps):
        if not step.get("image") and not step.get("ref"):
            yield f"missing field(s): {path}[{place}].image"
        if step.get("script") and step.get("command"):
            yield f"script cannot be used with command: {path}[{place}].script"
    for name in repeated(step["name"] for step in steps if step.get("name")):
        yield f'invalid value: step name "{name}" is used more than once: {path}'


def _matrix_problems(task: Object, path: str) -> Problems:
    matrix = task.get("matrix", {})
    listed = [("matrix.params", matrix.get("params", []))]
    for place, include in enumerate(matrix.get("include", [])):
        listed.append((f"matrix.include[{place}].params", include.get("params", [])))
    own = {param["name"] for param in task.get("params", [])}
    for field, params in listed:
        yield from _repeated_params(params, f"{path}.{field}")
        for param in params:
            if param["name"] in own:
                name = param["name"]
                yield f"expected exactly one, got both: {path}.matrix[{name}], params[{name}]"


def _when_problems(expressions: list[Object], path: str) -> Problems:
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


def _graph_problems(tasks: list[Object], path: str) -> Problems:
    """The order by `runAfter` and by results must name known tasks and have no cycle."""
    needs = {task.get("name", ""): list(dict.fromkeys(_dependencies(task))) for task in tasks}
    for name, needed in needs.items():
        for other in needed:
            if other not in needs:
                yield (
                    f"invalid value: couldn't add link between {name} and {other}: "
                    f"task {name} depends on {other} but {other} wasn't present in Pipeline: {path}"
                )
    if left := _in_cycles(needs):
        named = ", ".join(sorted(left)[:NAMES_SHOWN_MAX])
        more = f" and {len(left) - NAMES_SHOWN_MAX} more" if len(left) > NAMES_SHOWN_MAX else ""
        yield f"invalid value: cycle detected among tasks {named}{more}: {path}"


def _in_cycles(needs: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the tasks that can never start (Kahn's algorithm: each link is looked at once)."""
    waits_for = {name: sum(other in needs for other in needed) for name, needed in needs.items()}
    followers: dict[str, list[str]] = {name: [] for name in needs}
    for name, needed in needs.items():
        for other in needed:
            if other in followers:
                followers[other].append(name)
    ready = [name for name, number in waits_for.items() if not number]
    while ready:
        name = ready.pop()
        del waits_for[name]
        for follower in followers[name]:
            waits_for[follower] -= 1
            if not waits_for[follower]:
                ready.append(follower)
    return set(waits_for)


def _dependencies(task: Object) -> Iterator[str]:
    yield from task.get("runAfter", [])
    values = [*task.get("params", []), *task.get("matrix", {}).get("params", [])]
    for variable in variables_in([[p["value"] for p in values], task.get("when", [])]):
        if match := _TASK_RESULT.fullmatch(variable):
            yield match[1]


def _finally_problems(tasks: list[Object], final: list[Object], path: str) -> Problems:
    names = {task.get("name", "") for task in tasks}
    for place, task in enumerate(final):
        where = f"{path}.finally[{place}]"
        if task.get("runAfter"):
            yield (
                "invalid value: no runAfter allowed under spec.finally, "
                f"final task {task.get('name', '')} has runAfter specified: {where}"
            )
        for other in _dependencies({**task, "runAfter": []}):
            if other not in names:
                yield (
                    "invalid value: invalid task result reference, final task has task result "
                    f"reference from a task {other} which is not defined in the pipeline: {where}"
                )


def _param_spec_problems(specs: list[Object], path: str) -> Problems:
    for name in repeated(spec["name"] for spec in specs):
        yield f"parameter appears more than once: {path}[{name}]"
    for spec in specs:
        name, type_ = spec["name"], spec["type"]
        if type_ not in _PARAM_TYPES:
            yield f"invalid value: {type_}: {path}.{name}.type"
        elif "default" in spec:
            default = param_type(spec["default"])
            if default != type_:
                yield (
                    f'"{type_}" type does not match default value\'s type: "{default}": '
                    f"{path}.{name}.default.type, {path}.{name}.type"
                )
        if spec.get("enum"):
            yield f"feature flag `enable-param-enum` should be set to true to use Enum: {path}.{name}"


def _repeated_params(params: list[Object], path: str) -> Problems:
    names: dict[str, None] = {}
    for place, param in enumerate(params):
        if param["name"] in names:
            yield (
                f'parameter names must be unique, the parameter "{param["name"]}" '
                f"is also defined at: {path}[{place}].name"
            )
        names[param["name"]] = None


def _declared_workspace_problems(workspaces: list[Object], path: str) -> Problems:
    names = [workspace.get("name", "") for workspace in workspaces]
    for place, name in enumerate(names):
        if not name:
            yield f"invalid value: workspace {place} has empty name: {path}[{place}]"
    for name in repeated(names):
        yield f'invalid value: workspace with name "{name}" appears more than once: {path}'
