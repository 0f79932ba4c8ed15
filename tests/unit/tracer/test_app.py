"""The tracer runs only if a collector is configured."""

import pytest

from services.ctl.programs import SERVICES, Program
from services.tracer.app import main


def test_tracer_exits_without_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with pytest.raises(SystemExit, match="OTEL_EXPORTER_OTLP_ENDPOINT is not set"):
        main()


def test_tracer_is_not_started_by_default() -> None:
    """`sluice dev` adds it where the endpoint is set, a cluster's overlay by a component."""
    assert Program.TRACER not in SERVICES
