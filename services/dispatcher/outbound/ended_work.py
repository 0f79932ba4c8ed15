"""Forgets what is about workloads that are over, and deletes it from the views.

1. A workload holds no quota, its orders are withdrawn, and no copy is left anywhere.
2. After `forget_seconds` its orders leave the view, each once the patcher of its spoke has passed it. Orders
   are first: a report without its order says nothing to the next term, and an order without its report would
   wait for one.
3. Then the reports about them and the status for the hub leave it, and the answers to its checks. An answer
   of a workload without an order leaves the view as long after it was given, once no quota is held.

What could not leave yet stays in memory and is tried again; the next term reads it from the view.
"""

from collections.abc import Callable
from datetime import datetime

from services.dispatcher.outbound.check_states import CheckStatePublisher
from services.dispatcher.store import Record, Store
from shared.bus.fencing import Ended, swept
from shared.bus.port import Bus
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.refs import WorkloadRef


class EndedWork:
    """The only one that deletes what the dispatcher publishes from the views, in one term."""

    def __init__(
        self,
        *,
        store: Store,
        bus: Bus,
        checks: CheckStatePublisher,
        on_forgotten: Callable[[WorkloadRef, str, int], None],
    ) -> None:
        """`on_forgotten` gets workload, check and sequence of each answer that is needed no more."""
        self._store = store
        self._bus = bus
        self._checks = checks
        self._on_forgotten = on_forgotten
        self._leaving: dict[str, Ended] = {}
        """Reports and statuses, by subject, whose orders have left the view."""

    async def sweep(self, before: datetime) -> None:
        """Delete what ended before this time. Once all is read: what is not in the store does not exist."""
        orders = settled_orders(self._store, before)
        for subject in await swept(self._bus, Dispatch.stream, orders):
            self._drop_order(orders[subject])
        for subject in await swept(self._bus, Dispatch.stream, self._leaving):
            del self._leaving[subject]
        answers = self._store.given_answers.expired(before, self._is_live)
        own = {s: one for s, one in answers.items() if self._store.given_answers.is_own(one)}
        gone = await swept(self._bus, CheckState.stream, own)
        for subject, answer in answers.items():
            if subject in gone or subject not in own:
                self._checks.mark_read(answer.sequence)
                self._on_forgotten(answer.workload, answer.check, answer.sequence)
                self._store.forget_answer(subject, answer)

    def _is_live(self, workload: WorkloadRef) -> bool:
        return workload in self._store.admissions or workload in self._store.orders

    def _drop_order(self, order: Record[Dispatch]) -> None:
        """Forget an order that has left the view, unless there is a newer one."""
        store, workload, spoke = self._store, order.message.ref, order.message.spoke
        orders = store.orders.get(workload, {})
        if orders.get(spoke) is not order:
            return
        del orders[spoke]
        store.ended_statuses.put(spoke, workload, None)
        if (report := store.reports.get(workload, {}).pop(spoke, None)) is not None:
            self._leaving[report.message.subject] = report
        if not orders:
            del store.orders[workload]
            store.reports.pop(workload, None)
            if (status := store.hub_statuses.pop(workload, None)) is not None:
                self._leaving[status.message.subject] = status


def settled_orders(store: Store, before: datetime) -> dict[str, Record[Dispatch]]:
    """The orders, by subject, of workloads that are over and have no copy anywhere."""
    settled = [workload for workload in store.orders if _is_settled(store, workload, before)]
    orders = (order for workload in settled for order in store.orders[workload].values())
    return {order.message.subject: order for order in orders}


def _is_settled(store: Store, workload: WorkloadRef, before: datetime) -> bool:
    return (
        workload not in store.admissions
        and not store.copies.get(workload)
        and _is_hub_status_written(store, workload)
        and all(
            record.message.state == "withdrawn"
            and record.message.at < before
            and spoke in store.loaded_spokes
            and (store.is_removed(workload, spoke) or not record.message.started)
            for spoke, record in store.orders[workload].items()
        )
    )


def _is_hub_status_written(store: Store, workload: WorkloadRef) -> bool:
    """Whether the hub's job shows that it runs on no spoke.

    Until then the status has to be published, or the hub's patcher may read it again.
    """
    record = store.hub_statuses.get(workload)
    written = None if record is None else record.message
    if written is None or written.status is None:
        return True
    job = store.jobs.job(workload, written.uid)
    if job is None or not job.is_managed_elsewhere:
        return True
    return not written.status and not job.obj.get("status")
