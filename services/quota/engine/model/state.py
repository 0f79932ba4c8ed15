"""The state of one cluster: queues, workloads, and the quota trees that count their usage.

These classes hold data and keep their own fields consistent. The sibling modules compute on them.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush
from typing import Final

from services.quota.engine.facts import (
    WEIGHT_ONE,
    AdmissionCheckChanged,
    AssignedPodSet,
    CheckStateChanged,
    ClusterQueueChanged,
    CohortChanged,
    FlavorChanged,
    Key,
    LocalQueueChanged,
    Quota,
    WorkloadChanged,
)
from services.quota.engine.model.shapes import (
    FlavorResource,
    FlavorScan,
    Grant,
    IndexedUsage,
    Shape,
    WaitReason,
    identity_of,
)

# Quota trees ---------------------------------------------------------------------------------


FRUITLESS_PREEMPTIONS_MAX: Final = 3
"""How often a workload may preempt the same victim without being admitted (ADR 10)."""


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """A ClusterQueue or a cohort in its tree: what it owns, may borrow and lend, and uses.

    Every list is indexed by the tree's number of a (flavor, resource). `usage` changes with each
    admission; everything else is fixed until the tree is rebuilt.
    """

    name: str
    queue: "ClusterQueue | None"
    """None for a cohort."""

    quotas: Mapping[FlavorResource, Quota]
    weight: float
    """Fair sharing weight; 1.0 is the default."""

    parent: "Node | None" = None
    tree: "Tree" = field(init=False)
    ancestors: "tuple[Node, ...]" = ()
    """Parent first."""

    cohorts: "list[Node]" = field(default_factory=list)
    queues: "list[Node]" = field(default_factory=list)
    height: int = 0
    """Levels below this node; a queue has 0."""

    nominal: list[int] = field(default_factory=list)
    borrowing_limit: list[int | None] = field(default_factory=list)
    local_quota: list[int] = field(default_factory=list)
    """The part of `subtree_quota` that a lending limit keeps from the rest of the tree."""

    subtree_quota: list[int] = field(default_factory=list)
    """Own nominal quota, and what the children lend."""

    potential_available: list[int] = field(default_factory=list)
    """The most that the node could use in an empty tree."""

    borrow_cap: list[int | None] = field(default_factory=list)
    """The most that may be lent to and borrowed from the parent together; None: no limit."""

    usage: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False, repr=False)
class Tree:
    """All nodes below one root, with one numbering of (flavor, resource)."""

    key: str
    root: Node
    flavor_resources: list[FlavorResource]
    index: dict[FlavorResource, int]
    nodes: list[Node] = field(default_factory=list)
    """Parents before children."""

    queues: list[Node] = field(default_factory=list)
    borrowers: list[dict[Node, None]] = field(default_factory=list)
    """Per flavor and resource the queues that use more than their nominal quota."""

    quiet_cycles: int = 0
    """Cycles in a row in which nothing changed while flavor scans went on."""

    cycle_number: int = 0
    """Cycles so far; a flavor scan knows its age by it."""

    needs_wake: bool = True
    """Capacity may have become free: the next cycle evaluates every waiting workload again."""

    holdings_hash: int = 0
    """Equal when the same workloads hold the same quota. Only ever compared."""

    tried_preemptions: set[tuple[str, tuple[str, ...], int, tuple[object, ...]]] = field(
        default_factory=set
    )
    """(preemptor, victims, holdings, flavor scans) since the last outside change (ADR 10)."""

    preempted_pairs: set[tuple[Key, Key]] = field(default_factory=set)
    """(preemptor, victim) since the last outside change: they count as one attempt (ADR 10)."""

    _lendable: dict[str, dict[str, int]] = field(default_factory=dict)

    def is_fruitless(self, w: "Workload", victim: "Workload") -> bool:
        """Whether `w` has preempted `victim` too often before the last outside change (ADR 10)."""
        counted = (w.key, victim.key) in self.preempted_pairs
        most = FRUITLESS_PREEMPTIONS_MAX
        return not counted and w.fruitless_preemptions.get(victim.key, 0) >= most

    def count_preemption(self, w: "Workload", victim: "Workload") -> None:
        """`w` preempts `victim`: all attempts until the next outside change count as one."""
        if (w.key, victim.key) not in self.preempted_pairs:
            self.preempted_pairs.add((w.key, victim.key))
            w.fruitless_preemptions[victim.key] = w.fruitless_preemptions.get(victim.key, 0) + 1

    def forget_preemptions(self) -> None:
        """An outside change came: a preemption that led nowhere may succeed now."""
        self.tried_preemptions.clear()
        self.preempted_pairs.clear()

    def lendable_to(self, node: Node) -> dict[str, int]:
        """Per resource what the children of `node` could share: its potential in all flavors."""
        if (known := self._lendable.get(node.name)) is None:
            known = {}
            for i, (_, resource) in enumerate(self.flavor_resources):
                known[resource] = known.get(resource, 0) + node.potential_available[i]
            self._lendable[node.name] = known
        return known

    def index_usage(self, usage: Mapping[FlavorResource, int]) -> IndexedUsage:
        """`usage` by this tree's numbers."""
        index = self.index
        return tuple((index[fr], amount) for fr, amount in usage.items())


# Workloads -----------------------------------------------------------------------------------


class Phase(IntEnum):
    """Where a workload stands."""

    NOT_QUEUED = 0
    """In no ClusterQueue: deactivated, gated, or its LocalQueue is missing or stopped."""

    QUEUED = 1
    """In the heap of its class; evaluated when the class is active and the workload is its head."""

    PARKED = 2
    """Set aside by itself (backing off, namespace does not match), until something wakes it."""

    CLAIMING = 3
    """It preempted others and waits for them to drain."""

    HOLDING = 4
    """It has quota."""


@dataclass(slots=True, eq=False, repr=False)
class Claim:
    """A preemptor's claim on what its victims free. No workload of lower rank takes it meanwhile.

    When the last victim is gone, the claim is fulfilled before any entry that it outranks.
    """

    grant: Grant
    borrowing_height: int
    """How high in the tree the grant borrows; 0: it is its queue's own."""

    victims: "dict[Key, Workload]"
    outdated: bool = False
    """Queues changed since: the workload is evaluated anew when its victims are gone."""


@dataclass(slots=True, eq=False, repr=False)
class Workload:
    """One workload of one cluster, waiting or holding quota."""

    namespace: str
    key: Key
    uid: str
    fact: WorkloadChanged | None = None
    """None: only its admission is known (after a restart)."""

    shape: Shape | None = None
    priority: int = 0
    queued_at: int = 0
    """Its position among equals: creation, or the eviction by a check or a time-out. Nanoseconds."""

    arrival: int = 0
    """How many workloads of its cluster this engine knew before it."""

    requeue_at: int | None = None
    """Not evaluated before this instant (back-off)."""

    phase: Phase = Phase.NOT_QUEUED

    # While it waits:
    queue: "ClusterQueue | None" = None
    last_queue: str = ""
    """Name of the ClusterQueue in which it waited last."""

    local_queue: Key = ""
    waiting_class: "WaitingClass | None" = None
    heap_version: int = 0
    """Heap entries with an older version are void."""

    scan: FlavorScan | None = None
    wait_reason: WaitReason | None = None
    published_reason: str = ""
    """`publication_key` of the reason that was published last."""

    claim: Claim | None = None
    fruitless_preemptions: dict[Key, int] = field(default_factory=dict)
    """Victim to how often it was preempted for this workload without an admission; all between two
    outside changes counts as once (ADR 10)."""

    # While it holds quota:
    holding_node: Node | None = None
    """Where its usage is counted; None: in no tree."""

    holding_queue: str = ""
    """Name of the ClusterQueue whose quota it holds; empty: none."""

    holding_hash: int = 0
    """Its part of `Tree.holdings_hash`."""

    assigned: tuple[AssignedPodSet, ...] = ()
    usage: dict[FlavorResource, int] = field(default_factory=dict)
    indexed_usage: IndexedUsage = ()
    reserved_at: int = 0
    admitted: bool = False
    was_admitted: bool = False
    """It was admitted before its eviction."""

    evicted: bool = False
    eviction_reason: str = ""
    preempted_by: Key | None = None
    unplanned: bool = False
    running: bool = False
    checks: dict[str, CheckStateChanged] = field(default_factory=dict)
    needed_checks: tuple[str, ...] | None = None
    """Checks that the last decision named; None: whatever its queue asks for."""

    @property
    def counts_as_admitted(self) -> bool:
        """Whether counts and usage include it: an evicted one is admitted until it gives its quota back."""
        return self.admitted or self.was_admitted

    @property
    def cannot_be_stopped(self) -> bool:
        """It runs and its kind has no way to stop: it is never a candidate for preemption."""
        fact = self.fact
        return fact is not None and not fact.preemptible and self.admitted and not self.evicted


@dataclass(slots=True, eq=False, repr=False)
class WaitingClass:
    """The waiting workloads of one shape in one queue. They share wait reasons and wake together.

    Kueue moves such workloads one by one; here one flag moves all of them.
    """

    shape: Shape
    local_queue: Key
    """Only where usage of LocalQueues orders the queue, else empty."""

    heap: list[tuple[int, str, Key, int, Workload]] = field(default_factory=list)
    """By time and uid. The key decides between two names of one job."""

    parked: bool = False
    heap_version: int = 0
    """Version of its entry in `ClusterQueue.heads`; 0: it has none."""

    count: int = 0
    wait_reason: WaitReason | None = None

    def push(self, w: Workload) -> None:
        """Queue `w` by its time."""
        w.heap_version += 1
        w.phase = Phase.QUEUED
        w.waiting_class = self
        self.count += 1
        heappush(self.heap, (w.queued_at, w.uid, w.key, w.heap_version, w))

    def head(self) -> Workload | None:
        """The oldest member; drops void entries on the way."""
        heap = self.heap
        while heap:
            _, _, _, version, w = heap[0]
            if w.heap_version == version and w.phase is Phase.QUEUED and w.waiting_class is self:
                return w
            heappop(heap)
        return None

    def members(self) -> list[Workload]:
        """All members, oldest first."""
        alive = [
            (at, uid, key, w)
            for at, uid, key, version, w in self.heap
            if w.heap_version == version and w.phase is Phase.QUEUED and w.waiting_class is self
        ]
        return [w for _, _, _, w in sorted(alive, key=lambda entry: entry[:3])]


# Queues --------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class ClusterQueue:
    """A ClusterQueue: its configuration, who waits in it, who holds its quota."""

    fact: ClusterQueueChanged
    name: str = field(init=False)
    node: Node = field(init=False)
    generation: int = 0
    """Grows when quota in this queue may have become free; flavor scans start over."""

    inactive: tuple[str, str] | None = None
    """(reason, message) of the condition Active=False; None: it is active."""

    holders: dict[Key, Workload] = field(default_factory=dict)
    classes: dict[tuple[int, Key], WaitingClass] = field(default_factory=dict)
    heads: list[tuple[int, int, str, int, WaitingClass]] = field(default_factory=list)
    """Active classes by the order of their heads; entries of an older version are void."""

    last_heap_version: int = 0
    parked: dict[Key, Workload] = field(default_factory=dict)
    waiting: dict[Key, Workload] = field(default_factory=dict)
    """Every workload that waits for quota here, in any phase."""

    claimers: dict[Key, Workload] = field(default_factory=dict)
    """Those of `waiting` that wait for their victims to drain."""

    sticky_workload: Workload | None = None
    """The last preemptor: it stays at the head, so that no workload overtakes it (Kueue's term)."""

    plans: dict[object, object] = field(default_factory=dict)
    """Flavor plans by shape and counts, see `scheduling.plans`."""

    group_of: dict[str, int] = field(default_factory=dict)
    """Resource to the index of its resource group."""

    def __post_init__(self) -> None:
        """Take the name and the configuration from the fact."""
        self.name = self.fact.name
        self.configure(self.fact)

    def configure(self, fact: ClusterQueueChanged) -> None:
        """Replace the configuration."""
        self.fact = fact
        self.group_of = {r: n for n, group in enumerate(fact.groups) for r in group.covered}
        self.plans.clear()

    @property
    def strict(self) -> bool:
        """StrictFIFO: the head blocks all behind it."""
        return self.fact.strategy == "StrictFIFO"

    def required_checks(self, assigned: tuple[AssignedPodSet, ...]) -> tuple[str, ...]:
        """Names of the admission checks that a workload with these flavors needs."""
        if not self.fact.checks:
            return ()
        used = {flavor for pod_set in assigned for flavor in pod_set.flavors.values()}
        return tuple(
            rule.name for rule in self.fact.checks if not rule.on_flavors or rule.on_flavors & used
        )


@dataclass(slots=True, eq=False, repr=False)
class LocalQueue:
    """A LocalQueue and the workloads that name it."""

    key: Key
    fact: LocalQueueChanged | None = None
    """None: workloads name it, but it does not exist."""

    members: dict[Key, Workload] = field(default_factory=dict)
    consumed: dict[str, float] = field(default_factory=dict)
    """Resource to decayed past usage, in whole units (admission fair sharing)."""

    prices: dict[Key, dict[str, float]] = field(default_factory=dict)
    """Members that have reserved quota and are not admitted yet, with what counts for them until then."""

    sampled_at: int | None = None
    prices_missing: bool = False
    """`consumed` was restored from a status, which does not record the prices."""

    def remove(self, key: Key) -> None:
        """Remove a workload that has ended or names another LocalQueue."""
        self.members.pop(key, None)
        self.prices.pop(key, None)

    @property
    def weight(self) -> float:
        """Fair sharing weight."""
        return (self.fact.weight if self.fact else WEIGHT_ONE) / WEIGHT_ONE


@dataclass(slots=True, eq=False, repr=False)
class Shard:
    """Everything about one cluster. Clusters share nothing."""

    name: str
    """Of the cluster."""

    flavors: dict[str, FlavorChanged] = field(default_factory=dict)
    cohorts: dict[str, CohortChanged] = field(default_factory=dict)
    queues: dict[str, ClusterQueue] = field(default_factory=dict)
    local_queues: dict[Key, LocalQueue] = field(default_factory=dict)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    """Name to labels."""

    checks: dict[str, AdmissionCheckChanged] = field(default_factory=dict)
    workloads: dict[Key, Workload] = field(default_factory=dict)
    arrivals: int = 0
    """How many workloads it ever had."""

    ended: dict[tuple[Key, str], str] = field(default_factory=dict)
    """Key and uid of workloads, oldest first, and why they ended: late facts about them are ignored."""

    orphaned_holders: dict[str, dict[Key, Workload]] = field(default_factory=dict)
    """Holders of quota whose ClusterQueue does not exist, by its name."""

    shapes: dict[Hashable, Shape] = field(default_factory=dict)
    trees: dict[str, Tree] = field(default_factory=dict)
    stale: bool = True
    """Queues or cohorts changed: the trees must be rebuilt."""

    dirty_trees: dict[str, None] = field(default_factory=dict)
    """Keys of the trees that need another scheduling cycle."""

    queues_to_wake: dict[str, None] = field(default_factory=dict)
    """ClusterQueues whose trees are woken once they are rebuilt."""

    claims: dict[Key, Workload] = field(default_factory=dict)
    """Preemptors that wait for their victims."""

    restored_preemptors: dict[Key, None] = field(default_factory=dict)
    """Preemptors of evictions that were restored after a restart."""

    timers: list[tuple[int, Key, int]] = field(default_factory=list)
    """Heap of back-offs: (nanoseconds, workload, 0)."""

    unpublished: dict[Key, Workload] = field(default_factory=dict)
    """Waiting workloads without any published reason: a member of a class is evaluated for all of it."""

    changed_reasons: dict[Key, Workload] = field(default_factory=dict)
    """Workloads whose reason may have to be published."""

    unready_holders: dict[Key, None] = field(default_factory=dict)
    """Holders whose pods are not ready and block every other admission (`blockAdmission`)."""

    def shape_of(self, fact: WorkloadChanged) -> Shape:
        """The one shape of all workloads like this."""
        identity = identity_of(fact)
        shape = self.shapes.get(identity)
        if shape is None:
            shape = self.shapes[identity] = Shape(len(self.shapes), fact)
        return shape

    def holders(self) -> Iterable[Workload]:
        """Every workload that holds quota, also in ClusterQueues that do not exist."""
        return (w for w in self.workloads.values() if w.phase is Phase.HOLDING)
