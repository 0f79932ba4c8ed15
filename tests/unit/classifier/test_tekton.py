"""What expressions see of a PipelineRun, and which runs Tekton would refuse anyway."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.classifier.tekton.defaulting import decode
from services.classifier.tekton.durations import format_duration, parse_duration
from services.classifier.tekton.reading import InvalidPipelineRunError
from services.classifier.tekton.validation import validate


def run(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": "p"},
        "spec": {"pipelineRef": {"name": "q"}} | spec,
    }


def inline(*tasks: dict[str, Any], **pipeline: Any) -> dict[str, Any]:
    """The spec of a run with its pipeline inside."""
    made = run()
    made["spec"] = {"pipelineSpec": {"tasks": list(tasks)} | pipeline}
    return made


def task(name: str = "a", **fields: Any) -> dict[str, Any]:
    return {"name": name, "taskRef": {"name": "t"}} | fields


def test_defaults_are_filled_in_and_the_given_object_stays_as_it_is() -> None:
    given = run()

    seen = decode(given)

    assert seen["spec"] == {
        "pipelineRef": {"name": "q"},
        "timeouts": {"pipeline": "1h0m0s"},
        "taskRunTemplate": {"serviceAccountName": "default"},
    }
    assert seen["status"] == {}
    assert given == run()


def test_what_is_empty_or_unknown_is_not_there() -> None:
    seen = decode(run(params=[], workspaces=None, status="", surprise=1))

    assert seen["spec"].keys() == {"pipelineRef", "timeouts", "taskRunTemplate"}


def test_numbers_are_doubles_because_that_is_what_json_has() -> None:
    seen = decode(inline(task(retries=3)))

    retries = seen["spec"]["pipelineSpec"]["tasks"][0]["retries"]
    assert (retries, type(retries)) == (3, float)


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        pytest.param("text", "text", id="text"),
        pytest.param(["a", "b"], ["a", "b"], id="a list of text"),
        pytest.param([], [], id="an empty list"),
        pytest.param({"a": "b"}, {"a": "b"}, id="an object of text"),
        pytest.param(7, "7", id="a number becomes text"),
        pytest.param(True, "true", id="a boolean becomes text"),
        pytest.param([1, 2], "[1,2]", id="a list of numbers becomes one text"),
        pytest.param([["a"]], '[["a"]]', id="a list of lists becomes one text"),
        pytest.param({"a": 1}, '{"a":1}', id="an object with a number becomes one text"),
        pytest.param(None, "", id="null becomes empty text"),
        pytest.param([None, "a"], ["", "a"], id="null in a list becomes empty text"),
    ],
)
def test_a_parameter_value_is_read_as_tekton_reads_it(given: Any, seen: Any) -> None:
    decoded = decode(run(params=[{"name": "p", "value": given}]))

    assert decoded["spec"]["params"] == [{"name": "p", "value": seen}]


def test_pipeline_tasks_get_their_defaults() -> None:
    step = {"image": "busybox"}
    seen = decode(
        inline(
            task(timeout="90m"),
            {"name": "b", "taskRef": {"resolver": "git"}},
            {"name": "c", "taskSpec": {"steps": [step], "params": [{"name": "x"}]}},
            params=[{"name": "l", "default": ["a"]}, {"name": "o", "properties": {"k": {}}}],
        )
    )["spec"]["pipelineSpec"]

    assert seen["tasks"][0] == task(timeout="1h30m0s", taskRef={"name": "t", "kind": "Task"})
    assert seen["tasks"][1]["taskRef"] == {"resolver": "git"}
    assert seen["tasks"][2]["taskSpec"] == {
        "metadata": {},
        "steps": [{"name": "", "computeResources": {}, "image": "busybox"}],
        "params": [{"name": "x", "type": "string"}],
    }
    assert [param["type"] for param in seen["params"]] == ["array", "object"]


@pytest.mark.parametrize(
    ("text", "nanoseconds", "spelled"),
    [
        ("0", 0, "0s"),
        ("1h", 3_600_000_000_000, "1h0m0s"),
        ("90m", 5_400_000_000_000, "1h30m0s"),
        ("1h0m0.5s", 3_600_500_000_000, "1h0m0.5s"),
        ("-1m", -60_000_000_000, "-1m0s"),
        (".5s", 500_000_000, "500ms"),
        ("1.s", 1_000_000_000, "1s"),
        ("1500us", 1_500_000, "1.5ms"),
        ("2µs", 2_000, "2µs"),
        ("7ns", 7, "7ns"),
        ("25h", 90_000_000_000_000, "25h0m0s"),
    ],
)
def test_durations_are_read_and_spelled_as_in_go(text: str, nanoseconds: int, spelled: str) -> None:
    assert parse_duration(text, "timeouts.tasks") == nanoseconds
    assert format_duration(nanoseconds) == spelled


@pytest.mark.parametrize("text", ["", "1", "h", "1d", " 1h", "1h ", "1,5h", "--1h", "99999999h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidPipelineRunError, match=r"timeouts\.tasks: .*duration"):
        parse_duration(text, "timeouts.tasks")


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_a_spelled_duration_reads_back(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds), "") == nanoseconds


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
def test_is_accepted(given: dict[str, Any]) -> None:
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
def test_is_refused_with_field_and_rule(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidPipelineRunError) as refusal:
        validate(decode(given))

    assert problem in str(refusal.value)
    assert str(refusal.value).startswith("pipelinerun validation failed: invalid pipelinerun: ")


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidPipelineRunError) as refusal:
        validate(decode(run(params=TWICE, timeouts={"tasks": "2h"})))

    assert str(refusal.value).count(";") == 1
