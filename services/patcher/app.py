"""Builds the patcher. The only module that knows all of its parts."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from secrets import token_bytes
from typing import Any

from services.patcher.cluster.cache import Mirror
from services.patcher.cluster.events import Events
from services.patcher.cluster.integrations import IntegrationKeeper
from services.patcher.cluster.pacing import Load
from services.patcher.cluster.queue_status import Queues
from services.patcher.cluster.writer import Writer
from services.patcher.coscheduling.reconciler import Placeholders
from services.patcher.handlers import Handlers
from services.patcher.jobs.controller import Jobs
from services.patcher.jobs.owner_notices import Onlookers
from services.patcher.machines.seal_key import SealKeeper
from services.patcher.machines.secrets import Machines
from services.patcher.multikueue.multikueue import Elsewhere
from services.patcher.settings import PatcherSettings
from services.patcher.workloads.check_states import Checks
from services.patcher.workloads.reasons import Reasons
from services.patcher.workloads.reconciler import Reconciler
from services.patcher.workloads.retention import Retention
from shared.bus.port import Bus
from shared.contracts.seal import Entropy
from shared.kube.port import Kube
from shared.runtime.host import Parts, run_service
from shared.settings.configuration import Configuration, read_configuration
from shared.telemetry.tracing import NO_TRACING, Tracing

__all__ = ["Patcher", "assemble", "main"]


Loop = Callable[[], Coroutine[Any, Any, None]]


class Patcher:
    """Follows what is known, and carries out what is decided, in one cluster."""

    def __init__(self, *, mirror: Mirror, loops: Sequence[Loop], guard: Loop) -> None:
        self._mirror = mirror
        self._loops = loops
        self._guard = guard

    async def run(self) -> None:
        """Keep the mirror up to date until cancelled; the handlers run beside it.

        What nobody waits for (reasons, queues, events) has loops of its own, each at its own pace.
        """
        async with asyncio.TaskGroup() as group:
            for loop in self._loops:
                group.create_task(loop())

    async def guard(self) -> None:
        """Stop copies of a hub whose leases ran out, until cancelled; with or without the bus."""
        await self._guard()

    def ready(self) -> str | None:
        """Ready once the mirror has read what was there."""
        return self._mirror.not_synced()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """What every part of one patcher stands on."""

    settings: PatcherSettings
    bus: Bus
    kube: Kube
    now: Callable[[], datetime]
    load: Load
    mirror: Mirror
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
    mirror, load = Mirror(bus=bus, cluster=settings.cluster), Load()
    ground = _Ground(
        settings=settings,
        bus=bus,
        kube=kube,
        now=now,
        load=load,
        mirror=mirror,
        writer=Writer(kube=kube, mirror=mirror, load=load),
        events=Events(kube=kube, now=now, per_second=settings.events_per_second),
    )
    keeper = SealKeeper(
        cluster=settings.cluster,
        namespace=settings.seal_namespace,
        bus=bus,
        kube=kube,
        now=now,
        entropy=entropy,
    )
    elsewhere = Elsewhere(
        settings=settings, kube=kube, bus=bus, writer=ground.writer, mirror=mirror, now=now
    )
    deciding = _carry_out(ground, elsewhere=elsewhere, keeper=keeper, tracing=tracing)
    following = _follow(ground, configuration or Configuration())
    if settings.spoke_quota == "kueue":
        # What is told of queues and workloads there, its own Kueue tells.
        deciding, following = (), (ground.events.run,)
    reading = (mirror.run_observed, mirror.run_workloads, mirror.run_admissions)
    return Patcher(
        mirror=mirror,
        loops=(*reading, *deciding, *following, keeper.run, elsewhere.beat),
        guard=elsewhere.guard,
    )


def _carry_out(
    ground: _Ground, *, elsewhere: Elsewhere, keeper: SealKeeper, tracing: Tracing
) -> tuple[Loop, ...]:
    """Build what does what was decided, and give it its handlers."""
    settings, mirror, events = ground.settings, ground.mirror, ground.events
    placeholders = Placeholders(
        kube=ground.kube,
        mirror=mirror,
        writer=ground.writer,
        events=events,
        now=ground.now,
        image=settings.anchor_image,
        tekton_namespace=settings.tekton_namespace,
        care_seconds=settings.anchor_care_seconds,
    )
    jobs = Jobs(
        may_start=elsewhere.may_start,
        bus=ground.bus,
        mirror=mirror,
        writer=ground.writer,
        events=events,
        placeholders=placeholders,
        now=ground.now,
        tracing=tracing,
        not_seen_seconds=settings.not_seen_seconds,
    )
    reasons = Reasons(
        mirror=mirror,
        per_second=settings.reasons_per_second,
        foreign_per_second=settings.foreign_reasons_per_second,
        load=ground.load,
    )
    onlookers = Onlookers(
        kube=ground.kube, mirror=mirror, events=events, annotated=settings.annotated_creators
    )
    checks = Checks(bus=ground.bus, cluster=settings.cluster)
    reconciler = Reconciler(
        mirror=mirror,
        writer=ground.writer,
        jobs=jobs,
        events=events,
        reasons=reasons,
        checks=checks,
        onlookers=onlookers,
        now=ground.now,
        foreign_events=settings.foreign_events,
        not_seen_seconds=settings.not_seen_seconds,
    )
    Handlers(
        cluster=settings.cluster,
        mirror=mirror,
        reconciler=reconciler,
        machines=Machines(kube=ground.kube, events=events, keeper=keeper),
        elsewhere=elsewhere,
        others_decide=settings.spoke_quota == "kueue",
    ).register(ground.bus)
    return (
        partial(reasons.run, reconciler.give_reason),
        partial(checks.run, reconciler.give_checks),
        onlookers.run,
        placeholders.run,
    )


def _follow(ground: _Ground, configuration: Configuration) -> tuple[Loop, ...]:
    """Build what nobody waits for."""
    queues = Queues(
        bus=ground.bus,
        kube=ground.kube,
        mirror=ground.mirror,
        cluster=ground.settings.cluster,
        now=ground.now,
        per_second=ground.settings.queue_statuses_per_second,
        load=ground.load,
    )
    retention = Retention(
        bus=ground.bus,
        kube=ground.kube,
        events=ground.events,
        cluster=ground.settings.cluster,
        now=ground.now,
        policy=configuration.object_retention_policies.workloads,
        mirror=ground.mirror,
    )
    integrations = IntegrationKeeper(kube=ground.kube, mirror=ground.mirror, now=ground.now)
    return (queues.run, ground.events.run, integrations.run, retention.run)


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
