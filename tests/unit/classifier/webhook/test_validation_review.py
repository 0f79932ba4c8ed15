"""Reviews of validation and conversion: bytes in, bytes out."""

import json
from collections.abc import Callable
from typing import Final

import pytest

from services.classifier.webhook.conversion_review import answer_conversion
from services.classifier.webhook.review import Outcome, answer_validation
from shared.contracts.kube.kinds import Object
from tests.unit.classifier.validation.objects import (
    V2,
    group,
    queue,
)

V1: Final = "kueue.x-k8s.io/v1beta1"


# The review ----------------------------------------------------------------------------------------


def review(new: Object, old: Object | None = None, operation: str = "CREATE") -> bytes:
    request = {"uid": "u", "operation": operation, "object": new, "oldObject": old}
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()


def response(body: bytes) -> Object:
    answer: Object = json.loads(body)
    assert answer["response"]["uid"] == "u"
    found: Object = answer["response"]
    return found


def test_refusal_has_the_form_of_the_api_servers() -> None:
    reply = answer_validation(review(queue(group("a", nominal=-1), group("a"))))
    assert reply.outcome is Outcome.REFUSED
    status = response(reply.body)["status"]
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"].startswith('ClusterQueue.kueue.x-k8s.io "x" is invalid: [spec.')
    assert status["details"]["causes"][0] == {
        "reason": "FieldValueInvalid",
        "field": "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
        "message": 'Invalid value: "-1": must be greater than or equal to 0',
    }


def test_refusal_by_the_definition_has_its_code() -> None:
    reply = answer_validation(review({**queue(), "spec": {"queueingStrategy": "Random"}}))
    status = response(reply.body)["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")


def test_v1beta1_is_validated_by_the_same_rules() -> None:
    older = {**queue(group("a", borrowingLimit=1), cohort="c"), "apiVersion": V1}
    assert response(answer_validation(review(older)).body)["allowed"]
    alone = {**queue(group("a", borrowingLimit=1)), "apiVersion": V1}
    assert not response(answer_validation(review(alone)).body)["allowed"]


@pytest.mark.parametrize(("then", "allowed"), [("high", True), ("low", False)])
def test_update_in_v1beta1_is_compared_with_what_was_there_in_v1beta1(
    then: str, allowed: bool
) -> None:
    condition = {"type": "QuotaReserved", "status": "True", "reason": "r", "message": "m"}
    template = {"spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}}

    def workload(priority: str) -> Object:
        source = {"priorityClassSource": "scheduling.k8s.io/priorityclass"}
        pod_sets = [{"name": "main", "count": 1, "template": template}]
        return {
            "apiVersion": V1,
            "kind": "Workload",
            "metadata": {"name": "x", "namespace": "team"},
            "spec": {"priorityClassName": priority, **source, "podSets": pod_sets},
            "status": {
                "conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main"}]},
            },
        }

    reply = answer_validation(review(workload(then), workload("high"), "UPDATE"))
    assert response(reply.body)["allowed"] is allowed


ASKED: Final[dict[str, tuple[bytes, bool]]] = {
    "a deletion": (review(queue(group("a", nominal=-1)), operation="DELETE"), True),
    "a kind without rules": (review({"apiVersion": "v1", "kind": "Pod"}), True),
    "no object": (review({}), True),
    "a version of ours that nobody serves": (
        review({"apiVersion": "kueue.x-k8s.io/v1alpha1", "kind": "ClusterQueue"}),
        False,
    ),
}


@pytest.mark.parametrize(("body", "allowed"), ASKED.values(), ids=list(ASKED))
def test_review_is_allowed_or_denied(body: bytes, allowed: bool) -> None:
    assert response(answer_validation(body).body)["allowed"] is allowed


def conversion(*objects: Object, wanted: str = V2) -> bytes:
    request = {"uid": "u", "desiredAPIVersion": wanted, "objects": list(objects)}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    return json.dumps({**kind, "request": request}).encode()


def test_conversion_review_converts_all_objects_in_order() -> None:
    older = [{**queue(cohort=f"c{n}"), "apiVersion": V1} for n in range(120)]
    found = response(answer_conversion(conversion(*older)).body)
    assert found["result"] == {"status": "Success"}
    names = [one["spec"]["cohortName"] for one in found["convertedObjects"]]
    assert names == [f"c{n}" for n in range(120)]


def test_failed_conversion_review_has_message() -> None:
    reply = answer_conversion(conversion(queue(), wanted="kueue.x-k8s.io/v2"))
    assert response(reply.body)["result"] == {
        "status": "Failure",
        "message": "apiVersion: kueue.x-k8s.io/v2 is not served",
    }


MALFORMED: Final[dict[str, Callable[[], bytes]]] = {
    "no JSON": lambda: b"{",
    "another review": lambda: review(queue()),
    "no uid": lambda: conversion().replace(b'"u"', b"7"),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=list(MALFORMED))
def test_malformed_conversion_review_is_a_bad_request(body: Callable[[], bytes]) -> None:
    reply = answer_conversion(body())
    assert (reply.status, reply.outcome) == (400, Outcome.MALFORMED)
