"""Builds the provisioner. The only module that knows all of its parts."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from random import Random
from secrets import token_bytes
from typing import Final

import structlog

from services.provisioner.config.host_config import NO_CONFIG
from services.provisioner.controllers import Tools
from services.provisioner.hosts.access import InSecret, Keys
from services.provisioner.hosts.port import Hosts
from services.provisioner.metrics import Metrics
from services.provisioner.providers.fake import FakeCloud, FakeProvider
from services.provisioner.providers.port import Provider
from services.provisioner.providers.registry import Registry
from services.provisioner.settings import ProvisionerSettings
from services.provisioner.term import Session
from shared.bus.port import Bus, BusError, Lease
from shared.contracts.seal import Entropy
from shared.runtime.host import Parts, run_service
from shared.telemetry.tracing import NO_TRACING, Tracing

__all__ = ["Provisioner", "assemble", "main"]

log = structlog.get_logger(__name__)

PAUSE_SECONDS: Final = 1.0
"""At most, between two sessions: two that quarrel about a record must not do it in step."""


class Provisioner:
    """Gives machines to TaskRuns whenever the lease is its own."""

    def __init__(
        self,
        *,
        settings: ProvisionerSettings,
        bus: Bus,
        tools: Tools,
        now: Callable[[], datetime],
        random: Random,
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._tools = tools
        self._now = now
        self._random = random
        self._session: Session | None = None
        self._last_good = NO_CONFIG

    async def run(self) -> None:
        """One session after another, until cancelled."""
        while True:
            lease = await self._bus.lease(f"provisioner-{self._settings.cluster}")
            try:
                await self._serve(lease)
            finally:
                self._session = None
                self._tools.metrics.step_down()
                await lease.release()
            await asyncio.sleep(self._random.uniform(0, PAUSE_SECONDS))

    def ready(self) -> str | None:
        """Ready also while another replica is the one: standing by is its work."""
        return self._session.not_ready() if self._session is not None else None

    async def _serve(self, lease: Lease) -> None:
        session = Session(
            settings=self._settings,
            bus=self._bus,
            tools=self._tools,
            now=self._now,
            last_good=self._last_good,
        )
        self._session = session
        working = asyncio.create_task(session.run())
        losing = asyncio.create_task(lease.lost())
        try:
            await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            losing.cancel()
            await asyncio.gather(working, losing, return_exceptions=True)
            self._last_good = session.config
        if working.cancelled():
            log.warning("the lease is lost; somebody else goes on")
            return
        try:
            working.result()
        except* BusError as errors:
            # A record was written by somebody else, or could not be written: read all again.
            log.warning("session ended", because=[str(error) for error in errors.exceptions])


def assemble(
    *,
    settings: ProvisionerSettings,
    bus: Bus,
    providers: Mapping[str, Provider],
    now: Callable[[], datetime],
    random: Random,
    registry: Registry | None = None,
    hosts: Hosts | None = None,
    keys: Keys | None = None,
    entropy: Entropy = token_bytes,
    metrics: Metrics | None = None,
    tracing: Tracing = NO_TRACING,
) -> Provisioner:
    """Wire the parts. Opens nothing.

    `providers`: by the value of `dynamic.<platform>.type`, unless there is a `registry`. `hosts` None:
    nobody enters hosts. `keys` None: a TaskRun's key is in its secret.
    """
    tools = Tools(
        registry=registry or Registry(providers),
        hosts=hosts,
        keys=keys or InSecret(),
        entropy=entropy,
        metrics=metrics or Metrics(),
        tracing=tracing,
    )
    return Provisioner(settings=settings, bus=bus, tools=tools, now=now, random=random)


def main() -> int:
    """Entry point of `sluice run provisioner`."""
    settings = ProvisionerSettings()

    def now() -> datetime:
        return datetime.now(UTC)

    def build(parts: Parts) -> Provisioner:
        # Imported here: worlds and laptops do without clouds.
        from services.provisioner.adapters import outside  # noqa: PLC0415

        cloud = FakeCloud(
            now=now,
            seed=settings.fake_seed,
            boot_seconds=settings.fake_boot_seconds,
            broken_rate=settings.fake_broken_rate,
        )
        out = outside(settings, bus=parts.bus, fake=FakeProvider(cloud), now=now)
        parts.on_stop(out.registry.close)
        if out.beside is not None:
            parts.beside(out.beside)
        return assemble(
            settings=settings,
            bus=parts.bus,
            providers={},
            registry=out.registry,
            hosts=out.hosts,
            keys=out.keys,
            metrics=Metrics.exposed(),
            tracing=parts.tracing,
            now=now,
            random=Random(),
        )

    return run_service("provisioner", settings, build)
