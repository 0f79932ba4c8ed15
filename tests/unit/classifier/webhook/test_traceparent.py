"""A trace begins at the webhook, or goes on there, and Tekton is told of it."""

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from services.classifier.webhook.mutation import mutate
from services.classifier.webhook.review import Reply, answer_mutation
from services.classifier.webhook.tracing import trace_review
from shared.contracts.kube import names
from shared.contracts.kube.names import ORIGIN
from shared.telemetry.traceparent import new_traceparent
from shared.telemetry.tracing import NO_TRACING
from tests.unit.classifier.webhook.reviews import RULES, review, run

TEKTON = "tekton.dev/pipelinerunSpanContext"
NEW = "00-11111111111111111111111111111111-2222222222222222-01"
THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def made(annotations: dict[str, str] | None = None) -> dict[str, str]:
    """The annotations of a run that was created with these."""
    given = run()
    given["metadata"]["annotations"] = annotations or {}
    first = mutate(given, RULES, new_traceparent=lambda: NEW).object
    again = mutate(first, RULES, new_traceparent=lambda: NEW.replace("1", "3"))
    assert again.object == first, "a webhook may be called twice"
    found: dict[str, str] = first["metadata"]["annotations"]
    return found


def test_tekton_continues_the_trace_that_starts_here() -> None:
    annotations = made()
    assert annotations[names.TRACEPARENT_ANNOTATION] == NEW
    assert json.loads(annotations[TEKTON]) == {"traceparent": NEW}


def test_trace_context_of_the_author_is_continued_and_stays() -> None:
    given = json.dumps({"traceparent": THEIRS, "tracestate": "vendor=1"})
    annotations = made({TEKTON: given})
    assert annotations[TEKTON] == given
    ours = annotations[names.TRACEPARENT_ANNOTATION]
    assert ours == "00-0af7651916cd43dd8448eb211c80319c-2222222222222222-00", (
        "the same trace, a span of our own, and whether it is wanted as its author said"
    )


def created(given: dict[str, Any], at: datetime) -> dict[str, Any]:
    """A run as it is stored that is created then."""
    random = Random(at.isoformat())
    made = mutate(given, RULES, new_traceparent=lambda: new_traceparent(random, at)).object
    return dict(made)


@pytest.mark.parametrize("author", [None, THEIRS])
def test_run_copied_from_another_gets_its_own_trace(author: str | None) -> None:
    first = run()
    if author is not None:
        first["metadata"]["annotations"] = {TEKTON: json.dumps({"traceparent": author})}
    one = created(first, NOON)
    other = created(one, NOON + timedelta(hours=1))["metadata"]["annotations"]
    of_one = one["metadata"]["annotations"]
    assert other[names.TRACEPARENT_ANNOTATION] != of_one[names.TRACEPARENT_ANNOTATION]
    if author is None:
        assert json.loads(other[TEKTON]) == {"traceparent": other[names.TRACEPARENT_ANNOTATION]}
    else:
        assert other[TEKTON] == of_one[TEKTON], "its author is in that trace, and says so again"
    again = created(one, NOON + timedelta(seconds=5))
    assert again == one, "a webhook may be called twice"


def test_copy_on_spoke_stays_in_trace_of_the_original() -> None:
    one = created(run(), NOON)
    one["metadata"]["labels"][ORIGIN] = "hub"
    assert created(one, NOON + timedelta(hours=1)) == one


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "[]", "null", "{}", '{"traceparent": 5}', '{"traceparent": "00-1-2-3"}'],
)
def test_invalid_trace_context_is_replaced(text: str) -> None:
    annotations = made({TEKTON: text})
    assert annotations[names.TRACEPARENT_ANNOTATION] == NEW
    assert json.loads(annotations[TEKTON]) == {"traceparent": NEW}


class Spans:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def span(self, name: str, **said: Any) -> None:
        self.told.append((name, said))

    def close(self) -> None:
        """Nothing is sent."""


def answered(**more: Any) -> tuple[Reply, list[tuple[str, dict[str, Any]]]]:
    reply = answer_mutation(review(run(), **more), RULES, new_traceparent=lambda: NEW)
    spans = Spans()
    trace_review(spans, lambda: NOON, reply, "/mutate", 0.25)
    return reply, spans.told


def test_first_span_is_the_webhooks() -> None:
    _, [(name, said)] = answered()
    assert name == "POST /mutate"
    assert said["parent"] == NEW
    assert (said["start"], said["end"]) == (NOON - timedelta(seconds=0.25), NOON)
    assert said["attributes"]["http.route"] == "/mutate"
    assert said["attributes"]["http.response.status_code"] == 200


@pytest.mark.parametrize("more", [{"dryRun": True}, {"operation": "UPDATE"}], ids=str)
def test_refusal_or_dry_run_has_no_span(more: dict[str, Any]) -> None:
    _, told = answered(**more)
    assert told == []


def test_no_span_is_written_without_tracing() -> None:
    reply, _ = answered()
    trace_review(NO_TRACING, lambda: NOON, reply, "/mutate", 0.25)
