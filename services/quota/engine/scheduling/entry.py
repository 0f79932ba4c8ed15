"""What a round works on: the policy, a head that may be admitted, and how it goes back."""

from dataclasses import dataclass
from enum import Enum, auto

from services.quota.engine.model.shapes import IndexedUsage
from services.quota.engine.model.state import ClusterQueue, Node, Workload
from services.quota.engine.preemption.candidates import Target
from services.quota.engine.scheduling.flavors import Assignment

__all__ = ["Entry", "RequeueReason", "classical_order", "outranks"]


class RequeueReason(Enum):
    """How a workload goes back to its queue."""

    GENERIC = auto()
    NO_FIT = auto()
    NO_CANDIDATES = auto()
    RETRY = auto()
    """At once: it lost only to what else happened in this round."""

    PENDING_PREEMPTION = auto()
    """Its victims, or another's, are on their way out."""

    PREEMPTION_LOOP = auto()
    PODS_NOT_READY = auto()
    """It fits; somebody who was admitted before is not ready yet."""


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """A head that may be admitted in this round."""

    workload: Workload
    cq: ClusterQueue
    node: Node
    assignment: Assignment
    targets: list[Target]
    indexed_usage: IndexedUsage
    resumed_scan: bool = False
    """Its flavor scan did not begin with the first flavor."""

    requeue_reason: RequeueReason = RequeueReason.GENERIC
    admitted: bool = False
    reason: str = ""
    message: str = ""

    def usage_to_reserve(self) -> IndexedUsage:
        """What a preemptor without victims keeps from the others in this round (`kueue.md` 2.1.2)."""
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


def classical_order(e: Entry) -> tuple[int, int, int, str]:
    """Who borrows less goes first, then priority, then age."""
    w = e.workload
    return e.assignment.borrowing_height, -w.priority, w.queued_at, w.uid


def outranks(e: Entry, claimer: Workload) -> bool:
    """Whether `e` may take what was freed for somebody else."""
    claim = claimer.claim
    assert claim is not None, claimer.key
    return (
        e.workload.priority > claimer.priority
        and e.assignment.borrowing_height <= claim.borrowing_height
    )
