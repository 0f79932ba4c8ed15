"""Which flavors a workload would get by present usage, and which victims it would preempt.

Trials on the tree are undone before they return, so that nothing changes.
"""

from dataclasses import dataclass

from services.quota.engine.facts import Key
from services.quota.engine.model.shapes import PODS, FlavorScan, IndexedUsage, Shape
from services.quota.engine.model.state import ClusterQueue, Shard, Tree, Workload
from services.quota.engine.model.tree import lowest_height_that_fits
from services.quota.engine.policy import Policy
from services.quota.engine.preemption.candidates import (
    PreemptionRequest,
    Target,
    exclude_workload,
    include_workload,
)
from services.quota.engine.preemption.classical import classical_targets
from services.quota.engine.preemption.fair import fair_targets
from services.quota.engine.scheduling.flavors import (
    FIT,
    PREEMPT,
    Assignment,
    Pinned,
    assign_flavors,
    first_flavor_if_it_fits,
)
from services.quota.engine.scheduling.plans import Plan, plan_for


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentSearch:
    """Searches assignments for the workloads of one tree."""

    shard: Shard
    tree: Tree
    policy: Policy
    fair_usage: dict[Key, float] | None = None
    """Usage by LocalQueue, where admission fair sharing is on."""

    def find(
        self, cq: ClusterQueue, w: Workload, scan: FlavorScan | None, pinned: Pinned | None
    ) -> tuple[Assignment, list[Target]]:
        """Flavors and victims for all pods, or else for as many pods as fit (partial admission)."""
        shape = shape_of(w)
        plan = self._plan(cq, shape)
        if (
            scan is None
            and pinned is None
            and (simple := first_flavor_if_it_fits(cq, plan)) is not None
        ):
            return simple, []
        full = self._assign_flavors(cq, w, plan, scan, pinned)
        if full.mode == FIT:
            return full, []
        if full.mode == PREEMPT and (targets := self._targets_for(cq, w, full)):
            return full, targets
        if shape.partial:
            found = self._find_with_fewer_pods(cq, w, scan, pinned)
            if found is not None:
                return found
        return full, []

    def _plan(self, cq: ClusterQueue, shape: Shape, counts: tuple[int, ...] | None = None) -> Plan:
        ignore = self.policy.ignore_undeclared
        return plan_for(cq, shape, self.shard.flavors, counts, ignore_undeclared=ignore)

    def _assign_flavors(
        self,
        cq: ClusterQueue,
        w: Workload,
        plan: Plan,
        scan: FlavorScan | None,
        pinned: Pinned | None,
    ) -> Assignment:
        rules = cq.fact.preemption
        return assign_flavors(
            cq,
            plan,
            scan=scan,
            oracle=lambda index, amount: self._preemption_oracle(cq, w, index, amount),
            may_preempt_borrowing=rules.borrow != "Never"
            or (self.policy.fair_sharing and rules.reclaim != "Never"),
            pinned=pinned,
        )

    def _find_with_fewer_pods(
        self, cq: ClusterQueue, w: Workload, scan: FlavorScan | None, pinned: Pinned | None
    ) -> tuple[Assignment, list[Target]] | None:
        """The largest pod counts that fit, by bisection between all pods and the minimum; None: none fit."""
        shape = shape_of(w)
        full = [ps.count for ps in shape.pod_sets]
        deltas = [0 if ps.min_count is None else ps.count - ps.min_count for ps in shape.pod_sets]
        total = sum(deltas)
        low, high = 0, total + 1
        best: tuple[Assignment, list[Target]] | None = None
        best_at = -1
        while low < high:
            at = (low + high) // 2
            counts = tuple(c - d * at // total for c, d in zip(full, deltas, strict=True))
            plan = self._plan(cq, shape, counts)
            assignment = self._assign_flavors(cq, w, plan, scan, pinned)
            targets: list[Target] = []
            good = assignment.mode == FIT
            if assignment.mode == PREEMPT:
                targets = self._targets_for(cq, w, assignment)
                good = bool(targets)
            if good:
                best, best_at = (assignment, targets), at
                high = at
            else:
                low = at + 1
        return best if best_at == low else None

    def _find_targets(
        self, cq: ClusterQueue, w: Workload, asks: IndexedUsage, contested: tuple[int, ...]
    ) -> list[Target]:
        usage = self.fair_usage if cq.fact.usage_based else None
        request = PreemptionRequest(
            workload=w, cq=cq, requested=asks, contested=contested, fair_usage=usage
        )
        if self.policy.fair_sharing:
            return fair_targets(request, self.policy.strategies)
        return classical_targets(request)

    def _targets_for(self, cq: ClusterQueue, w: Workload, assignment: Assignment) -> list[Target]:
        # As in Kueue, the count of pods is not requested here, though it may be contested.
        frs = self.tree.flavor_resources
        asks = tuple((i, v) for i, v in assignment.usage.items() if v and frs[i][1] != PODS)
        return self._find_targets(cq, w, asks, assignment.contested())

    def _preemption_oracle(
        self, cq: ClusterQueue, w: Workload, index: int, amount: int
    ) -> tuple[int, int]:
        """Whether preemption could free this alone, and how high the queue would borrow then."""
        targets = self._find_targets(cq, w, ((index, amount),), (index,))
        if not targets:
            return 1, lowest_height_that_fits(cq.node, index, amount)[0]
        for victim, _ in targets:
            exclude_workload(victim)
        borrow = lowest_height_that_fits(cq.node, index, amount)[0]
        for victim, _ in targets:
            include_workload(victim)
        own = any(victim.holding_node is cq.node for victim, _ in targets)
        return (2 if own else 3), borrow


def shape_of(w: Workload) -> Shape:
    """The shape of a queued workload, which always has one."""
    assert w.shape is not None, w.key
    return w.shape
