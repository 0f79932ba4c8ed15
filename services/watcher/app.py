"""Builds the watcher. The only module that knows all of its parts."""

import asyncio
import random as random_module
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

import structlog

from services.watcher.handlers import Observation
from services.watcher.scopes import stages
from services.watcher.settings import WatcherSettings
from shared.bus.port import Bus
from shared.kube.port import Kube
from shared.runtime.host import Parts, run_service

__all__ = ["Watcher", "assemble", "main"]

log = structlog.get_logger(__name__)


class Watcher:
    """Watches one cluster whenever the lease for it is ours."""

    def __init__(
        self, *, settings: WatcherSettings, bus: Bus, new_term: Callable[[], Observation]
    ) -> None:
        self._cluster = settings.cluster
        self._bus = bus
        self._new_term = new_term
        self._term: Observation | None = None

    async def run(self) -> None:
        """Stand by or watch until cancelled.

        The lease saves work. What keeps an older state from following a newer one, should two watch
        at once, is the fence of each message.
        """
        while True:
            lease = await self._bus.lease(f"watcher-{self._cluster}")
            self._term = self._new_term()
            try:
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(self._term.run())
                    await lease.lost()
                    log.warning("lease_lost")
                    watching.cancel()
            finally:
                self._term = None
                await lease.release()

    def ready(self) -> str | None:
        """Ready also while another replica watches: standing by is its work."""
        return None if self._term is None else self._term.not_synced()


def assemble(
    *,
    settings: WatcherSettings,
    bus: Bus,
    kube: Kube,
    now: Callable[[], datetime],
    random: Random,
) -> Watcher:
    """Wire the parts. Opens nothing."""

    def new_term() -> Observation:
        return Observation(
            cluster=settings.cluster,
            stages=stages(settings.kinds, settings.namespaces),
            namespaces=settings.namespaces,
            bus=bus,
            kube=kube,
            now=now,
            random=random,
        )

    return Watcher(settings=settings, bus=bus, new_term=new_term)


def main() -> int:
    """Entry point of `sluice run watcher`."""
    settings = WatcherSettings()

    def now() -> datetime:
        return datetime.now(UTC)

    def build(parts: Parts) -> Watcher:
        # Imported here: the world builds a watcher without an HTTP client.
        from shared.kube.client import HttpKube  # noqa: PLC0415

        kube = HttpKube.from_kubeconfig(settings.kubeconfig, context=settings.kube_context)
        parts.on_stop(kube.close)
        return assemble(
            settings=settings, bus=parts.bus, kube=kube, now=now, random=random_module.Random()
        )

    return run_service("watcher", settings, build)
