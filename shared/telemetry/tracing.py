"""One trace for each workload, from the webhook to its end, across processes and restarts.

The trace context is made once, at admission, and kept as an annotation of the job; it travels in
message headers. The span that it names is the workload itself. The process that first sees the end
writes it. All other spans are its children, with explicit times: a workload mostly waits, and no
process could keep such a span open.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags

from shared.telemetry.spans import nanoseconds
from shared.telemetry.traceparent import parse_traceparent

DELAY_MILLISECONDS: Final = 500
"""Time between two batches, and so what a process loses when it is killed."""


class Tracing(Protocol):
    """Records spans."""

    def span(
        self,
        name: str,
        *,
        parent: str | None,
        start: datetime,
        end: datetime,
        attributes: Mapping[str, str | int | float | bool] | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        """Record one finished span."""

    def close(self) -> None:
        """Send the remaining spans."""


class _NoTracing:
    def span(
        self,
        name: str,
        *,
        parent: str | None,
        start: datetime,
        end: datetime,
        attributes: Mapping[str, str | int | float | bool] | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        """Record nothing."""

    def close(self) -> None:
        """Nothing remains."""


NO_TRACING: Final[Tracing] = _NoTracing()


class OtlpTracing:
    """Sends spans to an exporter in batches; `for_endpoint` makes the usual one."""

    def __init__(self, *, service: str, instance: str, exporter: SpanExporter) -> None:
        resource = Resource.create(
            {
                "service.name": service,
                "service.namespace": "sluicegate",
                "service.instance.id": instance,
            }
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, schedule_delay_millis=DELAY_MILLISECONDS)
        )
        self._tracer = self._provider.get_tracer("sluicegate")

    @classmethod
    def for_endpoint(cls, endpoint: str, *, service: str, instance: str) -> "OtlpTracing":
        """Export over OTLP/HTTP to `<endpoint>/v1/traces`."""
        # Imported here: it costs 0.2 s and 15 MB, which a service without traces need not pay.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )

        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
        return cls(service=service, instance=instance, exporter=exporter)

    def span(
        self,
        name: str,
        *,
        parent: str | None,
        start: datetime,
        end: datetime,
        attributes: Mapping[str, str | int | float | bool] | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        """Record one finished span. Without a valid `parent` there is no trace to add it to."""
        ids = parse_traceparent(parent)
        if ids is None:
            return
        sampled = TraceFlags(TraceFlags.SAMPLED)
        remote = SpanContext(ids[0], ids[1], is_remote=True, trace_flags=sampled)
        span = self._tracer.start_span(
            name,
            context=trace.set_span_in_context(NonRecordingSpan(remote), Context()),
            kind=kind,
            attributes=dict(attributes or {}),
            start_time=nanoseconds(start),
        )
        span.end(end_time=max(nanoseconds(end), nanoseconds(start)))

    def close(self) -> None:
        """Send the remaining spans, then stop the exporter's thread."""
        self._provider.shutdown()
