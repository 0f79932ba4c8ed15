"""Refuses a PipelineRun that Tekton would refuse, before it is classified.

The rules are those of `PipelineRunSpec.Validate` in Tekton Pipelines 1.11 that need no cluster. Tekton's own
webhook runs later: a rule that is missing here delays a refusal, but no invalid run is created.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from services.classifier.tekton.durations import format_duration, parse_duration
from services.classifier.tekton.pipeline_validation import (
    Problems,
    pipeline_problems,
    reference_problems,
)
from services.classifier.tekton.reading import InvalidPipelineRunError
from services.classifier.tekton.variables import repeated, variables_in
from shared.contracts.coscheduling import PENDING
from shared.contracts.kube.kinds import Object

PROBLEMS_MAX: Final = 20
PROBLEM_CHARS_MAX: Final = 1_000
"""Limits for a message. Our longest own sentences have 400 characters."""

_RESULT = re.compile(r"(tasks|finally)\.[^.]+\.results\.\S+")
_PARAM = re.compile(
    r"params(?:\.([_a-zA-Z][-.\w]*)|\[\s*[\"']([-.\w]+)[\"']\s*\])(?:\[[^\]]*\])?", re.ASCII
)
_STATUSES: Final = ("Cancelled", "CancelledRunFinally", "StoppedRunFinally", PENDING)
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


def validate(run: Object) -> None:
    """Raise `InvalidPipelineRunError` with all problems of a run that `decode` returned."""
    problems: dict[str, None] = {}
    more = 0
    for problem in _spec_problems(run["spec"]):
        if len(problems) < PROBLEMS_MAX:
            problems[_shortened(problem)] = None
        else:
            more += problem not in problems
    if problems:
        listed = [*problems, *([f"and {more} more"] if more else [])]
        raise InvalidPipelineRunError("; ".join(listed))


def _shortened(problem: str) -> str:
    """Cut the middle out of a message: it may quote a value of any length, and ends with its path."""
    if len(problem) <= PROBLEM_CHARS_MAX:
        return problem
    half = PROBLEM_CHARS_MAX // 2
    return f"{problem[:half]} … {problem[-half:]}"


def _spec_problems(spec: Object) -> Problems:
    reference, pipeline = spec.get("pipelineRef"), spec.get("pipelineSpec")
    if reference is None and pipeline is None:
        yield "expected exactly one, got neither: pipelineRef, pipelineSpec"
    if reference is not None and pipeline is not None:
        yield "expected exactly one, got both: pipelineRef, pipelineSpec"
    if reference is not None:
        yield from reference_problems(reference, "pipelineRef")
    if pipeline is not None:
        yield from pipeline_problems(pipeline, "pipelineSpec")
        yield from _undeclared_params(spec, pipeline)
    yield from _run_param_problems(spec.get("params", []))
    yield from _timeout_problems(spec["timeouts"])
    for place, task in enumerate(spec.get("taskRunSpecs", [])):
        yield from _task_run_spec_problems(task, spec["timeouts"], f"taskRunSpecs[{place}]")
    status = spec.get("status", "")
    if status and status not in _STATUSES:
        yield f"invalid value: {status} should be {', '.join(_STATUSES[:3])} or {_STATUSES[3]}: status"
    yield from _workspace_problems(spec.get("workspaces", []))


def _run_param_problems(params: list[Object]) -> Problems:
    for name in repeated(param["name"] for param in params):
        yield f"expected exactly one, got both: params[{name}].name"
    for param in params:
        results = [v for v in variables_in(param["value"]) if _RESULT.fullmatch(v)]
        if results:
            yield (
                f"invalid value: cannot use result expressions in {results} as PipelineRun "
                f"parameter values: params[{param['name']}].value"
            )


def _undeclared_params(spec: Object, pipeline: Object) -> Problems:
    """A used parameter must be declared somewhere in the run: Tekton propagates it from there."""
    known = {param["name"] for param in [*spec.get("params", []), *pipeline.get("params", [])]}
    tasks = pipeline.get("tasks", [])
    for task in tasks:
        known.update(p["name"] for p in task.get("params", []))
        known.update(p["name"] for p in (task.get("taskSpec") or {}).get("params", []))
    for place, task in enumerate(tasks):
        path = f"pipelineSpec.tasks[{place}]"
        for param in task.get("params", []):
            yield from _undeclared(param["value"], known, f"{path}.params[{param['name']}]")
        for param in task.get("matrix", {}).get("params", []):
            yield from _undeclared(param["value"], known, f"{path}.matrix.params[{param['name']}]")
        yield from _undeclared(task.get("when", []), known, f"{path}.when")
        for number, step in enumerate((task.get("taskSpec") or {}).get("steps", [])):
            used = [step.get(field) for field in _STEP_FIELDS]
            yield from _undeclared(used, known, f"{path}.taskSpec.steps[{number}]")


def _undeclared(value: Any, known: set[str], path: str) -> Problems:
    for variable in variables_in(value):
        match = _PARAM.fullmatch(variable)
        if match is None:
            continue
        name = match[1] or match[2]
        # `params.a.b` is the parameter "a.b" or key "b" of the object "a".
        if name not in known and name.partition(".")[0] not in known:
            yield f'non-existent variable `{name}` in "$({variable})": {path}'


def _timeout_problems(timeouts: Mapping[str, str]) -> Problems:
    limits = {field: parse_duration(text, f"timeouts.{field}") for field, text in timeouts.items()}
    for field, limit in limits.items():
        if limit < 0:
            yield f"invalid value: {timeouts[field]} should be >= 0: timeouts.{field}"
    whole = limits["pipeline"]
    given = {field: limits[field] for field in ("tasks", "finally") if field in limits}
    for field, limit in given.items():
        if whole and (limit > whole or limit == 0):
            value = timeouts[field] + (" (no timeout)" if limit == 0 else "")
            yield f"invalid value: {value} should be <= pipeline duration: timeouts.{field}"
    # Above, zero means "no timeout". Tekton's sum of both treats it as zero.
    if len(given) > 1 and sum(given.values()) > whole:
        total = f"{timeouts['tasks']} + {timeouts['finally']}"
        yield f"invalid value: {total} should be <= pipeline duration: timeouts.finally, timeouts.tasks"


def _task_run_spec_problems(task: Object, timeouts: Mapping[str, str], path: str) -> Problems:
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


def _workspace_problems(workspaces: list[Object]) -> Problems:
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
