"""Which workloads may be preempted, and in which order.

Source: kubernetes-sigs/kueue pkg/scheduler/preemption/preemption.go.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from services.quota.engine.facts import PreemptionPolicy
from services.quota.engine.model.shapes import IndexedUsage
from services.quota.engine.model.state import ClusterQueue, Node, Workload
from services.quota.engine.model.tree import add_usage, available, remove_usage

Target: TypeAlias = tuple[Workload, str]
"""(victim, reason of its preemption)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionRequest:
    """A workload that needs victims."""

    workload: Workload
    cq: ClusterQueue
    requested: IndexedUsage
    """All that the workload will use."""

    contested: tuple[int, ...]
    """Indices of flavors and resources that are not available without preemption."""

    fair_usage: dict[str, float] | None = None
    """Admission fair sharing: past usage by LocalQueue; None: off."""

    @property
    def node(self) -> Node:
        """The preemptor's queue in the tree."""
        return self.cq.node


def satisfies_policy(preemptor: Workload, candidate: Workload, policy: PreemptionPolicy) -> bool:
    """Whether the policy lets `preemptor` preempt `candidate`."""
    if candidate.cannot_be_stopped:
        return False
    if policy == "Any":
        return True
    if policy == "Never":
        return False
    if preemptor.priority > candidate.priority:
        return True
    return (
        policy == "LowerOrNewerEqualPriority"
        and preemptor.priority == candidate.priority
        and preemptor.queued_at < candidate.queued_at
    )


def uses_contested(candidate: Workload, contested: Iterable[int]) -> bool:
    """Whether the candidate holds any of the contested resources."""
    return any(i in contested for i, _ in candidate.indexed_usage)


def candidate_order(request: PreemptionRequest, w: Workload) -> tuple[object, ...]:
    """Sort key of candidates: evicted, other queue, more past usage, lower priority, later reservation."""
    share = 0.0
    if request.fair_usage is not None and w.holding_node is request.node:
        # Past usage is comparable only inside one queue; more usage is preempted first.
        share = -request.fair_usage.get(w.local_queue, 0.0)
    return (
        not w.evicted,
        w.holding_node is request.node,
        share,
        w.priority,
        -w.reserved_at,
        w.uid,
    )


def preemptor_fits(request: PreemptionRequest, *, borrowing: bool) -> bool:
    """Whether the preemptor fits into the tree with present usage."""
    node = request.node
    for i, amount in request.requested:
        if not borrowing and node.usage[i] + amount > node.nominal[i]:
            return False
        if amount > 0 and amount > available(node, i):
            return False
    return True


def exclude_workload(w: Workload) -> None:
    """Remove a workload's usage for a trial."""
    assert w.holding_node is not None, w.key
    remove_usage(w.holding_node, w.indexed_usage)


def include_workload(w: Workload) -> None:
    """Undo `take_away`."""
    assert w.holding_node is not None, w.key
    add_usage(w.holding_node, w.indexed_usage)


def include_all(targets: Iterable[Target]) -> None:
    """Undo `exclude_workload` for all targets."""
    for w, _ in targets:
        include_workload(w)


def fill_back_victims(
    request: PreemptionRequest, targets: list[Target], *, borrowing: bool
) -> None:
    """Spare victims that are not needed, the latest choice first; the last target always stays."""
    for i in range(len(targets) - 2, -1, -1):
        w, _ = targets[i]
        include_workload(w)
        if preemptor_fits(request, borrowing=borrowing):
            targets[i] = targets[-1]
            targets.pop()
        else:
            exclude_workload(w)
