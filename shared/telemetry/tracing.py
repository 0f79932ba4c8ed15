"""One trace for each workload, from the webhook to its end, across processes and restarts.

The trace context is made once, at admission, and kept as an annotation of the job; it travels in
message headers. The span that it names is the workload itself. The process that first sees the end
writes it. All other spans are its children, with explicit times: a workload mostly waits, and no
process could keep such a span open.
"""

from collections.abc import Mapping
from datetime import datetime
from random import Random
from typing import Final, Protocol

import orjson
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags

from shared.contracts.messages.base import TRACEPARENT
from shared.telemetry.spans import nanoseconds

DELAY_MILLISECONDS: Final = 500
"""Time between two batches, and so what a process loses when it is killed."""

TOGETHER_SECONDS: Final = 60
"""An API server may call a webhook twice for one request, but not over a longer time."""

_CHANCE_BITS: Final = 32
_CHANCE: Final = 2**_CHANCE_BITS - 1
_VERSION: Final = "00"
_SAMPLED: Final = "01"


def new_traceparent(random: Random, now: datetime) -> str:
    """A W3C trace context for a new workload. The span id contains the time."""
    trace_id, chance = random.getrandbits(128) or 1, random.getrandbits(64)
    span_id = int(now.timestamp()) << _CHANCE_BITS | chance & _CHANCE
    return f"{_VERSION}-{trace_id:032x}-{span_id:016x}-{_SAMPLED}"


def made_together(one: str, other: str) -> bool:
    """Whether two contexts of `new_traceparent`, or continued from them, were made at about the same time.

    True if one of them is no valid context.
    """
    ids = parse_traceparent(one), parse_traceparent(other)
    if ids[0] is None or ids[1] is None:
        return True
    seconds = (ids[0][1] >> _CHANCE_BITS) - (ids[1][1] >> _CHANCE_BITS)
    return abs(seconds) <= TOGETHER_SECONDS


def parse_traceparent(value: str | None) -> tuple[int, int] | None:
    """Trace id and span id; None for an invalid context, which is never an error."""
    parts = (value or "").split("-")
    if [len(part) for part in parts] != [2, 32, 16, 2]:
        return None
    try:
        trace_id, span_id = int(parts[1], 16), int(parts[2], 16)
    except ValueError:
        return None
    return (trace_id, span_id) if trace_id and span_id else None


def is_sampled(value: str | None) -> bool:
    """Whether spans of this trace are wanted: the process that began it decided that."""
    flags = (value or "").rpartition("-")[2]
    try:
        return bool(int(flags, 16) & TraceFlags.SAMPLED)
    except ValueError:
        return False


def continued(traceparent: str, parent: str | None) -> str:
    """`traceparent`, a new context, as part of the trace of `parent`.

    Unchanged if `parent` is invalid.
    """
    if parse_traceparent(parent) is None or parent is None:
        return traceparent
    trace_id, flags = parent.split("-")[1], parent.split("-")[3]
    return f"{_VERSION}-{trace_id}-{traceparent.split('-')[2]}-{flags}"


def carrier_of(traceparent: str) -> str:
    """A trace context as annotation for OpenTelemetry's propagators: JSON."""
    return f'{{"traceparent":"{traceparent}"}}'


def carried(text: str | None) -> str | None:
    """The trace context in such an annotation; None if it contains no valid one."""
    try:
        carrier = orjson.loads(text or "null")
    except ValueError:
        return None
    found = carrier.get(TRACEPARENT) if isinstance(carrier, dict) else None
    return found if isinstance(found, str) and parse_traceparent(found) is not None else None


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
