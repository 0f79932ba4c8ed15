"""What the webhook makes of an object, and what it refuses."""

import copy
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from services.classifier.cel import CelEngine
from services.classifier.rules import Rules, parse_rules
from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.mutation import RefusedError, mutate
from shared.contracts.kube import names
from shared.contracts.kube.names import REQUESTS_APPLIED
from shared.integrations import Integrations
from tests.unit.integrations.gadgets import document, gadget

ENGINE = CelEngine()
PENDING = "PipelineRunPending"
R = names.REQUESTS_PREFIX


def rules(*expressions: str, **fields: Any) -> Rules:
    configuration = {"queueName": "q", "cel": {"expressions": list(expressions)}} | fields
    return parse_rules(yaml.safe_dump(configuration, width=10**9), ENGINE)


def run(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": "p", "namespace": "ns"} | metadata,
        "spec": {"pipelineRef": {"name": "build"}},
    }


def job(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns"} | metadata,
        "spec": {"template": {"spec": {"containers": []}}},
    }


def annotations(made: dict[str, Any]) -> dict[str, str]:
    """Those of the configuration; ours begin with `sluicegate.dev/`."""
    found = made["metadata"].get("annotations", {})
    return {key: value for key, value in found.items() if not key.startswith("sluicegate.dev/")}


def patched(given: Any, patch: tuple[dict[str, Any], ...]) -> Any:
    """Apply a JSON patch of `add`, `replace` and `remove`, as an API server would."""
    result = copy.deepcopy(given)
    for operation in patch:
        *path, last = [
            token.replace("~1", "/").replace("~0", "~")
            for token in operation["path"].removeprefix("/").split("/")
        ]
        target = result
        for token in path:
            target = target[token]
        assert operation["op"] == "add" or last in target
        if operation["op"] == "remove":
            del target[last]
        else:
            target[last] = operation["value"]
    return result


# --- order and presets (tekton-kueue 1.3) ---------------------------------------------------------


def test_a_run_is_held_and_gets_the_queue() -> None:
    made = mutate(run(), rules()).object

    assert made["spec"]["status"] == PENDING
    assert made["metadata"]["labels"] == {names.QUEUE: "q"}


@pytest.mark.parametrize("queue", ["mine", ""])
def test_a_queue_that_the_author_names_stays_even_when_it_is_none(queue: str) -> None:
    made = mutate(run(labels={names.QUEUE: queue}), rules()).object

    assert made["metadata"]["labels"][names.QUEUE] == queue


@pytest.mark.parametrize("status", ["Cancelled", "StoppedRunFinally", "", PENDING, "nonsense"])
def test_any_status_becomes_pending(status: str) -> None:
    given = run()
    given["spec"]["status"] = status

    assert mutate(given, rules('priority("x")')).object["spec"]["status"] == PENDING


def test_only_a_pause_of_the_author_is_remembered() -> None:
    paused = run()
    paused["spec"]["status"] = PENDING

    for sent, remembered in ((paused, "true"), (run(), "false")):
        once = mutate(sent, rules()).object
        twice = mutate(once, rules()).object
        assert once["metadata"]["annotations"][names.USER_PENDING] == remembered
        assert twice == once


def test_managed_by_is_overwritten_only_when_the_configuration_says_so() -> None:
    given = run()
    given["spec"]["managedBy"] = "example.com/me"

    assert mutate(given, rules()).object["spec"]["managedBy"] == "example.com/me"
    overridden = mutate(given, rules(multiKueueOverride=True)).object
    assert overridden["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue"


def test_expressions_see_the_run_held_queued_and_defaulted_but_none_of_our_notes() -> None:
    given = run(annotations={"a": "b"})

    made = mutate(
        given,
        rules(
            'annotation("seen", pipelineRun.spec.status + " " + pipelineRun.spec.timeouts.pipeline'
            f' + " " + pipelineRun.metadata.labels["{names.QUEUE}"]'
            ' + " " + string(size(pipelineRun.metadata.annotations)))'
        ),
    ).object

    assert annotations(made)["seen"] == f"{PENDING} 1h0m0s q 1"
    assert "timeouts" not in made["spec"], "defaults are looked at, never written"


def test_without_expressions_nothing_is_validated() -> None:
    given = run()
    given["spec"] = {}

    assert mutate(given, rules()).object["spec"] == {"status": PENDING}


def test_the_namespace_of_the_request_stands_in_for_one_the_object_lacks() -> None:
    given = run()
    del given["metadata"]["namespace"]

    made = mutate(given, rules('label("ns", plrNamespace)'), namespace="team").object

    assert made["metadata"]["labels"]["ns"] == "team"


PRESETS = {
    "a resource adds to what is there": ("3", "4"),
    "with a sign": ("+2", "3"),
    "below zero": ("-5", "-4"),
    "with leading zeros": ("007", "8"),
    "past the end of 64 bits it wraps": (str(2**63 - 1), str(-(2**63))),
}


@pytest.mark.parametrize(("preset", "sum_"), PRESETS.values(), ids=PRESETS.keys())
def test_preset_requests_are_summed(preset: str, sum_: str) -> None:
    made = mutate(run(annotations={f"{R}cpu": preset}), rules('resource("cpu", 1)')).object

    assert annotations(made) == {f"{R}cpu": sum_}


@pytest.mark.parametrize(
    "preset",
    ["500m", "abc", " 1", "1 ", "", "1.0", "0x1", "1_0", "٣", "--1", "9" * 30, "9" * 5000],
)
def test_a_preset_that_is_no_whole_number_is_refused_where_it_must_be_added_to(
    preset: str,
) -> None:
    given = run(annotations={f"{R}cpu": preset})

    with pytest.raises(RefusedError, match="failed to parse existing resource value") as refusal:
        mutate(given, rules('resource("cpu", 1)'))
    assert refusal.value.code == 500
    assert f"{R}cpu" in str(refusal.value)

    untouched = mutate(given, rules('resource("memory", 1)')).object
    assert untouched["metadata"]["annotations"][f"{R}cpu"] == preset


def test_mutations_apply_in_order_over_all_expressions() -> None:
    made = mutate(
        run(labels={"a": "0", names.PRIORITY_CLASS_LABEL: "mine"}),
        rules(
            '[resource("x", 1), annotation("k", "1")]',
            f'[annotation("k", "2"), label("a", "1"), resource("x", 2), annotation("{R}y", "5")]',
            '[resource("y", 1), priority("p")]',
        ),
    ).object

    assert annotations(made) == {f"{R}x": "3", "k": "2", f"{R}y": "6"}
    assert made["metadata"]["labels"]["a"] == "1"
    assert made["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] == "p"


# --- refusals -------------------------------------------------------------------------------------

MALFORMED = {
    "no metadata": ({"metadata": "x"}, "metadata: must be an object"),
    "no spec": ({"spec": None}, "spec: must be an object, got nothing"),
    "labels as list": ({"metadata": {"labels": []}}, "metadata.labels: must be an object"),
    "a label as number": (
        {"metadata": {"labels": {"a": 1}}},
        r"metadata.labels\[a\]: must be a string",
    ),
    "owners as object": ({"metadata": {"ownerReferences": {}}}, "metadata.ownerReferences: must"),
    "another version": ({"apiVersion": "tekton.dev/v1beta1"}, "must come as tekton.dev/v1"),
    "no kind": ({"kind": None}, "apiVersion and kind: must be strings"),
}


@pytest.mark.parametrize(("change", "problem"), MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_pipeline_run_is_a_bad_request(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(RefusedError, match=problem) as refusal:
        mutate(run() | change, rules('priority("x")'))

    assert refusal.value.code == 400


def test_a_run_that_tekton_refuses_is_a_bad_request_before_any_expression_runs() -> None:
    given = run()
    given["spec"] = {}

    with pytest.raises(RefusedError, match="got neither: pipelineRef, pipelineSpec") as refusal:
        mutate(given, rules('resource("a", -1)'))

    assert refusal.value.code == 400


def test_an_expression_that_fails_is_an_internal_error_and_changes_nothing() -> None:
    given = run()
    before = copy.deepcopy(given)

    with pytest.raises(RefusedError, match=r"^CEL evaluation failed: cel.expressions\[1\]") as no:
        mutate(given, rules('priority("x")', 'resource("a", -1)'))

    assert no.value.code == 500
    assert given == before


# --- the patch ------------------------------------------------------------------------------------

ALLOWED = ("/metadata/labels", "/metadata/annotations", "/spec/status", "/spec/managedBy")


def test_the_patch_touches_only_what_the_webhook_sets() -> None:
    given = run(labels={"a/b~c": "1"})
    given["spec"] |= {"params": [], "taskRunTemplate": {}, "unknown": {"kept": None}}

    made = mutate(given, rules('label("a/b", "2")', multiKueueOverride=True))

    assert all(operation["path"].startswith(ALLOWED) for operation in made.patch)
    assert patched(given, made.patch) == made.object
    assert made.object["spec"]["unknown"] == {"kept": None}


def test_a_key_with_a_slash_or_tilde_is_escaped() -> None:
    given = run(annotations={"x": "y"}, labels={names.QUEUE: "q"})

    made = mutate(given, rules('annotation("a.b/c", "1")'))

    assert {"op": "add", "path": "/metadata/annotations/a.b~1c", "value": "1"} in made.patch


def test_nothing_left_to_do_is_an_empty_patch() -> None:
    settled = mutate(run(), rules('priority("x")', 'resource("a", 1)')).object

    assert mutate(settled, rules('priority("x")', 'resource("a", 1)')).patch == ()


# --- twice is once --------------------------------------------------------------------------------

texts = st.sampled_from(["a", "b", "cpu", "linux-arm64"])
parts = st.one_of(
    st.builds('resource("{}", {})'.format, texts, st.integers(0, 2**63 - 1)),
    st.builds('label("{}", "{}")'.format, texts, texts),
    st.builds('annotation("{}", "{}")'.format, texts, texts),
    st.builds((f'annotation("{R}' + '{}", "{}")').format, texts, st.integers(0, 9)),
    st.builds('priority("{}")'.format, texts),
)
expressions = st.lists(st.lists(parts, min_size=1).map(lambda p: f"[{', '.join(p)}]"), max_size=3)
presets = st.dictionaries(
    st.one_of(texts, texts.map(lambda t: R + t)), st.integers(-9, 9).map(str), max_size=3
)


ALLOWED = ("/metadata/labels", "/metadata/annotations", "/spec/status", "/spec/managedBy")
"""All that a classification may touch, whatever the expressions are."""


@settings(max_examples=150, deadline=None)
@given(
    expressions=expressions,
    labels=st.none() | presets,
    present=st.none() | presets,
    override=st.booleans(),
    status=st.none() | st.sampled_from(["", PENDING, "Cancelled"]),
)
def test_calling_it_twice_changes_no_more_than_once(
    expressions: list[str],
    labels: dict[str, str] | None,
    present: dict[str, str] | None,
    override: bool,
    status: str | None,
) -> None:
    given = run(labels=labels, annotations=present)
    if status is not None:
        given["spec"]["status"] = status
    before = copy.deepcopy(given)
    configuration = rules(*expressions, multiKueueOverride=override)

    once = mutate(given, configuration, new_traceparent=lambda: "00-1")
    twice = mutate(once.object, configuration, new_traceparent=lambda: "00-2")

    assert patched(given, once.patch) == once.object
    assert all(operation["path"].startswith(ALLOWED) for operation in once.patch)
    assert twice.object == once.object
    assert twice.patch == ()
    assert given == before


ONCE = 'has(pipelineRun.metadata.labels.done) ? [] : [label("done", "yes"), resource("a", 1)]'


@pytest.mark.parametrize("preset", [None, "3"])
def test_a_rule_that_looks_whether_it_was_applied_takes_nothing_back(preset: str | None) -> None:
    """What `sluice mutate` printed is created, or a run is copied with its labels."""
    given = run(annotations=None if preset is None else {f"{R}a": preset})
    once = mutate(given, rules(ONCE))
    twice = mutate(once.object, rules(ONCE))
    thrice = mutate(twice.object, rules('resource("a", 1)'))

    assert annotations(once.object) == {f"{R}a": "1" if preset is None else "4"}
    assert twice.patch == ()
    assert annotations(thrice.object) == annotations(once.object), "it is still not added twice"


def test_a_request_that_somebody_changed_since_is_added_to_as_it_is() -> None:
    once = mutate(run(annotations={f"{R}a": "3"}), rules('resource("a", 1)')).object
    once["metadata"]["annotations"][f"{R}a"] = "7"

    assert annotations(mutate(once, rules('resource("a", 1)')).object) == {f"{R}a": "8"}


@pytest.mark.parametrize(
    "note", ["", "x", "[]", "1", '{"a": 1}', '{"a": [1, 2]}', '{"a": ["1"]}', '{"b": ["1", "2"]}']
)
def test_a_note_that_is_not_ours_is_no_note(note: str) -> None:
    given = run(annotations={f"{R}a": "3", REQUESTS_APPLIED: note})

    made = mutate(given, rules('resource("a", 1)')).object

    assert annotations(made) == {f"{R}a": "4"}
    assert orjson.loads(made["metadata"]["annotations"][REQUESTS_APPLIED]) == {"a": ["3", "4"]}


# --- traces ---------------------------------------------------------------------------------------


def test_a_trace_begins_at_the_first_admission_and_is_kept() -> None:
    once = mutate(run(), rules(), new_traceparent=lambda: "00-first").object
    twice = mutate(once, rules(), new_traceparent=lambda: "00-second").object

    assert once["metadata"]["annotations"][names.TRACEPARENT_ANNOTATION] == "00-first"
    assert twice == once


def test_no_trace_begins_for_what_is_refused_or_left_alone() -> None:
    def never() -> str:
        raise AssertionError("no trace must begin")

    with pytest.raises(RefusedError):
        mutate(run(), rules('priority("")'), new_traceparent=never)
    mutate(job(), rules(), new_traceparent=never)


# --- Jobs and others ------------------------------------------------------------------------------


def test_a_job_with_a_queue_is_suspended() -> None:
    made = mutate(job(labels={names.QUEUE: "mine"}), rules('priority("x")'))

    assert made.object["spec"]["suspend"] is True
    assert made.patch == ({"op": "add", "path": "/spec/suspend", "value": True},)


def test_a_job_without_a_queue_is_left_alone() -> None:
    assert mutate(job(), rules()).patch == ()
    assert mutate(job(labels={names.QUEUE: ""}), rules()).patch == ()


@pytest.mark.parametrize("labels", [{}, {names.QUEUE: ""}])
def test_a_job_without_a_queue_gets_the_default_where_there_is_one(labels: dict[str, str]) -> None:
    made = mutate(
        job(labels=labels), rules(), context=NamespaceContext(default_queue="jobs")
    ).object

    assert made["metadata"]["labels"] == {names.QUEUE: "jobs"}
    assert made["spec"]["suspend"] is True


def test_a_job_without_a_queue_waits_for_one_where_all_jobs_are_managed() -> None:
    made = mutate(job(), rules(), context=NamespaceContext(manage_without_queue=True)).object

    assert names.QUEUE not in made["metadata"].get("labels", {})
    assert made["spec"]["suspend"] is True


@pytest.mark.parametrize("build", [run, job])
def test_nothing_is_held_in_a_namespace_that_is_not_managed(build: Any) -> None:
    given = build(labels={names.QUEUE: "mine"})

    assert mutate(given, rules(), context=NamespaceContext(managed=False)).patch == ()


def test_the_class_for_everybody_is_for_those_who_name_none() -> None:
    place = NamespaceContext(default_priority_class=lambda queue: f"default-of-{queue}")
    plain = mutate(job(labels={names.QUEUE: "mine"}), rules(), context=place).object
    named = {names.QUEUE: "mine", names.PRIORITY_CLASS_LABEL: "urgent"}

    assert plain["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] == "default-of-mine"
    assert mutate(job(labels=named), rules(), context=place).object["metadata"]["labels"] == named
    assert mutate(plain, rules(), context=place).patch == ()


ELSEWHERE = NamespaceContext(uses_multikueue=lambda queue: queue == "far")
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


@pytest.mark.parametrize(
    ("queue", "given", "becomes"),
    [
        ("far", None, MULTIKUEUE),
        ("far", "kubernetes.io/job-controller", MULTIKUEUE),
        ("far", "example.com/mine", "example.com/mine"),
        ("near", None, None),
        ("near", "kubernetes.io/job-controller", "kubernetes.io/job-controller"),
    ],
)
def test_a_job_whose_queue_uses_multikueue_is_left_alone_by_its_own_controller(
    queue: str, given: str | None, becomes: str | None
) -> None:
    before = job(labels={names.QUEUE: queue})
    if given is not None:
        before["spec"]["managedBy"] = given

    made = mutate(before, rules(), context=ELSEWHERE).object

    assert made["spec"].get("managedBy") == becomes
    assert mutate(made, rules(), context=ELSEWHERE).patch == ()


def test_it_is_the_queue_that_the_job_ends_up_in() -> None:
    place = NamespaceContext(default_queue="far", uses_multikueue=ELSEWHERE.uses_multikueue)

    assert mutate(job(), rules(), context=place).object["spec"]["managedBy"] == MULTIKUEUE


def test_who_manages_a_run_is_its_users_and_the_configurations_word() -> None:
    made = mutate(run(labels={names.QUEUE: "far"}), rules(), context=ELSEWHERE).object

    assert "managedBy" not in made["spec"]


OWNERS = (("tekton.dev/v1", "PipelineRun"), ("tekton.dev/v1", "TaskRun"), ("batch/v1", "Job"))


@pytest.mark.parametrize(("version", "kind"), OWNERS)
@pytest.mark.parametrize("build", [run, job])
def test_what_a_waiting_object_owns_is_left_alone(build: Any, version: str, kind: str) -> None:
    owner = {"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": True}
    nested = build(labels={names.QUEUE: "q"}, ownerReferences=[owner])

    assert mutate(nested, rules()).patch == ()


def test_kinds_that_cannot_wait_are_left_alone() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {names.QUEUE: "q"}}}

    assert mutate(pod, rules()).patch == ()


# --- anything at all ------------------------------------------------------------------------------

RICH: dict[str, Any] = {
    "pipelineSpec": {
        "params": [{"name": "y", "type": "array", "default": ["a"], "properties": {"k": {}}}],
        "workspaces": [{"name": "w"}],
        "tasks": [
            {
                "name": "a",
                "taskRef": {"name": "t", "kind": "Task", "apiVersion": "", "resolver": ""},
                "params": [{"name": "PLATFORM", "value": "linux/arm64 $(params.y)"}],
                "matrix": {
                    "params": [{"name": "m", "value": ["a"]}],
                    "include": [{"name": "i", "params": [{"name": "n", "value": "b"}]}],
                },
                "when": [{"input": "a", "operator": "in", "values": ["a"], "cel": ""}],
                "timeout": "5m",
                "onError": "continue",
                "retries": 0,
            },
            {
                "name": "b",
                "runAfter": ["a"],
                "taskSpec": {
                    "params": [{"name": "z", "default": "1"}],
                    "steps": [{"name": "s", "image": "i", "script": "x", "args": ["$(params.z)"]}],
                },
            },
        ],
        "finally": [{"name": "f", "taskRef": {"resolver": "git", "params": []}}],
    },
    "params": [{"name": "build-platforms", "value": ["linux/arm64"]}],
    "timeouts": {"pipeline": "1h", "tasks": "30m", "finally": "10m"},
    "taskRunTemplate": {"serviceAccountName": "s"},
    "taskRunSpecs": [{"pipelineTaskName": "a", "timeout": "10m"}],
    "workspaces": [{"name": "w", "persistentVolumeClaim": {"claimName": "c"}}],
    "status": "",
    "managedBy": "",
}
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "x", "$(", "$(params.q)", "$(tasks.q.results.r)", "-1h", "\x00", "é"]),
    st.sampled_from([[], {}, [None], [1], ["a"], [[]], [{}], {"a": None}, {"name": 1}, {"a": [1]}]),
)
Path = tuple[str | int, ...]


def paths(value: Any, at: Path = ()) -> list[Path]:
    """Every place in a document."""
    inside: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value))
    return [at] * bool(at) + [path for key, item in inside for path in paths(item, (*at, key))]


def replaced(value: Any, path: Path, junk: Any) -> Any:
    """A copy with something else at `path`, if that place is still there."""
    result = target = copy.deepcopy(value)
    for key in path[:-1]:
        try:
            target = target[key]
        except (KeyError, IndexError, TypeError):
            return result
    last = path[-1]
    if (isinstance(target, dict) and isinstance(last, str)) or (
        isinstance(target, list) and isinstance(last, int) and last < len(target)
    ):
        target[last] = junk  # type: ignore[index]  # keys of dicts, places of lists
    return result


KONFLUX = rules(
    "pipelineRun.spec.pipelineSpec.tasks.map(t, has(t.params) ? t.params : [])"
    ".filter(p, p.size() > 0).map(p, resource(replace(p[0].value, '/', '-'), 1))"
)


@settings(max_examples=400, deadline=None)
@given(
    changes=st.lists(st.tuples(st.sampled_from(paths(RICH)), JUNK), min_size=1, max_size=3),
)
def test_whatever_is_sent_is_held_or_refused_in_words(changes: list[tuple[Path, Any]]) -> None:
    spec = RICH
    for path, junk in changes:
        spec = replaced(spec, path, junk)
    try:
        made = mutate(run() | {"spec": spec}, KONFLUX)
    except RefusedError as refusal:
        reason = str(refusal)
        assert refusal.code in {400, 500}  # noqa: PT017 - either outcome is right
        assert len(reason) > 20
    else:
        assert made.object["spec"]["status"] == PENDING


# --- kinds that nobody wrote code for ------------------------------------------------------------


def classified(**spec: Any) -> NamespaceContext:
    """A place where Gadgets are known, and classified like runs."""
    integrations = Integrations()
    integrations.learn(document(webhook={"classify": True}, **spec))
    return NamespaceContext(integrations=integrations)


def test_a_kind_that_asks_for_it_is_classified_as_it_is_and_not_read_as_a_run() -> None:
    given = gadget()
    given["spec"]["colour"] = None
    expressions = (
        'pipelineRun.spec.replicas == 2.0 ? priority("pair") : priority("other")',
        'has(pipelineRun.spec.colour) ? annotation("colour", "some") : annotation("colour", "none")',
        'resource("tekton.dev/slots", 3)',
    )

    made = mutate(given, rules(*expressions), namespace="ns", context=classified()).object

    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"] == {
        names.QUEUE: "q",
        "kueue.x-k8s.io/priority-class": "pair",
    }
    assert annotations(made) == {"colour": "none", R + "tekton.dev/slots": "3"}
    assert made["spec"]["replicas"] == 2, "what expressions see is a copy"
    assert mutate(made, rules(*expressions), context=classified()).object == made


def test_a_kind_that_is_classified_is_no_run_that_could_be_coscheduled() -> None:
    given = gadget()
    given["metadata"]["annotations"] = {names.COSCHEDULE: "pipelineruns"}

    with pytest.raises(RefusedError, match="only PipelineRuns can be coscheduled"):
        mutate(given, rules('priority("x")'), context=classified())


def test_an_expression_that_fails_on_such_an_object_is_told() -> None:
    with pytest.raises(RefusedError, match="no such key: pipelineSpec"):
        mutate(gadget(), rules("priority(pipelineRun.spec.pipelineSpec.x)"), context=classified())


def test_a_kind_that_does_not_ask_for_it_is_not_classified() -> None:
    integrations = Integrations()
    integrations.learn(document())
    made = mutate(
        gadget(), rules('priority("x")'), context=NamespaceContext(integrations=integrations)
    )
    assert made.patch == ()
