"""Sends finished spans to a collector over OTLP/HTTP and reports whether it accepted them."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from shared.telemetry.spans import Context, Span, nanoseconds

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""Version of the semantic conventions for the attributes of spans."""

TIMEOUT_SECONDS: Final = 10.0
SPANS_MAX: Final = 500
"""Spans in one request: collectors refuse large ones."""


class Collector(Protocol):
    """Receives spans."""

    async def export(self, spans: Sequence[Span]) -> bool:
        """Send spans and wait for the answer. False if the collector did not accept all of them."""

    def close(self) -> None:
        """Close the connection."""


class OtlpCollector:
    """A collector behind an endpoint. The exporter blocks, so a thread calls it."""

    def __init__(self, exporter: SpanExporter, *, instance: str) -> None:
        self._exporter = exporter
        self._instance = instance
        self._scope = InstrumentationScope("sluicegate", schema_url=SCHEMA_URL)
        self._resources: dict[str, Resource] = {}

    @classmethod
    def for_endpoint(cls, endpoint: str, *, instance: str) -> "OtlpCollector":
        """Export to `<endpoint>/v1/traces`; headers and certificates are OpenTelemetry's variables."""
        # Imported here: it costs 0.2 s and 15 MB, which a process without traces need not pay.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )

        url = f"{endpoint.rstrip('/')}/v1/traces"
        return cls(OTLPSpanExporter(endpoint=url, timeout=TIMEOUT_SECONDS), instance=instance)

    async def export(self, spans: Sequence[Span]) -> bool:
        """Send spans, `SPANS_MAX` at a time. False if the collector did not accept all of them."""
        return await asyncio.to_thread(self._export, spans)

    def _export(self, spans: Sequence[Span]) -> bool:
        for first in range(0, len(spans), SPANS_MAX):
            sent = [self._readable(span) for span in spans[first : first + SPANS_MAX]]
            if self._exporter.export(sent) is not SpanExportResult.SUCCESS:
                return False
        return True

    def close(self) -> None:
        """Stop: send nothing more."""
        self._exporter.shutdown()

    def _readable(self, span: Span) -> ReadableSpan:
        status = Status() if span.error is None else Status(StatusCode.ERROR, span.error)
        return ReadableSpan(
            span.name,
            context=_context(span.context, remote=False),
            parent=None if span.parent is None else _context(span.parent, remote=True),
            resource=self._resource(span.service),
            attributes=dict(span.attributes),
            links=_links(span.links),
            kind=SpanKind[span.kind],
            status=status,
            start_time=nanoseconds(span.start),
            end_time=max(nanoseconds(span.start), nanoseconds(span.end)),
            instrumentation_scope=self._scope,
        )

    def _resource(self, service: str) -> Resource:
        if service not in self._resources:
            self._resources[service] = Resource.create(
                {
                    "service.name": service,
                    "service.namespace": "sluicegate",
                    "service.instance.id": self._instance,
                },
                schema_url=SCHEMA_URL,
            )
        return self._resources[service]


def _links(contexts: Iterable[Context]) -> list[Link]:
    return [Link(_context(context, remote=True)) for context in contexts]


def _context(context: Context, *, remote: bool) -> SpanContext:
    sampled = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(context.trace_id, context.span_id, is_remote=remote, trace_flags=sampled)
