"""AdmissionReview in, AdmissionReview out."""

import base64
from typing import Any

import orjson
import pytest

from services.classifier.webhook.review import OBJECT_BYTES_MAX, Outcome, Reply, answer_mutation
from shared.contracts.kube import kinds, names
from tests.unit.classifier.webhook.reviews import RULES, review, run


def response(reply: Reply) -> dict[str, Any]:
    document = orjson.loads(reply.body)
    assert reply.status == 200
    assert document["apiVersion"] == "admission.k8s.io/v1"
    assert document["kind"] == "AdmissionReview"
    assert document["response"]["uid"] == "u-1"
    found: dict[str, Any] = document["response"]
    return found


def patch(found: dict[str, Any]) -> list[dict[str, Any]]:
    assert found["patchType"] == "JSONPatch"
    operations: list[dict[str, Any]] = orjson.loads(base64.b64decode(found["patch"]))
    return operations


def test_run_is_allowed_with_patch() -> None:
    reply = answer_mutation(review(run()), RULES)

    found = response(reply)
    assert found["allowed"] is True
    assert {"op": "add", "path": "/spec/status", "value": "PipelineRunPending"} in patch(found)
    assert reply.outcome is Outcome.MUTATED


@pytest.mark.parametrize(
    "request_fields",
    [
        pytest.param({"operation": "UPDATE"}, id="an update"),
        pytest.param({"operation": "DELETE", "object": None}, id="a deletion"),
        pytest.param({"subResource": "status"}, id="a subresource"),
        pytest.param(
            {"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {}}}, id="another kind"
        ),
    ],
)
def test_unmanaged_object_is_allowed_without_patch_and_patch_type(
    request_fields: dict[str, Any],
) -> None:
    reply = answer_mutation(review(run(), **request_fields), RULES)

    assert response(reply) == {"uid": "u-1", "allowed": True}
    assert reply.outcome is Outcome.UNCHANGED


def test_invalid_run_is_denied_with_400() -> None:
    reply = answer_mutation(review(run(pipelineRef=None)), RULES)

    status = response(reply)["status"]
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    assert status["message"].startswith("pipelinerun validation failed: invalid pipelinerun: ")
    assert reply.outcome is Outcome.REFUSED


def test_failing_expression_denies_with_500() -> None:
    given = run()
    given["metadata"]["annotations"] = {f"{names.REQUESTS_PREFIX}a": "500m"}

    reply = answer_mutation(review(given), RULES)

    status = response(reply)["status"]
    assert (status["code"], status["reason"]) == (500, "InternalError")
    assert status["message"].startswith("Internal error occurred: CEL evaluation failed: ")
    assert reply.outcome is Outcome.FAILED


def test_wrong_kind_at_path_of_one_kind_is_denied() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}}

    reply = answer_mutation(review(pod), RULES, kind=kinds.PIPELINE_RUN)

    assert response(reply)["status"]["message"] == "expected a PipelineRun object but got 'Pod'"


@pytest.mark.parametrize("given", [None, [], "x"])
def test_request_without_object_is_denied(given: Any) -> None:
    reply = answer_mutation(review(given), RULES)

    assert response(reply)["status"]["message"] == "request.object: must be an object"


MALFORMED = {
    "nothing": (b"", "body: not JSON"),
    "brackets that only open": (b"[" * 900, "body: not JSON"),
    "half a review": (review(run())[:-5], "body: not JSON"),
    "a list": (b"[]", "body: must be an AdmissionReview object"),
    "an old review": (
        b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}',
        "must be admission.k8s.io/v1 AdmissionReview, got admission.k8s.io/v1beta1",
    ),
    "another kind": (
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "ConversionReview"}',
        "got admission.k8s.io/v1 ConversionReview",
    ),
    "no request": (
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        "request: must be an object",
    ),
    "no uid": (review(run(), uid=None), "request.uid: must be a string, got None"),
}


@pytest.mark.parametrize(("body", "problem"), MALFORMED.values(), ids=MALFORMED.keys())
def test_body_that_is_no_review_is_a_bad_request(body: bytes, problem: str) -> None:
    reply = answer_mutation(body, RULES)

    assert reply.status == 400
    assert problem in reply.body.decode()
    assert reply.outcome is Outcome.MALFORMED


def test_trace_starts_with_review_but_not_with_dry_run() -> None:
    begun: list[str] = []

    def begin() -> str:
        begun.append("00-trace")
        return begun[-1]

    dry = response(answer_mutation(review(run(), dryRun=True), RULES, new_traceparent=begin))
    assert begun == []
    real = response(answer_mutation(review(run()), RULES, new_traceparent=begin))
    assert begun == ["00-trace"]

    assert names.TRACEPARENT_ANNOTATION in str(patch(real))
    assert names.TRACEPARENT_ANNOTATION not in str(patch(dry))


def test_largest_allowed_object_is_answered() -> None:
    tasks = [
        {"name": f"t{n}", "taskRef": {"name": "x"}, "params": [{"name": "p", "value": "v" * 800}]}
        for n in range(3000)
    ]
    body = review(run(pipelineRef=None, pipelineSpec={"tasks": tasks}))
    assert 0.8 * OBJECT_BYTES_MAX < len(body) < OBJECT_BYTES_MAX

    assert response(answer_mutation(body, RULES))["allowed"] is True


@pytest.mark.parametrize("levels", [101, 300, 1000])
@pytest.mark.parametrize(
    "field", ["taskRunTemplate", "params", "workspaces", "pipelineRef", "status", "surprise"]
)
def test_deeply_nested_object_is_denied(field: str, levels: int) -> None:
    flat: dict[str, Any] = {"taskRunTemplate": {"podTemplate": "deep"}, "status": "deep"}
    flat |= {"params": [{"name": "p", "value": "deep"}], "workspaces": "deep"}
    flat |= {"pipelineRef": {"name": "b", "params": "deep"}, "surprise": "deep"}
    body = review(run(**{field: flat[field]})).replace(b'"deep"', b"[" * levels + b"]" * levels)

    found = response(answer_mutation(body, RULES))

    kept = {"surprise": 1000, "params": 253, "status": 101}
    if levels <= kept.get(field, 0):
        # Dropped, overwritten, or text before anybody walks down.
        assert found["allowed"]
    else:
        message = found["status"]["message"]
        assert "levels deep" in message or "must be" in message


@pytest.mark.parametrize("name", ["a" * 253, "*", ">", "é", "a.b.c"])
def test_invalid_names_are_left_to_the_api_server(name: str) -> None:
    given = run() | {"metadata": {"name": name, "labels": {"l" * 63: "v" * 63}}}

    assert response(answer_mutation(review(given), RULES))["allowed"] is True
