"""The process: it is there where somebody takes traces, and nowhere else."""

import pytest

from services.ctl.run import SERVICES, Program
from services.tracer.app import main


def test_without_a_collector_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with pytest.raises(SystemExit, match="OTEL_EXPORTER_OTLP_ENDPOINT is not set"):
        main()


def test_it_is_none_of_those_that_always_run() -> None:
    """`sluice dev` adds it where the endpoint is set, a cluster's overlay by a component."""
    assert Program.TRACER not in SERVICES
