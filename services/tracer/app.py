"""Builds the tracer. The only module that knows all of its parts."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime

from services.tracer.handlers import Tracer
from services.tracer.settings import TracerSettings
from shared.bus.port import Bus
from shared.runtime.host import Parts, run_service
from shared.telemetry.otlp import Collector, OtlpCollector

__all__ = ["TracerService", "assemble", "main"]


class TracerService:
    """Traces, or waits to."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def run(self) -> None:
        """Trace whenever the lease is ours, until cancelled."""
        await self._tracer.run()

    def ready(self) -> str | None:
        """Ready also while the collector is away: the logs keep what it misses."""
        return None


def assemble(
    *,
    settings: TracerSettings,
    bus: Bus,
    collector: Collector,
    now: Callable[[], datetime],
) -> TracerService:
    """Wire the parts. Opens nothing."""
    return TracerService(
        Tracer(bus=bus, collector=collector, now=now, settle_seconds=settings.trace_settle_seconds)
    )


def main() -> int:
    """Entry point of `sluice run tracer`."""
    settings = TracerSettings()
    endpoint = settings.otlp_endpoint
    if not endpoint:
        sys.exit("OTEL_EXPORTER_OTLP_ENDPOINT is not set: nobody takes traces")

    def now() -> datetime:
        return datetime.now(UTC)

    def build(parts: Parts) -> TracerService:
        collector = OtlpCollector.for_endpoint(endpoint, instance=parts.bus.instance)

        async def close() -> None:
            collector.close()

        parts.on_stop(close)
        return assemble(settings=settings, bus=parts.bus, collector=collector, now=now)

    return run_service("tracer", settings, build)
