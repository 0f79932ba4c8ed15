"""One term of leadership: reads the bus, plans for every workload that changed, publishes the result.

Reading has an order. An order to a spoke was published after what it was made for, so the dispatcher's own
streams (`CHECKS`, `DISPATCHES`) are read first: what an order was made for is then certain to be read, too.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from services.dispatcher.hub.jobs import HubJob
from services.dispatcher.outbound.check_states import CheckStatePublisher
from services.dispatcher.outbound.ended_work import EndedWork
from services.dispatcher.outbound.hub_status import hub_status, publish_hub_status
from services.dispatcher.outbound.orders import OrderPublisher
from services.dispatcher.outbound.spoke_status import SpokeStatusPublisher
from services.dispatcher.planning.nomination import NominationRules, NominationStrategy
from services.dispatcher.planning.order_lifecycle import Event
from services.dispatcher.planning.plan import Situation, plan
from services.dispatcher.planning.situation import SituationReader
from services.dispatcher.settings import DispatcherSettings
from services.dispatcher.spokes.liveness import Liveness, SpokeHealth
from services.dispatcher.store import Store
from shared.bus.follow import Handlers, dispatch, follow_entries, isolated, read, recall
from shared.bus.kind_follower import KindFollower
from shared.bus.port import Bus, Entry, UnavailableError
from shared.contracts import subjects
from shared.contracts.kube.kinds import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    MULTIKUEUE_CLUSTER,
    MULTIKUEUE_CONFIG,
    RESOURCE_FLAVOR,
    WORKLOAD,
    WORKLOAD_PRIORITY_CLASS,
)
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.spokes import (
    CheckCondition,
    CopyState,
    Heartbeat,
    HubStatus,
    PairState,
    SpokeState,
)
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import Stream, observed_filter, subject_filter, synced_filter
from shared.integrations import INTEGRATIONS

log = structlog.get_logger(__name__)

_OWN_STREAMS: Final = frozenset({Stream.CHECKS, Stream.DISPATCHES})
"""Streams with the decisions of earlier terms."""

_JOBS: Final = "jobs"
"""What is read of `OBSERVED` only where a plan may be made."""

_CONFIGURATION: Final = (
    ADMISSION_CHECK,
    MULTIKUEUE_CONFIG,
    MULTIKUEUE_CLUSTER,
    RESOURCE_FLAVOR,
    WORKLOAD_PRIORITY_CLASS,
)


class Term:
    """From the start of a lease to its loss. Nothing is kept for the next term."""

    def __init__(
        self,
        *,
        settings: DispatcherSettings,
        bus: Bus,
        now: Callable[[], datetime],
        on_forgotten: Callable[[WorkloadRef, str, int], None],
    ) -> None:
        """`on_forgotten` gets workload, check and sequence of each answer that is needed no more."""
        self._settings = settings
        self._cluster = settings.cluster
        self._bus = bus
        self._now = now
        rules = _nomination_rules(settings)
        self._external = rules.strategy is NominationStrategy.EXTERNAL
        self._store = _new_store(settings, nominations=self._external)
        self._situations = SituationReader(
            store=self._store,
            rules=rules,
            clock=asyncio.get_running_loop().time,
            orphan_seconds=settings.orphan_seconds,
            collects_orphans=settings.collect_orphans,
        )
        self._checks = CheckStatePublisher(
            store=self._store,
            bus=bus,
            now=now,
            retry_seconds=settings.no_cluster_retry_seconds,
        )
        self._ended = EndedWork(
            store=self._store, bus=bus, checks=self._checks, on_forgotten=on_forgotten
        )
        self._orders = OrderPublisher(settings=settings, store=self._store, bus=bus, now=now)
        self._spoke_statuses = SpokeStatusPublisher(
            cluster=settings.cluster,
            store=self._store,
            situations=self._situations,
            bus=bus,
            now=now,
        )
        self._handlers = self._message_handlers()
        self._unread: set[str] = {Stream.OBSERVED, Stream.CHECKS, Stream.DISPATCHES, Stream.SPOKES}
        self._has_work = asyncio.Event()
        """Set once a decision of quota may matter: until then, no jobs are read."""

        self._needs_decisions = asyncio.Event()
        """Set then, and once there is an answer that has to be forgotten when its workload is over: until
        then, `ADMISSIONS` is not read."""

        self._has_foreign_check = asyncio.Event()
        """Set once work may wait for a check that is answered in its Workload's status: until then,
        `WORKLOADS` is not read."""

        self._own_streams_read = asyncio.Event()
        self._followed_spokes: dict[str, None] = {}
        self._timers: dict[WorkloadRef, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None

    def not_ready(self) -> str | None:
        """What the term is still reading or waiting for; None once it makes plans."""
        if self._unread:
            return f"reading {', '.join(sorted(self._unread))}"
        if not self._store.configuration.is_hub_listed:
            return f"nobody has listed cluster {self._cluster} yet"
        return None

    async def run(self) -> None:
        """Work until cancelled. Raises `BusError` if everything has to be read again."""
        observed = [observed_filter(kind, self._cluster) for kind in _CONFIGURATION]
        observed.append(synced_filter())
        dispatches = [
            subject_filter("dispatch"),
            subject_filter("copy"),
            subject_filter("home", self._cluster),
        ]
        spokes = [subject_filter("beat")]
        spokes += [subject_filter(what, self._cluster) for what in ("spoke", "standing", "pair")]
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._follow(Stream.OBSERVED, observed))
                group.create_task(self._follow_jobs())
                group.create_task(
                    self._follow_admissions(subject_filter("admission", self._cluster))
                )
                group.create_task(self._follow_workloads(subject_filter("workload", self._cluster)))
                group.create_task(self._follow_dispatches(dispatches))
                for stream, filters in (
                    (Stream.CHECKS, [subject_filter("check", self._cluster)]),
                    (Stream.SPOKES, spokes),
                ):
                    group.create_task(self._follow(stream, filters))
                group.create_task(self._plan_dirty())
                group.create_task(self._publish_spoke_statuses())
                group.create_task(self._tidy())
        finally:
            for timer in self._timers.values():
                timer.cancel()

    # --- reading ---

    def _message_handlers(self) -> dict[str, Handlers]:
        """What happens with each message, by stream."""
        store, observe_status = self._store, self._spoke_statuses.observe
        return {
            Stream.OBSERVED: {
                Observed: lambda observed, _: store.observe_hub_object(observed),
                Synced: self._on_synced,
            },
            _JOBS: {
                Observed: lambda observed, _: store.observe_hub_object(observed),
                Synced: lambda synced, _: store.mark_listed(synced.cluster),
            },
            Stream.ADMISSIONS: {Admission: lambda admission, _: store.observe_admission(admission)},
            Stream.WORKLOADS: {WorkloadState: lambda state, _: store.observe_workload(state)},
            Stream.CHECKS: {
                CheckState: lambda check, entry: store.observe_check(check, entry.sequence)
            },
            Stream.DISPATCHES: {
                Dispatch: self._on_order,
                CopyState: lambda report, entry: store.observe_report(report, entry.sequence),
                HubStatus: self._on_hub_status,
            },
            Stream.SPOKES: {
                Heartbeat: lambda beat, entry: store.observe_heartbeat(beat, entry.sequence),
                SpokeState: lambda status, _: observe_status(status),
                CheckCondition: lambda status, _: observe_status(status),
                PairState: lambda pair, _: observe_status(pair),
            },
        }

    async def _follow(self, stream: str, filters: list[str]) -> None:
        if stream not in _OWN_STREAMS:
            await self._own_streams_read.wait()
        await follow_entries(
            self._bus,
            stream,
            filters,
            on_entry=partial(self._on_entry, stream),
            on_caught_up=partial(self._on_caught_up, stream),
        )

    async def _follow_jobs(self) -> None:
        """Follow the hub's jobs, and behind them what says that they were all listed."""
        await self._has_work.wait()
        kinds = [integration.kind for integration in INTEGRATIONS]
        kinds += [WORKLOAD] if self._external else []
        filters = [observed_filter(kind, self._cluster) for kind in kinds]
        filters.append(synced_filter(self._cluster))
        await self._follow_kinds(
            self._cluster,
            filters,
            on_entry=partial(self._on_entry, _JOBS),
            on_caught_up=partial(self._on_caught_up, _JOBS),
        )

    async def _follow_admissions(self, filter_: str) -> None:
        await self._needs_decisions.wait()
        await self._follow(Stream.ADMISSIONS, [filter_])

    async def _follow_workloads(self, filter_: str) -> None:
        await self._has_foreign_check.wait()
        await self._follow(Stream.WORKLOADS, [filter_])

    async def _follow_dispatches(self, filters: list[str]) -> None:
        """Read all orders, then follow them with the reports: of those, only what was ordered is kept."""
        handlers = {Dispatch: partial(_observe_order, self._store)}
        await recall(self._bus, handlers, filters=[subjects.subject_filter("dispatch")])
        await self._follow(Stream.DISPATCHES, filters)

    async def _follow_kinds(
        self,
        cluster: str,
        filters: list[str],
        *,
        on_entry: Callable[[Entry], bool],
        on_caught_up: Callable[[int], None],
    ) -> None:
        """Follow objects of one cluster, also of the kinds that the hub's Integrations describe."""
        await self._own_streams_read.wait()
        await KindFollower(
            bus=self._bus,
            cluster=cluster,
            filters=filters,
            integrations_of=self._cluster,
            kinds=self._store.integrations.copied_kinds,
            on_integration=self._on_integration,
            on_entry=on_entry,
            on_caught_up=on_caught_up,
        ).run()

    def _on_caught_up(self, stream: str, sequence: int) -> None:
        self._unread.discard(stream)
        if stream == Stream.CHECKS:
            self._checks.mark_read(sequence)
        if not self._unread & _OWN_STREAMS:
            self._own_streams_read.set()
        self._store.mark_all_dirty()
        self._wake.set()

    def _on_entry(self, stream: str, entry: Entry) -> bool:
        """Apply an entry; False if it cannot be read."""
        can_be_read = dispatch(entry, self._handlers[stream])
        if not self._has_work.is_set() and self._store.has_work():
            self._unread.add(_JOBS)  # No plan is made before they are read.
            self._has_work.set()
        needed = self._has_work.is_set() or self._store.given_answers
        if needed and not self._needs_decisions.is_set():
            self._unread.add(Stream.ADMISSIONS)
            self._needs_decisions.set()
        foreign = self._store.configuration.has_foreign_check and self._has_work.is_set()
        if foreign and not self._has_foreign_check.is_set():
            self._unread.add(Stream.WORKLOADS)
            self._has_foreign_check.set()
        self._wake.set()
        return can_be_read

    def _on_integration(self, observed: Observed) -> None:
        self._store.observe_integration(observed)
        self._wake.set()

    def _on_synced(self, synced: Synced, _entry: Entry) -> None:
        """Note that a cluster is listed. That of the hub counts when it comes behind the hub's jobs."""
        if synced.cluster != self._cluster or not self._has_work.is_set():
            self._store.mark_listed(synced.cluster)

    def _on_order(self, order: Dispatch, entry: Entry) -> None:
        if Stream.DISPATCHES in self._unread:
            self._store.observe_order(order, entry.sequence)
        else:
            self._orders.observe_published(order, entry.sequence)

    def _on_hub_status(self, status: HubStatus, entry: Entry) -> None:
        if Stream.DISPATCHES in self._unread:  # Later ones are published by this term.
            self._store.record_hub_status(status, entry.sequence)

    async def _follow_spoke(self, spoke: str) -> None:
        kinds = [i.kind for i in INTEGRATIONS] + [WORKLOAD, CLUSTER_QUEUE, LOCAL_QUEUE]
        filters = [observed_filter(kind, spoke) for kind in kinds]

        def on_entry(entry: Entry) -> bool:
            observe = partial(self._store.observe_spoke_object, spoke)
            can_be_read = dispatch(entry, {Observed: lambda seen, _: observe(seen)})
            self._wake.set()
            return can_be_read

        def on_caught_up(_sequence: int) -> None:
            self._store.mark_loaded(spoke)
            self._wake.set()

        await self._follow_kinds(spoke, filters, on_entry=on_entry, on_caught_up=on_caught_up)

    def _follow_new_spokes(self) -> None:
        known = {*self._store.configuration.known_spokes(), *self._store.ordered_spokes()}
        for spoke in sorted(known - {self._cluster}):
            if spoke not in self._followed_spokes:
                self._followed_spokes[spoke] = None
                assert self._group is not None, "spokes are followed inside of run()"
                self._group.create_task(self._follow_spoke(spoke))

    # --- planning ---

    async def _plan_dirty(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self.not_ready() is not None:
                continue
            self._follow_new_spokes()
            for workload in self._store.drain_dirty():
                with isolated(Dispatch.stream, subjects.join("dispatch", *workload)):
                    await self._plan_workload(workload)

    async def _plan_workload(self, workload: WorkloadRef) -> None:
        situation = await self._situation(workload)
        if situation is None or self._has_changed(workload):
            return  # Planned again after the spokes are read, or with what changed.
        todo = plan(situation)
        admission = self._store.admissions.get(workload)
        job: HubJob | None = None
        if Event.NOMINATED in todo.events.values() and admission is not None:
            job = self._store.jobs.job(workload, admission.uid)
            if job is None:
                await self._handle_missing_job(workload, admission)
                return
        if todo.answer is not None and admission is not None:
            await self._checks.answer(admission, todo.answer)
            if self._has_changed(workload):
                return
        if todo.events:
            before = {spoke: order.state for spoke, order in situation.orders.items()}
            await self._orders.publish(workload, todo, before, job)
            situation = await self._situation(workload) or situation
        status = hub_status(self._store, workload, situation, self._now())
        if status is not None:
            await publish_hub_status(self._bus, self._store, status)
        if todo.recheck_seconds is not None:
            self._plan_later(workload, todo.recheck_seconds)

    def _has_changed(self, workload: WorkloadRef) -> bool:
        """Whether a message arrived while the term awaited something: then it plans again."""
        if not self._store.is_dirty(workload):
            return False
        self._wake.set()
        return True

    async def _situation(self, workload: WorkloadRef) -> Situation | None:
        """The situation of a workload; lost spokes whose leases ran out count as stopped."""
        now = self._now()
        situation = self._situations.situation(workload, now, frozenset())
        if situation is None or self._settings.lease_seconds is None:
            return situation
        started = [s for s, o in situation.orders.items() if o.started or o.state == "chosen"]
        lost = [s for s in started if self._store.health.liveness(s) is Liveness.LOST]
        stopped = frozenset([spoke for spoke in lost if await self._is_proved_lost(spoke)])
        return self._situations.situation(workload, now, stopped) if stopped else situation

    async def _is_proved_lost(self, spoke: str) -> bool:
        """Whether the log has no newer heartbeat than the one that timed out.

        The dispatcher itself may have been cut off from the bus, or the server that it asks from the others.
        Then the spoke has renewed its leases, and its heartbeats are on the log, but not read yet.
        """
        health = self._store.health
        beat = health.last_heartbeat(spoke)
        try:
            subject = subjects.join("beat", spoke, None, None)
            latest = await self._bus.latest(Heartbeat.stream, subject, current=True)
        except UnavailableError as error:
            log.warning("cannot ask for the last beat", spoke=spoke, error=str(error))
            return False
        if latest is not None and (newest := read(latest, Heartbeat)) is not None:
            self._store.observe_heartbeat(newest, latest.sequence)
        unchanged = health.last_heartbeat(spoke) == beat
        return unchanged and health.liveness(spoke) is Liveness.LOST

    async def _handle_missing_job(self, workload: WorkloadRef, admission: Admission) -> None:
        """Reject a workload whose job cannot run on a spoke; plan again if its job is not observed yet."""
        subject = subjects.join("workload", *workload)
        problem: str | None = None

        def on_state(state: WorkloadState, _entry: Entry) -> None:
            nonlocal problem
            own = state.uid == admission.uid
            problem = self._store.not_dispatchable(state) if own else None

        await recall(self._bus, {WorkloadState: on_state}, filters=[subject])
        if problem is not None:
            await self._checks.reject(admission, problem)
        else:
            self._plan_later(workload, self._settings.not_seen_seconds)

    def _plan_later(self, workload: WorkloadRef, seconds: float) -> None:
        def wake() -> None:
            self._timers.pop(workload, None)
            self._store.mark_dirty(workload)
            self._wake.set()

        timer = self._timers.pop(workload, None)
        if timer is not None:
            timer.cancel()
        self._timers[workload] = asyncio.get_running_loop().call_later(seconds, wake)

    # --- periodic work ---

    async def _publish_spoke_statuses(self) -> None:
        """Publish how usable the spokes are, and plan again if their liveness changed."""
        before: dict[str, Liveness] = {}
        while True:
            await asyncio.sleep(self._settings.spokes_seconds)
            if self.not_ready() is not None:
                continue
            known = self._store.configuration.known_spokes()
            after = {spoke: self._store.health.liveness(spoke) for spoke in known}
            if after != before or self._situations.has_orphans():
                before = after
                self._store.mark_all_dirty()
                self._wake.set()
            await self._spoke_statuses.publish()

    async def _tidy(self) -> None:
        """Forget what is about workloads that are over, and delete it from the views."""
        while True:
            await asyncio.sleep(self._settings.tidy_seconds)
            if self.not_ready() is not None or not self._needs_decisions.is_set():
                continue
            before = self._now() - timedelta(seconds=self._settings.forget_seconds)
            await self._ended.sweep(before)


def _observe_order(store: Store, order: Dispatch, entry: Entry) -> None:
    store.observe_order(order, entry.sequence)


def _nomination_rules(settings: DispatcherSettings) -> NominationRules:
    return NominationRules(
        strategy=NominationStrategy.from_name(settings.dispatcher),
        step_size=settings.incremental_step_size,
        round_seconds=settings.incremental_round_seconds,
        fallback_seconds=settings.fallback_seconds,
    )


def _new_store(settings: DispatcherSettings, *, nominations: bool) -> Store:
    clock = asyncio.get_running_loop().time
    health = SpokeHealth(
        clock=clock,
        silent_seconds=settings.silent_seconds,
        lost_seconds=settings.worker_lost_timeout_seconds,
    )
    return Store(
        cluster=settings.cluster,
        origin=settings.multikueue_origin,
        nominations=nominations,
        health=health,
        clock=clock,
    )
