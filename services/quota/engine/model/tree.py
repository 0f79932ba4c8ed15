"""Arithmetic of quota trees: a cohort and all below it, or one ClusterQueue without a cohort.

Usage bubbles up: a node passes to its parent only what it uses beyond its `local_quota`. `add_usage`
and `remove_usage` are exact inverses, so the opposite call undoes a trial.

Source: kubernetes-sigs/kueue pkg/cache/scheduler/resource_node.go.
"""

from collections.abc import Iterable

from services.quota.engine.model.amounts import UNLIMITED
from services.quota.engine.model.shapes import FlavorResource, IndexedUsage
from services.quota.engine.model.state import Node, Tree


def build_tree(root: Node, extra: Iterable[FlavorResource] = ()) -> Tree:
    """The tree below `root`, without any usage.

    `extra`: flavors and resources that workloads hold although no node owns them any more.
    """
    nodes: list[Node] = []
    _collect(root, (), nodes)
    owned = {fr for node in nodes for fr in node.quotas}
    flavor_resources = sorted(owned.union(extra))
    tree = Tree(
        key=("queue:" if root.queue is not None else "cohort:") + root.name,
        root=root,
        flavor_resources=flavor_resources,
        index={fr: i for i, fr in enumerate(flavor_resources)},
        nodes=nodes,
        queues=[node for node in nodes if node.queue is not None],
        borrowers=[{} for _ in flavor_resources],
    )
    for node in reversed(nodes):
        node.tree = tree
        _set_quota(node, flavor_resources)
    for node in nodes:
        _set_potential(node)
    return tree


def _collect(node: Node, ancestors: tuple[Node, ...], nodes: list[Node]) -> None:
    node.ancestors = ancestors
    node.parent = ancestors[0] if ancestors else None
    nodes.append(node)
    for child in (*node.cohorts, *node.queues):
        _collect(child, (node, *ancestors), nodes)


def _set_quota(node: Node, flavor_resources: list[FlavorResource]) -> None:
    """From the leaves up: what a subtree owns, and what of it stays local."""
    quotas = [node.quotas.get(fr) for fr in flavor_resources]
    children = (*node.cohorts, *node.queues)
    node.height = max((c.height + 1 for c in node.cohorts), default=min(len(node.queues), 1))
    if node.queues:
        node.height = max(node.height, 1)
    node.nominal = [q.nominal if q else 0 for q in quotas]
    node.borrowing_limit = [q.borrowing_limit if q else None for q in quotas]
    node.subtree_quota = [
        min(nominal + sum(c.subtree_quota[i] - c.local_quota[i] for c in children), UNLIMITED)
        for i, nominal in enumerate(node.nominal)
    ]
    node.local_quota = [
        max(0, node.subtree_quota[i] - q.lending_limit) if q and q.lending_limit is not None else 0
        for i, q in enumerate(quotas)
    ]
    node.borrow_cap = [
        None if limit is None else node.subtree_quota[i] - node.local_quota[i] + limit
        for i, limit in enumerate(node.borrowing_limit)
    ]
    node.usage = [0] * len(flavor_resources)


def _set_potential(node: Node) -> None:
    """From the root down: the most that a node could ever use."""
    parent = node.parent
    if parent is None:
        node.potential_available = list(node.subtree_quota)
        return
    node.potential_available = [
        reach if limit is None else min(own + limit, reach)
        for own, limit, reach in zip(
            node.subtree_quota,
            node.borrowing_limit,
            (
                local + above
                for local, above in zip(node.local_quota, parent.potential_available, strict=True)
            ),
            strict=True,
        )
    ]


def add_usage(node: Node, requested: IndexedUsage) -> None:
    """Use this much more at `node`, and above it what it cannot keep local."""
    borrowers = node.tree.borrowers
    for i, amount in requested:
        if node.nominal[i] - amount < node.usage[i] <= node.nominal[i]:
            borrowers[i][node] = None
        at: Node | None = node
        more = amount
        while at is not None:
            usage = at.usage
            spare = at.local_quota[i] - usage[i]
            usage[i] += more
            if spare > 0:
                more -= spare
            if more <= 0:
                break
            at = at.parent


def remove_usage(node: Node, requested: IndexedUsage) -> None:
    """Use this much less: the opposite of `add_usage`."""
    borrowers = node.tree.borrowers
    for i, amount in requested:
        if node.nominal[i] < node.usage[i] <= node.nominal[i] + amount:
            del borrowers[i][node]
        at: Node | None = node
        less = amount
        while at is not None:
            usage = at.usage
            stored = usage[i] - at.local_quota[i]
            usage[i] -= less
            if stored <= 0:
                break
            less = min(less, stored)
            at = at.parent


def available(node: Node, i: int) -> int:
    """What `node` could still use now; negative after a cut of quota below its usage."""
    kept = 0
    least = UNLIMITED << 2
    at = node
    while (parent := at.parent) is not None:
        used = at.usage[i]
        local = at.local_quota[i]
        if used < local:
            kept += local - used
            in_parent = 0
        else:
            in_parent = used - local
        cap = at.borrow_cap[i]
        if cap is not None and kept + cap - in_parent < least:
            least = kept + cap - in_parent
        at = parent
    top = kept + at.subtree_quota[i] - at.usage[i]
    return min(top, least)


def lowest_height_that_fits(node: Node, i: int, amount: int) -> tuple[int, bool]:
    """Height of the lowest subtree that owns `amount` unused: 0 is the queue itself.

    The second value says whether that subtree is smaller than the whole tree, so that reclaiming
    from the rest of the tree may help.
    """
    if not node.ancestors:
        return 0, False
    if node.usage[i] + amount <= node.nominal[i]:
        return 0, True
    rest = amount - max(0, node.local_quota[i] - node.usage[i])
    for above in node.ancestors:
        if above.usage[i] + rest <= above.subtree_quota[i]:
            return above.height, above.parent is not None
        rest -= max(0, above.local_quota[i] - above.usage[i])
    return node.ancestors[-1].height, False


def fits_in_quota(node: Node, requested: IndexedUsage) -> tuple[bool, IndexedUsage]:
    """Whether `node` owns this unused, and what is left to ask of its parent."""
    fits = True
    rest = []
    for i, amount in requested:
        used = node.usage[i]
        if node.subtree_quota[i] < used + amount:
            fits = False
        rest.append((i, max(0, amount - max(0, node.local_quota[i] - used))))
    return fits, tuple(rest)


def is_within_nominal(node: Node, contested: Iterable[int]) -> bool:
    """Whether `node` uses no more than it owns of any of `contested`."""
    return all(node.subtree_quota[i] >= node.usage[i] for i in contested)
