"""Preemption under fair sharing: it evens out dominant resource shares.

Source: kubernetes-sigs/kueue pkg/scheduler/preemption/fairsharing.
"""

from collections.abc import Iterator

from services.quota.engine.model.shares import NEGATIVE, Share, compare, share_of
from services.quota.engine.model.state import Node, Workload
from services.quota.engine.model.tree import add_usage, remove_usage
from services.quota.engine.preemption.candidates import (
    PreemptionRequest,
    Target,
    candidate_order,
    exclude_workload,
    fill_back_victims,
    include_all,
    preemptor_fits,
    satisfies_policy,
    uses_contested,
)
from services.quota.engine.types import SharingStrategy


def fair_targets(
    request: PreemptionRequest, strategies: tuple[SharingStrategy, ...]
) -> list[Target]:
    """Victims in queues with higher shares than the preemptor's; empty: there are none."""
    candidates = _candidates(request)
    if not candidates:
        return []
    candidates.sort(key=lambda w: candidate_order(request, w))
    # Shares are compared as if the preemptor were admitted already.
    add_usage(request.node, request.requested)
    done, targets, retry = _first_strategy(request, candidates, strategies[0])
    if not done and len(strategies) > 1:
        done = _second_strategy(request, retry, targets)
    remove_usage(request.node, request.requested)
    if not done:
        include_all(targets)
        return []
    fill_back_victims(request, targets, borrowing=True)
    include_all(targets)
    return targets


def _candidates(request: PreemptionRequest) -> list[Workload]:
    rules = request.cq.fact.preemption
    node, contested = request.node, request.contested
    found = []
    if rules.within != "Never":
        found += [
            w
            for w in request.cq.holders.values()
            if satisfies_policy(request.workload, w, rules.within) and uses_contested(w, contested)
        ]
    if node.ancestors and rules.reclaim != "Never":
        others: dict[Node, None] = {}
        for i in contested:
            others.update(node.tree.borrowers[i])
        others.pop(node, None)
        for other in others:
            assert other.queue is not None, other.name
            if other.queue.inactive is not None:
                continue
            found += [
                w
                for w in other.queue.holders.values()
                if satisfies_policy(request.workload, w, rules.reclaim)
                and uses_contested(w, contested)
            ]
    return found


def _fits_without_request(request: PreemptionRequest) -> bool:
    remove_usage(request.node, request.requested)
    result = preemptor_fits(request, borrowing=True)
    add_usage(request.node, request.requested)
    return result


class _TargetOrder:
    """Yields the queue to preempt in next: from the root down, always the highest share.

    The caller must `pop` a candidate or `drop` the queue before it asks for the next one.
    """

    def __init__(self, request: PreemptionRequest, candidates: list[Workload]) -> None:
        self.request = request
        self.candidates: dict[Node, list[Workload]] = {}
        for w in reversed(candidates):
            assert w.holding_node is not None, w.key
            self.candidates.setdefault(w.holding_node, []).append(w)
        self.pruned: set[Node] = set()
        self.ancestors = frozenset(request.node.ancestors)

    def queues(self) -> Iterator[Node]:
        node = self.request.node
        if not node.ancestors:
            while node not in self.pruned and self.candidates.get(node):
                yield node
            return
        root = node.ancestors[-1]
        while root not in self.pruned:
            if (target := self._next(root)) is not None:
                yield target

    def pop(self, queue: Node) -> Workload:
        return self.candidates[queue].pop()

    def drop(self, queue: Node) -> None:
        self.pruned.add(queue)

    def shares(self, queue: Node) -> tuple[Share, Share]:
        """Shares of the preemptor's and of `queue`'s node just below their lowest common ancestor."""
        lca = next(n for n in queue.ancestors if n in self.ancestors)
        return share_of(_child_towards(self.request.node, lca)), share_of(
            _child_towards(queue, lca)
        )

    def _next(self, cohort: Node) -> Node | None:
        best, best_share = self._best_queue(cohort)
        high: Node | None = None
        high_share = NEGATIVE
        for child in cohort.cohorts:
            if child in self.pruned:
                continue
            share = share_of(child)
            if not share.borrowed and child not in self.ancestors:
                self.pruned.add(child)
            elif compare(share, high_share) >= 0:
                high, high_share = child, share
        if high is None and best is None:
            self.pruned.add(cohort)
            return None
        if high is not None and compare(high_share, best_share) >= 0:
            return self._next(high)
        return best

    def _best_queue(self, cohort: Node) -> tuple[Node | None, Share]:
        best: Node | None = None
        best_share = NEGATIVE
        for queue in cohort.queues:
            if queue in self.pruned:
                continue
            share = share_of(queue)
            if (not share.borrowed and queue is not self.request.node) or not self.candidates.get(
                queue
            ):
                self.pruned.add(queue)
                continue
            order = compare(share, best_share)
            if order > 0:
                best, best_share = queue, share
            elif order == 0 and best is not None:
                mine, other = self.candidates[queue][-1], self.candidates[best][-1]
                if candidate_order(self.request, mine) < candidate_order(self.request, other):
                    best = queue
        return best, best_share


def _child_towards(node: Node, lca: Node) -> Node:
    at = node
    for above in node.ancestors:
        if above is lca:
            return at
        at = above
    raise AssertionError(node.name)


def _first_strategy(
    request: PreemptionRequest, candidates: list[Workload], strategy: SharingStrategy
) -> tuple[bool, list[Target], list[Workload]]:
    """(preemptor fits, victims, candidates for the second strategy)."""
    order = _TargetOrder(request, candidates)
    targets: list[Target] = []
    retry: list[Workload] = []
    node = request.node
    within = all(node.usage[i] <= node.nominal[i] for i in request.contested)
    for queue in order.queues():
        if queue is node or within:
            reason = "InClusterQueue" if queue is node else "InCohortReclamation"
            w = order.pop(queue)
            exclude_workload(w)
            targets.append((w, reason))
            if _fits_without_request(request):
                return True, targets, []
            continue
        mine, theirs = order.shares(queue)
        if mine.infinite and not theirs.infinite:
            retry.extend(reversed(order.candidates[queue]))
            order.candidates[queue].clear()
            continue
        while order.candidates[queue]:
            w = order.pop(queue)
            exclude_workload(w)
            if strategy == "LessThanInitialShare":
                passed = compare(mine, theirs) < 0
            else:
                passed = compare(mine, order.shares(queue)[1]) <= 0
            if passed:
                targets.append((w, "InCohortFairSharing"))
                if _fits_without_request(request):
                    return True, targets, []
                break
            add_usage(queue, w.indexed_usage)
            retry.append(w)
    return False, targets, retry


def _second_strategy(
    request: PreemptionRequest, retry: list[Workload], targets: list[Target]
) -> bool:
    """Preempt one workload in each queue whose share is above the preemptor's future share."""
    order = _TargetOrder(request, retry)
    for queue in order.queues():
        mine, theirs = order.shares(queue)
        w = order.pop(queue)
        if compare(mine, theirs) < 0:
            exclude_workload(w)
            targets.append((w, "InCohortFairSharing"))
            if _fits_without_request(request):
                return True
        order.drop(queue)
    return False
