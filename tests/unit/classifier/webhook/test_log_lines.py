"""Whom the webhook's log lines are about: each carries the workload, and the number of its trace."""

from pathlib import Path
from typing import Any, Final

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from services.classifier.webhook.review import answer_validation
from services.classifier.webhook.reviewing.large import reply_frame, reply_of
from shared.contracts.webhook import VALIDATE_PATH
from tests.unit.classifier.webhook.reviews import review
from tests.unit.classifier.webhook.test_app import service

TRACE: Final = "ab" * 16
TRACEPARENT: Final = f"00-{TRACE}-{'cd' * 8}-01"
TRACED: Final = {"sluicegate.dev/traceparent": TRACEPARENT}
COPY: Final = {"kueue.x-k8s.io/multikueue-origin": "hub"}


def refused(kind: str = "Workload", **metadata: Any) -> dict[str, Any]:
    """An object that breaks a rule of its kind."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": "x", "namespace": "ns", **metadata},
        "spec": {"podSets": "none", "clusterQueue": 5, "queueName": 5},
    }


REFUSED: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "one that is there and has a trace": (
        {
            "operation": "UPDATE",
            "object": refused(),
            "oldObject": {**refused(annotations=TRACED), "spec": {}},
        },
        {"workload": "ns/x", "trace": TRACE},
    ),
    "a new one with a trace that may be copied from another": (
        {"object": refused(annotations=TRACED)},
        {"workload": "ns/x", "trace": None},
    ),
    "a spoke's copy, which continues the trace of the original": (
        {"object": refused(annotations=TRACED, labels=COPY)},
        {"workload": "ns/x", "trace": TRACE},
    ),
    "one whose annotations are no map": (
        {"object": refused(annotations=[], labels=COPY)},
        {"workload": "ns/x", "trace": None},
    ),
    "one that gets its name later": (
        {"object": refused(name=None, generateName="x-")},
        {"workload": "ns/x-", "trace": None},
    ),
    "a queue": ({"object": refused("LocalQueue")}, {"workload": None, "trace": None}),
}


@pytest.mark.parametrize(("request_", "carried"), REFUSED.values(), ids=REFUSED)
async def test_line_about_a_refused_object_carries_the_workload_and_its_trace(
    tmp_path: Path, request_: dict[str, Any], carried: dict[str, Any]
) -> None:
    body = review(**{"given": None, **request_})
    with capture_logs([merge_contextvars]) as lines:
        async with (
            service(tmp_path) as webhook,
            webhook.client.post(webhook.url + VALIDATE_PATH, data=body) as answer,
        ):
            assert (await answer.json())["response"]["allowed"] is False

    [line] = [line for line in lines if line["event"] == "an object was refused at admission"]
    assert {name: line.get(name) for name in carried} == carried


def test_refusal_by_a_process_of_its_own_carries_the_same() -> None:
    reply = answer_validation(review(None, **REFUSED["one that is there and has a trace"][0]))

    assert reply_of(reply_frame(reply, {})).about == reply.about == ("ns/x", TRACEPARENT)
