"""Preemption by priority and by position in the cohort hierarchy.

Source: kubernetes-sigs/kueue pkg/scheduler/preemption/classical.
"""

from typing import Final, TypeAlias

from services.quota.engine.model.state import Node, Workload
from services.quota.engine.model.tree import fits_in_quota, is_within_nominal
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

# Variants of preemption.
_WITHIN_QUEUE: Final = 0
_HIERARCHICAL: Final = 1
_NOT_BORROWING: Final = 2
_BORROWING: Final = 3

_REASON: Final = (
    "InClusterQueue",
    "InCohortReclamation",
    "InCohortReclamation",
    "InCohortReclaimWhileBorrowing",
)

_Candidate: TypeAlias = tuple[Workload, Node | None, int]
"""(workload, lowest common ancestor, variant)."""


def classical_targets(request: PreemptionRequest) -> list[Target]:
    """A small set of victims without which the preemptor fits; empty: there is none."""
    own = _candidates_in_queue(request, request.node, None, advantage=False)
    hierarchy, priority = _candidates_in_cohort(request)
    if not own and not hierarchy and not priority:
        return []
    candidates = _in_order(request, hierarchy, priority, own)
    forbidden = request.cq.fact.preemption.borrow == "Never"
    if (not hierarchy and not priority) or (forbidden and not _is_below_nominal(request)):
        tries: tuple[bool, ...] = (True,)
    elif forbidden and not hierarchy:
        tries = (False, True)
    else:
        tries = (True, False)
    for borrowing in tries:
        targets: list[Target] = []
        for w, lca, variant in candidates:
            if not _is_still_valid(request, w, lca, variant, borrowing=borrowing):
                continue
            exclude_workload(w)
            targets.append((w, _REASON[variant]))
            if preemptor_fits(request, borrowing=borrowing):
                fill_back_victims(request, targets, borrowing=borrowing)
                include_all(targets)
                return targets
        include_all(targets)
    return []


def _in_order(
    request: PreemptionRequest,
    hierarchy: list[_Candidate],
    priority: list[_Candidate],
    own: list[_Candidate],
) -> list[_Candidate]:
    """Evicted ones first, then by variant, each variant in the order of candidates."""
    lists = [
        sorted(candidates, key=lambda c: candidate_order(request, c[0]))
        for candidates in (hierarchy, priority, own)
    ]
    return [c for cs in lists for c in cs if c[0].evicted] + [
        c for cs in lists for c in cs if not c[0].evicted
    ]


def _is_below_nominal(request: PreemptionRequest) -> bool:
    node = request.node
    return all(node.nominal[i] > node.usage[i] for i in request.contested)


def _candidates_in_queue(
    request: PreemptionRequest, node: Node, lca: Node | None, *, advantage: bool
) -> list[_Candidate]:
    cq = node.queue
    assert cq is not None, node.name
    rules = request.cq.fact.preemption
    own = node is request.node
    policy = rules.within if own else rules.reclaim
    if policy == "Never" or cq.inactive is not None:
        return []
    preemptor = request.workload
    found: list[_Candidate] = []
    for w in cq.holders.values():
        if not satisfies_policy(preemptor, w, policy) or not uses_contested(w, request.contested):
            continue
        if own:
            variant = _WITHIN_QUEUE
        elif advantage:
            variant = _HIERARCHICAL
        elif rules.borrow == "Never" or _above_threshold(request, w):
            variant = _NOT_BORROWING
        else:
            variant = _BORROWING
        found.append((w, lca, variant))
    return found


def _above_threshold(request: PreemptionRequest, w: Workload) -> bool:
    threshold = request.cq.fact.preemption.borrow_threshold
    if w.priority >= request.workload.priority:
        return True
    return threshold is not None and w.priority > threshold


def _candidates_in_cohort(request: PreemptionRequest) -> tuple[list[_Candidate], list[_Candidate]]:
    """Candidates by hierarchical advantage, and candidates by priority.

    Candidates are in queues that use more than they own, below cohorts that do so too. The preemptor
    has the advantage from the first ancestor on that owns everything requested, unused.
    """
    hierarchy: list[_Candidate] = []
    priority: list[_Candidate] = []
    node = request.node
    if not node.ancestors or request.cq.fact.preemption.reclaim == "Never":
        return hierarchy, priority
    above = node.tree.borrowers
    queues: dict[Node, None] = {}
    for i in request.contested:
        queues.update(above[i])
    queues.pop(node, None)
    if not queues:
        return hierarchy, priority
    advantages = _reclaim_advantages(request)
    for queue in queues:
        lca = _reclaimable_from(queue, advantages, request.contested)
        if lca is not None:
            advantage = advantages[lca]
            found = hierarchy if advantage else priority
            found.extend(_candidates_in_queue(request, queue, lca, advantage=advantage))
    return hierarchy, priority


def _reclaim_advantages(request: PreemptionRequest) -> dict[Node, bool]:
    """Ancestor to whether the preemptor has the hierarchical advantage below it."""
    advantage, rest = fits_in_quota(request.node, request.requested)
    advantages = {}
    for ancestor in request.node.ancestors:
        advantages[ancestor] = advantage
        fit, rest = fits_in_quota(ancestor, rest)
        advantage = advantage or fit
    return advantages


def _reclaimable_from(
    queue: Node, ancestors: dict[Node, bool], contested: tuple[int, ...]
) -> Node | None:
    """The lowest common ancestor; None: a cohort below it uses no more than it owns."""
    for cohort in queue.ancestors:
        if cohort in ancestors:
            return cohort
        if is_within_nominal(cohort, contested):
            return None
    return None


def _is_still_valid(
    request: PreemptionRequest, w: Workload, lca: Node | None, variant: int, *, borrowing: bool
) -> bool:
    """Whether `w` is still a valid victim, after the victims before it."""
    node = w.holding_node
    assert node is not None, w.key
    if node is request.node:
        return True
    if borrowing and variant == _NOT_BORROWING:
        return False
    if is_within_nominal(node, request.contested):
        return False
    for above in node.ancestors:
        if above is lca:
            break
        if is_within_nominal(above, request.contested):
            return False
    return True
