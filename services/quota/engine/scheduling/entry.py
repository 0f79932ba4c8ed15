"""An entry of a scheduling cycle: a head that may be admitted, and why it is requeued otherwise."""

from dataclasses import dataclass
from enum import Enum, auto

from services.quota.engine.model.shapes import IndexedUsage
from services.quota.engine.model.state import ClusterQueue, Node, Workload
from services.quota.engine.preemption.candidates import Target
from services.quota.engine.scheduling.flavors import Assignment


class RequeueReason(Enum):
    """Why a workload goes back to its queue."""

    GENERIC = auto()
    NO_FIT = auto()
    NO_CANDIDATES = auto()
    RETRY = auto()
    """It lost to other entries of this cycle: the next cycle evaluates it again."""

    PENDING_PREEMPTION = auto()
    """Its victims, or those of another workload, are draining."""

    PREEMPTION_LOOP = auto()
    PODS_NOT_READY = auto()
    """It fits, but a workload that was admitted before is not ready yet."""


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """A head that may be admitted in this cycle."""

    workload: Workload
    cq: ClusterQueue
    node: Node
    assignment: Assignment
    targets: list[Target]
    indexed_usage: IndexedUsage
    resumed_scan: bool = False
    """Its flavor scan did not start with the first flavor."""

    requeue_reason: RequeueReason = RequeueReason.GENERIC
    admitted: bool = False
    reason: str = ""
    message: str = ""

    def usage_to_reserve(self) -> IndexedUsage:
        """Usage that a preemptor without victims reserves for this cycle (Kueue: `resourcesToReserve`)."""
        node = self.node
        reserved = []
        for i, amount in self.indexed_usage:
            limit = node.borrowing_limit[i]
            if self.assignment.borrowing_height == 0:
                kept = max(0, min(amount, node.nominal[i] - node.usage[i]))
            elif limit is None:
                kept = amount
            else:
                kept = max(0, min(amount, node.nominal[i] + limit - node.usage[i]))
            reserved.append((i, kept))
        return tuple(reserved)


def classical_order(e: Entry) -> tuple[int, int, int, int]:
    """Sort key of entries: lower borrowing first, then higher priority, then age.

    Creation times have no fractions of a second. Within one second the workload that was heard of first
    goes first; for heads of different queues Kueue leaves the order open.
    """
    w = e.workload
    return e.assignment.borrowing_height, -w.priority, w.queued_at, w.arrival


def outranks(e: Entry, claimer: Workload) -> bool:
    """Whether the entry may take quota that was freed for `claimer`."""
    claim = claimer.claim
    assert claim is not None, claimer.key
    return (
        e.workload.priority > claimer.priority
        and e.assignment.borrowing_height <= claim.borrowing_height
    )
