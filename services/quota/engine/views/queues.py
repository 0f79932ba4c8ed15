"""Counts and usage of queues and cohorts, for statuses, metrics and queries."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, nan
from typing import Final

from services.quota.engine.facts import Key
from services.quota.engine.model.queues import waiting_in_order
from services.quota.engine.model.shapes import FlavorResource
from services.quota.engine.model.shares import share_of
from services.quota.engine.model.state import ClusterQueue, LocalQueue, Node, Phase, Shard, Workload
from services.quota.engine.reasons import CLUSTER_QUEUE_INACTIVE, QUEUE_STOPPED

SHARE_INFINITE: Final = 2**63 - 1
"""As `status.fairSharing.weightedShare` shows a borrower of weight 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUse:
    """Use of one resource in one flavor."""

    total: int
    borrowed: int = 0
    """Above the queue's own nominal quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """Counts and usage of a ClusterQueue or LocalQueue."""

    name: str
    pending: int
    reserving: int
    """Holding quota, admitted or not."""

    admitted: int
    reservation: Mapping[FlavorResource, ResourceUse]
    usage: Mapping[FlavorResource, ResourceUse]
    """Usage of admitted workloads alone."""

    inactive: tuple[str, str] | None
    """(reason, message) of the condition Active=False."""

    uid: str = ""
    """Of the queue object."""

    share: int = 0
    """`weightedShare` under fair sharing."""

    consumed: Mapping[str, int] | None = None
    """Decayed past usage of a LocalQueue, in thousandths; None: it is not sampled."""

    sampled_at: int | None = None
    """When past usage was sampled last, in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortView:
    """Where a cohort that has an object stands."""

    name: str
    uid: str
    """Of the Cohort object."""

    share: int
    """`weightedShare` under fair sharing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWorkload:
    """One workload in the order of its queue."""

    key: Key
    local_queue: Key
    priority: int
    position: int
    """In the ClusterQueue, from 1."""

    position_in_local_queue: int


def weighted_share(node: Node) -> int:
    """`weightedShare` of a ClusterQueue or cohort, as the status shows it."""
    share = share_of(node)
    return SHARE_INFINITE if share.infinite else ceil(share.weighted)


def precise_share(node: Node) -> float:
    """`weightedShare` as metrics show it, with its fraction; NaN for a borrower of weight 0."""
    share = share_of(node)
    return nan if share.infinite else share.weighted


def cohort_views(shard: Shard) -> Iterator[CohortView]:
    """Every Cohort object, by name. Cohorts in a circle are in no tree and do not borrow."""
    nodes = {
        node.name: node
        for tree in shard.trees.values()
        for node in tree.nodes
        if node.queue is None
    }
    for name, fact in sorted(shard.cohorts.items()):
        node = nodes.get(name)
        yield CohortView(name=name, uid=fact.uid, share=0 if node is None else weighted_share(node))


def cluster_queue_view(cq: ClusterQueue) -> QueueView:
    """Counts and use of a ClusterQueue."""
    holders = list(cq.holders.values())
    nominal = {fr: quota.nominal for fr, quota in cq.node.quotas.items()}
    return QueueView(
        name=cq.name,
        pending=len(cq.waiting),
        reserving=len(holders),
        admitted=sum(w.counts_as_admitted for w in holders),
        reservation=_used(holders, nominal),
        usage=_used([w for w in holders if w.counts_as_admitted], nominal),
        inactive=cq.inactive,
        uid=cq.fact.uid,
        share=weighted_share(cq.node),
    )


def local_queue_view(shard: Shard, local_queue: LocalQueue) -> QueueView:
    """Counts and use of a LocalQueue."""
    holders = [w for w in local_queue.members.values() if w.phase is Phase.HOLDING]
    cq = shard.queues.get(local_queue.fact.cluster_queue) if local_queue.fact is not None else None
    frs = {} if cq is None else dict.fromkeys(cq.node.quotas, 0)
    inactive: tuple[str, str] | None = None
    if local_queue.fact is not None and local_queue.fact.stop != "None":
        inactive = (QUEUE_STOPPED, "LocalQueue is stopped")
    elif cq is None:
        inactive = ("ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue")
    elif cq.inactive is not None:
        inactive = (CLUSTER_QUEUE_INACTIVE, "Can't submit new workloads to clusterQueue")
    return QueueView(
        name=local_queue.key,
        pending=len(local_queue.members) - len(holders),
        reserving=len(holders),
        admitted=sum(w.counts_as_admitted for w in holders),
        reservation=_used(holders, frs, borrows=False),
        usage=_used([w for w in holders if w.counts_as_admitted], frs, borrows=False),
        inactive=inactive,
        uid="" if local_queue.fact is None else local_queue.fact.uid,
        consumed=None
        if local_queue.sampled_at is None
        else {r: round(amount * 1000) for r, amount in local_queue.consumed.items()},
        sampled_at=local_queue.sampled_at,
    )


def _used(
    holders: list[Workload], nominal: Mapping[FlavorResource, int], *, borrows: bool = True
) -> dict[FlavorResource, ResourceUse]:
    totals = dict.fromkeys(nominal, 0)
    for w in holders:
        for fr, amount in w.usage.items():
            totals[fr] = totals.get(fr, 0) + amount
    return {
        fr: ResourceUse(total=total, borrowed=max(0, total - nominal.get(fr, 0)) if borrows else 0)
        for fr, total in totals.items()
    }


def pending_in(cq: ClusterQueue, *, offset: int, limit: int) -> list[PendingWorkload]:
    """A part of the queue, in order."""
    seen: dict[Key, int] = {}
    result = []
    for position, w in enumerate(waiting_in_order(cq), start=1):
        seen[w.local_queue] = seen.get(w.local_queue, 0) + 1
        if offset < position <= offset + limit:
            result.append(
                PendingWorkload(
                    key=w.key,
                    local_queue=w.local_queue,
                    priority=w.priority,
                    position=position,
                    position_in_local_queue=seen[w.local_queue],
                )
            )
    return result
