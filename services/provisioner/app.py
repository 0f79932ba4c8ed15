"""Builds the provisioner from its parts."""

from collections.abc import Callable, Mapping
from datetime import datetime
from random import Random
from secrets import token_bytes
from typing import Final

from services.provisioner.config.host_config import NO_CONFIG
from services.provisioner.controllers import Dependencies
from services.provisioner.hosts.access import KeyDelivery, SecretKeyDelivery
from services.provisioner.hosts.port import Hosts
from services.provisioner.metrics import Metrics
from services.provisioner.providers.fake import FakeCloud, FakeProvider
from services.provisioner.providers.port import Provider
from services.provisioner.providers.registry import Registry
from services.provisioner.settings import ProvisionerSettings
from services.provisioner.term import Term
from shared.bus.leadership import lead
from shared.bus.port import Bus
from shared.contracts.seal import Entropy
from shared.runtime.host import run_service
from shared.runtime.service import NO_OVERRIDES, Overrides, Parts, Program, utc_now
from shared.telemetry.tracing import NO_TRACING, Tracing

PAUSE_SECONDS: Final = 1.0
"""The longest pause before the next term. It is random, so that two replicas do not write in step."""


class Provisioner:
    """Serves a term whenever it gets the lease."""

    def __init__(
        self,
        *,
        settings: ProvisionerSettings,
        bus: Bus,
        dependencies: Dependencies,
        now: Callable[[], datetime],
        random: Random,
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._dependencies = dependencies
        self._now = now
        self._random = random
        self._term: Term | None = None
        self._last_good = NO_CONFIG

    async def run(self) -> None:
        """Serve one term after another, until cancelled."""
        await lead(
            self._bus,
            f"provisioner-{self._settings.cluster}",
            self._serve,
            pause_seconds=lambda: self._random.uniform(0, PAUSE_SECONDS),
        )

    def ready(self) -> str | None:
        """None if ready. A replica without the lease is ready too."""
        return self._term.not_ready() if self._term is not None else None

    async def _serve(self) -> None:
        self._term = term = Term(
            settings=self._settings,
            bus=self._bus,
            dependencies=self._dependencies,
            now=self._now,
            last_good=self._last_good,
        )
        try:
            await term.run()
        finally:
            self._last_good = term.config
            self._term = None
            self._dependencies.metrics.clear_gauges()


def assemble(
    *,
    settings: ProvisionerSettings,
    bus: Bus,
    providers: Mapping[str, Provider],
    now: Callable[[], datetime],
    random: Random,
    registry: Registry | None = None,
    hosts: Hosts | None = None,
    keys: KeyDelivery | None = None,
    entropy: Entropy = token_bytes,
    metrics: Metrics | None = None,
    tracing: Tracing = NO_TRACING,
) -> Provisioner:
    """Wire the parts. Opens no connection.

    `providers`: by the value of `dynamic.<platform>.type`, used without `registry`. `hosts` None: hosts are
    not entered. `keys` None: the secret of a TaskRun contains its key.
    """
    dependencies = Dependencies(
        registry=registry or Registry(providers),
        hosts=hosts,
        keys=keys or SecretKeyDelivery(),
        entropy=entropy,
        metrics=metrics or Metrics(),
        tracing=tracing,
    )
    return Provisioner(
        settings=settings, bus=bus, dependencies=dependencies, now=now, random=random
    )


def program(overrides: Overrides = NO_OVERRIDES) -> Program:
    """The provisioner as `sluice run` starts it, set by the environment and by `overrides`."""
    settings = ProvisionerSettings(**overrides)

    def build(parts: Parts) -> Provisioner:
        # Imported here: simulations and laptops need no clouds.
        from services.provisioner.adapters import build_adapters  # noqa: PLC0415

        cloud = FakeCloud(
            now=utc_now,
            seed=settings.fake_seed,
            boot_seconds=settings.fake_boot_seconds,
            broken_rate=settings.fake_broken_rate,
        )
        metrics = Metrics.exposed()
        adapters = build_adapters(
            settings, bus=parts.bus, fake=FakeProvider(cloud), now=utc_now, metrics=metrics
        )
        parts.on_stop(adapters.registry.close)
        if adapters.key_service is not None:
            parts.beside(adapters.key_service)
        return assemble(
            settings=settings,
            bus=parts.bus,
            providers={},
            registry=adapters.registry,
            hosts=adapters.hosts,
            keys=adapters.keys,
            metrics=metrics,
            tracing=parts.tracing,
            now=utc_now,
            random=Random(),
        )

    return Program(name="provisioner", settings=settings, build=build)


def main() -> int:
    """Entry point of `sluice run provisioner`."""
    return run_service(program())
