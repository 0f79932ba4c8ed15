"""Publishes orders to spokes.

Only one dispatcher of a hub gives orders. If an order of another one appears, the term ends and the next term
reads everything again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from services.dispatcher.hub.jobs import HubJob
from services.dispatcher.metrics import ADMITTED, DISPATCHED
from services.dispatcher.planning.order_lifecycle import Event, OrderState, next_state
from services.dispatcher.planning.plan import Plan
from services.dispatcher.planning.priority import changed_priority, job_priority
from services.dispatcher.settings import DispatcherSettings
from services.dispatcher.spokes.copies import (
    make_copy,
    make_copy_reference,
    make_workload,
    order_id,
)
from services.dispatcher.store import Store
from shared.bus.port import Bus, FencedError
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.refs import WorkloadRef
from shared.telemetry.log_context import about
from shared.telemetry.metrics import LEADER

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfferNumber:
    """The number of a new offer."""

    number: int
    adopted: bool
    """It is the number of an existing copy, which was made from an earlier version of its job."""


class OrderPublisher:
    """The only publisher of the hub's orders in one term. Raises `BusError` if the term has to end."""

    def __init__(
        self,
        *,
        settings: DispatcherSettings,
        store: Store,
        bus: Bus,
        now: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._cluster = settings.cluster
        self._store = store
        self._bus = bus
        self._now = now
        self._in_flight: dict[str, int] = {}
        """Subject of each order being published, to the last sequence that was read of it meanwhile."""

    def observe_published(self, order: Dispatch, sequence: int) -> None:
        """Check an order that was read from the log. Raises `FencedError` if this term did not publish it."""
        if order.subject in self._in_flight:
            self._in_flight[order.subject] = max(self._in_flight[order.subject], sequence)
        elif self._store.is_newer_order(order, sequence):
            raise FencedError(f"{order.subject}: somebody else gives orders")

    async def publish(
        self, workload: WorkloadRef, todo: Plan, before: dict[str, OrderState], job: HubJob | None
    ) -> None:
        """Publish the orders of a plan; return when all of them are on the log.

        `before` are the orders' states when the plan was made, by spoke.
        """
        published = []
        for spoke, event in todo.events.items():
            state = next_state(before.get(spoke, OrderState.UNSENT), event)
            order = self._order(workload, spoke, state, event, job)
            self._in_flight[order.subject] = 0
            self._store.expected_orders.add((workload, spoke))  # A spoke may report at once.
            published.append((order, self._bus.publish(order)))
            self._account(workload, order, event)
        results = await asyncio.gather(*(future for _, future in published), return_exceptions=True)
        for (order, _), result in zip(published, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            self._store.record_order(order, result)
            self._store.expected_orders.discard((workload, order.spoke))
            if self._in_flight.pop(order.subject) > result:
                raise FencedError(f"{order.subject}: somebody else gives orders")

    def _account(self, workload: WorkloadRef, order: Dispatch, event: Event) -> None:
        """Log and count an order, and update capacity and health of the spoke."""
        spoke, store = order.spoke, self._store
        with about(workload.path, order.traceparent):
            log.info("an order to a spoke has another state", spoke=spoke, state=order.state)
        admission = store.admissions.get(workload)
        queue = "" if admission is None else admission.cluster_queue
        if event is Event.NOMINATED:
            store.health.start_offer(spoke, workload)
            store.reserve_capacity(spoke, workload)
            DISPATCHED.labels(queue, spoke, LEADER).inc()
        elif event is Event.WON:
            store.health.end_offer(spoke, workload)
            ADMITTED.labels(queue, spoke, LEADER).inc()
        elif order.state == "withdrawn":
            if event is Event.LOST and self._is_ignored(workload, spoke):
                store.health.fail_offer(spoke, workload)
            store.health.end_offer(spoke, workload)
            store.capacity.release(workload.on(spoke))

    def _is_ignored(self, workload: WorkloadRef, spoke: str) -> bool:
        """Whether a spoke has had an offer for `fallback_seconds` without a copy being observed."""
        offered_at = self._store.orders[workload][spoke].message.at
        age_seconds = (self._now() - offered_at).total_seconds()
        copies = self._store.copy_phases(workload)
        return age_seconds >= self._settings.fallback_seconds and spoke not in copies

    def _order(
        self,
        workload: WorkloadRef,
        spoke: str,
        state: OrderState,
        event: Event,
        job: HubJob | None,
    ) -> Dispatch:
        if event is Event.NOMINATED:
            assert job is not None, "the job of an offer was looked up before"
            return self._offer(workload, spoke, job)
        if event is Event.ORPHANED:
            return self._orphan_withdrawal(workload, spoke)
        before = self._store.orders[workload][spoke].message
        if state is OrderState.WITHDRAWN:
            return before.withdrawn(job=self._copy_reference(before), at=self._now())
        priority = changed_priority(self._store, workload, before)
        if priority is not None:
            before = before.with_priority(priority.class_name, priority.value)
        if state is OrderState.OFFERED:
            return before  # Its age does not change: it is not a new offer.
        change = self._store.requested_spec_change(workload)
        requested_spec_change = change if event is Event.SPEC_CHANGED else before.wish
        return before.chosen(requested_spec_change=requested_spec_change, at=self._now())

    def _offer(self, workload: WorkloadRef, spoke: str, job: HubJob) -> Dispatch:
        admission = self._store.admissions[workload]
        number = self._next_number(workload, spoke)
        order = order_id(self._cluster, number.number)
        origin = self._settings.multikueue_origin
        beat = self._store.health.last_heartbeat(spoke)
        remote: dict[str, Any] | None = None
        if beat is not None and beat.quota == "kueue":
            remote = make_workload(
                job.obj,
                integration=job.integration,
                workload=workload.name,
                origin=origin,
                order=order,
                queue=admission.queue,
                priority=admission.priority,
            )
        copy = make_copy(
            job.obj,
            integration=job.integration,
            workload=workload.name,
            origin=origin,
            order=order,
            lease_seconds=self._settings.lease_seconds,
        )
        offer = Dispatch(
            spoke=spoke,
            cluster=self._cluster,
            namespace=workload.namespace,
            name=workload.name,
            uid=admission.uid,
            state="offered",
            job=copy,
            workload=remote,
            target=job.reference,
            number=number.number,
            attempt=admission.number,
            at=self._now(),
            traceparent=admission.traceparent,
        )
        priority = job_priority(self._store, workload, admission.uid)
        if priority is None:
            return offer
        return offer.with_priority(priority.class_name, priority.value, reranked=number.adopted)

    def _next_number(self, workload: WorkloadRef, spoke: str) -> _OfferNumber:
        """The number of an adopted copy, else one that is greater than any before.

        Milliseconds of the hub's clock, so that numbers grow even after the earlier orders are dropped.
        """
        copy = self._store.copies.get(workload, {}).get(spoke)
        known = self._store.orders.get(workload, {}).get(spoke)
        if known is None and copy is not None:
            return _OfferNumber(number=copy.number, adopted=True)
        before = 0 if known is None else known.message.number
        number = max(before + 1, int(self._now().timestamp() * 1000))
        return _OfferNumber(number=number, adopted=False)

    def _orphan_withdrawal(self, workload: WorkloadRef, spoke: str) -> Dispatch:
        """The order to delete a copy without a known order, or one that was reported as gone."""
        copy = self._store.copies[workload][spoke]
        known = self._store.orders.get(workload, {}).get(spoke)
        before = None if known is None else known.message
        api_version, kind, name = copy.job
        return Dispatch(
            spoke=spoke,
            cluster=self._cluster,
            namespace=workload.namespace,
            name=workload.name,
            uid="" if before is None else before.uid,
            state="withdrawn",
            # Greater than the number of the report that it is gone: the spoke has to report again.
            number=copy.number if before is None else before.number + 1,
            started=True,
            job=make_copy_reference(
                api_version=api_version,
                kind=kind,
                namespace=workload.namespace,
                name=name,
                workload=workload.name,
                origin=self._settings.multikueue_origin,
                order=order_id(self._cluster, copy.number),
            ),
            target=None if before is None else before.target,
            at=self._now(),
        )

    def _copy_reference(self, order: Dispatch) -> dict[str, Any] | None:
        if order.target is None:
            return None
        return make_copy_reference(
            api_version=order.target.api_version,
            kind=order.target.kind,
            namespace=order.namespace,
            name=order.target.name,
            workload=order.name,
            origin=self._settings.multikueue_origin,
            order=order_id(self._cluster, order.number),
        )
