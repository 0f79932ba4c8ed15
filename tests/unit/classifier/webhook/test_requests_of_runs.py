"""What a PipelineRun asks for: refused when it cannot be counted, fixed while it waits."""

import copy
import json
from typing import Any

import orjson
import pytest

from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.review import Outcome, Reply, answer_mutation
from shared.contracts.kube.names import (
    PRIORITY_CLASS_LABEL,
    QUEUE,
    REQUESTS_APPLIED,
    USER_PENDING,
)
from shared.contracts.webhook import PATCHER_USER
from tests.unit.classifier.webhook.objects import R, patched, rules, run

Json = dict[str, Any]
RULES = rules('resource("linux-arm64", 1)')


def created(obj: Json, *, context: NamespaceContext | None = None) -> Reply:
    request = {"uid": "r", "operation": "CREATE", "namespace": "ns", "object": obj}
    return answer_mutation(
        request, RULES, context_of=lambda _namespace: context or NamespaceContext()
    )


def message(reply: Reply) -> str:
    status = orjson.loads(reply.body)["response"].get("status") or {}
    return str(status.get("message", ""))


RECORD = json.dumps({"linux-arm64": ["-3", "0"]})
INVALID: dict[str, tuple[Json, str]] = {
    "less than nothing": ({f"{R}cpu": "-1"}, f"{R}cpu"),
    "less than nothing, to take off what rules add": ({f"{R}linux-arm64": "-3"}, f"{R}linux-arm64"),
    "less than nothing, in a forged record": (
        {f"{R}linux-arm64": "0", REQUESTS_APPLIED: RECORD}, f"{R}linux-arm64"),
    "so much that rules exceed 64 bits": ({f"{R}linux-arm64": str(2**63 - 1)}, f"{R}linux-arm64"),
    "more than a quantity holds": ({f"{R}memory": "99999999999E"}, f"{R}memory"),
    "a very large exponent": ({f"{R}cpu": "1e999999999"}, f"{R}cpu"),
    "no number": ({f"{R}cpu": "many"}, f"{R}cpu"),
    "nothing": ({f"{R}cpu": ""}, f"{R}cpu"),
    "not a number": ({f"{R}cpu": "NaN"}, f"{R}cpu"),
    "a digit of another script": ({f"{R}cpu": "٣"}, f"{R}cpu"),
    "no resource": ({R: "1"}, "must name a resource"),
}  # fmt: skip


@pytest.mark.parametrize(("annotations", "why"), INVALID.values(), ids=INVALID.keys())
def test_request_that_cannot_be_counted_is_refused(annotations: Json, why: str) -> None:
    reply = created(run(annotations=annotations))
    assert reply.outcome is Outcome.REFUSED
    assert why in message(reply)


def test_run_that_is_as_the_rules_make_it_is_checked_all_the_same() -> None:
    """An author may create what a review would make, so that the review changes nothing."""
    made = created(run())
    patch = orjson.loads(
        __import__("base64").b64decode(orjson.loads(made.body)["response"]["patch"])
    )
    ready = patched(run(), tuple(patch))
    assert created(ready).outcome is Outcome.UNCHANGED
    ready["metadata"]["annotations"][f"{R}cpu"] = "-1"
    assert created(ready).outcome is Outcome.REFUSED


VALID: dict[str, Json] = {
    "a whole number": {f"{R}cpu": "3"},
    "a part": {f"{R}cpu": "500m"},
    "a unit": {f"{R}memory": "2Gi"},
    "nothing of it": {f"{R}linux-arm64": "0"},
}


@pytest.mark.parametrize("annotations", VALID.values(), ids=VALID.keys())
def test_request_that_can_be_counted_is_accepted(annotations: Json) -> None:
    assert created(run(annotations=annotations)).outcome is Outcome.MUTATED


def test_run_of_an_excluded_namespace_is_left_alone() -> None:
    reply = created(run(annotations={f"{R}cpu": "-1"}), context=NamespaceContext(managed=False))
    assert reply.outcome is Outcome.UNCHANGED


# --- while it waits ---

WAITING: Json = run(
    uid="u",
    labels={QUEUE: "q", PRIORITY_CLASS_LABEL: "low", "team": "x"},
    annotations={f"{R}linux-arm64": "2", USER_PENDING: "false"},
)
WAITING["spec"]["status"] = "PipelineRunPending"


def changed(**metadata: Json) -> Json:
    """The waiting run with other labels and annotations; None removes one."""
    made = copy.deepcopy(WAITING)
    for field, values in metadata.items():
        merged = {**made["metadata"][field], **values}
        made["metadata"][field] = {key: one for key, one in merged.items() if one is not None}
    return made


def updated(
    new: Json, old: Json = WAITING, *, groups: Any = (), user: str = "jane", **more: Any
) -> Reply:
    request = {
        "uid": "r", "operation": "UPDATE", "namespace": "ns", "object": new, "oldObject": old,
        "userInfo": {"username": user, "groups": groups},
    }  # fmt: skip
    context = NamespaceContext(
        patchers=frozenset({PATCHER_USER}),
        knows_decisions=True,
        request_editors=frozenset({"admin", "queue-admins"}),
        **more,
    )
    return answer_mutation(request, RULES, context_of=lambda _namespace: context)


CHANGES: dict[str, tuple[Json, str]] = {
    "another queue": (
        {"labels": {QUEUE: "vip"}},
        f"metadata.labels[{QUEUE}]: may not be changed from 'q' to 'vip'",
    ),
    "no queue": ({"labels": {QUEUE: None}}, "to nothing"),
    "an empty queue": ({"labels": {QUEUE: ""}}, "to ''"),
    "another priority": ({"labels": {PRIORITY_CLASS_LABEL: "high"}}, "from 'low' to 'high'"),
    "no priority": ({"labels": {PRIORITY_CLASS_LABEL: None}}, "from 'low' to nothing"),
    "fewer requests": ({"annotations": {f"{R}linux-arm64": "1"}}, "from '2' to '1'"),
    "no request": ({"annotations": {f"{R}linux-arm64": None}}, "from '2' to nothing"),
    "more requests": ({"annotations": {f"{R}linux-arm64": "9"}}, "from '2' to '9'"),
    "a new request": ({"annotations": {f"{R}cpu": "1"}}, "from nothing to '1'"),
    "the same amount in other words": ({"annotations": {f"{R}linux-arm64": "2.0"}}, "to '2.0'"),
}


@pytest.mark.parametrize(("metadata", "why"), CHANGES.values(), ids=CHANGES.keys())
def test_what_a_waiting_run_asks_for_is_not_changed(metadata: Json, why: str) -> None:
    reply = updated(changed(**metadata))
    assert (reply.outcome, reply.cause) == (Outcome.REFUSED, "fixed-while-waiting")
    assert message(reply).startswith("PipelineRun ns/p: metadata.")
    assert why in message(reply)
    assert "SLUICE_REQUEST_EDITORS" in message(reply)


@pytest.mark.parametrize(
    "who", [{"user": "admin"}, {"groups": ["queue-admins"]}, {"user": PATCHER_USER}]
)
@pytest.mark.parametrize("metadata", [each for each, _ in CHANGES.values()], ids=CHANGES.keys())
def test_request_editor_may_change_what_a_waiting_run_asks_for(metadata: Json, who: Json) -> None:
    assert updated(changed(**metadata), **who).outcome is not Outcome.REFUSED


def test_request_editor_may_not_ask_for_a_negative_amount() -> None:
    reply = updated(changed(annotations={f"{R}cpu": "-1"}), user="admin")
    assert "must be greater than or equal to 0" in message(reply)


def test_groups_of_a_malformed_review_make_no_request_editor() -> None:
    for groups in (None, ["jane"], [{"a": 1}]):
        reply = updated(changed(labels={QUEUE: "vip"}), groups=groups)
        assert reply.outcome is Outcome.REFUSED


OTHER: dict[str, Json] = {
    "another label": {"labels": {"team": "y"}},
    "another annotation": {"annotations": {"note": "y"}},
}


@pytest.mark.parametrize("metadata", OTHER.values(), ids=OTHER.keys())
def test_other_fields_of_a_waiting_run_may_change(metadata: Json) -> None:
    assert updated(changed(**metadata)).outcome is Outcome.UNCHANGED


def test_run_without_a_queue_may_be_given_one() -> None:
    old = changed(labels={QUEUE: None})
    assert updated(changed(), old).outcome is Outcome.UNCHANGED


RUNNING: dict[str, tuple[Json, Json, bool]] = {
    "another queue": ({"labels": {QUEUE: "vip"}}, {}, True),
    "another request": ({"annotations": {f"{R}cpu": "1"}}, {}, True),
    "another priority": ({"labels": {PRIORITY_CLASS_LABEL: "high"}}, {}, False),
    "another priority by who may": (
        {"labels": {PRIORITY_CLASS_LABEL: "high"}},
        {"user": "admin"},
        True,
    ),
}


@pytest.mark.parametrize(("metadata", "who", "may"), RUNNING.values(), ids=RUNNING.keys())
@pytest.mark.parametrize("ended", [False, True])
def test_run_keeps_its_priority_class_until_it_has_ended(
    metadata: Json, who: Json, may: bool, ended: bool
) -> None:
    old, new = changed(), changed(**metadata)
    conditions = [{"type": "Succeeded", "status": "True" if ended else "Unknown"}]
    for each in (old, new):
        del each["spec"]["status"]
        each["status"] = {"startTime": "t", "conditions": conditions}
    outcome = updated(new, old, **who).outcome
    assert (outcome is Outcome.UNCHANGED) is (may or ended)


def test_excluded_namespace_is_left_alone() -> None:
    reply = updated(changed(labels={QUEUE: "vip"}), managed=False)
    assert reply.outcome is Outcome.UNCHANGED
