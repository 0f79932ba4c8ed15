"""Builds the classifier. The only module that knows all of its parts."""

from collections.abc import Callable
from datetime import UTC, datetime

from services.classifier.handlers import Projection
from services.classifier.settings import ClassifierSettings
from shared.bus.port import Bus
from shared.runtime.host import Parts, run_service
from shared.telemetry.tracing import NO_TRACING, Tracing

__all__ = ["Classifier", "assemble", "main"]


class Classifier:
    """Projects what was observed; beside it `main` runs the webhook."""

    def __init__(self, projection: Projection, webhook_ready: Callable[[], str | None]) -> None:
        self._projection = projection
        self._webhook_ready = webhook_ready

    async def run(self) -> None:
        """Project until cancelled."""
        await self._projection.run()

    def ready(self) -> str | None:
        """Ready when the webhook can answer: the projection catches up by itself."""
        return self._webhook_ready()


def assemble(
    *,
    bus: Bus,
    now: Callable[[], datetime],
    tracing: Tracing = NO_TRACING,
    webhook_ready: Callable[[], str | None] = lambda: None,
) -> Classifier:
    """Wire the parts. Opens nothing."""
    return Classifier(Projection(bus=bus, now=now, tracing=tracing), webhook_ready)


def main() -> int:
    """Entry point of `sluice run classifier`."""
    settings = ClassifierSettings()

    def now() -> datetime:
        return datetime.now(UTC)

    def build(parts: Parts) -> Classifier:
        return assemble(bus=parts.bus, now=now, tracing=parts.tracing)

    return run_service("classifier", settings, build, ready_without_bus=True)
