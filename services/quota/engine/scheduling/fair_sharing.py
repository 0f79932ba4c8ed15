"""Dominant resource share, and the order of entries under fair sharing (`kueue.md` 2.1.4, 2.8)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from services.quota.engine.model.tree import Node, add, remove

if TYPE_CHECKING:
    from services.quota.engine.scheduling.entry import Entry

__all__ = ["NEGATIVE", "Share", "compare", "share_of", "tournament"]


@dataclass(frozen=True, slots=True)
class Share:
    """How much of what it could borrow a node borrows, of the resource where that is most."""

    ratio: float
    """In thousandths, before the weight."""

    weight: float
    borrowed: tuple[int, ...] = field(default=())
    """The (flavor, resource) indices in which it borrows."""

    @property
    def infinite(self) -> bool:
        """It borrows with weight 0."""
        return self.weight == 0 and self.ratio != 0

    @property
    def weighted(self) -> float:
        """The number that is compared."""
        if self.ratio == 0:
            return 0.0
        return inf if self.weight == 0 else self.ratio / self.weight


NEGATIVE = Share(-1.0, 1.0)
"""Less than any share."""


def compare(a: Share, b: Share) -> int:
    """-1, 0, 1: the lower share goes first, the higher is preempted first."""
    if a.infinite and b.infinite:
        left, right = a.ratio, b.ratio
    elif a.infinite:
        return 1
    elif b.infinite:
        return -1
    else:
        left, right = a.weighted, b.weighted
    return (left > right) - (left < right)


def share_of(node: Node) -> Share:
    """The share of a node as usage stands; a root has none."""
    parent = node.parent
    if parent is None:
        return Share(0.0, node.weight)
    amounts: dict[str, int] = {}
    borrowed: list[int] = []
    frs = node.tree.frs
    for i, (used, owned) in enumerate(zip(node.usage, node.subtree, strict=True)):
        if used > owned:
            resource = frs[i][1]
            amounts[resource] = amounts.get(resource, 0) + used - owned
            borrowed.append(i)
    if not borrowed:
        return Share(0.0, node.weight)
    lendable = node.tree.lendable_to(parent)
    ratio = 0.0
    for resource, amount in amounts.items():
        most = lendable[resource]
        if most > 0:
            ratio = max(ratio, float(amount) * 1000.0 / float(most))
    return Share(ratio, node.weight, tuple(borrowed))


def tournament(root: Node, entries: "dict[Node, Entry]") -> "Entry":
    """Who goes next in this tree: at each level the lowest share after its own admission wins."""
    shares: dict[tuple[Node, Node], Share] = {}
    for node, entry in entries.items():
        add(node, entry.pairs)
        at = node
        for above in node.path:
            shares[above, node] = share_of(at)
            at = above
        remove(node, entry.pairs)
    winner = _winner(root, entries, shares)
    assert winner is not None, root.name
    return winner


def _winner(
    cohort: Node, entries: "dict[Node, Entry]", shares: dict[tuple[Node, Node], Share]
) -> "Entry | None":
    best: Entry | None = None
    for candidate in _candidates(cohort, entries, shares):
        if best is None or _before(candidate, best, cohort, shares):
            best = candidate
    return best


def _candidates(
    cohort: Node, entries: "dict[Node, Entry]", shares: dict[tuple[Node, Node], Share]
) -> "Iterable[Entry]":
    for child in cohort.cohorts:
        if (winner := _winner(child, entries, shares)) is not None:
            yield winner
    for queue in cohort.queues:
        if (entry := entries.get(queue)) is not None:
            yield entry


def _before(a: "Entry", b: "Entry", cohort: Node, shares: dict[tuple[Node, Node], Share]) -> bool:
    share_a, share_b = shares[cohort, a.node], shares[cohort, b.node]
    borrows_a, borrows_b = _borrows(a, share_a), _borrows(b, share_b)
    if borrows_a != borrows_b:
        return borrows_b
    if order := compare(share_a, share_b):
        return order < 0
    if a.workload.priority != b.workload.priority:
        return a.workload.priority > b.workload.priority
    return a.workload.queued_at < b.workload.queued_at


def _borrows(entry: "Entry", share: Share) -> bool:
    """Whether its side borrows something that it asks for itself."""
    usage = entry.assignment.usage
    return any(usage.get(i, 0) > 0 for i in share.borrowed)
