"""Writes the first span of a workload's trace: the webhook's answer to its creation."""

from collections.abc import Callable
from datetime import datetime, timedelta

from opentelemetry.trace import SpanKind

from services.classifier.webhook.review import Reply
from shared.telemetry import span_attributes
from shared.telemetry.traceparent import is_sampled
from shared.telemetry.tracing import Tracing


def trace_review(
    tracing: Tracing, now: Callable[[], datetime], reply: Reply, path: str, seconds: float
) -> None:
    """Write the span of a review that took `seconds`, if it mutated a workload with a sampled trace."""
    if reply.traceparent is None or not is_sampled(reply.traceparent):
        return
    request = reply.request or {}
    end = now()
    tracing.span(
        f"POST {path}",
        parent=reply.traceparent,
        start=end - timedelta(seconds=seconds),
        end=end,
        kind=SpanKind.SERVER,
        attributes={
            "http.request.method": "POST",
            "http.response.status_code": reply.status,
            "http.route": path,
            "url.path": path,
            "url.scheme": "https",
            span_attributes.NAMESPACE: str(request.get("namespace") or ""),
        },
    )
