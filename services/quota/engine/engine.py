"""The quota engine: facts go in, decisions come out. The only place where an admission is decided."""

from collections.abc import Callable
from heapq import heappop
from typing import Final, assert_never

from services.quota.engine.fact_handlers import FactHandlers
from services.quota.engine.facts import (
    AdmissionCheckChanged,
    AdmissionCheckGone,
    CheckStateChanged,
    ClusterQueueChanged,
    ClusterQueueGone,
    CohortChanged,
    CohortGone,
    Decision,
    EvictionRequested,
    Fact,
    FlavorChanged,
    FlavorGone,
    Key,
    LocalQueueChanged,
    LocalQueueGone,
    NamespaceChanged,
    NamespaceGone,
    QuotaHeld,
    Wait,
    WorkloadChanged,
    WorkloadDrained,
    WorkloadFinished,
    WorkloadGone,
    WorkloadRunning,
)
from services.quota.engine.model.local_queue_usage import charge, sample_usage, usage_by_queue
from services.quota.engine.model.queues import enqueue, wake_tree
from services.quota.engine.model.shapes import WaitReason
from services.quota.engine.model.state import Phase, Shard, Tree, Workload
from services.quota.engine.model.topology import rebuild_trees
from services.quota.engine.policy import Policy
from services.quota.engine.reasons import SUSPENDED
from services.quota.engine.reservations import end_claim
from services.quota.engine.scheduling.assignment_search import AssignmentSearch
from services.quota.engine.scheduling.cycle import SchedulingCycle
from services.quota.engine.views.balances import NodeBalance, node_balances
from services.quota.engine.views.explanation import Explanation, explain
from services.quota.engine.views.queues import (
    CohortView,
    PendingWorkload,
    QueueView,
    cluster_queue_view,
    cohort_views,
    local_queue_view,
    pending_in,
)

__all__ = ["Policy", "QuotaEngine"]

NEVER: Final = 1 << 63
QUIET_CYCLES_MAX: Final = 18
"""Cycles in a row in which only flavor scans go on. More than a resource group has flavors never helps."""


class QuotaEngine:
    """Turns facts into decisions. The same facts in the same order give the same decisions.

    It never awaits and knows no clock: `now` is handed in, in nanoseconds.
    """

    def __init__(self, policy: Policy | None = None, *, explains: bool = True) -> None:
        """`explains`: a `Wait` has a message. It is long where many flavors were tried for many pod sets."""
        self._policy = policy or Policy()
        self._explains = explains
        self._shards: dict[str, Shard] = {}
        self._handlers: dict[str, FactHandlers] = {}
        self._pending: list[Decision] = []
        self._now = 0
        self._sample_at: dict[str, int] = {}
        """By cluster, when the usage of LocalQueues is sampled next; absent: at once."""

        self.samples_taken = 0
        """Number of samples so far; a change means that statuses have new values."""

        self._claims_kept = 0

    def apply(self, fact: Fact) -> None:
        """Apply a fact. Decisions follow from `cycle` or `decide`."""
        shard = self._shards.get(fact.cluster)
        if shard is None:
            shard = self._shards[fact.cluster] = Shard(fact.cluster)
            self._handlers[fact.cluster] = FactHandlers(shard, self._pending)
        handlers = self._handlers[fact.cluster]
        handlers.now = self._now
        match fact:
            case WorkloadChanged():
                handlers.on_workload(fact)
            case WorkloadFinished() | WorkloadGone():
                handlers.on_ended(fact)
            case WorkloadDrained():
                handlers.on_drained(fact)
            case WorkloadRunning():
                handlers.on_running(fact)
            case CheckStateChanged():
                handlers.on_check(fact)
            case QuotaHeld():
                handlers.on_held(fact)
            case EvictionRequested():
                handlers.on_eviction(fact)
            case ClusterQueueChanged():
                self._sample_at.pop(fact.cluster, None)
                handlers.on_cluster_queue(fact)
            case ClusterQueueGone():
                handlers.on_cluster_queue_gone(fact.name)
            case LocalQueueChanged():
                self._sample_at.pop(fact.cluster, None)
                handlers.on_local_queue(fact)
            case LocalQueueGone():
                handlers.on_local_queue_gone(f"{fact.namespace}/{fact.name}")
            case (
                FlavorChanged()
                | FlavorGone()
                | CohortChanged()
                | CohortGone()
                | NamespaceChanged()
                | NamespaceGone()
                | AdmissionCheckChanged()
                | AdmissionCheckGone()
            ):
                _apply_configuration(shard, handlers, fact)
            case _:
                assert_never(fact)

    def cycle(self, now: int) -> list[Decision]:
        """Run one scheduling cycle in every dirty tree: it evaluates one head of each queue.

        `needs_another_cycle` says whether another one could decide more. Tests compare this with
        Kueue; services use `decide`.
        """
        self._now = now
        for name in sorted(self._shards):
            shard = self._shards[name]
            self._prepare(shard, now)
            for w in [w for w in shard.claims.values() if w.claim and not w.claim.victims]:
                end_claim(shard, w)
            for key in list(shard.dirty_trees):
                tree = shard.trees.get(key)
                if tree is None or not self._run_cycle(shard, tree, now, like_kueue=True):
                    del shard.dirty_trees[key]
            self._publish_reasons(shard)
        return self._drain_decisions()

    def decide(
        self, now: int, *, admit: bool = True, over: Callable[[], bool] | None = None
    ) -> list[Decision]:
        """Run scheduling cycles in every dirty tree until nothing changes any more.

        Without `admit` there are no cycles: workloads end, and waiting ones are evaluated later.
        `over` is asked after each cycle: no other follows once it is true.
        A preemptor is admitted once its victims are gone, before any workload that it outranks.
        """
        self._now = now
        for name in sorted(self._shards):
            shard = self._shards[name]
            self._prepare(shard, now)
            if not shard.dirty_trees and not shard.changed_reasons:
                continue
            for key in list(shard.dirty_trees) if admit else ():
                tree = shard.trees.get(key)
                while tree is not None and self._run_cycle(shard, tree, now):
                    if over is not None and over():
                        return self._drain_decisions()
            if admit:
                shard.dirty_trees.clear()
            self._publish_reasons(shard)
        return self._drain_decisions()

    def drain_claims_kept(self) -> int:
        """How often, since the last call, a cycle kept what victims free for their preemptor."""
        kept, self._claims_kept = self._claims_kept, 0
        return kept

    @property
    def policy(self) -> Policy:
        """The configuration of the engine."""
        return self._policy

    @property
    def needs_another_cycle(self) -> bool:
        """Whether another cycle could decide something without a new fact."""
        return any(shard.dirty_trees or shard.stale for shard in self._shards.values())

    def shards(self) -> list[Shard]:
        """The state of all clusters, for invariants and views. Do not change it."""
        return list(self._shards.values())

    def next_at(self) -> int | None:
        """When `decide` is due even without a new fact (end of a back-off, a sample); None: never."""
        times = [shard.timers[0][0] for shard in self._shards.values() if shard.timers]
        times += [at for at in self._sample_at.values() if at != NEVER]
        return min(times, default=None)

    # Queries ---------------------------------------------------------------------------------

    def explain(self, cluster: str, key: Key) -> Explanation | None:
        """Why a workload waits now; None: it is not known."""
        shard = self._current_shard(cluster)
        w = shard.workloads.get(key) if shard is not None else None
        if shard is None or w is None:
            return None
        return explain(shard, self._policy, w, self._now)

    def required_checks(self, cluster: str, key: Key) -> list[str]:
        """Names of the admission checks of a workload that holds quota; none if its queue is unknown."""
        shard = self._current_shard(cluster)
        w = shard.workloads.get(key) if shard is not None else None
        cq = shard.queues.get(w.holding_queue) if shard is not None and w is not None else None
        return [] if w is None or cq is None else list(cq.required_checks(w.assigned))

    def cluster_queue(self, cluster: str, name: str) -> QueueView | None:
        """Counts and usage of a ClusterQueue; None: there is none."""
        shard = self._current_shard(cluster)
        cq = shard.queues.get(name) if shard is not None else None
        return None if cq is None else cluster_queue_view(cq)

    def local_queue(self, cluster: str, key: Key) -> QueueView | None:
        """Counts and usage of a LocalQueue; None: there is none."""
        shard = self._current_shard(cluster)
        local_queue = shard.local_queues.get(key) if shard is not None else None
        return (
            None if shard is None or local_queue is None else local_queue_view(shard, local_queue)
        )

    def snapshot(self, cluster: str) -> tuple[list[QueueView], list[QueueView]]:
        """Counts and usage of all ClusterQueues and of all LocalQueues of a cluster."""
        shard = self._current_shard(cluster)
        if shard is None:
            return [], []
        return (
            [cluster_queue_view(shard.queues[name]) for name in sorted(shard.queues)],
            [
                local_queue_view(shard, shard.local_queues[key])
                for key in sorted(shard.local_queues)
                if shard.local_queues[key].fact is not None
            ],
        )

    def cohorts(self, cluster: str) -> list[CohortView]:
        """Where the Cohorts of a cluster stand."""
        shard = self._current_shard(cluster)
        return [] if shard is None else [*cohort_views(shard)]

    def balances(self, cluster: str) -> list[NodeBalance]:
        """Where the quota of every ClusterQueue and cohort of a cluster is, parents before children."""
        shard = self._current_shard(cluster)
        return [] if shard is None else [*node_balances(shard)]

    def pending(
        self, cluster: str, cluster_queue: str, *, offset: int = 0, limit: int = 1000
    ) -> list[PendingWorkload]:
        """The waiting workloads of a ClusterQueue, in its order."""
        shard = self._current_shard(cluster)
        cq = shard.queues.get(cluster_queue) if shard is not None else None
        return [] if cq is None else pending_in(cq, offset=offset, limit=limit)

    def _current_shard(self, cluster: str) -> Shard | None:
        """The state of a cluster with up-to-date trees; None: nothing is known of it."""
        shard = self._shards.get(cluster)
        if shard is not None and shard.stale:
            rebuild_trees(shard)
        return shard

    # Inside ----------------------------------------------------------------------------------

    def _prepare(self, shard: Shard, now: int) -> None:
        if shard.stale:
            rebuild_trees(shard)
        if self._policy.resource_weights is not None:
            self._sample_usage(shard, now)
            charge(shard, self._policy, self._pending, now)
        while shard.timers and shard.timers[0][0] <= now:
            _, key, _ = heappop(shard.timers)
            w = shard.workloads.get(key)
            if w is None or w.phase is not Phase.PARKED or w.queue is None:
                continue
            if w.requeue_at is None or w.requeue_at <= now:
                shard.dirty_trees[w.queue.node.tree.key] = None
                enqueue(w.queue, w)

    def _sample_usage(self, shard: Shard, now: int) -> None:
        if now >= self._sample_at.get(shard.name, now):
            at = sample_usage(shard, self._policy, now)
            self._sample_at[shard.name] = NEVER if at is None else at
            self.samples_taken += 1

    def _run_cycle(self, shard: Shard, tree: Tree, now: int, *, like_kueue: bool = False) -> bool:
        """Run one cycle; return whether another one could decide more."""
        wake_tree(shard, tree, now)
        fair = self._policy.resource_weights is not None
        usage = usage_by_queue(shard, self._policy) if fair else None
        cycle = SchedulingCycle(
            shard=shard,
            tree=tree,
            policy=self._policy,
            now=now,
            decisions=self._pending,
            search=AssignmentSearch(shard=shard, tree=tree, policy=self._policy, fair_usage=usage),
            like_kueue=like_kueue,
        )
        begin = len(self._pending)
        cycle.run()
        self._claims_kept += cycle.claims_kept
        if fair:
            charge(shard, self._policy, self._pending[begin:], now)
        if cycle.changed:
            tree.quiet_cycles = 0
            return True
        tree.quiet_cycles += 1
        if cycle.has_untried_flavors and tree.quiet_cycles < QUIET_CYCLES_MAX:
            return True
        tree.quiet_cycles = (
            0  # Only a new fact starts another cycle, with the full number of retries.
        )
        return False

    def _publish_reasons(self, shard: Shard) -> None:
        """Add a `Wait` for every reason that changed."""
        for w in shard.changed_reasons.values():
            wait_reason = w.wait_reason
            if (
                w.phase is Phase.HOLDING
                or wait_reason is None
                or w.published_reason == wait_reason.publication_key
            ):
                continue
            shard.unpublished.pop(w.key, None)
            self._pending.append(_wait_decision(shard, w, wait_reason, explains=self._explains))
        shard.changed_reasons.clear()

    def unpublished_reasons(self, most: int) -> list[Wait]:
        """Reasons of waiting workloads that have none published, `most` at a time.

        Such a workload was never evaluated itself: an equal one was, its queue is inactive, or it is
        behind the head of a strict one.
        """
        waits: list[Wait] = []
        for shard in self._shards.values():
            for key in list(shard.unpublished):
                if len(waits) == most:
                    return waits
                w = shard.unpublished.pop(key)
                known = (
                    shard.workloads.get(key) is w
                    and w.phase is Phase.QUEUED
                    and not w.published_reason
                )
                wait_reason = _class_reason(w) if known else None
                if wait_reason is not None:
                    waits.append(_wait_decision(shard, w, wait_reason, explains=self._explains))
        return waits

    @property
    def has_unpublished_reasons(self) -> bool:
        """Whether `unpublished_reasons` may have something to return."""
        return any(shard.unpublished for shard in self._shards.values())

    def _drain_decisions(self) -> list[Decision]:
        decisions = list(self._pending)
        self._pending.clear()
        return decisions


def _class_reason(w: Workload) -> WaitReason | None:
    """The reason of a workload that was never evaluated; None: it will be evaluated."""
    if w.queue is not None and w.queue.inactive is not None:
        return WaitReason(SUSPENDED, f"ClusterQueue {w.queue.name} is inactive")
    if w.queue is not None and w.queue.strict:
        return w.wait_reason  # The head goes first, however long that takes.
    return (
        w.waiting_class.wait_reason
        if w.waiting_class is not None and w.waiting_class.parked
        else None
    )


def _wait_decision(shard: Shard, w: Workload, wait_reason: WaitReason, *, explains: bool) -> Wait:
    w.published_reason = wait_reason.publication_key
    return Wait(
        cluster=shard.name,
        key=w.key,
        uid=w.uid,
        reason=wait_reason.reason,
        message=wait_reason.full_message() if explains else "",
        cluster_queue=w.queue.name if w.queue else "",
        requeue_at=w.requeue_at,
    )


def _apply_configuration(
    shard: Shard,
    handlers: FactHandlers,
    fact: FlavorChanged
    | FlavorGone
    | CohortChanged
    | CohortGone
    | NamespaceChanged
    | NamespaceGone
    | AdmissionCheckChanged
    | AdmissionCheckGone,
) -> None:
    """Apply a fact that any queue may depend on."""
    match fact:
        case FlavorChanged():
            if shard.flavors.get(fact.name) == fact:
                return
            shard.flavors[fact.name] = fact
        case FlavorGone():
            shard.flavors.pop(fact.name, None)
        case CohortChanged():
            if shard.cohorts.get(fact.name) == fact:
                return
            shard.cohorts[fact.name] = fact
        case CohortGone():
            shard.cohorts.pop(fact.name, None)
        case NamespaceChanged():
            labels = dict(fact.labels)
            if shard.namespaces.get(fact.name) == labels:
                return
            shard.namespaces[fact.name] = labels
        case NamespaceGone():
            shard.namespaces.pop(fact.name, None)
        case AdmissionCheckChanged():
            if shard.checks.get(fact.name) == fact:
                return
            shard.checks[fact.name] = fact
        case AdmissionCheckGone():
            shard.checks.pop(fact.name, None)
        case _:
            assert_never(fact)
    handlers.mark_all_stale()
