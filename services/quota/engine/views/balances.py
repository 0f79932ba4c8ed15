"""Where the quota of each node of a tree is: what it owns, and who holds that."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from services.quota.engine.model.amounts import is_unlimited
from services.quota.engine.model.shapes import FlavorResource
from services.quota.engine.model.state import Node, Shard, Tree
from services.quota.engine.model.tree import available


@dataclass(slots=True, kw_only=True)
class Balance:
    """One resource in one flavor. Of a cohort: its own quota and that of everything below it."""

    nominal: int = 0
    reserved: int = 0
    """Held by workloads, admitted or not."""

    used: int = 0
    """Held by admitted workloads."""

    borrowed: int = 0
    """Held beyond the nominal quota; of a cohort, the sum over its queues."""

    lent: int = 0
    """Of the nominal quota, what it could not have now, because the rest of its tree holds it."""

    def add(self, other: "Balance") -> None:
        """Count what a node below has. What that lent may be in here, too."""
        self.nominal += other.nominal
        self.reserved += other.reserved
        self.used += other.used
        self.borrowed += other.borrowed


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBalance:
    """A ClusterQueue or a cohort."""

    name: str
    is_queue: bool
    parent: str
    """Name of the cohort above it; empty: there is none."""

    balances: Mapping[FlavorResource, Balance]
    """Of what it owns or holds."""


def node_balances(shard: Shard) -> Iterator[NodeBalance]:
    """Every node of the trees of a cluster, parents before children.

    Cohorts in a circle are in no tree, and neither are their queues: they do not borrow.
    """
    for tree in shard.trees.values():
        found = _balances(tree)
        for node in tree.nodes:
            yield NodeBalance(
                name=node.name,
                is_queue=node.queue is not None,
                parent="" if node.parent is None else node.parent.name,
                balances=dict(sorted(found[node].items())),
            )


def _balances(tree: Tree) -> dict[Node, dict[FlavorResource, Balance]]:
    """By node, from the leaves up."""
    found = {node: _own(tree, node) for node in tree.nodes}
    for node in reversed(tree.nodes):
        for place, balance in found[node].items():
            balance.lent = _lent(node, tree.index[place])
            if node.parent is not None:
                found[node.parent].setdefault(place, Balance()).add(balance)
    return found


def _own(tree: Tree, node: Node) -> dict[FlavorResource, Balance]:
    """What a node owns, and what the workloads of a queue hold."""
    found = {place: Balance(nominal=node.nominal[tree.index[place]]) for place in node.quotas}
    for w in () if node.queue is None else node.queue.holders.values():
        for place, amount in w.usage.items():
            balance = found.setdefault(place, Balance())
            balance.reserved += amount
            balance.used += amount if w.counts_as_admitted else 0
    for balance in found.values():
        balance.borrowed = max(0, balance.reserved - balance.nominal)
    return found


def _lent(node: Node, index: int) -> int:
    """Own quota that is not in use, less what of it the node could still have."""
    unused = max(0, node.subtree_quota[index] - node.usage[index])
    if is_unlimited(unused):
        return 0
    return unused - min(unused, max(0, available(node, index)))
