"""Builds the patcher. The only module that knows all of its parts."""

import asyncio
from collections.abc import Callable
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
    writer = Writer(kube=kube, mirror=mirror, load=load)
    events = Events(kube=kube, now=now, per_second=settings.events_per_second)
    reasons = Reasons(
        mirror=mirror,
        per_second=settings.reasons_per_second,
        foreign_per_second=settings.foreign_reasons_per_second,
        load=load,
    )
    anchors = Anchors(
        kube=kube,
        mirror=mirror,
        writer=writer,
        events=events,
        now=now,
        image=settings.anchor_image,
        tekton_namespace=settings.tekton_namespace,
        care_seconds=settings.anchor_care_seconds,
    )
    elsewhere = Elsewhere(
        settings=settings, kube=kube, bus=bus, writer=writer, mirror=mirror, now=now
    )
    jobs = Jobs(
        may_start=elsewhere.may_start,
        bus=bus,
        mirror=mirror,
        writer=writer,
        events=events,
        anchors=anchors,
        now=now,
        tracing=tracing,
        not_seen_seconds=settings.not_seen_seconds,
    )
    onlookers = Onlookers(
        kube=kube, mirror=mirror, events=events, annotated=settings.annotated_creators
    )
    reconciler = Reconciler(
        mirror=mirror,
        writer=writer,
        jobs=jobs,
        events=events,
        reasons=reasons,
        onlookers=onlookers,
        now=now,
        foreign_events=settings.foreign_events,
        not_seen_seconds=settings.not_seen_seconds,
    )
    queues = Queues(
        bus=bus,
        kube=kube,
        mirror=mirror,
        cluster=settings.cluster,
        now=now,
        per_second=settings.queue_statuses_per_second,
        load=load,
    )
    keeper = SealKeeper(
        cluster=settings.cluster,
        namespace=settings.seal_namespace,
        bus=bus,
        kube=kube,
        now=now,
        entropy=entropy,
    )
    Handlers(
        cluster=settings.cluster,
        mirror=mirror,
        reconciler=reconciler,
        machines=Machines(kube=kube, events=events, keeper=keeper),
        elsewhere=elsewhere,
        others_decide=settings.spoke_quota == "kueue",
    ).register(bus)
    return Patcher(
        mirror=mirror,
        reconciler=reconciler,
        reasons=reasons,
        queues=queues,
        events=events,
        onlookers=onlookers,
        anchors=anchors,
        keeper=keeper,
        elsewhere=elsewhere,
        integrations=IntegrationKeeper(kube=kube, mirror=mirror, now=now),
        retention=Retention(
            bus=bus,
            kube=kube,
            events=events,
            cluster=settings.cluster,
            now=now,
            policy=(configuration or Configuration()).object_retention_policies.workloads,
        ),
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
