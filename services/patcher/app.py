"""Builds the patcher. The only module that knows all of its parts."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from services.patcher.handlers import Handlers
from services.patcher.machines import Machines
from services.patcher.mirror import Mirror
from services.patcher.queues import Queues
from services.patcher.reconcile import Reconciler
from services.patcher.settings import PatcherSettings
from services.patcher.spokes import Spokes
from shared.bus.port import Bus
from shared.kube.port import Kube
from shared.runtime.host import Parts, run_service
from shared.telemetry.tracing import NO_TRACING, Tracing

__all__ = ["Patcher", "assemble", "main"]


class Patcher:
    """Follows what is known, and carries out what is decided, in one cluster."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    async def run(self) -> None:
        """Keep the mirror up to date until cancelled; the handlers run beside it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._mirror.run_observed())
            group.create_task(self._mirror.run_workloads())
            group.create_task(self._mirror.run_admissions())

    def ready(self) -> str | None:
        """Ready once the mirror has read what was there."""
        return self._mirror.not_synced()


def assemble(
    *,
    settings: PatcherSettings,
    bus: Bus,
    kube: Kube,
    now: Callable[[], datetime],
    tracing: Tracing = NO_TRACING,
) -> Patcher:
    """Wire the parts and register the handlers. Opens nothing."""
    mirror = Mirror(bus=bus, cluster=settings.cluster)
    reconciler = Reconciler(
        bus=bus,
        kube=kube,
        mirror=mirror,
        now=now,
        tracing=tracing,
        not_seen_seconds=settings.not_seen_seconds,
    )
    handlers = Handlers(
        cluster=settings.cluster,
        mirror=mirror,
        reconciler=reconciler,
        machines=Machines(kube=kube),
        spokes=Spokes(kube=kube),
        queues=Queues(kube=kube, mirror=mirror, now=now),
    )
    handlers.register(bus)
    return Patcher(mirror)


def main() -> int:
    """Entry point of `sluice run patcher`."""
    settings = PatcherSettings()

    def now() -> datetime:
        return datetime.now(UTC)

    def build(parts: Parts) -> Patcher:
        # Imported here: the world builds a patcher without the Kubernetes library.
        from shared.kube.client import HttpKube  # noqa: PLC0415

        kube = HttpKube.from_kubeconfig(settings.kubeconfig, context=settings.kube_context)
        parts.on_stop(kube.close)
        return assemble(settings=settings, bus=parts.bus, kube=kube, now=now, tracing=parts.tracing)

    return run_service("patcher", settings, build)
