"""The status of a workload that the hub's patcher writes at the hub while the copy runs on a spoke."""

from datetime import datetime
from typing import Any

from services.dispatcher.planning.nomination import NominationStrategy
from services.dispatcher.planning.plan import Situation, may_still_run
from services.dispatcher.spokes.copies import CopyPhase
from services.dispatcher.store import Store
from shared.bus.port import Bus
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.spokes import HubStatus
from shared.contracts.refs import WorkloadRef


def hub_status(
    store: Store, workload: WorkloadRef, situation: Situation, now: datetime
) -> HubStatus | None:
    """What the hub's patcher should write now; None while no order tells which job it is about."""
    orders = {spoke: record.message for spoke, record in store.orders.get(workload, {}).items()}
    if not orders:
        return None
    # Orders of an earlier workload of that name do not count.
    newest = max(orders.values(), key=lambda order: order.number)
    chosen = next((order for order in orders.values() if order.state == "chosen"), None)
    order = chosen or newest
    if order.target is None:
        return None
    record = store.hub_statuses.get(workload)
    same = record is not None and record.message.uid == order.uid
    last = record.message.status if record is not None and same else None
    external = situation.rules.strategy is NominationStrategy.EXTERNAL
    nominated: list[str] = []
    if chosen is not None:
        status = _copy_status(store, workload, chosen, situation)
        if status is None:
            status = last
    elif (report := store.success_report(workload, order.uid)) is not None:
        status = store.ended_statuses.of(report.spoke, workload)
    else:
        nominated = sorted(spoke for spoke, order in orders.items() if order.state == "offered")
        # A job that ran elsewhere shows the last status until it certainly does not run any more.
        stopped = not may_still_run(situation)
        is_reset = stopped and store.jobs.job(workload, order.uid) is not None
        status = {} if last is not None and is_reset else last
    return HubStatus(
        cluster=workload.cluster,
        namespace=workload.namespace,
        name=workload.name,
        uid=order.uid,
        target=order.target,
        nominated=None if external else nominated,
        spoke=None if chosen is None else chosen.spoke,
        status=status,
        at=now,
    )


def _copy_status(
    store: Store, workload: WorkloadRef, chosen: Dispatch, situation: Situation
) -> dict[str, Any] | None:
    """The status of the chosen copy; None if the job at the hub must not show it yet."""
    copy = store.copies.get(workload, {}).get(chosen.spoke)
    if copy is None or copy.number != chosen.number:
        return None
    job = store.jobs.job(workload, chosen.uid)
    finished = copy.phase is CopyPhase.FINISHED
    if job is not None and not job.is_managed_elsewhere and not finished:
        return None  # The job's own controller at the hub writes the status too, until the end.
    waits = {CopyPhase.WAITING, CopyPhase.TERMINATING}
    if not finished and situation.copies.get(chosen.spoke) in waits:
        return None
    return store.copy_statuses.of(chosen.spoke, workload) or None


async def publish_hub_status(bus: Bus, store: Store, status: HubStatus) -> None:
    """Publish a status, unless it is the last one of its workload."""
    known = store.hub_statuses.get(status.ref)
    if known is None or not status.repeats(known.message):
        store.record_hub_status(status, await bus.publish(status))
