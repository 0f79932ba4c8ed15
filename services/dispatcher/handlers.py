"""What the dispatcher does while it is the one: reads, plans, answers the check, tells the spokes.

The answer names the winner and is recorded, by compare-and-set, before any spoke is told: a restart,
or a second dispatcher, goes by it.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

import structlog

from services.dispatcher.copies import make_copy, name_of
from services.dispatcher.knowledge import Key, Knowledge
from services.dispatcher.lifecycle import Event, OrderState, follow
from services.dispatcher.planning import Plan, plan
from services.dispatcher.settings import DispatcherSettings
from shared.bus.port import Bus, CaughtUp, Entry, FencedError
from shared.contracts import subjects
from shared.contracts.effects import CheckState, Dispatch
from shared.contracts.kinds import (
    ADMISSION_CHECK,
    MULTIKUEUE_CLUSTER,
    MULTIKUEUE_CONFIG,
    WORKLOAD,
    Object,
)
from shared.contracts.messages import UndecodableError
from shared.contracts.observed import Observed, observed_filter
from shared.contracts.workloads import OwnerReference, WorkloadState
from shared.integrations import INTEGRATIONS, integration_for

__all__ = ["Session"]

log = structlog.get_logger(__name__)

_OURS: Final = frozenset({"CHECKS", "DISPATCHES"})
"""Streams that hold what a predecessor decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What is carried to the spokes."""

    target: OwnerReference
    copy: Object
    traceparent: str | None


class _NoJobError(Exception):
    """There is nothing that could be carried, and waiting will not help."""


class Session:
    """From taking the lease to losing it. Nothing of it is worth keeping."""

    def __init__(
        self, *, settings: DispatcherSettings, bus: Bus, now: Callable[[], datetime]
    ) -> None:
        self._settings = settings
        self._cluster = settings.cluster
        self._bus = bus
        self._now = now
        self._knowledge = Knowledge(cluster=settings.cluster, origin=settings.multikueue_origin)
        self._unread = {"OBSERVED", "ADMISSIONS", "CHECKS", "DISPATCHES"}
        self._ours_read = asyncio.Event()
        self._telling: dict[str, int] = {}
        """Subjects of orders on their way, to the last sequence that came by meanwhile."""

        self._following: dict[str, None] = {}
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
        configuration = [
            observed_filter(kind, self._cluster)
            for kind in (ADMISSION_CHECK, MULTIKUEUE_CONFIG, MULTIKUEUE_CLUSTER)
        ]
        knowledge = self._knowledge
        async with asyncio.TaskGroup() as group:
            self._group = group
            for stream, filters, take in (
                (
                    "OBSERVED",
                    [*configuration, f"{subjects.ROOT}.observed.*._._.synced"],
                    knowledge.take_configuration,
                ),
                (
                    "ADMISSIONS",
                    [f"{subjects.ROOT}.admission.{token}.>"],
                    knowledge.take_admission,
                ),
                ("CHECKS", [f"{subjects.ROOT}.check.{token}.>"], knowledge.take_check),
                ("DISPATCHES", [f"{subjects.ROOT}.dispatch.>"], self._take_dispatch),
            ):
                group.create_task(self._follow(stream, filters, take))
            group.create_task(self._decide())
            group.create_task(self._tidy())

    # --- reading ---

    async def _follow(self, stream: str, filters: list[str], take: Callable[[Entry], None]) -> None:
        if stream not in _OURS:
            # Only now: what an order was made for was on the log before the order was, so what is
            # missing after this reading is over.
            await self._ours_read.wait()
        async with aclosing(self._bus.watch(stream, *filters)) as entries:
            async for entry in entries:
                if isinstance(entry, CaughtUp):
                    self._unread.discard(stream)
                    if not self._unread & _OURS:
                        self._ours_read.set()
                    self._knowledge.touch_all()
                else:
                    take(entry)
                self._wake.set()

    def _take_dispatch(self, entry: Entry) -> None:
        """An order that is not ours may be for a workload that we have not read of yet."""
        if "DISPATCHES" in self._unread:
            self._knowledge.take_dispatch(entry)
        elif entry.subject in self._telling:
            self._telling[entry.subject] = max(self._telling[entry.subject], entry.sequence)
        elif self._knowledge.is_news(entry):
            raise FencedError(f"{entry.subject}: somebody else gives orders")

    async def _follow_spoke(self, spoke: str) -> None:
        kinds = [*(integration.kind for integration in INTEGRATIONS), WORKLOAD]
        filters = [observed_filter(kind, spoke) for kind in kinds]
        async with aclosing(self._bus.watch("OBSERVED", *filters)) as entries:
            async for entry in entries:
                if isinstance(entry, CaughtUp):
                    self._knowledge.read_spokes[spoke] = None
                    self._knowledge.touch_all()
                else:
                    self._knowledge.take_spoke(spoke, entry)
                self._wake.set()

    def _follow_new_spokes(self) -> None:
        ordered = {spoke for orders in self._knowledge.orders.values() for spoke in orders}
        for spoke in sorted({*self._knowledge.configuration.known_spokes(), *ordered}):
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
        situation = self._knowledge.situation(key)
        if situation is None:
            return  # Looked at again when the spokes are read.
        todo = plan(situation)
        job: _Job | None = None
        if Event.NOMINATED in todo.events.values():
            try:
                job = await self._job(key)
            except _NoJobError as error:
                await self._answer(key, "Rejected", str(error))
                return
            if job is None:
                self._look_again(key)
                return
        if todo.answer is not None:
            requeue = self._settings.no_cluster_retry_seconds
            await self._answer(
                key,
                todo.answer.state,
                todo.answer.message,
                spoke=todo.answer.spoke,
                requeue_after_seconds=requeue if todo.answer.state == "Retry" else None,
            )
        await self._tell(key, todo, situation.orders, job)

    async def _answer(
        self,
        key: Key,
        state: Literal["Pending", "Ready", "Retry", "Rejected"],
        message: str,
        *,
        spoke: str | None = None,
        requeue_after_seconds: float | None = None,
    ) -> None:
        """Say what the check says, unless it was said of this reservation."""
        admission = self._knowledge.admissions[key]
        check = self._knowledge.check_of(admission)
        assert check is not None, "only workloads with a check of ours are planned for"
        known = self._knowledge.checks.get(key)
        if (
            known is not None
            and self._knowledge.is_answered(admission, known.message)
            and (known.message.state, known.message.message) == (state, message)
        ):
            return
        said = CheckState(
            cluster=self._cluster,
            namespace=admission.namespace,
            name=admission.name,
            uid=admission.uid,
            check=check,
            state=state,
            message=message,
            spoke=spoke,
            requeue_after_seconds=requeue_after_seconds,
            attempt=admission.number,
            # Quota ignores what is older than its reservation, and our clock may be behind.
            at=max(self._now(), admission.decided_at),
            traceparent=admission.traceparent,
        )
        # The fence is on the log, which may have dropped what the view still has.
        latest = await self._bus.latest("CHECKS", said.subject)
        if latest is not None and (known is None or known.sequence < latest.sequence):
            raise FencedError(f"{said.subject}: somebody else has answered")
        sequence = await self._bus.publish(
            said, expect_subject=latest.sequence if latest is not None else 0
        )
        self._knowledge.remember_check(said, sequence)
        log.info("check", workload=f"{key[0]}/{key[1]}", state=state, message=message)

    async def _tell(
        self, key: Key, todo: Plan, orders: Mapping[str, OrderState], job: _Job | None
    ) -> None:
        told = []
        for spoke, event in todo.events.items():
            state = follow(orders.get(spoke, OrderState.UNSENT), event)
            dispatch = self._dispatch(key, spoke, state, job)
            self._telling[dispatch.subject] = 0
            told.append((dispatch, self._bus.publish(dispatch)))
            log.info("order", workload=f"{key[0]}/{key[1]}", spoke=spoke, state=str(state))
        results = await asyncio.gather(*(stored for _, stored in told), return_exceptions=True)
        for (dispatch, _), result in zip(told, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            self._knowledge.remember_order(dispatch, result)
            if self._telling.pop(dispatch.subject) > result:
                raise FencedError(f"{dispatch.subject}: somebody else gives orders")

    def _dispatch(self, key: Key, spoke: str, state: OrderState, job: _Job | None) -> Dispatch:
        namespace, name = key
        if state is OrderState.OFFERED:
            assert job is not None, "what is offered was looked up"
            return Dispatch(
                spoke=spoke,
                cluster=self._cluster,
                namespace=namespace,
                name=name,
                uid=self._knowledge.admissions[key].uid,
                state="offered",
                job=job.copy,
                target=job.target,
                at=self._now(),
                traceparent=job.traceparent,
            )
        before = self._knowledge.orders[key][spoke].message
        named = None
        if state is OrderState.WITHDRAWN and before.target is not None:
            named = name_of(
                api_version=before.target.api_version,
                kind=before.target.kind,
                namespace=namespace,
                name=before.target.name,
                workload=name,
                origin=self._settings.multikueue_origin,
            )
        return before.model_copy(update={"state": str(state), "job": named, "at": self._now()})

    async def _job(self, key: Key) -> _Job | None:
        """The job behind a workload, as a copy; None if it was not observed yet."""
        namespace, name = key
        admission = self._knowledge.admissions[key]
        entry = await self._read("WORKLOADS", subjects.join("workload", self._cluster, *key))
        if entry is None:
            return None
        workload = _decode_workload(entry)
        if workload is None or workload.uid != admission.uid:
            return None
        target = workload.owner
        if target is None:
            raise _NoJobError("The workload has no job that could be sent to a worker cluster")
        group = target.api_version.rpartition("/")[0]
        integration = integration_for(group=group, plural=target.plural)
        if integration is None:
            raise _NoJobError(f"No way is known to send a {target.kind} to a worker cluster")
        detail = integration.kind.detail
        subject = subjects.join("observed", self._cluster, namespace, target.name, detail=detail)
        entry = await self._read("OBSERVED", subject)
        observed = _decode_observed(entry) if entry is not None else None
        if observed is None or observed.uid != target.uid or observed.object is None:
            return None
        copy = make_copy(
            observed.object,
            integration=integration,
            workload=name,
            origin=self._settings.multikueue_origin,
        )
        return _Job(target=target, copy=copy, traceparent=admission.traceparent)

    async def _read(self, stream: str, subject: str) -> Entry | None:
        """What the view has of one subject."""
        found = None
        async with aclosing(self._bus.watch(stream, subject)) as entries:
            async for entry in entries:
                if isinstance(entry, CaughtUp):
                    break
                found = entry
        return found

    def _look_again(self, key: Key) -> None:
        async def later() -> None:
            await asyncio.sleep(self._settings.not_seen_seconds)
            self._knowledge.touch(key)
            self._wake.set()

        assert self._group is not None, "decisions are made inside of run()"
        self._group.create_task(later())

    # --- tidying ---

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(self._settings.tidy_seconds)
            if self.not_ready() is not None:
                continue
            before = self._now() - timedelta(seconds=self._settings.forget_seconds)
            for record in self._knowledge.take_forgettable(before):
                message = record.message
                await self._bus.purge(message.stream, message.subject, up_to=record.sequence)


def _decode_workload(entry: Entry) -> WorkloadState | None:
    try:
        return WorkloadState.decode(entry.data, entry.headers)
    except UndecodableError as error:
        log.warning("workload skipped", subject=entry.subject, error=str(error))
        return None


def _decode_observed(entry: Entry) -> Observed | None:
    try:
        return Observed.decode(entry.data, entry.headers)
    except UndecodableError as error:
        log.warning("observation skipped", subject=entry.subject, error=str(error))
        return None
