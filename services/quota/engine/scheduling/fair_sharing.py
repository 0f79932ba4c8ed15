"""The order of entries under fair sharing.

Source: kubernetes-sigs/kueue pkg/scheduler/fair_sharing_iterator.go.
"""

from collections.abc import Iterable

from services.quota.engine.model.shares import Share, compare, share_of
from services.quota.engine.model.state import Node
from services.quota.engine.model.tree import add_usage, remove_usage
from services.quota.engine.scheduling.entry import Entry


def tournament(root: Node, entries: dict[Node, Entry]) -> Entry:
    """The next entry in this tree: at each level the lowest share after its own admission wins."""
    shares: dict[tuple[Node, Node], Share] = {}
    for node, entry in entries.items():
        add_usage(node, entry.indexed_usage)
        at = node
        for above in node.ancestors:
            shares[above, node] = share_of(at)
            at = above
        remove_usage(node, entry.indexed_usage)
    winner = _winner(root, entries, shares)
    assert winner is not None, root.name
    return winner


def _winner(
    cohort: Node, entries: dict[Node, Entry], shares: dict[tuple[Node, Node], Share]
) -> Entry | None:
    best: Entry | None = None
    for candidate in _candidates(cohort, entries, shares):
        if best is None or _before(candidate, best, cohort, shares):
            best = candidate
    return best


def _candidates(
    cohort: Node, entries: dict[Node, Entry], shares: dict[tuple[Node, Node], Share]
) -> Iterable[Entry]:
    for child in cohort.cohorts:
        if (winner := _winner(child, entries, shares)) is not None:
            yield winner
    for queue in cohort.queues:
        if (entry := entries.get(queue)) is not None:
            yield entry


def _before(a: Entry, b: Entry, cohort: Node, shares: dict[tuple[Node, Node], Share]) -> bool:
    share_a, share_b = shares[cohort, a.node], shares[cohort, b.node]
    borrows_a, borrows_b = _borrows(a, share_a), _borrows(b, share_b)
    if borrows_a != borrows_b:
        return borrows_b
    if order := compare(share_a, share_b):
        return order < 0
    if a.workload.priority != b.workload.priority:
        return a.workload.priority > b.workload.priority
    return (a.workload.queued_at, a.workload.arrival) < (b.workload.queued_at, b.workload.arrival)


def _borrows(entry: Entry, share: Share) -> bool:
    """Whether the entry's side of the tree borrows a resource that the entry requests."""
    usage = entry.assignment.usage
    return any(usage.get(i, 0) > 0 for i in share.borrowed)
