"""Preemption by priority and place in the hierarchy (`kueue.md` 2.7)."""

from typing import Final, TypeAlias

from services.quota.engine.model.state import Node, Workload
from services.quota.engine.model.tree import fits_in_quota, is_within_nominal
from services.quota.engine.preemption.candidates import (
    Attempt,
    Target,
    fill_back,
    fits,
    restore,
    satisfies,
    sort_key,
    take_away,
    uses,
)

__all__ = ["classical_targets"]

# In which way a candidate may be preempted.
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
"""(workload, lowest common ancestor, way)."""


def classical_targets(attempt: Attempt) -> list[Target]:
    """A small set of victims without whom the preemptor fits; empty: there is none."""
    own = _in_queue(attempt, attempt.node, None, advantage=False)
    hierarchy, priority = _in_cohort(attempt)
    if not own and not hierarchy and not priority:
        return []
    candidates = _ordered(attempt, hierarchy, priority, own)
    forbidden = attempt.cq.fact.preemption.borrow == "Never"
    if (not hierarchy and not priority) or (forbidden and not _under_nominal(attempt)):
        tries: tuple[bool, ...] = (True,)
    elif forbidden and not hierarchy:
        tries = (False, True)
    else:
        tries = (True, False)
    for borrowing in tries:
        targets: list[Target] = []
        for w, lca, way in candidates:
            if not _valid(attempt, w, lca, way, borrowing=borrowing):
                continue
            take_away(w)
            targets.append((w, _REASON[way]))
            if fits(attempt, borrowing=borrowing):
                fill_back(attempt, targets, borrowing=borrowing)
                restore(targets)
                return targets
        restore(targets)
    return []


def _ordered(
    attempt: Attempt,
    hierarchy: list[_Candidate],
    priority: list[_Candidate],
    own: list[_Candidate],
) -> list[_Candidate]:
    """Those already evicted first, then by kind; each kind in candidates' order."""
    lists = [
        sorted(candidates, key=lambda c: sort_key(attempt, c[0]))
        for candidates in (hierarchy, priority, own)
    ]
    return [c for cs in lists for c in cs if c[0].evicted] + [
        c for cs in lists for c in cs if not c[0].evicted
    ]


def _under_nominal(attempt: Attempt) -> bool:
    node = attempt.node
    return all(node.nominal[i] > node.usage[i] for i in attempt.contested)


def _in_queue(
    attempt: Attempt, node: Node, lca: Node | None, *, advantage: bool
) -> list[_Candidate]:
    cq = node.queue
    assert cq is not None, node.name
    rules = attempt.cq.fact.preemption
    own = node is attempt.node
    policy = rules.within if own else rules.reclaim
    if policy == "Never" or cq.inactive is not None:
        return []
    preemptor = attempt.workload
    found: list[_Candidate] = []
    for w in cq.holders.values():
        if not satisfies(preemptor, w, policy) or not uses(w, attempt.contested):
            continue
        if own:
            way = _WITHIN_QUEUE
        elif advantage:
            way = _HIERARCHICAL
        elif rules.borrow == "Never" or _above_threshold(attempt, w):
            way = _NOT_BORROWING
        else:
            way = _BORROWING
        found.append((w, lca, way))
    return found


def _above_threshold(attempt: Attempt, w: Workload) -> bool:
    threshold = attempt.cq.fact.preemption.borrow_threshold
    if w.priority >= attempt.workload.priority:
        return True
    return threshold is not None and w.priority > threshold


def _in_cohort(attempt: Attempt) -> tuple[list[_Candidate], list[_Candidate]]:
    """Candidates over which the preemptor has the older right, and those it outranks.

    Only in queues that use more than they own, below cohorts that do so too. The right is older
    from the first ancestor on that owns all that is asked, unused.
    """
    hierarchy: list[_Candidate] = []
    priority: list[_Candidate] = []
    node = attempt.node
    if not node.ancestors or attempt.cq.fact.preemption.reclaim == "Never":
        return hierarchy, priority
    above = node.tree.borrowers
    queues: dict[Node, None] = {}
    for i in attempt.contested:
        queues.update(above[i])
    queues.pop(node, None)
    if not queues:
        return hierarchy, priority
    advantages = _advantages(attempt)
    for queue in queues:
        lca = _exposed_to(queue, advantages, attempt.contested)
        if lca is not None:
            advantage = advantages[lca]
            found = hierarchy if advantage else priority
            found.extend(_in_queue(attempt, queue, lca, advantage=advantage))
    return hierarchy, priority


def _advantages(attempt: Attempt) -> dict[Node, bool]:
    """Per ancestor whether the preemptor has the older right to what is used below it."""
    advantage, rest = fits_in_quota(attempt.node, attempt.asks)
    advantages = {}
    for ancestor in attempt.node.ancestors:
        advantages[ancestor] = advantage
        fit, rest = fits_in_quota(ancestor, rest)
        advantage = advantage or fit
    return advantages


def _exposed_to(
    queue: Node, ancestors: dict[Node, bool], contested: tuple[int, ...]
) -> Node | None:
    """The lowest common ancestor, if no cohort below it keeps within what it owns."""
    for cohort in queue.ancestors:
        if cohort in ancestors:
            return cohort
        if is_within_nominal(cohort, contested):
            return None
    return None


def _valid(attempt: Attempt, w: Workload, lca: Node | None, way: int, *, borrowing: bool) -> bool:
    """Whether it is still right to take `w`, after those that were taken before it."""
    node = w.holding_node
    assert node is not None, w.key
    if node is attempt.node:
        return True
    if borrowing and way == _NOT_BORROWING:
        return False
    if is_within_nominal(node, attempt.contested):
        return False
    for above in node.ancestors:
        if above is lca:
            break
        if is_within_nominal(above, attempt.contested):
            return False
    return True
