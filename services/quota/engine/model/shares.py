"""Dominant resource shares: how much of what it could borrow a queue or cohort borrows."""

from dataclasses import dataclass, field
from math import inf

from services.quota.engine.model.state import Node


@dataclass(frozen=True, slots=True)
class Share:
    """The dominant share: the largest ratio of borrowed to lendable amount over all resources."""

    ratio: float
    """In thousandths, before the weight."""

    weight: float
    borrowed: tuple[int, ...] = field(default=())
    """The (flavor, resource) indices in which it borrows."""

    @property
    def infinite(self) -> bool:
        """Whether it borrows with weight 0."""
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
    """-1, 0 or 1. The lower share is admitted first, the higher one is preempted first."""
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
    """The share of a node by present usage; 0 for a root."""
    parent = node.parent
    if parent is None:
        return Share(0.0, node.weight)
    amounts: dict[str, int] = {}
    borrowed: list[int] = []
    frs = node.tree.flavor_resources
    for i, (used, owned) in enumerate(zip(node.usage, node.subtree_quota, strict=True)):
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
