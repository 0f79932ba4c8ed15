"""Builds the quota service. The only module that knows all of its parts."""

from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version

from prometheus_client import REGISTRY, CollectorRegistry

from services.quota.decider import Decider
from services.quota.leadership import HALTED, Quota
from services.quota.metrics import DecisionMetrics, GaugeCollector
from services.quota.settings import QuotaSettings
from shared.bus.port import Bus
from shared.runtime.host import Parts, run_service
from shared.settings.configuration import Configuration, read_configuration

__all__ = ["QuotaService", "assemble", "main"]


class QuotaService:
    """Decides, or waits to."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota

    async def run(self) -> None:
        """Lead whenever the lease is ours, until cancelled."""
        await self._quota.run()

    def ready(self) -> str | None:
        """Ready also while another replica leads: standing by is its work."""
        state = self._quota.state()
        return state if state.startswith(("reading the streams", HALTED)) else None


def assemble(
    *,
    settings: QuotaSettings,
    bus: Bus,
    now: Callable[[], datetime],
    configuration: Configuration | None = None,
    registry: CollectorRegistry | None = None,
) -> QuotaService:
    """Wire the parts. Opens nothing. `registry`: where metrics are told; None: nowhere."""
    quota = Quota(
        bus=bus,
        new_decider=lambda: Decider(settings, configuration),
        now=now,
        audit_seconds=settings.audit_seconds,
        meter=DecisionMetrics(registry),
    )
    if registry is not None:
        registry.register(GaugeCollector(lambda: quota.leading, version=version("sluicegate")))
    return QuotaService(quota)


def main() -> int:
    """Entry point of `sluice run quota`."""
    settings = QuotaSettings()
    configuration = read_configuration(settings.configuration)

    def now() -> datetime:
        return datetime.now(UTC)

    def build(parts: Parts) -> QuotaService:
        return assemble(
            settings=settings,
            bus=parts.bus,
            now=now,
            configuration=configuration,
            registry=REGISTRY,
        )

    return run_service("quota", settings, build)
