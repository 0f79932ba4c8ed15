"""Who is next in a ClusterQueue, who is set aside, and what brings them back (`kueue.md` 2.2)."""

from heapq import heapify, heappop, heappush

from services.quota.engine.facts import Key
from services.quota.engine.model.state import ClusterQueue, Place, Shard, WaitingClass, Workload
from services.quota.engine.model.tree import Tree
from services.quota.engine.scheduling.plans import requirement_holds

__all__ = [
    "enqueue",
    "head",
    "leave",
    "listed",
    "namespace_matches",
    "park",
    "park_class",
    "reorder",
    "set_claiming",
    "wake",
    "wake_tree",
]


def enqueue(cq: ClusterQueue, w: Workload) -> None:
    """Let `w` wait in `cq`, with those that ask the same."""
    assert w.shape is not None, w.key
    lq = w.lq if cq.fact.usage_based else ""
    key = (w.shape.number, lq)
    cls = cq.classes.get(key)
    if cls is None:
        cls = cq.classes[key] = WaitingClass(w.shape, lq)
    w.queue = cq
    cq.waiting[w.key] = w
    cq.parked.pop(w.key, None)
    cq.claimers.pop(w.key, None)
    cls.push(w)
    if not cls.parked and cls.head() is w:
        _activate(cq, cls)


def _activate(cq: ClusterQueue, cls: WaitingClass) -> None:
    """Enter the class into the queue's heap under its present head."""
    first = cls.head()
    if first is None:
        return
    cq.stamps += 1
    cls.stamp = cq.stamps
    heappush(cq.heads, (-cls.shape.priority, first.queued_at, first.uid, cls.stamp, cls))


def leave(w: Workload) -> None:
    """`w` waits no more: admitted, gone, or kept out. Heap entries are dropped when they surface."""
    cq = w.queue
    if cq is None:
        return
    cq.waiting.pop(w.key, None)
    cq.parked.pop(w.key, None)
    cq.claimers.pop(w.key, None)
    if cq.sticky is w:
        cq.sticky = None
    if w.cls is not None and w.place is Place.QUEUED:
        w.cls.count -= 1
        if w.cls.count == 0 and not w.cls.parked:
            cq.classes.pop((w.cls.shape.number, w.cls.lq), None)
            w.cls.stamp = 0
    w.cls = None
    w.queue = None
    w.ticket += 1
    w.place = Place.OUT


def head(cq: ClusterQueue, usage: "dict[Key, float] | None" = None) -> Workload | None:
    """Who is evaluated next; None when nobody is active.

    In a strict queue nobody goes before a workload that waits for its victims, unless it is of
    higher rank.
    """
    first = _head(cq, usage)
    if first is not None and cq.claimers and cq.strict:
        rank = (-first.priority, first.queued_at, first.uid)
        if any((-w.priority, w.queued_at, w.uid) < rank for w in cq.claimers.values()):
            return None
    return first


def _head(cq: ClusterQueue, usage: "dict[Key, float] | None") -> Workload | None:
    """The head, claims aside.

    `usage` by LocalQueue orders before anything else (admission fair sharing).
    """
    if cq.fact.usage_based and usage is not None:
        return _least_used(cq, usage)
    sticky = cq.sticky
    if (
        sticky is not None
        and sticky.place is Place.QUEUED
        and sticky.cls is not None
        and not sticky.cls.parked
    ):
        return sticky
    heads = cq.heads
    while heads:
        _, queued_at, uid, stamp, cls = heads[0]
        if stamp != cls.stamp or cls.parked:
            heappop(heads)
            continue
        first = cls.head()
        if first is None:
            heappop(heads)
            continue
        if first.queued_at != queued_at or first.uid != uid:
            heappop(heads)
            _activate(cq, cls)
            continue
        return first
    return None


def _least_used(cq: ClusterQueue, usage: dict[Key, float]) -> Workload | None:
    best: Workload | None = None
    best_key: tuple[object, ...] = ()
    for cls in cq.classes.values():
        if cls.parked:
            continue
        candidates = [cls.head()]
        if cq.sticky is not None and cq.sticky.cls is cls:
            candidates.append(cq.sticky)
        for w in candidates:
            if w is None or w.place is not Place.QUEUED:
                continue
            key = (usage.get(w.lq, 0.0), w is not cq.sticky, -w.priority, w.queued_at, w.uid)
            if best is None or key < best_key:
                best, best_key = w, key
    return best


def park_class(cls: WaitingClass) -> None:
    """Set all alike aside: none of them can be admitted until something changes."""
    cls.parked = True
    cls.stamp = 0


def set_claiming(cq: ClusterQueue, w: Workload) -> None:
    """It waits for its victims now, not for its turn."""
    assert w.cls is not None, w.key
    w.cls.count -= 1
    w.ticket += 1
    w.place = Place.CLAIMING
    w.cls = None
    cq.claimers[w.key] = w


def park(cq: ClusterQueue, w: Workload) -> None:
    """Set one workload aside."""
    assert w.cls is not None, w.key
    w.cls.count -= 1
    w.ticket += 1
    w.place = Place.PARKED
    w.cls = None
    cq.parked[w.key] = w


def wake(shard: Shard, cq: ClusterQueue, now: int) -> bool:
    """Bring back everybody who may come back: capacity may have become free."""
    moved = False
    for key, cls in list(cq.classes.items()):
        if cls.parked:
            cls.parked = False
            if cls.head() is None:
                del cq.classes[key]
                cls.stamp = 0
                continue
            _activate(cq, cls)
            moved = True
    for w in list(cq.parked.values()):
        if w.requeue_at is not None and w.requeue_at > now:
            continue
        if not namespace_matches(shard, cq, w.namespace):
            continue
        enqueue(cq, w)
        moved = True
    return moved


def wake_tree(shard: Shard, tree: Tree, now: int) -> None:
    """Wake every queue of a tree, if something called for it."""
    if not tree.wake:
        return
    tree.wake = False
    for node in tree.queues:
        assert node.queue is not None, node.name
        wake(shard, node.queue, now)


def namespace_matches(shard: Shard, cq: ClusterQueue, namespace: str) -> bool:
    """Whether the queue takes workloads of that namespace."""
    labels = shard.namespaces.get(namespace)
    selector = cq.fact.namespaces
    if labels is None or selector is None:
        return False
    requirements = selector.requirements  # Most queues take all namespaces.
    return not requirements or all(requirement_holds(r, labels) for r in requirements)


def listed(cq: ClusterQueue, usage: "dict[Key, float] | None" = None) -> list[Workload]:
    """Everybody who waits, in the order in which they would be evaluated if all were active."""
    shares = usage if cq.fact.usage_based and usage is not None else {}
    return sorted(
        cq.waiting.values(),
        key=lambda w: (
            shares.get(w.lq, 0.0),
            w is not cq.sticky,
            -w.priority,
            w.queued_at,
            w.uid,
        ),
    )


def reorder(cq: ClusterQueue) -> None:
    """Sort in anew after the rules of order changed."""
    queued = [w for w in cq.waiting.values() if w.place is Place.QUEUED]
    cq.classes.clear()
    cq.heads.clear()
    heapify(cq.heads)
    for w in queued:
        w.cls = None
        enqueue(cq, w)
