"""The quota tree of one root: a cohort and all below it, or a ClusterQueue without a cohort.

Usage bubbles up: a node passes to its parent only what it uses beyond its own `local` quota (the
part that a lending limit keeps from the others). Every node's numbers are lists, indexed by the
tree's number of a (flavor, resource). All but `usage` are fixed until the set-up changes.
Adding and removing are exact inverses, so a trial is undone by doing the opposite
(`kueue.md` 2.3).
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from services.quota.engine.facts import Quota
from services.quota.engine.model.amounts import UNLIMITED

if TYPE_CHECKING:
    from services.quota.engine.model.state import ClusterQueue

__all__ = [
    "FlavorResource",
    "Node",
    "Pairs",
    "Tree",
    "add",
    "available",
    "height_that_fits",
    "quantities_fit",
    "remove",
    "within_nominal",
]

FlavorResource: TypeAlias = tuple[str, str]
Pairs: TypeAlias = tuple[tuple[int, int], ...]
"""(index of the flavor and resource, amount)."""

HEIGHT_OF_QUEUE: Final = 0


class Node:
    """A ClusterQueue or a cohort: what it owns, what it may borrow and lend, what it uses."""

    __slots__ = (
        "borrow_cap",
        "cohorts",
        "height",
        "limit",
        "local",
        "name",
        "nominal",
        "parent",
        "path",
        "potential",
        "queue",
        "queues",
        "quotas",
        "subtree",
        "tree",
        "usage",
        "weight",
    )

    def __init__(
        self,
        name: str,
        *,
        queue: "ClusterQueue | None",
        quotas: Mapping[FlavorResource, Quota],
        weight: float,
    ) -> None:
        self.name = name
        self.queue = queue
        self.quotas = quotas
        self.weight = weight
        self.parent: Node | None = None
        self.tree: Tree
        self.path: tuple[Node, ...] = ()
        """Ancestors, parent first."""
        self.cohorts: list[Node] = []
        self.queues: list[Node] = []
        self.height = HEIGHT_OF_QUEUE
        self.nominal: list[int] = []
        self.limit: list[int | None] = []
        """borrowingLimit."""
        self.local: list[int] = []
        self.subtree: list[int] = []
        self.potential: list[int] = []
        self.borrow_cap: list[int | None] = []
        """What may be stored in and borrowed from the parent together."""
        self.usage: list[int] = []


class Tree:
    """All nodes below one root, with one numbering of (flavor, resource)."""

    __slots__ = (
        "above",
        "cycle",
        "frs",
        "index",
        "key",
        "lendable",
        "mark",
        "nodes",
        "queues",
        "quiet",
        "root",
        "seen",
        "wake",
    )

    def __init__(self, root: Node, extra: Iterable[FlavorResource] = ()) -> None:
        """Number everything that some node owns; `extra`: held without being owned any more."""
        self.root = root
        self.key = ("queue:" if root.queue is not None else "cohort:") + root.name
        self.quiet = 0
        """Rounds in a row in which nothing changed but flavor scans went on."""
        self.nodes: list[Node] = []
        """Parents before children."""
        self.queues: list[Node] = []
        self.cycle = 0
        """Rounds run so far; a flavor scan knows its age by it."""
        self.wake = True
        """Capacity may have become free: everybody is looked at again in the next round."""
        self.mark = 0
        """Stands for who holds what: equal marks, equal holdings. Only ever compared."""
        self.seen: set[tuple[str, tuple[str, ...], int, tuple[object, ...]]] = set()
        """Preemptions since anything outside changed: who, whom, and in which state (ADR 10)."""
        self.lendable: dict[str, dict[str, int]] = {}
        self._collect(root, ())
        frs: dict[FlavorResource, None] = {}
        for node in self.nodes:
            frs.update(dict.fromkeys(node.quotas))
        frs.update(dict.fromkeys(extra))
        self.frs: list[FlavorResource] = sorted(frs)
        self.index: dict[FlavorResource, int] = {fr: i for i, fr in enumerate(self.frs)}
        self.above: list[dict[Node, None]] = [{} for _ in self.frs]
        """Per flavor and resource the queues that use more than they own."""
        for node in reversed(self.nodes):
            self._own(node)
        for node in self.nodes:
            self._reach(node)

    def _collect(self, node: Node, path: tuple[Node, ...]) -> None:
        node.tree = self
        node.path = path
        node.parent = path[0] if path else None
        self.nodes.append(node)
        if node.queue is not None:
            self.queues.append(node)
        below = (node, *path)
        for child in (*node.cohorts, *node.queues):
            self._collect(child, below)

    def _own(self, node: Node) -> None:
        """From the leaves up: what a subtree owns, and what of it stays local."""
        quotas = [node.quotas.get(fr) for fr in self.frs]
        children = (*node.cohorts, *node.queues)
        node.height = max((c.height + 1 for c in node.cohorts), default=min(len(node.queues), 1))
        if node.queues:
            node.height = max(node.height, 1)
        node.nominal = [q.nominal if q else 0 for q in quotas]
        node.limit = [q.borrowing_limit if q else None for q in quotas]
        node.subtree = [
            min(nominal + sum(c.subtree[i] - c.local[i] for c in children), UNLIMITED)
            for i, nominal in enumerate(node.nominal)
        ]
        node.local = [
            max(0, node.subtree[i] - q.lending_limit) if q and q.lending_limit is not None else 0
            for i, q in enumerate(quotas)
        ]
        node.borrow_cap = [
            None if limit is None else node.subtree[i] - node.local[i] + limit
            for i, limit in enumerate(node.limit)
        ]
        node.usage = [0] * len(self.frs)

    def _reach(self, node: Node) -> None:
        """From the root down: the most that a node could ever use."""
        parent = node.parent
        if parent is None:
            node.potential = list(node.subtree)
            return
        node.potential = [
            reach if limit is None else min(own + limit, reach)
            for own, limit, reach in zip(
                node.subtree,
                node.limit,
                (loc + up for loc, up in zip(node.local, parent.potential, strict=True)),
                strict=True,
            )
        ]

    def lendable_to(self, node: Node) -> dict[str, int]:
        """Per resource what the children of `node` could share: its potential in all flavors."""
        if (known := self.lendable.get(node.name)) is None:
            known = {}
            for i, (_, resource) in enumerate(self.frs):
                known[resource] = known.get(resource, 0) + node.potential[i]
            self.lendable[node.name] = known
        return known

    def pairs(self, usage: Mapping[FlavorResource, int]) -> Pairs:
        """Usage by this tree's numbers."""
        index = self.index
        return tuple((index[fr], amount) for fr, amount in usage.items())


def add(node: Node, pairs: Pairs) -> None:
    """Use this much more at `node`, and above it what it cannot keep local."""
    above = node.tree.above
    for i, amount in pairs:
        if node.nominal[i] - amount < node.usage[i] <= node.nominal[i]:
            above[i][node] = None
        at: Node | None = node
        more = amount
        while at is not None:
            usage = at.usage
            spare = at.local[i] - usage[i]
            usage[i] += more
            if spare > 0:
                more -= spare
            if more <= 0:
                break
            at = at.parent


def remove(node: Node, pairs: Pairs) -> None:
    """Use this much less: the opposite of `add`."""
    above = node.tree.above
    for i, amount in pairs:
        if node.nominal[i] < node.usage[i] <= node.nominal[i] + amount:
            del above[i][node]
        at: Node | None = node
        less = amount
        while at is not None:
            usage = at.usage
            stored = usage[i] - at.local[i]
            usage[i] -= less
            if stored <= 0:
                break
            less = min(less, stored)
            at = at.parent


def available(node: Node, i: int) -> int:
    """What `node` could still take, now; negative after a cut of quota below use."""
    kept = 0
    least = UNLIMITED << 2
    at = node
    while (parent := at.parent) is not None:
        used = at.usage[i]
        local = at.local[i]
        if used < local:
            kept += local - used
            in_parent = 0
        else:
            in_parent = used - local
        cap = at.borrow_cap[i]
        if cap is not None and kept + cap - in_parent < least:
            least = kept + cap - in_parent
        at = parent
    top = kept + at.subtree[i] - at.usage[i]
    return min(top, least)


def height_that_fits(node: Node, i: int, amount: int) -> tuple[int, bool]:
    """How high one must go to find a subtree that owns `amount` unused: 0 is the queue itself.

    Also whether that subtree is smaller than the whole tree, so that others in the tree may hold
    what is rightly its own.
    """
    if not node.path:
        return 0, False
    if node.usage[i] + amount <= node.nominal[i]:
        return 0, True
    rest = amount - max(0, node.local[i] - node.usage[i])
    for above in node.path:
        if above.usage[i] + rest <= above.subtree[i]:
            return above.height, above.parent is not None
        rest -= max(0, above.local[i] - above.usage[i])
    return node.path[-1].height, False


def quantities_fit(node: Node, pairs: Pairs) -> tuple[bool, Pairs]:
    """Whether `node` owns this unused, and what is left to ask of its parent."""
    fits = True
    rest = []
    for i, amount in pairs:
        used = node.usage[i]
        if node.subtree[i] < used + amount:
            fits = False
        rest.append((i, max(0, amount - max(0, node.local[i] - used))))
    return fits, tuple(rest)


def within_nominal(node: Node, contested: Iterable[int]) -> bool:
    """Whether `node` uses no more than it owns of any of `contested`."""
    return all(node.subtree[i] >= node.usage[i] for i in contested)
