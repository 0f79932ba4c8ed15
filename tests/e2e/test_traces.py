"""One trace per workload, over the real processes: what an OTLP receiver gets of a small demo."""

import os
import subprocess
import sys
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from typing_extensions import override

RUNS: Final = 12
SECONDS_MAX: Final = 110


class Receiver(ThreadingHTTPServer):
    """Keeps every span that is exported to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[bytes] = []

    def spans(self) -> dict[str, dict[str, tuple[str, str]]]:
        """Trace id to span name to (service, parent span id)."""
        traces: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
        for body in self.bodies:
            request = ExportTraceServiceRequest.FromString(body)
            for of_resource in request.resource_spans:
                attributes = {a.key: a.value.string_value for a in of_resource.resource.attributes}
                for scope in of_resource.scope_spans:
                    for span in scope.spans:
                        service = attributes["service.name"]
                        parent = span.parent_span_id.hex()
                        traces[span.trace_id.hex()][span.name] = (service, parent)
        return traces


class Handler(BaseHTTPRequestHandler):
    """An OTLP/HTTP receiver, as far as one page of protobuf goes."""

    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.timeout(SECONDS_MAX + 60)
def test_a_workload_is_one_trace_from_its_submission_to_its_end(tmp_path: Path) -> None:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    try:
        command = [sys.executable, "-m", "services.ctl.main", "demo", "--speed", "120"]
        subprocess.run(
            [*command, "--runs", str(RUNS), "--jobs", "0"],
            cwd=tmp_path,
            env={
                **os.environ,
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server_address[1]}",
            },
            timeout=SECONDS_MAX,
            check=False,  # Whether queues formed is not what is asked here.
            capture_output=True,
        )
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()
    complete = [
        spans
        for spans in receiver.spans().values()
        if {"workload PipelineRun", "wait for quota", "release", "run"} <= spans.keys()
    ]
    assert len(complete) == RUNS
    for spans in complete:
        assert {service for service, _ in spans.values()} >= {"classifier", "quota", "patcher"}
        roots = [name for name, (_, parent) in spans.items() if not parent]
        assert roots == ["workload PipelineRun"]
