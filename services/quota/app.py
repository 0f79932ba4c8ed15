"""Builds the quota service. The only module that knows all of its parts."""

from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from services.quota.dead_letters import register_retries
from services.quota.decider import Decider
from services.quota.leadership import HALTED, READING, QuotaLeader
from services.quota.metrics import CustomLabels, DecisionMetrics, GaugeCollector
from services.quota.settings import QuotaSettings
from shared.bus.port import Bus
from shared.runtime.host import run_service
from shared.runtime.service import NO_OVERRIDES, Overrides, Parts, Program, utc_now
from shared.settings.configuration import Configuration, read_configuration

log = structlog.get_logger(__name__)


class QuotaService:
    """Decides while it leads; stands by otherwise."""

    def __init__(self, leadership: QuotaLeader) -> None:
        self._leadership = leadership

    async def run(self) -> None:
        """Lead whenever the lease is ours, until cancelled."""
        await self._leadership.run()

    def register_retries(self, bus: Bus, now: Callable[[], datetime]) -> None:
        """Handle `sluice dead retry`. Before the bus starts."""
        register_retries(bus=bus, now=now, try_again=self._leadership.try_again)

    def ready(self) -> str | None:
        """Why the service is not ready; None: it is, also while another replica leads."""
        state = self._leadership.state()
        return state if state.startswith((READING, HALTED)) else None


def assemble(
    *,
    settings: QuotaSettings,
    bus: Bus,
    now: Callable[[], datetime],
    configuration: Configuration | None = None,
    registry: CollectorRegistry | None = None,
) -> QuotaService:
    """Wire the parts; opens nothing. Without a `registry` there are no metrics."""
    custom_labels = CustomLabels((configuration or Configuration()).metrics)
    leadership = QuotaLeader(
        bus=bus,
        new_decider=lambda: Decider(settings, configuration),
        now=now,
        forget_seconds=settings.forget_seconds,
        metrics=DecisionMetrics(registry, custom_labels),
    )
    if registry is not None:
        gauges = GaugeCollector(
            lambda: leadership.decider, version=version("sluicegate"), custom_labels=custom_labels
        )
        registry.register(gauges)
    return QuotaService(leadership)


def program(overrides: Overrides = NO_OVERRIDES) -> Program:
    """The quota as `sluice run` starts it, set by the environment and by `overrides`."""
    settings = QuotaSettings(**overrides)
    configuration = read_configuration(settings.configuration)

    def build(parts: Parts) -> QuotaService:
        for warning in configuration.warnings():
            log.warning(
                "a setting of Kueue's Configuration has no effect as written",
                file=str(settings.configuration),
                warning=warning,
            )
        service = assemble(
            settings=settings,
            bus=parts.bus,
            now=utc_now,
            configuration=configuration,
            registry=REGISTRY,
        )
        service.register_retries(parts.bus, utc_now)
        return service

    return Program(name="quota", settings=settings, build=build)


def main() -> int:
    """Entry point of `sluice run quota`."""
    return run_service(program())
