"""Builds the patcher from its parts. The only module that knows all of them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from secrets import token_bytes
from typing import Any

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.finalizers import ConfigurationFinalizers
from services.patcher.cluster.integrations import IntegrationReconciler
from services.patcher.cluster.opted import OptedIntegrations
from services.patcher.cluster.pacing import WriteLoad
from services.patcher.cluster.queue_status import QueueStatusWriter
from services.patcher.cluster.writer import Writer
from services.patcher.coscheduling.reconciler import CoschedulingReconciler
from services.patcher.handlers import Handlers
from services.patcher.jobs.controller import JobController
from services.patcher.jobs.gated import GateFinalizers
from services.patcher.jobs.group_cleanup import GroupCleanup
from services.patcher.jobs.groups import GroupController
from services.patcher.jobs.outcomes import Outcomes
from services.patcher.jobs.recreation import Recreation
from services.patcher.jobs.repeated_changes import (
    HOLD_SECONDS_MAX,
    RELEASE_SECONDS_MAX,
    RepeatedChanges,
)
from services.patcher.jobs.stops import StopController
from services.patcher.machines.seal_key import SealKeyStore
from services.patcher.machines.secrets import MachineSecrets
from services.patcher.multikueue.copies import CopyReconciler
from services.patcher.multikueue.heartbeat import HeartbeatSender
from services.patcher.multikueue.hub_status import HubStatusWriter
from services.patcher.multikueue.orders import OrderCheck
from services.patcher.multikueue.placement import Placement
from services.patcher.provisioning.controller import ProvisioningController
from services.patcher.settings import PatcherSettings
from services.patcher.workloads.check_states import CheckStates
from services.patcher.workloads.creation import WorkloadCreation
from services.patcher.workloads.decision_check import DecisionCheck
from services.patcher.workloads.owner_notices import OwnerNotices
from services.patcher.workloads.reconciler import WorkloadReconciler
from services.patcher.workloads.retention import Retention
from services.patcher.workloads.waiting_reasons import WaitingReasons
from shared.bus.port import Bus
from shared.contracts.seal import Entropy
from shared.kube.port import Kube
from shared.runtime.host import run_service
from shared.runtime.service import NO_OVERRIDES, Overrides, Parts, Program, utc_now
from shared.settings.configuration import Configuration, read_configuration
from shared.telemetry.tracing import NO_TRACING, Tracing

Loop = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patcher:
    """The background loops of one cluster's patcher. The bus calls its handlers beside them."""

    cache: ObjectCache
    loops: Sequence[Loop]
    guard: Loop
    """Stops copies whose lease has expired, until cancelled; with or without the bus."""

    async def run(self) -> None:
        """Run all loops until cancelled."""
        async with asyncio.TaskGroup() as group:
            for loop in self.loops:
                group.create_task(loop())
            group.create_task(self.cache.until_log_lost())

    def ready(self) -> str | None:
        """None once the cache is synced, else what it still reads."""
        return self.cache.not_synced()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dependencies:
    """What every other part needs."""

    settings: PatcherSettings
    configuration: Configuration
    tracing: Tracing
    bus: Bus
    kube: Kube
    now: Callable[[], datetime]
    load: WriteLoad
    cache: ObjectCache
    writer: Writer
    events: EventRecorder


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
    """Wire the parts and register the handlers. Opens no connection."""
    cache, load = ObjectCache(bus=bus, cluster=settings.cluster), WriteLoad()
    parts = _Dependencies(
        settings=settings,
        configuration=configuration or Configuration(),
        tracing=tracing,
        bus=bus,
        kube=kube,
        now=now,
        load=load,
        cache=cache,
        writer=Writer(kube=kube, cache=cache, load=load),
        events=EventRecorder(kube=kube, now=now, per_second=settings.events_per_second),
    )
    seal_keys = _seal_keys(parts, entropy)
    heartbeat = _heartbeat(parts)
    copies = _copies(parts, heartbeat)
    workload_loops, status_loops = _carry_out_decisions(parts, copies, seal_keys), _status(parts)
    if settings.spoke_quota == "kueue":
        # The cluster's own Kueue writes the status of its workloads and queues.
        workload_loops, status_loops = (), (parts.events.run,)
    return Patcher(
        cache=cache,
        loops=(
            cache.run_observed,
            cache.run_workloads,
            cache.run_admissions,
            *workload_loops,
            *status_loops,
            seal_keys.run,
            heartbeat.run,
        ),
        guard=partial(heartbeat.guard, copies.stop),
    )


def _seal_keys(parts: _Dependencies, entropy: Entropy) -> SealKeyStore:
    return SealKeyStore(
        cluster=parts.settings.cluster,
        namespace=parts.settings.seal_namespace,
        bus=parts.bus,
        kube=parts.kube,
        now=parts.now,
        entropy=entropy,
    )


def _heartbeat(parts: _Dependencies) -> HeartbeatSender:
    settings = parts.settings
    return HeartbeatSender(
        kube=parts.kube,
        bus=parts.bus,
        cluster=settings.cluster,
        quota=settings.spoke_quota,
        now=parts.now,
        beat_seconds=settings.beat_seconds,
        makes_copies=settings.cluster != settings.hub,
    )


def _copies(parts: _Dependencies, heartbeat: HeartbeatSender) -> CopyReconciler:
    return CopyReconciler(
        kube=parts.kube,
        bus=parts.bus,
        cluster=parts.settings.cluster,
        now=parts.now,
        lease_seconds_left=heartbeat.seconds_left,
        integrations=parts.cache.integrations,
        not_synced=parts.cache.not_synced,
        own_kueue=parts.settings.spoke_quota == "kueue",
    )


def _carry_out_decisions(
    parts: _Dependencies, copies: CopyReconciler, seal_keys: SealKeyStore
) -> tuple[Loop, ...]:
    """Build what carries out decisions, register its handlers, and return its loops."""
    cache, reasons, coscheduling = parts.cache, _reasons(parts), _coscheduling(parts)
    groups, group_loops = _groups(parts)
    jobs = _jobs(parts, copies, coscheduling, groups)
    checks = CheckStates(
        bus=parts.bus, cluster=parts.settings.cluster, controller_of=cache.controller_of
    )
    owner_notices = OwnerNotices(
        kube=parts.kube,
        cache=cache,
        events=parts.events,
        annotated=parts.settings.annotated_creators,
    )
    workloads = WorkloadReconciler(
        cache=cache,
        writer=parts.writer,
        jobs=jobs,
        events=parts.events,
        reasons=reasons,
        checks=checks,
        decisions=DecisionCheck(cache, parts.writer),
        creation=_creation(parts),
        owner_notices=owner_notices,
        now=parts.now,
        foreign_events=parts.settings.foreign_events,
        not_seen_seconds=parts.settings.not_seen_seconds,
    )
    _handlers(parts, workloads, copies, seal_keys).register(parts.bus)
    return (
        partial(reasons.run, workloads.write_reason),
        partial(checks.run, workloads.write_check_states),
        owner_notices.run,
        coscheduling.run,
        *group_loops,
    )


def _jobs(
    parts: _Dependencies,
    copies: CopyReconciler,
    coscheduling: CoschedulingReconciler,
    groups: GroupController,
) -> JobController:
    outcomes = Outcomes(bus=parts.bus, cache=parts.cache, now=parts.now)
    recreation = Recreation(writer=parts.writer, events=parts.events)
    holds = RepeatedChanges(done="held", pause_seconds_max=HOLD_SECONDS_MAX)
    stops = StopController(
        writer=parts.writer,
        events=parts.events,
        outcomes=outcomes,
        recreation=recreation,
        holds=holds,
        now=parts.now,
    )
    return JobController(
        bus=parts.bus,
        cache=parts.cache,
        writer=parts.writer,
        events=parts.events,
        outcomes=outcomes,
        coscheduling=coscheduling,
        groups=groups,
        recreation=recreation,
        stops=stops,
        releases=RepeatedChanges(done="released", pause_seconds_max=RELEASE_SECONDS_MAX),
        holds=holds,
        now=parts.now,
        tracing=parts.tracing,
        not_seen_seconds=parts.settings.not_seen_seconds,
        may_start=copies.may_start,
    )


def _creation(parts: _Dependencies) -> WorkloadCreation:
    return WorkloadCreation(
        writer=parts.writer,
        events=parts.events,
        now=parts.now,
        labels_to_copy=parts.configuration.integrations.label_keys_to_copy,
    )


def _handlers(
    parts: _Dependencies,
    workloads: WorkloadReconciler,
    copies: CopyReconciler,
    seal_keys: SealKeyStore,
) -> Handlers:
    settings, cache = parts.settings, parts.cache
    return Handlers(
        cluster=settings.cluster,
        cache=cache,
        workloads=workloads,
        jobs=workloads.jobs,
        machines=_machines(parts, seal_keys),
        copies=copies,
        orders=_order_check(parts),
        hub_status=HubStatusWriter(
            kube=parts.kube,
            writer=parts.writer,
            cache=cache,
            placement=Placement(bus=parts.bus, kube=parts.kube, cache=cache),
            now=parts.now,
        ),
        now=parts.now,
        own_kueue=settings.spoke_quota == "kueue",
    )


def _reasons(parts: _Dependencies) -> WaitingReasons:
    return WaitingReasons(
        cache=parts.cache,
        per_second=parts.settings.reasons_per_second,
        foreign_per_second=parts.settings.foreign_reasons_per_second,
        load=parts.load,
    )


def _groups(parts: _Dependencies) -> tuple[GroupController, tuple[Loop, ...]]:
    """Build what deals with objects behind a gate; return what deals with groups of them, and the loops."""
    cache, writer, events = parts.cache, parts.writer, parts.events
    cleanup = GroupCleanup(writer=writer, cache=cache, events=events, load=parts.load)
    gates = GateFinalizers(writer=writer, cache=cache, load=parts.load, groups=cleanup)
    groups = GroupController(
        cache=cache,
        kube=parts.kube,
        writer=writer,
        events=events,
        cleanup=cleanup,
        now=parts.now,
        not_seen_seconds=parts.settings.not_seen_seconds,
        transformed=parts.configuration.resources.transformed,
    )
    return groups, (gates.run, cleanup.run)


def _machines(parts: _Dependencies, seal_keys: SealKeyStore) -> MachineSecrets:
    return MachineSecrets(
        kube=parts.kube,
        events=parts.events,
        seal_keys=seal_keys,
        excluded=parts.settings.excluded_namespaces,
    )


def _coscheduling(parts: _Dependencies) -> CoschedulingReconciler:
    return CoschedulingReconciler(
        kube=parts.kube,
        cache=parts.cache,
        writer=parts.writer,
        events=parts.events,
        now=parts.now,
        image=parts.settings.anchor_image,
        tekton_namespace=parts.settings.tekton_namespace,
        cordon_check_seconds=parts.settings.anchor_care_seconds,
    )


def _order_check(parts: _Dependencies) -> OrderCheck:
    settings = parts.settings
    return OrderCheck(
        kube=parts.kube,
        cache=parts.cache,
        cluster=settings.cluster,
        hub=settings.hub,
        excluded=settings.excluded_namespaces,
        own_kueue=settings.spoke_quota == "kueue",
    )


def _status(parts: _Dependencies) -> tuple[Loop, ...]:
    """Build what writes status and events in the background, and return its loops."""
    bus, kube, events, cluster = parts.bus, parts.kube, parts.events, parts.settings.cluster
    cache, now, load, configuration = parts.cache, parts.now, parts.load, parts.configuration
    pace = parts.settings.queue_statuses_per_second
    frameworks = configuration.integrations.frameworks or ()
    kept = configuration.object_retention_policies.workloads
    writers = (
        QueueStatusWriter(
            bus=bus, kube=kube, cache=cache, cluster=cluster, now=now, per_second=pace, load=load
        ),
        ConfigurationFinalizers(bus=bus, kube=kube, cluster=cluster, load=load),
        OptedIntegrations(kube=kube, frameworks=frameworks),
        events,
        IntegrationReconciler(kube=kube, cache=cache, now=now),
        Retention(
            bus=bus, kube=kube, events=events, cluster=cluster, now=now, policy=kept, cache=cache
        ),
        ProvisioningController(
            bus=bus, kube=kube, events=events, cluster=cluster, now=now, load=load
        ),
    )
    return tuple(writer.run for writer in writers)


def program(overrides: Overrides = NO_OVERRIDES) -> Program:
    """The patcher as `sluice run` starts it, set by the environment and by `overrides`."""
    settings = PatcherSettings(**overrides)
    configuration = read_configuration(settings.configuration)

    def build(parts: Parts) -> Patcher:
        # Imported here: the simulated world builds a patcher without the Kubernetes library.
        from shared.kube.client import HttpKube  # noqa: PLC0415

        kube = HttpKube.for_service(settings.kubeconfig, context=settings.kube_context)
        parts.on_stop(kube.close)
        patcher = assemble(
            settings=settings,
            bus=parts.bus,
            kube=kube,
            now=utc_now,
            configuration=configuration,
            tracing=parts.tracing,
        )
        parts.beside(patcher.guard)
        return patcher

    return Program(name="patcher", settings=settings, build=build)


def main() -> int:
    """Entry point of `sluice run patcher`."""
    return run_service(program())
