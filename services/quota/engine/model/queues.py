"""The order of a ClusterQueue: its head, parked workloads, and waking them.

Source: kubernetes-sigs/kueue pkg/cache/queue/cluster_queue.go.
"""

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


def enqueue(cq: ClusterQueue, w: Workload) -> None:
    """Let `w` wait in `cq`, in the class of its shape."""
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
    """Push the class onto the queue's heap under its present head."""
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
    """Remove `w` from its queue. Its heap entries become void and are dropped later."""
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
    """The workload that is evaluated next; None: there is none.

    In a strict queue only a workload of higher rank overtakes one that waits for its victims.
    """
    first = _head(cq, usage)
    if first is not None and cq.claimers and cq.strict:
        rank = (-first.priority, first.queued_at, first.uid)
        if any((-w.priority, w.queued_at, w.uid) < rank for w in cq.claimers.values()):
            return None
    return first


def _head(cq: ClusterQueue, usage: "dict[Key, float] | None") -> Workload | None:
    """The head, regardless of claims.

    With `usage` by LocalQueue, the least used one goes first (admission fair sharing).
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
    """Park a whole class: none of its workloads can be admitted until something changes."""
    waiting_class.parked = True
    waiting_class.heap_version = 0


def set_claiming(cq: ClusterQueue, w: Workload) -> None:
    """Move `w` out of its class: it waits for its victims."""
    assert w.waiting_class is not None, w.key
    w.waiting_class.count -= 1
    w.heap_version += 1
    w.phase = Phase.CLAIMING
    w.waiting_class = None
    cq.claimers[w.key] = w


def park(cq: ClusterQueue, w: Workload) -> None:
    """Park one workload."""
    assert w.waiting_class is not None, w.key
    w.waiting_class.count -= 1
    w.heap_version += 1
    w.phase = Phase.PARKED
    w.waiting_class = None
    cq.parked[w.key] = w


def wake(shard: Shard, cq: ClusterQueue, now: int) -> bool:
    """Queue all parked workloads again whose back-off is over; return whether there were any."""
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
    """Wake every queue of a tree if `needs_wake` is set."""
    if not tree.needs_wake:
        return
    tree.needs_wake = False
    for node in tree.queues:
        assert node.queue is not None, node.name
        wake(shard, node.queue, now)


def namespace_matches(shard: Shard, cq: ClusterQueue, namespace: str) -> bool:
    """Whether the namespace selector of the queue matches."""
    labels = shard.namespaces.get(namespace)
    selector = cq.fact.namespaces
    if labels is None or selector is None:
        return False
    requirements = selector.requirements  # Most queues accept all namespaces.
    return not requirements or all(requirement_holds(r, labels) for r in requirements)


def waiting_in_order(cq: ClusterQueue, usage: "dict[Key, float] | None" = None) -> list[Workload]:
    """All waiting workloads, in the order of evaluation if all were active."""
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
    """Sort all queued workloads again after the rules of the order changed."""
    queued = [w for w in cq.waiting.values() if w.phase is Phase.QUEUED]
    cq.classes.clear()
    cq.heads.clear()
    heapify(cq.heads)
    for w in queued:
        w.waiting_class = None
        enqueue(cq, w)
