"""Reviews of changes: what starts without admission is refused, an own pause becomes our hold."""

import base64
from typing import Any

import orjson
import pytest

from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.review import Outcome, Reply, answer_mutation
from shared.contracts.kube.names import QUEUE, USER_PENDING
from shared.contracts.webhook import PATCHER_USER
from tests.unit.classifier.webhook.objects import rules

Json = dict[str, Any]
CONTEXT = {"patchers": frozenset({PATCHER_USER}), "knows_decisions": True}


def a_job(*, suspend: bool = True, **metadata: Any) -> Json:
    labels = metadata.pop("labels", {QUEUE: "q"})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "x", "namespace": "n", "uid": "u", "labels": labels, **metadata},
        "spec": {"suspend": suspend, "template": {"spec": {}}},
    }


def a_run(status: str | None = "PipelineRunPending", **metadata: Any) -> Json:
    mark = metadata.pop("mark", "false")
    annotations = {} if mark is None else {USER_PENDING: mark}
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {
            "name": "x",
            "namespace": "n",
            "uid": "u",
            "labels": {QUEUE: "q"},
            "annotations": annotations,
            **metadata,
        },
        "spec": {} if status is None else {"status": status},
    }


def answer(old: Json, new: Json, *, user: str = "jane", **context: Any) -> Reply:
    request = {
        "uid": "r",
        "operation": "UPDATE",
        "namespace": "n",
        "object": new,
        "oldObject": old,
        "userInfo": {"username": user},
    }
    made = NamespaceContext(**{**CONTEXT, **context})
    return answer_mutation(request, rules(), context_of=lambda _namespace: made)


def response(reply: Reply) -> Json:
    found: Json = orjson.loads(reply.body)["response"]
    return found


def patch_of(reply: Reply) -> list[Json]:
    found: list[Json] = orjson.loads(base64.b64decode(response(reply)["patch"]))
    return found


JOB_SET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "controller": True,
    "name": "o",
    "uid": "p",
}
AS_JOB = JOB_SET | {"apiVersion": "batch/v1", "kind": "Job"}
STARTS = {
    "a Job": (a_job(), a_job(suspend=False)),
    "a Job that names a Job as controller": (
        a_job(ownerReferences=[AS_JOB]),
        a_job(suspend=False, ownerReferences=[AS_JOB]),
    ),
    "a run": (a_run(), a_run(None)),
    "a run with an empty queue label": (a_run(labels={QUEUE: ""}), a_run(None, labels={})),
    "a run without any label": (a_run(labels={}), a_run(None, labels={})),
    "a run that is to run its finally tasks": (a_run(), a_run("CancelledRunFinally")),
}


REFUSED = STARTS | {
    "a run without any label or mark": (a_run(labels={}), a_run(None, labels={}, mark=None))
}


@pytest.mark.parametrize(("old", "new"), REFUSED.values(), ids=REFUSED)
def test_start_without_admission_is_refused_with_the_field_and_what_to_do(
    old: Json, new: Json
) -> None:
    reply = answer(old, new)
    status = response(reply)["status"]
    assert (reply.outcome, status["code"], status["reason"]) == (Outcome.REFUSED, 403, "Forbidden")
    field = "spec.suspend" if old["kind"] == "Job" else "spec.status"
    assert status["message"].startswith(f"{old['kind']} n/x: {field}: may not be changed")
    assert "sluice explain" in status["message"]
    assert reply.cause == "not-admitted"


ALLOWED: dict[str, Json] = {
    "it is admitted": {"is_admitted": {"u"}.__contains__},
    "by the patcher": {"user": PATCHER_USER},
    "nobody knows the patcher": {"patchers": frozenset()},
    "decisions are not read yet": {"knows_decisions": False},
    "its namespace is not managed": {"managed": False},
}


@pytest.mark.parametrize("context", ALLOWED.values(), ids=ALLOWED)
@pytest.mark.parametrize(("old", "new"), STARTS.values(), ids=STARTS)
def test_start_is_allowed(old: Json, new: Json, context: Json) -> None:
    assert answer(old, new, **context).outcome is Outcome.UNCHANGED


LET_GO: dict[str, tuple[Json, Json]] = {
    "the mark goes with the hold": (a_run(), a_run(None, mark=None)),
    "the mark becomes that of an own pause": (a_run(), a_run(None, mark="true")),
    "the mark went before": (a_run(mark=None), a_run(None, mark=None)),
    "the mark goes from what runs": (a_run(None), a_run(None, mark=None)),
    "the mark of what runs changes": (a_run(None), a_run(None, mark="true")),
    "a Job's queue goes with the hold": (a_job(), a_job(labels={}, suspend=False)),
    "a Job's controller comes as it is let go": (
        a_job(),
        a_job(suspend=False, ownerReferences=[JOB_SET]),
    ),
}


@pytest.mark.parametrize(
    "context", [{"patchers": frozenset()}, {"knows_decisions": False}], ids=str
)
@pytest.mark.parametrize(("old", "new"), LET_GO.values(), ids=LET_GO)
def test_run_whose_start_is_not_refused_keeps_the_mark_of_our_hold(
    old: Json, new: Json, context: Json
) -> None:
    reply = answer(old, new, **context)
    assert reply.outcome is Outcome.MUTATED
    [mark] = patch_of(reply)
    assert mark["value"] in ("false", {USER_PENDING: "false"})


NOT_OURS = {
    "a waiting run that is cancelled": (a_run(), a_run("Cancelled")),
    "an own pause that is cancelled": (a_run(mark="true"), a_run("Cancelled", mark="true")),
    "a Job without a queue": (a_job(labels={}), a_job(labels={}, suspend=False)),
    "a Job that ran": (a_job(suspend=False), a_job(suspend=False, labels={})),
    "a Job that is suspended": (a_job(suspend=False), a_job()),
    "a child that waits with its controller": (
        a_job(ownerReferences=[JOB_SET]),
        a_job(suspend=False, ownerReferences=[JOB_SET]),
    ),
}


@pytest.mark.parametrize(("old", "new"), NOT_OURS.values(), ids=NOT_OURS)
def test_other_changes_are_allowed(old: Json, new: Json) -> None:
    assert answer(old, new).outcome is Outcome.UNCHANGED


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("user", ["jane", PATCHER_USER])
def test_end_of_an_own_pause_is_held_under_our_mark(knows: bool, user: str) -> None:
    reply = answer(a_run(mark="true"), a_run(None, mark="true"), knows_decisions=knows, user=user)
    assert reply.outcome is Outcome.MUTATED
    assert {"op": "add", "path": "/spec/status", "value": "PipelineRunPending"} in patch_of(reply)
    [mark] = [o for o in patch_of(reply) if "user-pending" in o["path"]]
    assert mark["value"] == "false"


MARKED: dict[str, tuple[Json, Json]] = {
    "its label goes": (a_job(), a_job(labels={})),
    "a controller comes": (a_job(), a_job(ownerReferences=[{"controller": True, "uid": "p"}])),
    "label and mark go": (a_run(), a_run(labels={}, mark=None)),
}


@pytest.mark.parametrize(("old", "new"), MARKED.values(), ids=MARKED)
def test_what_stays_held_keeps_the_mark_of_our_hold(old: Json, new: Json) -> None:
    reply = answer(old, new, request_editors=frozenset({"jane"}))
    assert reply.outcome is Outcome.MUTATED
    assert all(
        "user-pending" in o["path"] or o["path"].endswith("annotations") for o in patch_of(reply)
    )


@pytest.mark.parametrize("at", ["new", "old"])
@pytest.mark.parametrize(
    "metadata",
    [{"labels": []}, {"annotations": {"a": 1}}, {"ownerReferences": "x"}, {"ownerReferences": [1]}],
    ids=str,
)
def test_metadata_of_a_wrong_type_is_refused(metadata: Json, at: str) -> None:
    pair = [a_job(), a_job(suspend=False)]
    place = ("old", "new").index(at)
    pair[place] = {**pair[place], "metadata": {**pair[place]["metadata"], **metadata}}
    assert response(answer(*pair))["status"]["code"] == 400


LET_OUT: dict[str, list[Json]] = {
    "the reference is removed": [],
    "it controls no more": [JOB_SET | {"controller": False}],
    "to another JobSet": [JOB_SET | {"uid": "other"}],
    "to another name of that uid": [JOB_SET | {"name": "other"}],
}


def is_admitted_as(uid: str, kind: str) -> bool:
    return (uid, kind) == ("p", "JobSet")


@pytest.mark.parametrize("suspend", [True, False], ids=["held", "running"])
@pytest.mark.parametrize("owners", LET_OUT.values(), ids=LET_OUT)
def test_job_that_leaves_its_admitted_controller_gets_our_mark(
    owners: list[Json], *, suspend: bool
) -> None:
    old = a_job(suspend=suspend, labels={}, ownerReferences=[JOB_SET])
    new = a_job(suspend=suspend, labels={}, ownerReferences=owners)
    patch = patch_of(answer(old, new, is_admitted_as=is_admitted_as))
    assert [each["value"] for each in patch] == [{USER_PENDING: "false"}]


UNMARKED: dict[str, Json] = {
    "its controller is not admitted": {},
    "its namespace is not managed": {"is_admitted_as": is_admitted_as, "managed": False},
}


@pytest.mark.parametrize("context", UNMARKED.values(), ids=UNMARKED)
def test_job_that_leaves_another_controller_gets_no_mark(context: Json) -> None:
    old = a_job(suspend=False, labels={}, ownerReferences=[JOB_SET])
    new = a_job(suspend=False, labels={})
    assert "patch" not in response(answer(old, new, **context))


def test_job_that_stays_with_its_controller_gets_no_mark() -> None:
    old = a_job(suspend=False, labels={}, ownerReferences=[JOB_SET])
    new = a_job(suspend=False, labels={"a": "b"}, ownerReferences=[JOB_SET])
    assert "patch" not in response(answer(old, new, is_admitted_as=is_admitted_as))


def a_spark_application(*, enabled: bool = False, suspend: bool = True, **metadata: Any) -> Json:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "x", "namespace": "n", "uid": "u", **metadata},
        "spec": {"suspend": suspend, "dynamicAllocation": {"enabled": enabled}},
    }


ADMITTED: Json = {"is_admitted": {"u"}.__contains__}
MARK = {USER_PENDING: "false"}
WITHOUT_A_QUEUE: dict[str, tuple[Json, Json]] = {
    "it waits under our mark": ({"annotations": MARK}, {}),
    "it waits where jobs wait without a queue": ({}, {"manage_without_queue": True}),
    "it runs, admitted by the queue of its Workload": ({"suspend": False}, ADMITTED),
    "it runs before decisions are read": (
        {"suspend": False, "annotations": MARK},
        {"knows_decisions": False},
    ),
}


@pytest.mark.parametrize(("of", "context"), WITHOUT_A_QUEUE.values(), ids=list(WITHOUT_A_QUEUE))
def test_job_of_ours_without_a_queue_stays_countable(of: Json, context: Json) -> None:
    old, new = a_spark_application(**of), a_spark_application(enabled=True, **of)
    reply = answer(old, new, **context)
    assert "spec.dynamicAllocation.enabled: true" in response(reply)["status"]["message"]
    assert response(answer(new, new, **context))["allowed"], "what was wrong before is no reason"
    assert response(answer(new, old, **context))["allowed"]


NOBODYS: dict[str, tuple[Json, Json]] = {
    "nobody said that it waits": ({}, {}),
    "it runs with its admitted controller": (
        {
            "ownerReferences": [
                AS_JOB | {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper"}
            ]
        },
        {"manage_without_queue": True},
    ),
}


@pytest.mark.parametrize(("of", "context"), NOBODYS.values(), ids=NOBODYS)
def test_job_that_is_not_ours_may_be_what_it_likes(of: Json, context: Json) -> None:
    old, new = a_spark_application(**of), a_spark_application(enabled=True, **of)
    assert response(answer(old, new, **context))["allowed"]
