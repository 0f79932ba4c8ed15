"""Builds the patcher. The only module that knows all of its parts."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from secrets import token_bytes

from services.patcher.anchors import Anchors
from services.patcher.elsewhere import Elsewhere
from services.patcher.events import Events
from services.patcher.handlers import Handlers
from services.patcher.integrations import IntegrationKeeper
from services.patcher.jobs import Jobs
from services.patcher.machines import Machines
from services.patcher.mirror import Mirror
from services.patcher.onlookers import Onlookers
from services.patcher.pace import Load
from services.patcher.queues import Queues
from services.patcher.reasons import Reasons
from services.patcher.reconcile import Reconciler
from services.patcher.retention import Retention
from services.patcher.seal_key import SealKeeper
from services.patcher.settings import PatcherSettings
from services.patcher.writer import Writer
from shared.bus.port import Bus
from shared.contracts.seal import Entropy
from shared.kube.port import Kube
from shared.runtime.host import Parts, run_service
from shared.settings.configuration import Configuration, read_configuration
from shared.telemetry.tracing import NO_TRACING, Tracing

__all__ = ["Patcher", "assemble", "main"]


class Patcher:
    """Follows what is known, and carries out what is decided, in one cluster."""

    def __init__(
        self,
        *,
        mirror: Mirror,
        reconciler: Reconciler,
        reasons: Reasons,
        queues: Queues,
        events: Events,
        onlookers: Onlookers,
        anchors: Anchors,
        keeper: SealKeeper,
        elsewhere: Elsewhere,
        integrations: IntegrationKeeper,
        retention: Retention,
    ) -> None:
        self._retention = retention
        self._integrations = integrations
        self._elsewhere = elsewhere
        self._onlookers = onlookers
        self._mirror = mirror
        self._reconciler = reconciler
        self._reasons = reasons
        self._queues = queues
        self._events = events
        self._anchors = anchors
        self._keeper = keeper

    async def run(self) -> None:
        """Keep the mirror up to date until cancelled; the handlers run beside it.

        What nobody waits for (reasons, queues, events) has loops of its own, each at its own pace.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._mirror.run_observed())
            group.create_task(self._mirror.run_workloads())
            group.create_task(self._mirror.run_admissions())
            group.create_task(self._reasons.run(self._reconciler.give_reason))
            group.create_task(self._queues.run())
            group.create_task(self._events.run())
            group.create_task(self._onlookers.run())
            group.create_task(self._anchors.run())
            group.create_task(self._keeper.run())
            group.create_task(self._integrations.run())
            group.create_task(self._retention.run())
            group.create_task(self._elsewhere.beat())

    async def guard(self) -> None:
        """Stop copies of a hub whose leases ran out, until cancelled; with or without the bus."""
        await self._elsewhere.guard()

    def ready(self) -> str | None:
        """Ready once the mirror has read what was there."""
        return self._mirror.not_synced()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """What nearly every part of the patcher stands on."""

    settings: PatcherSettings
    bus: Bus
    kube: Kube
    now: Callable[[], datetime]
    mirror: Mirror
    load: Load
    writer: Writer
    events: Events


def assemble(
    *,
    settings: PatcherSettings,
    bus: Bus,
    kube: Kube,
    now: Callable[[], datetime],
    configuration: Configuration | None = None,
    tracing: Tracing = NO_TRACING,
    entropy: Entropy = token_bytes,
) -> Patcher:
    """Wire the parts and register the handlers. Opens nothing."""
    mirror = Mirror(bus=bus, cluster=settings.cluster)
    load = Load()
    on = _Ground(
        settings=settings,
        bus=bus,
        kube=kube,
        now=now,
        mirror=mirror,
        load=load,
        writer=Writer(kube=kube, mirror=mirror, load=load),
        events=Events(kube=kube, now=now, per_second=settings.events_per_second),
    )
    reasons = _reasons(on)
    onlookers = Onlookers(
        kube=kube, mirror=mirror, events=on.events, annotated=settings.annotated_creators
    )
    anchors = _anchors(on)
    elsewhere = Elsewhere(
        settings=settings, kube=kube, bus=bus, writer=on.writer, mirror=mirror, now=now
    )
    jobs = _jobs(on, anchors, elsewhere, tracing)
    reconciler = _reconciler(on, jobs, reasons, onlookers)
    keeper = _keeper(on, entropy)
    Handlers(
        cluster=settings.cluster,
        mirror=mirror,
        reconciler=reconciler,
        machines=Machines(kube=kube, events=on.events, keeper=keeper),
        elsewhere=elsewhere,
        others_decide=settings.spoke_quota == "kueue",
    ).register(bus)
    return Patcher(
        mirror=mirror,
        reconciler=reconciler,
        reasons=reasons,
        queues=_queues(on),
        events=on.events,
        onlookers=onlookers,
        anchors=anchors,
        keeper=keeper,
        elsewhere=elsewhere,
        integrations=IntegrationKeeper(kube=kube, mirror=mirror, now=now),
        retention=_retention(on, configuration or Configuration()),
    )


def _reasons(on: _Ground) -> Reasons:
    return Reasons(
        mirror=on.mirror,
        per_second=on.settings.reasons_per_second,
        foreign_per_second=on.settings.foreign_reasons_per_second,
        load=on.load,
    )


def _anchors(on: _Ground) -> Anchors:
    return Anchors(
        kube=on.kube,
        mirror=on.mirror,
        writer=on.writer,
        events=on.events,
        now=on.now,
        image=on.settings.anchor_image,
        tekton_namespace=on.settings.tekton_namespace,
        care_seconds=on.settings.anchor_care_seconds,
    )


def _jobs(on: _Ground, anchors: Anchors, elsewhere: Elsewhere, tracing: Tracing) -> Jobs:
    return Jobs(
        may_start=elsewhere.may_start,
        bus=on.bus,
        mirror=on.mirror,
        writer=on.writer,
        events=on.events,
        anchors=anchors,
        now=on.now,
        tracing=tracing,
        not_seen_seconds=on.settings.not_seen_seconds,
    )


def _reconciler(on: _Ground, jobs: Jobs, reasons: Reasons, onlookers: Onlookers) -> Reconciler:
    return Reconciler(
        mirror=on.mirror,
        writer=on.writer,
        jobs=jobs,
        events=on.events,
        reasons=reasons,
        onlookers=onlookers,
        now=on.now,
        foreign_events=on.settings.foreign_events,
        not_seen_seconds=on.settings.not_seen_seconds,
    )


def _queues(on: _Ground) -> Queues:
    return Queues(
        bus=on.bus,
        kube=on.kube,
        mirror=on.mirror,
        cluster=on.settings.cluster,
        now=on.now,
        per_second=on.settings.queue_statuses_per_second,
        load=on.load,
    )


def _keeper(on: _Ground, entropy: Entropy) -> SealKeeper:
    return SealKeeper(
        cluster=on.settings.cluster,
        namespace=on.settings.seal_namespace,
        bus=on.bus,
        kube=on.kube,
        now=on.now,
        entropy=entropy,
    )


def _retention(on: _Ground, configuration: Configuration) -> Retention:
    return Retention(
        bus=on.bus,
        kube=on.kube,
        events=on.events,
        cluster=on.settings.cluster,
        now=on.now,
        policy=configuration.object_retention_policies.workloads,
    )


def main() -> int:
    """Entry point of `sluice run patcher`."""
    settings = PatcherSettings()
    configuration = read_configuration(settings.configuration)

    def now() -> datetime:
        return datetime.now(UTC)

    def build(parts: Parts) -> Patcher:
        # Imported here: the world builds a patcher without the Kubernetes library.
        from shared.kube.client import HttpKube  # noqa: PLC0415

        kube = HttpKube.from_kubeconfig(settings.kubeconfig, context=settings.kube_context)
        parts.on_stop(kube.close)
        patcher = assemble(
            settings=settings,
            bus=parts.bus,
            kube=kube,
            now=now,
            configuration=configuration,
            tracing=parts.tracing,
        )
        parts.beside(patcher.guard)
        return patcher

    return run_service("patcher", settings, build)
