"""How the queues stand, as their status tells it: counts and use, from what the engine holds."""

from collections.abc import Iterator
from datetime import datetime

from services.quota.engine.state import ClusterQueue, LocalQueue, Shard, Workload
from shared.contracts.quantities import format_amount
from shared.contracts.queues import FlavorUsage, QueueStatus, ResourceUsage

__all__ = ["standing"]

Use = dict[str, dict[str, int]]
"""Flavor to resource to amount."""


def standing(shard: Shard, now: datetime) -> Iterator[QueueStatus]:
    """The status of every queue of one cluster. Costs grow with queues and holders, not with waiters."""
    by_local: dict[str, list[Workload]] = {}
    for name, queue in shard.queues.items():
        holders = list(queue.holders.values())
        for holder in holders:
            by_local.setdefault(holder.lq, []).append(holder)
        yield _cluster_queue(shard.name, name, queue, holders, now)
    for key, local in shard.local_queues.items():
        if local.fact is not None:
            yield _local_queue(shard, key, local, by_local.get(key, []), now)


def _cluster_queue(
    cluster: str, name: str, queue: ClusterQueue, holders: list[Workload], now: datetime
) -> QueueStatus:
    admitted = [holder for holder in holders if holder.admitted]
    reason, message = queue.inactive or ("Ready", "Can admit new workloads")
    return QueueStatus(
        cluster=cluster,
        kind="ClusterQueue",
        name=name,
        pending=len(queue.waiting),
        reserving=len(holders),
        admitted=len(admitted),
        reservation=_flavors(queue, holders, borrows=True),
        usage=_flavors(queue, admitted, borrows=True),
        active=queue.inactive is None,
        reason=reason,
        message=message,
        at=now,
    )


def _local_queue(
    shard: Shard, key: str, local: LocalQueue, holders: list[Workload], now: datetime
) -> QueueStatus:
    assert local.fact is not None
    target = shard.queues.get(local.fact.cluster_queue)
    reason, message = _local_reason(local, target)
    admitted = [holder for holder in holders if holder.admitted]
    return QueueStatus(
        cluster=shard.name,
        kind="LocalQueue",
        namespace=key.partition("/")[0],
        name=key.partition("/")[2],
        pending=len(local.members) - len(holders),
        reserving=len(holders),
        admitted=len(admitted),
        reservation=_flavors(target, holders, borrows=False),
        usage=_flavors(target, admitted, borrows=False),
        active=reason == "Ready",
        reason=reason,
        message=message,
        at=now,
    )


def _local_reason(local: LocalQueue, target: ClusterQueue | None) -> tuple[str, str]:
    assert local.fact is not None
    if target is None:
        return "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"
    if local.fact.stop != "None":
        return "Stopped", "LocalQueue is stopped"
    if target.inactive is not None:
        return "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue"
    return "Ready", "Can submit new workloads to localQueue"


def _flavors(
    queue: ClusterQueue | None, holders: list[Workload], *, borrows: bool
) -> list[FlavorUsage]:
    """Every flavor of the queue in its own order, used or not."""
    used: Use = {}
    for holder in holders:
        for (flavor, resource), amount in holder.usage.items():
            amounts = used.setdefault(flavor, {})
            amounts[resource] = amounts.get(resource, 0) + amount
    if queue is None:
        return []
    return [
        FlavorUsage(
            name=flavor.name,
            resources=[
                ResourceUsage(
                    name=resource,
                    total=format_amount(
                        resource, total := used.get(flavor.name, {}).get(resource, 0)
                    ),
                    borrowed=format_amount(
                        resource, max(0, total - quota.nominal) if borrows else 0
                    ),
                )
                for resource, quota in flavor.quotas.items()
            ],
        )
        for group in queue.fact.groups
        for flavor in group.flavors
    ]
