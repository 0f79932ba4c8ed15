"""The one place where an admission is decided."""

from heapq import heappop
from typing import Final, assert_never

from services.quota.engine.fact_handlers import Intake
from services.quota.engine.facts import (
    AdmissionCheckChanged,
    AdmissionCheckGone,
    CheckState,
    ClusterQueueChanged,
    ClusterQueueGone,
    CohortChanged,
    CohortGone,
    Decision,
    Drained,
    EvictionRequested,
    Fact,
    Finished,
    FlavorChanged,
    FlavorGone,
    Held,
    Key,
    LocalQueueChanged,
    LocalQueueGone,
    NamespaceChanged,
    NamespaceGone,
    Reserve,
    Running,
    Wait,
    WorkloadChanged,
    WorkloadGone,
)
from services.quota.engine.model.local_queue_usage import charge, sample, usage_by_queue
from services.quota.engine.model.queues import enqueue, wake_tree
from services.quota.engine.model.shapes import WaitReason
from services.quota.engine.model.state import Phase, Shard, Tree, Workload
from services.quota.engine.model.topology import rebuild
from services.quota.engine.policy import Policy
from services.quota.engine.reservations import end_claim
from services.quota.engine.scheduling.assignment_search import Weigher
from services.quota.engine.scheduling.cycle import Round
from services.quota.engine.views.explanation import Explanation, explain
from services.quota.engine.views.queues import (
    Pending,
    QueueView,
    cluster_queue_view,
    local_queue_view,
    pending_in,
)

__all__ = ["Policy", "QuotaEngine"]

NEVER: Final = 1 << 63
QUIET_ROUNDS_MAX: Final = 18
"""Rounds in which only flavor scans go on: more than a group has flavors never helps."""


class QuotaEngine:
    """Turns facts into decisions. The same facts in the same order give the same decisions.

    It never awaits and knows no clock: `now` is handed in, in nanoseconds.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Policy()
        self._shards: dict[str, Shard] = {}
        self._intakes: dict[str, Intake] = {}
        self._pending: list[Decision] = []
        self._now = 0
        self._sample_at: dict[str, int] = {}
        """By cluster, when what LocalQueues used is sampled again; missing: at once."""

        self.samples = 0
        """How often that was looked at: whoever tells of it has something new."""

    def take(self, fact: Fact) -> None:
        """Note what became true. Decisions follow from `cycle` or `decide`."""
        shard = self._shards.get(fact.cluster)
        if shard is None:
            shard = self._shards[fact.cluster] = Shard(fact.cluster)
            self._intakes[fact.cluster] = Intake(shard, self._pending)
        intake = self._intakes[fact.cluster]
        intake.now = self._now
        match fact:
            case WorkloadChanged():
                intake.on_workload(fact)
            case Finished() | WorkloadGone():
                intake.on_ended(fact)
            case Drained():
                intake.on_drained(fact)
            case Running():
                intake.on_running(fact)
            case CheckState():
                intake.on_check(fact)
            case Held():
                intake.on_held(fact)
            case EvictionRequested():
                intake.on_eviction(fact)
            case ClusterQueueChanged():
                self._sample_at.pop(fact.cluster, None)
                intake.on_cluster_queue(fact)
            case ClusterQueueGone():
                intake.on_cluster_queue_gone(fact.name)
            case LocalQueueChanged():
                self._sample_at.pop(fact.cluster, None)
                intake.on_local_queue(fact)
            case LocalQueueGone():
                intake.on_local_queue_gone(f"{fact.namespace}/{fact.name}")
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
                _take_set_up(shard, intake, fact)
            case _:
                assert_never(fact)

    def cycle(self, now: int) -> list[Decision]:
        """One round in every tree that something touched: one head of each queue.

        `busy` says whether another round could bring more. For comparison with the reference;
        services use `decide`.
        """
        self._now = now
        for name in sorted(self._shards):
            shard = self._shards[name]
            self._prepare(shard, now)
            for w in [w for w in shard.claims.values() if w.claim and not w.claim.victims]:
                end_claim(shard, w)
            for key in list(shard.dirty_trees):
                tree = shard.trees.get(key)
                if tree is None or not self._round(shard, tree, now, as_reference=True):
                    del shard.dirty_trees[key]
            self._speak(shard)
        return self._flush()

    def decide(self, now: int, *, admit: bool = True) -> list[Decision]:
        """Rounds, in every tree that something touched, until nothing changes any more.

        Without `admit` there are none: what ends, ends, and who waits is looked at another time.
        Whoever preempted others takes its place once they are gone, before anybody whom it outranks.
        """
        self._now = now
        for name in sorted(self._shards):
            shard = self._shards[name]
            self._prepare(shard, now)
            if not shard.dirty_trees and not shard.changed_reasons:
                continue
            for key in list(shard.dirty_trees) if admit else ():
                tree = shard.trees.get(key)
                while tree is not None and self._round(shard, tree, now):
                    pass
            if admit:
                shard.dirty_trees.clear()
            self._speak(shard)
        return self._flush()

    @property
    def policy(self) -> Policy:
        """What is configured for all of it."""
        return self._policy

    @property
    def busy(self) -> bool:
        """Another round could decide something without any new fact."""
        return any(shard.dirty_trees or shard.stale for shard in self._shards.values())

    def shards(self) -> list[Shard]:
        """All state, for invariants and views. Not to be changed."""
        return list(self._shards.values())

    def next_at(self) -> int | None:
        """When `decide` should be called even if no fact comes: a back-off ends, a sample is due."""
        times = [shard.timers[0][0] for shard in self._shards.values() if shard.timers]
        times += [at for at in self._sample_at.values() if at != NEVER]
        return min(times, default=None)

    # Questions -------------------------------------------------------------------------------

    def explain(self, cluster: str, key: Key) -> Explanation | None:
        """Why a workload waits, as of now; None if it is not known."""
        shard = self._present(cluster)
        w = shard.workloads.get(key) if shard is not None else None
        if shard is None or w is None:
            return None
        return explain(shard, self._policy, w, self._now)

    def cluster_queue(self, cluster: str, name: str) -> QueueView | None:
        """How a ClusterQueue stands; None if there is none."""
        shard = self._present(cluster)
        cq = shard.queues.get(name) if shard is not None else None
        return None if cq is None else cluster_queue_view(cq)

    def local_queue(self, cluster: str, key: Key) -> QueueView | None:
        """How a LocalQueue stands; None if there is none."""
        shard = self._present(cluster)
        local_queue = shard.local_queues.get(key) if shard is not None else None
        return (
            None if shard is None or local_queue is None else local_queue_view(shard, local_queue)
        )

    def snapshot(self, cluster: str) -> tuple[list[QueueView], list[QueueView]]:
        """How all ClusterQueues and all LocalQueues of a cluster stand."""
        shard = self._present(cluster)
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

    def pending(
        self, cluster: str, cluster_queue: str, *, offset: int = 0, limit: int = 1000
    ) -> list[Pending]:
        """Who waits in a ClusterQueue, in order."""
        shard = self._present(cluster)
        cq = shard.queues.get(cluster_queue) if shard is not None else None
        return [] if cq is None else pending_in(cq, offset=offset, limit=limit)

    def _present(self, cluster: str) -> Shard | None:
        """The cluster's state, with trees that match it."""
        shard = self._shards.get(cluster)
        if shard is not None and shard.stale:
            rebuild(shard)
        return shard

    # Inside ----------------------------------------------------------------------------------

    def _prepare(self, shard: Shard, now: int) -> None:
        if shard.stale:
            rebuild(shard)
        if self._policy.resource_weights is not None:
            self._sample(shard, now)
        while shard.timers and shard.timers[0][0] <= now:
            _, key, _ = heappop(shard.timers)
            w = shard.workloads.get(key)
            if w is None or w.phase is not Phase.PARKED or w.queue is None:
                continue
            if w.requeue_at is None or w.requeue_at <= now:
                shard.dirty_trees[w.queue.node.tree.key] = None
                enqueue(w.queue, w)

    def _sample(self, shard: Shard, now: int) -> None:
        if now >= self._sample_at.get(shard.name, now):
            at = sample(shard, self._policy, now)
            self._sample_at[shard.name] = NEVER if at is None else at
            self.samples += 1

    def _round(self, shard: Shard, tree: Tree, now: int, *, as_reference: bool = False) -> bool:
        """Run one round; whether another one could bring more."""
        wake_tree(shard, tree, now)
        fair = self._policy.resource_weights is not None
        usage = usage_by_queue(shard, self._policy) if fair else None
        this = Round(
            shard=shard,
            tree=tree,
            policy=self._policy,
            now=now,
            decisions=self._pending,
            weigher=Weigher(shard=shard, tree=tree, policy=self._policy, fair_usage=usage),
            as_reference=as_reference,
        )
        begin = len(self._pending)
        this.run()
        if fair:
            for decision in self._pending[begin:]:
                if isinstance(decision, Reserve):
                    charge(shard, self._policy, shard.workloads[decision.key])
        if this.changed:
            tree.quiet_cycles = 0
            return True
        tree.quiet_cycles += 1
        if this.retry and tree.quiet_cycles < QUIET_ROUNDS_MAX:
            return True
        tree.quiet_cycles = 0  # Only a new fact brings another round, and it deserves as many.
        return False

    def _speak(self, shard: Shard) -> None:
        """Publish the reasons that changed."""
        for w in shard.changed_reasons.values():
            verdict = w.wait_reason
            if (
                w.phase is Phase.HOLDING
                or verdict is None
                or w.published_reason == verdict.publication_key
            ):
                continue
            shard.unpublished.pop(w.key, None)
            self._pending.append(_told(shard, w, verdict))
        shard.changed_reasons.clear()

    def late(self, most: int) -> list[Wait]:
        """Why some wait who were never told: others like them were looked at, or nobody is.

        Not more than `most` at a time: whoever has ten thousand jobs alike is told bit by bit.
        """
        told: list[Wait] = []
        for shard in self._shards.values():
            for key in list(shard.unpublished):
                if len(told) == most:
                    return told
                w = shard.unpublished.pop(key)
                known = (
                    shard.workloads.get(key) is w
                    and w.phase is Phase.QUEUED
                    and not w.published_reason
                )
                verdict = _late_verdict(w) if known else None
                if verdict is not None:
                    told.append(_told(shard, w, verdict))
        return told

    @property
    def has_untold(self) -> bool:
        """Whether `late` may have somebody to tell."""
        return any(shard.unpublished for shard in self._shards.values())

    def _flush(self) -> list[Decision]:
        decisions = list(self._pending)
        self._pending.clear()
        return decisions


def _late_verdict(w: Workload) -> WaitReason | None:
    """Why it waits though nobody looked at it: its queue admits nobody, or others like it found no room."""
    if w.queue is not None and w.queue.inactive is not None:
        return WaitReason("Suspended", f"ClusterQueue {w.queue.name} is inactive")
    return (
        w.waiting_class.wait_reason
        if w.waiting_class is not None and w.waiting_class.parked
        else None
    )


def _told(shard: Shard, w: Workload, verdict: WaitReason) -> Wait:
    w.published_reason = verdict.publication_key
    return Wait(
        cluster=shard.name,
        key=w.key,
        uid=w.uid,
        reason=verdict.reason,
        message=verdict.full_message(),
        cluster_queue=w.queue.name if w.queue else "",
        requeue_at=w.requeue_at,
    )


def _take_set_up(
    shard: Shard,
    intake: Intake,
    fact: FlavorChanged
    | FlavorGone
    | CohortChanged
    | CohortGone
    | NamespaceChanged
    | NamespaceGone
    | AdmissionCheckChanged
    | AdmissionCheckGone,
) -> None:
    """What all queues may depend on."""
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
    intake.reshape_all()
