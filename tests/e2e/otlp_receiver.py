"""A collector that keeps what real exporters send it."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from typing_extensions import override

from shared.telemetry.spans import Context, Kind, Span

__all__ = ["Receiver", "receiver"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KINDS = (Kind.INTERNAL, Kind.INTERNAL, Kind.SERVER, Kind.CLIENT, Kind.PRODUCER, Kind.CONSUMER)


class Receiver(ThreadingHTTPServer):
    """OTLP over HTTP, on a free port."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []
        self.paths: set[str] = set()

    @property
    def endpoint(self) -> str:
        """What `OTEL_EXPORTER_OTLP_ENDPOINT` has to be."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self) -> list[Span]:
        """Everything, each span once, in the order of arrival."""
        found: dict[Context, Span] = {}
        for body in tuple(self.bodies):
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = _attributes(of_resource.resource.attributes)["service.name"]
                for scope in of_resource.scope_spans:
                    for span in scope.spans:
                        read = _span(span, service)
                        assert found.setdefault(read.context, read) == read, (
                            "told again, it is the same"
                        )
        return list(found.values())

    def traces(self) -> dict[str, list[Span]]:
        """By trace id."""
        traces: dict[str, list[Span]] = defaultdict(list)
        for span in self.spans():
            traces[f"{span.context.trace_id:032x}"].append(span)
        return dict(traces)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        self.server.paths.add(self.path)
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _span(span: Any, service: str) -> Span:
    trace_id = int.from_bytes(span.trace_id)
    parent = int.from_bytes(span.parent_span_id)
    return Span(
        context=Context(trace_id=trace_id, span_id=int.from_bytes(span.span_id)),
        parent=Context(trace_id=trace_id, span_id=parent) if parent else None,
        service=service,
        name=span.name,
        kind=KINDS[span.kind],
        start=_time(span.start_time_unix_nano),
        end=_time(span.end_time_unix_nano),
        attributes=_attributes(span.attributes),
        links=tuple(
            Context(trace_id=int.from_bytes(link.trace_id), span_id=int.from_bytes(link.span_id))
            for link in span.links
        ),
        error=span.status.message if span.status.code == 2 else None,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def _time(nanoseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=nanoseconds // 1_000)


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Run one."""
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
