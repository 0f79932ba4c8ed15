"""What Tekton would refuse about a PipelineRun."""

from typing import Any

import pytest

from services.classifier.tekton.defaulting import decode
from services.classifier.tekton.reading import InvalidPipelineRunError
from services.classifier.tekton.validation import validate
from tests.unit.classifier.tekton.runs import inline, run, task

ACCEPTED = {
    "a reference": run(),
    "a remote reference": run(
        pipelineRef={"resolver": "git", "params": [{"name": "url", "value": "u"}]}
    ),
    "a pipeline": inline(task()),
    "a pipeline without tasks": inline(description="later"),
    "tasks that wait for others": inline(
        task("a"),
        task("b", runAfter=["a"], params=[{"name": "x", "value": "$(tasks.a.results.r)"}]),
    ),
    "final tasks that use results": inline(
        task("a"),
        **{"finally": [task("z", params=[{"name": "x", "value": "$(tasks.a.results.r)"}])]},
    ),
    "parameters that the run declares": inline(
        task(
            params=[
                {"name": "x", "value": "$(params.y) $(params['y']) $(params.y[*]) $(params.y[0])"}
            ]
        ),
        params=[{"name": "y"}],
    ),
    "a shell's own substitutions": inline(
        {"name": "a", "taskSpec": {"steps": [{"image": "i", "script": "$(params.sh | x) $(ls)"}]}}
    ),
    "a step that its template completes": inline(
        {"name": "a", "taskSpec": {"stepTemplate": {"image": "i"}, "steps": [{"script": "x"}]}}
    ),
    "a step action": inline({"name": "a", "taskSpec": {"steps": [{"ref": {"name": "s"}}]}}),
    "a custom task": inline({"name": "c", "taskRef": {"apiVersion": "a.b/v1", "kind": "Wait"}}),
    "no timeout at all": run(timeouts={"pipeline": "0", "tasks": "0s"}),
    "timeouts that fit": run(timeouts={"pipeline": "3h", "tasks": "2h", "finally": "1h"}),
    "a longer task in a longer pipeline": run(
        timeouts={"pipeline": "3h"}, taskRunSpecs=[{"pipelineTaskName": "a", "timeout": "2h"}]
    ),
    "a workspace": run(workspaces=[{"name": "w", "emptyDir": {}}]),
    "a matrix": inline(task(matrix={"params": [{"name": "m", "value": ["a", "b"]}]})),
    "a when expression": inline(
        task(when=[{"input": "a", "operator": "in", "values": ["a"]}]),
    ),
}


@pytest.mark.parametrize("given", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_valid_run_is_accepted(given: dict[str, Any]) -> None:
    validate(decode(given))


TWICE = [{"name": "x", "value": "1"}, {"name": "x", "value": "2"}]


STEPS = {"steps": [{"image": "busybox", "script": "echo $(params.nope)"}]}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "neither reference nor pipeline": (
        run(pipelineRef=None),
        "expected exactly one, got neither: pipelineRef, pipelineSpec",
    ),
    "both": (
        run(pipelineSpec={"tasks": [task()]}),
        "expected exactly one, got both: pipelineRef, pipelineSpec",
    ),
    "a reference to nothing": (run(pipelineRef={}), "missing field(s): pipelineRef.name"),
    "parameters without a resolver": (
        run(pipelineRef={"params": [{"name": "a", "value": "b"}]}),
        "missing field(s): pipelineRef.resolver",
    ),
    "a name with spaces": (run(pipelineRef={"name": "a b"}), ": pipelineRef.name"),
    "a pipeline of nothing": (
        run(pipelineRef=None, pipelineSpec={}),
        "expected at least one, got none: pipelineSpec.description",
    ),
    "a run parameter given twice": (
        run(params=TWICE),
        "expected exactly one, got both: params[x].name",
    ),
    "a task parameter given twice": (
        inline(task(params=TWICE)),
        'the parameter "x" is also defined at: pipelineSpec.tasks[0].params[1].name',
    ),
    "a result as run parameter": (
        run(params=[{"name": "x", "value": "$(tasks.a.results.r)"}]),
        "cannot use result expressions in ['tasks.a.results.r'] as PipelineRun parameter values",
    ),
    "a parameter without a value": (
        run(params=[{"name": "x"}]),
        "missing field(s): params[0].value",
    ),
    "a parameter that nobody declares": (
        inline(task(params=[{"name": "x", "value": "$(params.nope)"}])),
        'non-existent variable `nope` in "$(params.nope)": pipelineSpec.tasks[0].params[x]',
    ),
    "a step without an image": (
        inline({"name": "a", "taskSpec": {"steps": [{"script": "x"}]}}),
        "missing field(s): pipelineSpec.tasks[0].taskSpec.steps[0].image",
    ),
    "a step that uses a parameter nobody declares": (
        inline({"name": "a", "taskSpec": STEPS}),
        "non-existent variable `nope`",
    ),
    "a declared parameter of the wrong type": (
        inline(task(), params=[{"name": "x", "type": "string", "default": ["a"]}]),
        '"string" type does not match default value\'s type: "array"',
    ),
    "a declared parameter of no type": (
        inline(task(), params=[{"name": "x", "type": "number"}]),
        "invalid value: number: pipelineSpec.params.x.type",
    ),
    "a parameter declared twice": (
        inline(task(), params=[{"name": "x"}, {"name": "x"}]),
        "parameter appears more than once: pipelineSpec.params[x]",
    ),
    "a task without anything to do": (
        inline({"name": "a"}),
        "expected exactly one, got neither: pipelineSpec.tasks[0].taskRef",
    ),
    "a task with two things to do": (
        inline(task(taskSpec={"steps": [{"image": "i"}]})),
        "expected exactly one, got multiple",
    ),
    "a task spec without steps": (
        inline({"name": "a", "taskSpec": {}}),
        "missing field(s): pipelineSpec.tasks[0].taskSpec.steps",
    ),
    "a task name in capitals": (inline(task("A")), 'invalid value "A": pipelineSpec.tasks[0].name'),
    "two tasks of one name": (
        inline(task("a"), task("a")),
        "expected exactly one, got both: pipelineSpec.tasks[1].name",
    ),
    "a pipeline in a pipeline": (
        inline({"name": "a", "pipelineSpec": {"tasks": [task()]}}),
        'pipelineSpec requires "enable-api-fields" feature gate to be "alpha" but it is "beta"',
    ),
    "a custom task without a version": (
        inline({"name": "a", "taskRef": {"kind": "Wait"}}),
        "custom task must specify apiVersion",
    ),
    "tasks in a circle": (
        inline(task("a", runAfter=["b"]), task("b", runAfter=["a"])),
        "cycle detected among tasks a, b",
    ),
    "a task after one that is not there": (
        inline(task("a", runAfter=["b"])),
        "task a depends on b but b wasn't present in Pipeline",
    ),
    "final tasks alone": (inline(**{"finally": [task()]}), "spec.tasks is empty"),
    "a final task with an order": (
        inline(task("a"), **{"finally": [task("z", runAfter=["a"])]}),
        "no runAfter allowed under spec.finally, final task z",
    ),
    "a when expression without operator": (
        inline(task(when=[{"input": "a", "values": ["a"]}])),
        'operator "" is not recognized. valid operators: in,notin',
    ),
    "a parameter in matrix and params": (
        inline(
            task(
                params=[{"name": "m", "value": "a"}],
                matrix={"params": [{"name": "m", "value": ["a"]}]},
            )
        ),
        "expected exactly one, got both: pipelineSpec.tasks[0].matrix[m], params[m]",
    ),
    "tasks longer than the default": (
        run(timeouts={"tasks": "2h"}),
        "invalid value: 2h0m0s should be <= pipeline duration: timeouts.tasks",
    ),
    "finally longer than the pipeline": (
        run(timeouts={"pipeline": "1m", "finally": "61s"}),
        "invalid value: 1m1s should be <= pipeline duration: timeouts.finally",
    ),
    "tasks and finally longer than the pipeline": (
        run(timeouts={"pipeline": "1h", "tasks": "40m", "finally": "40m"}),
        "40m0s + 40m0s should be <= pipeline duration",
    ),
    "endless tasks in a pipeline with an end": (
        run(timeouts={"tasks": "0"}),
        "0s (no timeout) should be <= pipeline duration",
    ),
    "less than no time": (
        run(timeouts={"pipeline": "-1h"}),
        "invalid value: -1h0m0s should be >= 0: timeouts.pipeline",
    ),
    "a timeout that is no duration": (
        run(timeouts={"tasks": "soon"}),
        'timeouts.tasks: invalid duration "soon"',
    ),
    "a timeout that is a number": (
        run(timeouts={"tasks": 3600}),
        "timeouts.tasks: must be a duration like 1h30m, got number 3600",
    ),
    "a task that takes longer than its pipeline": (
        run(taskRunSpecs=[{"pipelineTaskName": "a", "timeout": "2h"}]),
        "2h0m0s should be <= pipeline duration 1h0m0s: taskRunSpecs[0].timeout",
    ),
    "a workspace of nothing": (
        run(workspaces=[{"name": "w"}]),
        "expected exactly one, got neither: workspaces[0].persistentvolumeclaim",
    ),
    "a claim without a name": (
        run(workspaces=[{"name": "w", "persistentVolumeClaim": {}}]),
        "missing field(s): workspaces[0].persistentvolumeclaim.claimname",
    ),
    "a workspace given twice": (
        run(workspaces=[{"name": "w", "emptyDir": {}}] * 2),
        'workspace "w" provided by pipelinerun more than once, at index 0 and 1',
    ),
    "params that are no list": (
        run(params={"a": "b"}),
        'params: must be a list, got object {"a":"b"}',
    ),
    "tasks that are no objects": (
        inline("a"),  # type: ignore[arg-type]  # what somebody may send
        'pipelineSpec.tasks[0]: must be an object, got string "a"',
    ),
    "labels that are no text": (
        run() | {"metadata": {"labels": {"a": 1}}},
        "metadata.labels[a]: must be a string, got number 1",
    ),
}


@pytest.mark.parametrize(("given", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_run_is_refused_with_field_and_rule(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidPipelineRunError) as refusal:
        validate(decode(given))

    assert problem in str(refusal.value)
    assert str(refusal.value).startswith("pipelinerun validation failed: invalid pipelinerun: ")


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(InvalidPipelineRunError) as refusal:
        validate(decode(run(params=TWICE, timeouts={"tasks": "2h"})))

    assert str(refusal.value).count(";") == 1
