"""What the dispatcher does while it is the one: reads, plans, answers the check, tells the spokes."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from services.dispatcher.hub.jobs import HubJob
from services.dispatcher.outbound.hub_status import homecoming
from services.dispatcher.outbound.orders import Telling
from services.dispatcher.outbound.spoke_status import Reporting
from services.dispatcher.planning.nomination import Dispatcher, Rules
from services.dispatcher.planning.order_lifecycle import Event
from services.dispatcher.planning.plan import Plan, Situation, plan
from services.dispatcher.planning.situation import Weighing
from services.dispatcher.settings import DispatcherSettings
from services.dispatcher.spokes.liveness import Life, Presence
from services.dispatcher.store import Key, Knowledge
from shared.bus.kind_follower import KindFollower
from shared.bus.port import Bus, CaughtUp, Entry, UnavailableError
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
from shared.contracts.messages.observed import Observed
from shared.contracts.subjects import observed_filter
from shared.integrations import INTEGRATIONS

__all__ = ["Session"]

log = structlog.get_logger(__name__)

_OURS: Final = frozenset({"CHECKS", "DISPATCHES"})
"""Streams that hold what a predecessor decided."""


class Session:
    """From taking the lease to losing it. Nothing of it is worth keeping."""

    def __init__(
        self, *, settings: DispatcherSettings, bus: Bus, now: Callable[[], datetime]
    ) -> None:
        self._settings = settings
        self._cluster = settings.cluster
        self._bus = bus
        self._now = now
        clock = asyncio.get_running_loop().time
        presence = Presence(
            clock=clock,
            silent_seconds=settings.silent_seconds,
            lost_seconds=settings.worker_lost_timeout_seconds,
        )
        self._rules = Rules(
            dispatcher=Dispatcher.named(settings.dispatcher),
            step_size=settings.incremental_step_size,
            round_seconds=settings.incremental_round_seconds,
            fallback_seconds=settings.fallback_seconds,
        )
        self._knowledge = Knowledge(
            cluster=settings.cluster,
            origin=settings.multikueue_origin,
            nominations=self._rules.dispatcher is Dispatcher.EXTERNAL,
            presence=presence,
            clock=clock,
        )
        self._weighing = Weighing(
            self._knowledge,
            rules=self._rules,
            clock=clock,
            orphan_seconds=settings.orphan_seconds,
            collects=settings.collect_orphans,
        )
        self._telling = Telling(settings=settings, knowledge=self._knowledge, bus=bus, now=now)
        self._reporting = Reporting(
            cluster=settings.cluster,
            knowledge=self._knowledge,
            weighing=self._weighing,
            bus=bus,
            now=now,
        )
        self._unread = {"OBSERVED", "CHECKS", "DISPATCHES", "SPOKES"}
        self._concerned = asyncio.Event()
        """Decisions may concern us; until then, nobody has to read them."""

        self._ours_read = asyncio.Event()
        self._following: dict[str, None] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None

    def not_ready(self) -> str | None:
        """None once it decides, else what it waits for."""
        if self._unread:
            return f"reading {', '.join(sorted(self._unread))}"
        if not self._knowledge.configuration.hub_synced:
            return f"nobody has listed cluster {self._cluster} yet"
        return None

    async def run(self) -> None:
        """Work until cancelled. Raises `BusError` where the views have to be read again."""
        token = subjects.encode(self._cluster)
        knowledge = self._knowledge
        kinds = [ADMISSION_CHECK, MULTIKUEUE_CONFIG, MULTIKUEUE_CLUSTER, RESOURCE_FLAVOR]
        kinds += [WORKLOAD_PRIORITY_CLASS, *(integration.kind for integration in INTEGRATIONS)]
        if self._rules.dispatcher is Dispatcher.EXTERNAL:
            kinds.append(WORKLOAD)
        hub = [observed_filter(kind, self._cluster) for kind in kinds]
        root = subjects.ROOT
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                observed = [*hub, f"{root}.observed.*._._.synced"]
                take_hub = partial(self._take, "OBSERVED", knowledge.take_hub)
                group.create_task(self._follow_kinds(self._cluster, observed, take_hub))
                group.create_task(self._follow_decisions(f"{root}.admission.{token}.>"))
                for stream, filters, take in (
                    ("CHECKS", [f"{root}.check.{token}.>"], knowledge.take_check),
                    (
                        "DISPATCHES",
                        [f"{root}.dispatch.>", f"{root}.copy.>", f"{root}.home.{token}.>"],
                        self._take_dispatch,
                    ),
                    (
                        "SPOKES",
                        [
                            f"{root}.beat.>",
                            *(f"{root}.{what}.{token}.>" for what in ("spoke", "standing", "pair")),
                        ],
                        self._take_spokes,
                    ),
                ):
                    group.create_task(self._follow(stream, filters, take))
                group.create_task(self._decide())
                group.create_task(self._look())
                group.create_task(self._tidy())
        finally:
            for timer in self._timers.values():
                timer.cancel()

    # --- reading ---

    async def _follow(self, stream: str, filters: list[str], take: Callable[[Entry], None]) -> None:
        if stream not in _OURS:
            # Only now: what an order was made for was on the log before the order was, so what is
            # missing after this reading is over.
            await self._ours_read.wait()
        async with aclosing(self._bus.watch(stream, *filters)) as entries:
            async for entry in entries:
                self._take(stream, take, entry)

    async def _follow_decisions(self, filter_: str) -> None:
        await self._concerned.wait()
        await self._follow("ADMISSIONS", [filter_], self._knowledge.take_admission)

    async def _follow_kinds(
        self, cluster: str, filters: list[str], take: Callable[[Entry | CaughtUp], None]
    ) -> None:
        """Objects of one cluster, also of the kinds that its Integrations bring while we run."""
        await self._ours_read.wait()
        await KindFollower(
            bus=self._bus,
            cluster=cluster,
            filters=filters,
            kinds=self._knowledge.integrations(cluster).brought,
            take_integration=self._take_integration,
            take=take,
        ).run()

    def _take_integration(self, observed: Observed) -> None:
        self._knowledge.take_integration(observed)
        self._wake.set()

    def _take(self, stream: str, take: Callable[[Entry], None], entry: Entry | CaughtUp) -> None:
        if isinstance(entry, CaughtUp):
            self._unread.discard(stream)
            if stream == "CHECKS":
                self._telling.checks_read = max(self._telling.checks_read, entry.sequence)
            if not self._unread & _OURS:
                self._ours_read.set()
            self._knowledge.touch_all()
        else:
            take(entry)
            self._see_whether_concerned()
        self._wake.set()

    def _see_whether_concerned(self) -> None:
        """From the first check of ours, or order, on: nothing is decided before decisions were read."""
        if not self._concerned.is_set() and self._knowledge.is_concerned():
            self._unread.add("ADMISSIONS")
            self._concerned.set()

    def _take_dispatch(self, entry: Entry) -> None:
        """An order that is not ours may be for a workload that we have not read of yet."""
        what = entry.subject.split(".", 2)[1]
        if what == "copy":
            self._knowledge.take_report(entry)
        elif "DISPATCHES" not in self._unread:
            if what == "dispatch":
                self._telling.hear(entry)
        elif what == "home":
            self._knowledge.take_home(entry)
        else:
            self._knowledge.take_order(entry)

    def _take_spokes(self, entry: Entry) -> None:
        if entry.subject.startswith(f"{subjects.ROOT}.beat."):
            self._knowledge.take_beat(entry)
        else:
            self._reporting.recall(entry)

    async def _follow_spoke(self, spoke: str) -> None:
        kinds = [i.kind for i in INTEGRATIONS] + [WORKLOAD, CLUSTER_QUEUE, LOCAL_QUEUE]
        filters = [observed_filter(kind, spoke) for kind in kinds]
        await self._follow_kinds(spoke, filters, partial(self._take_of_spoke, spoke))

    def _take_of_spoke(self, spoke: str, entry: Entry | CaughtUp) -> None:
        if isinstance(entry, CaughtUp):
            self._knowledge.read_spokes[spoke] = None
            for key in (*self._knowledge.admissions, *self._knowledge.orders):
                self._knowledge.expect_again(spoke, key)
            self._knowledge.touch_all()
        else:
            self._knowledge.take_spoke(spoke, entry)
        self._wake.set()

    def _follow_new_spokes(self) -> None:
        knowledge = self._knowledge
        known = {*knowledge.configuration.known_spokes(), *knowledge.ordered_spokes()}
        for spoke in sorted(known - {self._cluster}):
            if spoke not in self._following:
                self._following[spoke] = None
                assert self._group is not None, "spokes are followed inside of run()"
                self._group.create_task(self._follow_spoke(spoke))

    # --- deciding ---

    async def _decide(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self.not_ready() is not None:
                continue
            self._follow_new_spokes()
            for key in self._knowledge.take_dirty():
                await self._decide_workload(key)

    async def _decide_workload(self, key: Key) -> None:
        situation = await self._situation(key)
        if situation is None or self._heard_more(key):
            return  # Looked at again when the spokes are read.
        todo = plan(situation)
        admission = self._knowledge.admissions.get(key)
        job: HubJob | None = None
        if Event.NOMINATED in todo.events.values() and admission is not None:
            job = self._knowledge.hub.job(key, admission.uid)
            if job is None:
                await self._without_job(key, admission)
                return
        if todo.answer is not None and admission is not None:
            await self._telling.answer(admission, todo.answer)
            if self._heard_more(key):
                return
        orders = {spoke: order.state for spoke, order in situation.orders.items()}
        if todo.events:
            await self._telling.tell(key, todo, orders, job)
            situation = await self._situation(key) or situation
        home = homecoming(self._knowledge, key, situation, self._cluster, self._now())
        if home is not None:
            await self._telling.send_home(home)
        self._again(key, todo)

    def _heard_more(self, key: Key) -> bool:
        """Whether quota, a spoke or home said more while we waited: then all is to be planned anew."""
        if not self._knowledge.is_dirty(key):
            return False
        self._wake.set()
        return True

    async def _situation(self, key: Key) -> Situation | None:
        """What is weighed; where that depends on it, with the proof that leases have run out."""
        now, knowledge = self._now(), self._knowledge
        situation = self._weighing.situation(key, now, frozenset())
        if situation is None or self._settings.lease_seconds is None:
            return situation
        started = [s for s, o in situation.orders.items() if o.started or o.state == "chosen"]
        lost = [spoke for spoke in started if knowledge.presence.life(spoke) is Life.LOST]
        stopped = frozenset([spoke for spoke in lost if await self._has_stopped(spoke)])
        return self._weighing.situation(key, now, stopped) if stopped else situation

    async def _has_stopped(self, spoke: str) -> bool:
        """Whether its last beat on the log is the one whose time has run out by our clock.

        We may have been cut off ourselves: it renewed its leases then, and we do not know yet.
        """
        beat = self._knowledge.presence.beat(spoke)
        try:
            latest = await self._bus.latest("SPOKES", subjects.join("beat", spoke, None, None))
        except UnavailableError as error:
            log.warning("cannot ask for the last beat", spoke=spoke, error=str(error))
            return False
        if latest is not None:
            self._knowledge.take_beat(latest)
        same = self._knowledge.presence.beat(spoke) == beat
        return same and self._knowledge.presence.life(spoke) is Life.LOST

    async def _without_job(self, key: Key, admission: Admission) -> None:
        """It was not observed yet; or there is none that could be carried."""
        entry = None
        async with aclosing(
            self._bus.watch("WORKLOADS", subjects.join("workload", self._cluster, *key))
        ) as entries:
            async for one in entries:
                if isinstance(one, CaughtUp):
                    break
                entry = one
        problem = None
        if entry is not None:
            problem = self._knowledge.cannot_be_carried(entry, admission.uid)
        if problem is not None:
            await self._telling.reject(admission, problem)
        else:
            self._look_again(key, self._settings.not_seen_seconds)

    def _again(self, key: Key, todo: Plan) -> None:
        if todo.again_seconds is not None:
            self._look_again(key, todo.again_seconds)

    def _look_again(self, key: Key, seconds: float) -> None:
        def ring() -> None:
            self._timers.pop(key, None)
            self._knowledge.touch(key)
            self._wake.set()

        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, ring)

    # --- now and then ---

    async def _look(self) -> None:
        """See how the spokes stand, and whether that changes anything for what is there."""
        lives: dict[str, Life] = {}
        while True:
            await asyncio.sleep(self._settings.spokes_seconds)
            if self.not_ready() is not None:
                continue
            known = self._knowledge.configuration.known_spokes()
            now = {spoke: self._knowledge.presence.life(spoke) for spoke in known}
            if now != lives or self._weighing.has_strays():
                lives = now
                self._knowledge.touch_all()
                self._wake.set()
            await self._reporting.report()

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(self._settings.tidy_seconds)
            if self.not_ready() is not None:
                continue
            before = self._now() - timedelta(seconds=self._settings.forget_seconds)
            for record in self._knowledge.take_forgettable(before):
                message = record.message
                if message.stream == "CHECKS":
                    self._telling.checks_read = max(self._telling.checks_read, record.sequence)
                await self._bus.purge(message.stream, message.subject, up_to=record.sequence)
