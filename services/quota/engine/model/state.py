"""What the engine knows of one cluster: queues, workloads, and where each of them stands."""

from collections.abc import Hashable, Iterable
from enum import IntEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from services.quota.engine.facts import (
    WEIGHT_ONE,
    AdmissionCheckChanged,
    Assigned,
    CheckState,
    ClusterQueueChanged,
    CohortChanged,
    FlavorChanged,
    Key,
    LocalQueueChanged,
    PodSet,
    WorkloadChanged,
)
from services.quota.engine.model.amounts import resource_order
from services.quota.engine.model.tree import FlavorResource, Node, Pairs, Tree

if TYPE_CHECKING:
    from services.quota.engine.scheduling.flavors import Assignment

__all__ = [
    "Claim",
    "ClusterQueue",
    "Place",
    "Shape",
    "Shard",
    "Verdict",
    "WaitingClass",
    "Workload",
]

PODS: Final = "pods"


class Place(IntEnum):
    """Where a workload stands."""

    OUT = 0
    """In no queue: deactivated, gated, its LocalQueue is missing or stopped."""

    QUEUED = 1
    """In its class's heap; evaluated when the class is active and it comes to the head."""

    PARKED = 2
    """Out of the heap by itself (backing off, wrong namespace), until something wakes it."""

    CLAIMING = 3
    """It preempted others and waits for them to drain."""

    HOLDING = 4
    """It has quota."""


class Verdict:
    """Why a workload was not admitted. Its text is made when somebody asks."""

    __slots__ = ("assignment", "message", "reason")

    def __init__(self, reason: str, message: str, assignment: "Assignment | None" = None) -> None:
        self.reason = reason
        self.message = message
        """Empty: what stands in the way of `assignment`."""
        self.assignment = assignment

    @property
    def news(self) -> str:
        """What makes it worth telling anew: other numbers of the same reason are not."""
        return self.reason if self.assignment is not None else f"{self.reason}: {self.message}"

    def text(self) -> str:
        """The message, in full."""
        if self.assignment is None:
            return self.message
        return self.message or self.assignment.message()


class Shape:
    """What equal workloads have in common: they ask the same under the same constraints."""

    __slots__ = ("identity", "number", "partial", "pod_sets", "priority", "totals")

    def __init__(self, number: int, identity: Hashable, fact: WorkloadChanged) -> None:
        self.number = number
        self.identity = identity
        self.priority = fact.priority
        self.pod_sets = fact.pod_sets
        self.partial = any(
            ps.min_count is not None and ps.min_count < ps.count for ps in fact.pod_sets
        )
        self.totals = tuple(
            (
                max(0, ps.count - max(0, ps.reclaimable)),
                tuple((r, max(0, ps.requests[r])) for r in sorted(ps.requests, key=resource_order)),
            )
            for ps in fact.pod_sets
        )
        """Per pod set: pods that still need quota, and what one of them asks, in scan order."""


def identity_of(fact: WorkloadChanged) -> Hashable:
    """Equal for workloads that every queue treats alike.

    Who may not be admitted as it stands is told so, though others like it wait for quota.
    """
    pod_sets = tuple(_pod_set_identity(ps) for ps in fact.pod_sets)
    return (fact.priority, fact.inadmissible is not None, pod_sets)


def _pod_set_identity(ps: PodSet) -> Hashable:
    return (
        ps.name,
        ps.count,
        ps.min_count,
        ps.reclaimable,
        tuple(sorted(ps.requests.items()) if len(ps.requests) > 1 else ps.requests.items()),
        tuple(sorted(ps.node_selector.items())) if ps.node_selector else (),
        ps.affinity,
        ps.tolerations,
        ps.template,
    )


class Grant:
    """What a workload gets, in every form in which it is needed. Shared by equal ones."""

    __slots__ = ("assigned", "pairs", "usage")

    def __init__(
        self, assigned: tuple[Assigned, ...], usage: dict[FlavorResource, int], pairs: Pairs
    ) -> None:
        self.assigned = assigned
        self.usage = usage
        """Never changed, because it is shared."""
        self.pairs = pairs


class Claim:
    """A preemptor waits for its victims: what it will use is spoken for until they are gone.

    When the last one is gone, it takes its place before anybody whom it outranks.
    """

    __slots__ = ("borrowing", "grant", "outdated", "victims")

    def __init__(self, *, grant: Grant, borrowing: int, victims: "dict[Key, Workload]") -> None:
        self.grant = grant
        self.borrowing = borrowing
        """The height at which it will borrow; 0: what it claims is its queue's own."""
        self.victims = victims
        self.outdated = False
        """The set-up changed since: it must be weighed anew when its victims are gone."""


class Scan:
    """How far the flavors were tried, per pod set and resource (`kueue.md` 2.4)."""

    __slots__ = ("cycle", "generation", "shape", "tried")

    def __init__(
        self, tried: list[dict[str, int]], generation: int, cycle: int, shape: Shape
    ) -> None:
        self.tried = tried
        self.generation = generation
        self.cycle = cycle
        self.shape = shape

    @property
    def pending(self) -> bool:
        """There are flavors left to try."""
        return any(i != -1 for resources in self.tried for i in resources.values())


class Workload:
    """One workload in one cluster, waiting or holding."""

    __slots__ = (
        "admitted",
        "assigned",
        "boost",
        "checks",
        "claim",
        "cls",
        "evict_reason",
        "evicted",
        "evicted_at",
        "fact",
        "held_by",
        "holder",
        "key",
        "lq",
        "mark",
        "namespace",
        "order",
        "pairs",
        "place",
        "preempted_by",
        "priority",
        "queue",
        "queued_at",
        "requeue_at",
        "reserved_at",
        "running",
        "said",
        "scan",
        "shape",
        "ticket",
        "uid",
        "unplanned",
        "usage",
        "vain",
        "verdict",
        "waited_in",
    )

    def __init__(self, namespace: str, key: Key, uid: str) -> None:
        self.namespace = namespace
        self.key = key
        self.uid = uid
        self.fact: WorkloadChanged | None = None
        self.shape: Shape | None = None
        self.priority = 0
        self.queued_at = 0
        """Its place among equals: creation, or when a check or a time-out evicted it."""
        self.requeue_at: int | None = None
        self.place = Place.OUT
        self.queue: ClusterQueue | None = None
        """Where it waits."""
        self.waited_in = ""
        """The ClusterQueue where it waited last."""
        self.lq: Key = ""
        self.cls: WaitingClass | None = None
        self.ticket = 0
        """Invalidates older heap entries."""
        self.scan: Scan | None = None
        self.verdict: Verdict | None = None
        self.said: str = ""
        """The last reason that was published."""
        self.claim: Claim | None = None
        self.vain: dict[Key, int] = {}
        """Whom it preempted how often, so far without getting in itself."""
        self.mark = 0
        """Stands for what it holds in the tree's mark."""
        # While holding:
        self.holder: Node | None = None
        self.held_by = ""
        """ClusterQueue whose quota it uses."""
        self.assigned: tuple[Assigned, ...] = ()
        self.usage: dict[FlavorResource, int] = {}
        self.pairs: Pairs = ()
        self.reserved_at = 0
        self.admitted = False
        self.evicted = False
        self.evicted_at = 0
        self.evict_reason = ""
        self.preempted_by: Key | None = None
        self.unplanned = False
        self.running = False
        self.checks: dict[str, CheckState] = {}
        self.order: tuple[object, ...] = ()
        """Sort key as a candidate for preemption, without the parts that change."""
        self.boost = 0

    @property
    def stays(self) -> bool:
        """It runs, and cannot be stopped: whoever wants its place waits for its end."""
        fact = self.fact
        return fact is not None and not fact.preemptible and self.admitted and not self.evicted


class WaitingClass:
    """The waiting workloads of one shape in one queue: they share verdicts and are woken together.

    Bulk moves, which the reference does one by one, are the change of one flag.
    """

    __slots__ = ("count", "heap", "lq", "parked", "shape", "stamp", "verdict")

    def __init__(self, shape: Shape, lq: Key) -> None:
        self.shape = shape
        self.lq = lq
        """Only where usage of LocalQueues orders the queue, else empty."""
        self.heap: list[tuple[int, str, int, Workload]] = []
        self.parked = False
        self.stamp = 0
        self.count = 0
        self.verdict: Verdict | None = None

    def push(self, w: Workload) -> None:
        """Queue `w` by its time."""
        w.ticket += 1
        w.place = Place.QUEUED
        w.cls = self
        self.count += 1
        heappush(self.heap, (w.queued_at, w.uid, w.ticket, w))

    def head(self) -> Workload | None:
        """The oldest that is still here."""
        heap = self.heap
        while heap:
            _, _, ticket, w = heap[0]
            if w.ticket == ticket and w.place is Place.QUEUED and w.cls is self:
                return w
            heappop(heap)
        return None

    def members(self) -> list[Workload]:
        """Everybody who waits here, oldest first."""
        alive = [
            (at, uid, w)
            for at, uid, ticket, w in self.heap
            if w.ticket == ticket and w.place is Place.QUEUED and w.cls is self
        ]
        return [w for _, _, w in sorted(alive, key=lambda entry: entry[:2])]


class ClusterQueue:
    """A ClusterQueue: its configuration, who waits in it, who holds its quota."""

    __slots__ = (
        "claimers",
        "classes",
        "contested",
        "fact",
        "generation",
        "group_of",
        "heads",
        "holders",
        "inactive",
        "locals",
        "name",
        "node",
        "parked",
        "plans",
        "stamps",
        "sticky",
        "waiting",
    )

    def __init__(self, fact: ClusterQueueChanged) -> None:
        self.name = fact.name
        self.fact = fact
        self.node: Node
        self.generation = 0
        """Grows when quota in this queue may have become free; flavor scans start over."""
        self.inactive: tuple[str, str] | None = None
        self.holders: dict[Key, Workload] = {}
        self.classes: dict[tuple[int, Key], WaitingClass] = {}
        self.heads: list[tuple[int, int, str, int, WaitingClass]] = []
        """Active classes by the order of their heads; entries with an old stamp are void."""
        self.stamps = 0
        """Counts activations of classes; 0 is the stamp of none."""
        self.parked: dict[Key, Workload] = {}
        self.waiting: dict[Key, Workload] = {}
        """Everybody who waits for quota here, in any place."""
        self.claimers: dict[Key, Workload] = {}
        """Those of `waiting` that wait for their victims to drain."""
        self.sticky: Workload | None = None
        """Came last to preempt others: it goes first, so that nobody overtakes it."""
        self.plans: dict[object, object] = {}
        self.locals: dict[Key, None] = {}
        self.group_of: dict[str, int] = {}
        self.contested: dict[object, object] = {}
        self.configure(fact)

    def configure(self, fact: ClusterQueueChanged) -> None:
        """Take over a new configuration."""
        self.fact = fact
        self.group_of = {r: n for n, group in enumerate(fact.groups) for r in group.covered}
        self.plans.clear()

    @property
    def strict(self) -> bool:
        """StrictFIFO: the head blocks all behind it."""
        return self.fact.strategy == "StrictFIFO"


class LocalQueue:
    """A LocalQueue and the workloads that name it."""

    __slots__ = ("consumed", "fact", "key", "members", "penalty", "restored", "sampled_at")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.fact: LocalQueueChanged | None = None
        self.members: dict[Key, Workload] = {}
        """Also while the LocalQueue does not exist."""
        self.consumed: dict[str, float] = {}
        self.penalty: dict[str, float] = {}
        self.sampled_at: int | None = None
        self.restored = False
        """What it consumed is from a record, and what was admitted since has to be charged anew."""

    @property
    def weight(self) -> float:
        """Fair sharing weight."""
        return (self.fact.weight if self.fact else WEIGHT_ONE) / WEIGHT_ONE


class Shard:
    """Everything about one cluster."""

    __slots__ = (
        "awaited",
        "checks",
        "claims",
        "cohorts",
        "dirty",
        "finished",
        "flavors",
        "local_queues",
        "name",
        "namespaces",
        "orphans",
        "queues",
        "shapes",
        "stale",
        "timers",
        "to_wake",
        "touched",
        "trees",
        "unready",
        "untold",
        "workloads",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.flavors: dict[str, FlavorChanged] = {}
        self.cohorts: dict[str, CohortChanged] = {}
        self.queues: dict[str, ClusterQueue] = {}
        self.local_queues: dict[Key, LocalQueue] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.checks: dict[str, AdmissionCheckChanged] = {}
        self.workloads: dict[Key, Workload] = {}
        self.finished: dict[str, None] = {}
        """Uids that ended, oldest first: late facts about them are ignored."""
        self.orphans: dict[str, dict[Key, Workload]] = {}
        """Holders whose ClusterQueue does not exist (any more), by its name."""
        self.shapes: dict[Hashable, Shape] = {}
        self.trees: dict[str, Tree] = {}
        self.stale = True
        """The set-up changed: trees must be built anew."""
        self.dirty: dict[str, None] = {}
        """Roots that a fact touched."""
        self.to_wake: dict[str, None] = {}
        """ClusterQueues whose trees are to be woken once they are built."""
        self.claims: dict[Key, Workload] = {}
        """Preemptors that wait for victims."""
        self.awaited: dict[Key, None] = {}
        """Preemptors of evictions that were taken over at a restart."""
        self.timers: list[tuple[int, Key, int]] = []
        self.untold: dict[Key, Workload] = {}
        """Who waits and was never told why: one of several alike is looked at for all of them."""

        self.touched: dict[Key, Workload] = {}
        """Workloads whose reason may have to be published."""
        self.unready: dict[Key, None] = {}
        """Holders whose pods are not ready, while nobody else may be admitted for that reason."""

    def shape_of(self, fact: WorkloadChanged) -> Shape:
        """The one shape of all workloads like this."""
        identity = identity_of(fact)
        shape = self.shapes.get(identity)
        if shape is None:
            shape = Shape(len(self.shapes), identity, fact)
            self.shapes[identity] = shape
        return shape

    def holders(self) -> Iterable[Workload]:
        """Everybody who holds quota, also in queues that are gone."""
        return (w for w in self.workloads.values() if w.place is Place.HOLDING)
