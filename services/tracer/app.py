"""Builds the tracer. The only module that knows all of its parts."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from services.tracer.settings import TracerSettings
from services.tracer.term import RETRY_SECONDS, Term
from shared.bus.leadership import lead
from shared.bus.port import Bus
from shared.runtime.host import run_service
from shared.runtime.service import NO_OVERRIDES, Overrides, Parts, Program, utc_now
from shared.telemetry.otlp import Collector, OtlpCollector

LEASE = "tracer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracer:
    """Makes and sends traces in each term that it holds the lease."""

    bus: Bus
    collector: Collector
    now: Callable[[], datetime]
    settle_seconds: float

    async def run(self) -> None:
        """Run one term after another, until cancelled."""
        await lead(self.bus, LEASE, self._run_term, pause_seconds=lambda: RETRY_SECONDS)

    def ready(self) -> str | None:
        """None: always ready. While the collector is away, the logs keep what it misses."""
        return None

    async def _run_term(self) -> None:
        term = Term(
            bus=self.bus,
            collector=self.collector,
            now=self.now,
            settle_seconds=self.settle_seconds,
        )
        await term.run()


def program(overrides: Overrides = NO_OVERRIDES) -> Program:
    """The tracer as `sluice run` starts it, set by the environment and by `overrides`."""
    settings = TracerSettings(**overrides)
    endpoint = settings.otlp_endpoint
    if not endpoint:
        sys.exit("OTEL_EXPORTER_OTLP_ENDPOINT is not set: nobody takes traces")

    def build(parts: Parts) -> Tracer:
        collector = OtlpCollector.for_endpoint(endpoint, instance=parts.bus.instance)

        async def close() -> None:
            collector.close()

        parts.on_stop(close)
        return Tracer(
            bus=parts.bus,
            collector=collector,
            now=utc_now,
            settle_seconds=settings.trace_settle_seconds,
        )

    return Program(name="tracer", settings=settings, build=build)


def main() -> int:
    """Entry point of `sluice run tracer`."""
    return run_service(program())
