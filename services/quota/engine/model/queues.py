"""Who is next in a ClusterQueue, who is set aside, and what brings them back (`kueue.md` 2.2)."""

from heapq import heapify, heappop, heappush

from services.quota.engine.facts import Key
from services.quota.engine.model.matching import requirement_holds
from services.quota.engine.model.state import (
    ClusterQueue,
    Phase,
    Shard,
    Tree,
    WaitingClass,
    Workload,
)

__all__ = [
    "dequeue",
    "enqueue",
    "head",
    "namespace_matches",
    "park",
    "park_class",
    "reorder",
    "set_claiming",
    "waiting_in_order",
    "wake",
    "wake_tree",
]


def enqueue(cq: ClusterQueue, w: Workload) -> None:
    """Let `w` wait in `cq`, with those that ask the same."""
    assert w.shape is not None, w.key
    local_queue = w.local_queue if cq.fact.usage_based else ""
    key = (w.shape.number, local_queue)
    waiting_class = cq.classes.get(key)
    if waiting_class is None:
        waiting_class = cq.classes[key] = WaitingClass(w.shape, local_queue)
    w.queue = cq
    cq.waiting[w.key] = w
    cq.parked.pop(w.key, None)
    cq.claimers.pop(w.key, None)
    waiting_class.push(w)
    if not waiting_class.parked and waiting_class.head() is w:
        _activate(cq, waiting_class)


def _activate(cq: ClusterQueue, waiting_class: WaitingClass) -> None:
    """Enter the class into the queue's heap under its present head."""
    first = waiting_class.head()
    if first is None:
        return
    cq.last_heap_version += 1
    waiting_class.heap_version = cq.last_heap_version
    heappush(
        cq.heads,
        (
            -waiting_class.shape.priority,
            first.queued_at,
            first.uid,
            waiting_class.heap_version,
            waiting_class,
        ),
    )


def dequeue(w: Workload) -> None:
    """`w` waits no more: admitted, gone, or kept out. Heap entries are dropped when they surface."""
    cq = w.queue
    if cq is None:
        return
    cq.waiting.pop(w.key, None)
    cq.parked.pop(w.key, None)
    cq.claimers.pop(w.key, None)
    if cq.sticky_workload is w:
        cq.sticky_workload = None
    if w.waiting_class is not None and w.phase is Phase.QUEUED:
        w.waiting_class.count -= 1
        if w.waiting_class.count == 0 and not w.waiting_class.parked:
            cq.classes.pop((w.waiting_class.shape.number, w.waiting_class.local_queue), None)
            w.waiting_class.heap_version = 0
    w.waiting_class = None
    w.queue = None
    w.heap_version += 1
    w.phase = Phase.NOT_QUEUED


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
    sticky = cq.sticky_workload
    if (
        sticky is not None
        and sticky.phase is Phase.QUEUED
        and sticky.waiting_class is not None
        and not sticky.waiting_class.parked
    ):
        return sticky
    heads = cq.heads
    while heads:
        _, queued_at, uid, stamp, waiting_class = heads[0]
        if stamp != waiting_class.heap_version or waiting_class.parked:
            heappop(heads)
            continue
        first = waiting_class.head()
        if first is None:
            heappop(heads)
            continue
        if first.queued_at != queued_at or first.uid != uid:
            heappop(heads)
            _activate(cq, waiting_class)
            continue
        return first
    return None


def _least_used(cq: ClusterQueue, usage: dict[Key, float]) -> Workload | None:
    best: Workload | None = None
    best_key: tuple[object, ...] = ()
    for waiting_class in cq.classes.values():
        if waiting_class.parked:
            continue
        candidates = [waiting_class.head()]
        if cq.sticky_workload is not None and cq.sticky_workload.waiting_class is waiting_class:
            candidates.append(cq.sticky_workload)
        for w in candidates:
            if w is None or w.phase is not Phase.QUEUED:
                continue
            key = (
                usage.get(w.local_queue, 0.0),
                w is not cq.sticky_workload,
                -w.priority,
                w.queued_at,
                w.uid,
            )
            if best is None or key < best_key:
                best, best_key = w, key
    return best


def park_class(waiting_class: WaitingClass) -> None:
    """Set all alike aside: none of them can be admitted until something changes."""
    waiting_class.parked = True
    waiting_class.heap_version = 0


def set_claiming(cq: ClusterQueue, w: Workload) -> None:
    """It waits for its victims now, not for its turn."""
    assert w.waiting_class is not None, w.key
    w.waiting_class.count -= 1
    w.heap_version += 1
    w.phase = Phase.CLAIMING
    w.waiting_class = None
    cq.claimers[w.key] = w


def park(cq: ClusterQueue, w: Workload) -> None:
    """Set one workload aside."""
    assert w.waiting_class is not None, w.key
    w.waiting_class.count -= 1
    w.heap_version += 1
    w.phase = Phase.PARKED
    w.waiting_class = None
    cq.parked[w.key] = w


def wake(shard: Shard, cq: ClusterQueue, now: int) -> bool:
    """Bring back everybody who may come back: capacity may have become free."""
    moved = False
    for key, waiting_class in list(cq.classes.items()):
        if waiting_class.parked:
            waiting_class.parked = False
            if waiting_class.head() is None:
                del cq.classes[key]
                waiting_class.heap_version = 0
                continue
            _activate(cq, waiting_class)
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
    if not tree.needs_wake:
        return
    tree.needs_wake = False
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


def waiting_in_order(cq: ClusterQueue, usage: "dict[Key, float] | None" = None) -> list[Workload]:
    """Everybody who waits, in the order in which they would be evaluated if all were active."""
    shares = usage if cq.fact.usage_based and usage is not None else {}
    return sorted(
        cq.waiting.values(),
        key=lambda w: (
            shares.get(w.local_queue, 0.0),
            w is not cq.sticky_workload,
            -w.priority,
            w.queued_at,
            w.uid,
        ),
    )


def reorder(cq: ClusterQueue) -> None:
    """Sort in anew after the rules of order changed."""
    queued = [w for w in cq.waiting.values() if w.phase is Phase.QUEUED]
    cq.classes.clear()
    cq.heads.clear()
    heapify(cq.heads)
    for w in queued:
        w.waiting_class = None
        enqueue(cq, w)
