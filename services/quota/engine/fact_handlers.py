"""How each fact changes the state. A repeated fact changes nothing; a late one is ignored."""

from dataclasses import replace
from heapq import heappush
from typing import Final

from services.quota.engine.facts import (
    CheckStateChanged,
    ClusterQueueChanged,
    Decision,
    EvictionRequested,
    Key,
    LocalQueueChanged,
    QuotaHeld,
    Release,
    StopPolicy,
    WorkloadChanged,
    WorkloadDrained,
    WorkloadFinished,
    WorkloadGone,
    WorkloadRunning,
)
from services.quota.engine.model.local_queue_usage import restore_usage
from services.quota.engine.model.queues import dequeue, enqueue, park, reorder
from services.quota.engine.model.shapes import BLOCKED, WaitReason
from services.quota.engine.model.state import ClusterQueue, LocalQueue, Phase, Shard, Workload
from services.quota.engine.model.topology import tree_of
from services.quota.engine.reasons import (
    CLUSTER_QUEUE_STOPPED,
    DEACTIVATED,
    FINISHED,
    GONE,
    LOCAL_QUEUE_STOPPED,
    MISCONFIGURED,
    ON_HOLD,
    PENDING_EVALUATION,
    SUSPENDED,
)
from services.quota.engine.reservations import (
    apply_check_states,
    drop_claim,
    evict,
    hold_unplanned,
    recheck,
    recount_usage,
    release_quota,
    remove_from_claims,
    restore_admission,
    update_readiness,
)
from services.quota.engine.scheduling.messages import NOT_YET_EVALUATED

FINISHED_MAX: Final = 10_000
"""Uids of ended workloads that are remembered, so that late facts about them are ignored. A new leader
remembers none."""


class FactHandlers:
    """Applies facts about queues and workloads to one cluster."""

    __slots__ = ("_decisions", "_shard", "now")

    def __init__(self, shard: Shard, decisions: list[Decision]) -> None:
        self._shard = shard
        self._decisions = decisions
        self.now = 0
        """When the engine decided last, in nanoseconds."""

    # Queues ----------------------------------------------------------------------------------

    def mark_stale(self, *queues: str) -> None:
        """Rebuild the trees before the next cycle, and wake the trees of `queues`."""
        self._shard.stale = True
        self._shard.queues_to_wake.update(dict.fromkeys(queues))

    def mark_all_stale(self) -> None:
        """Rebuild and wake all trees: something changed that any queue may depend on."""
        self.mark_stale(*self._shard.queues)

    def on_cluster_queue(self, fact: ClusterQueueChanged) -> None:
        """A queue is new or changed."""
        shard = self._shard
        cq = shard.queues.get(fact.name)
        if cq is not None and cq.fact == fact:
            return
        if cq is None:
            cq = shard.queues[fact.name] = ClusterQueue(fact)
            self.mark_stale(fact.name)
            cq.holders.update(shard.orphaned_holders.pop(fact.name, {}))
            for local_queue in self._local_queues_of(fact.name):
                self._queue_or_reject_all(local_queue)
        else:
            old = cq.fact
            # If it changes its cohort, the tree that it leaves has more capacity.
            self.mark_stale(fact.name, *self._cohort_members(cq))
            cq.configure(fact)
            if old.usage_based != fact.usage_based:
                reorder(cq)
        recheck(shard, cq, self.now, self._decisions)
        self._stop_holders(cq.holders, fact.stop, CLUSTER_QUEUE_STOPPED, "The ClusterQueue")
        if fact.terminating:
            for w in list(cq.holders.values()):
                self._take_reservation_back(w, "ClusterQueueTerminating")

    def _cohort_members(self, cq: ClusterQueue) -> list[str]:
        cohort = cq.fact.cohort
        if cohort is None:
            return []
        return [q.name for q in self._shard.queues.values() if q.fact.cohort == cohort][:2]

    def on_cluster_queue_gone(self, name: str) -> None:
        """A queue is gone: its waiting workloads are rejected, its holders keep quota until they end."""
        shard = self._shard
        cq = shard.queues.get(name)
        if cq is None:
            return
        self.mark_stale(*self._cohort_members(cq))
        for w in list(cq.waiting.values()):
            drop_claim(shard, w)
            dequeue(w)
            text = f"ClusterQueue {name} doesn't exist"
            self._reject(w, WaitReason(MISCONFIGURED, text))
        if cq.holders:
            shard.orphaned_holders[name] = dict(cq.holders)
            for w in cq.holders.values():
                w.holding_node = None
                remove_from_claims(shard, w)
        del shard.queues[name]

    def on_local_queue(self, fact: LocalQueueChanged) -> None:
        """A LocalQueue is new or changed."""
        key = f"{fact.namespace}/{fact.name}"
        local_queue = self._local_queue(key)
        restore_usage(local_queue, fact)
        # The recorded usage changes with each sample; it must not make the fact look changed.
        fact = replace(fact, consumed=None, consumed_at=None)
        if local_queue.fact == fact:
            return
        local_queue.fact = fact
        self._queue_or_reject_all(local_queue)
        holders = {k: w for k, w in local_queue.members.items() if w.phase is Phase.HOLDING}
        self._stop_holders(holders, fact.stop, LOCAL_QUEUE_STOPPED, "The LocalQueue")
        if fact.cluster_queue in self._shard.queues:
            self.wake_queue(self._shard.queues[fact.cluster_queue])

    def on_local_queue_gone(self, key: Key) -> None:
        """A LocalQueue is gone: its workloads are rejected until it is back."""
        local_queue = self._shard.local_queues.get(key)
        if local_queue is None or local_queue.fact is None:
            return
        local_queue.fact = None
        self._queue_or_reject_all(local_queue)
        if not local_queue.members:
            del self._shard.local_queues[key]

    def wake_queue(self, cq: ClusterQueue) -> None:
        """Evaluate every waiting workload in the queue's tree again."""
        if self._shard.stale:
            self._shard.queues_to_wake[cq.name] = None
            return
        tree = tree_of(cq)
        tree.needs_wake = True
        tree.forget_preemptions()
        self._shard.dirty_trees[tree.key] = None

    def _local_queue(self, key: Key) -> LocalQueue:
        local_queue = self._shard.local_queues.get(key)
        if local_queue is None:
            local_queue = self._shard.local_queues[key] = LocalQueue(key)
        return local_queue

    def _local_queues_of(self, cluster_queue: str) -> list[LocalQueue]:
        return [
            local_queue
            for local_queue in self._shard.local_queues.values()
            if local_queue.fact is not None and local_queue.fact.cluster_queue == cluster_queue
        ]

    def _queue_or_reject_all(self, local_queue: LocalQueue) -> None:
        for w in local_queue.members.values():
            if w.phase is not Phase.HOLDING:
                self.queue_or_reject(w)

    def _stop_holders(
        self, holders: dict[Key, Workload], stop: StopPolicy, reason: str, subject: str
    ) -> None:
        """Hold takes reservations back; HoldAndDrain also stops running workloads."""
        if stop == "None":
            return
        for w in list(holders.values()):
            if w.admitted and stop == "HoldAndDrain":
                self._evict(w, reason, f"{subject} is stopped")
            else:
                self._take_reservation_back(w, reason)

    def _take_reservation_back(self, w: Workload, reason: str) -> None:
        """Release the quota of a workload that waits for its checks: nothing of it runs."""
        if not w.admitted and not w.evicted:
            release_quota(self._shard, w, reason, self._decisions)
            self.queue_or_reject(w)

    # Workloads -------------------------------------------------------------------------------

    def find_workload(self, namespace: str, name: str, uid: str) -> Workload | None:
        """The workload with that uid, or with any uid if it is empty; None: it is not known."""
        w = self._shard.workloads.get(f"{namespace}/{name}")
        return w if w is not None and uid in {"", w.uid} else None

    def _find_or_create(self, namespace: str, name: str, uid: str) -> Workload:
        """The workload with that uid, new if necessary; an older one of the same name ends."""
        key = f"{namespace}/{name}"
        w = self._shard.workloads.get(key)
        if w is not None and w.uid != uid:
            self._end(w, GONE)
            w = None
        if w is None:
            arrival = self._shard.arrivals
            w = self._shard.workloads[key] = Workload(namespace, key, uid, arrival=arrival)
            self._shard.arrivals += 1
        return w

    def on_workload(self, fact: WorkloadChanged) -> None:
        """A workload is new or changed, or has a name again that it gave up, or runs again after its end."""
        ended = (f"{fact.namespace}/{fact.name}", fact.uid)
        if self._shard.ended.get(ended) == "Finished" and not fact.runs:
            return
        self._shard.ended.pop(ended, None)
        w = self._find_or_create(fact.namespace, fact.name, fact.uid)
        old = w.fact
        if old is not None and (fact.generation < old.generation or fact == old):
            return
        w.fact = fact
        w.priority = fact.priority
        w.fruitless_preemptions.clear()
        if old is None or fact.queued_at is not None or old.created_at != fact.created_at:
            w.queued_at = fact.queued_at if fact.queued_at is not None else fact.created_at
        if old is None or fact.requeue_at != old.requeue_at:
            w.requeue_at = fact.requeue_at
        self._join_local_queue(w, f"{fact.namespace}/{fact.queue}")
        if w.phase is not Phase.HOLDING:
            self.queue_or_reject(w)
            if w.queue is not None and not self._shard.stale:
                tree_of(w.queue).forget_preemptions()
            return
        if (
            old is not None
            and fact.priority != old.priority
            and w.holding_queue in self._shard.queues
        ):
            self.wake_queue(self._shard.queues[w.holding_queue])
        recount_usage(self._shard, w)
        update_readiness(self._shard, w)
        if not fact.active and not w.evicted:
            self._evict(w, DEACTIVATED, "The workload is deactivated")

    def _join_local_queue(self, w: Workload, key: Key) -> None:
        if w.local_queue == key and w.key in self._local_queue(key).members:
            return
        if (before := self._shard.local_queues.get(w.local_queue)) is not None:
            before.remove(w.key)
        w.local_queue = key
        self._local_queue(key).members[w.key] = w

    def queue_or_reject(self, w: Workload) -> None:
        """Put a workload into its ClusterQueue, or reject it with a reason."""
        shard, fact = self._shard, w.fact
        if fact is None:
            return
        if w.phase is Phase.CLAIMING and self._keeps_claim(w):
            return
        left = w.queue if w.queue is not None and (w.queue.strict or w.claim is not None) else None
        drop_claim(shard, w)
        dequeue(w)
        local_queue = shard.local_queues.get(w.local_queue)
        wait_reason = self._rejection(w, local_queue)
        if wait_reason is not None:
            self._reject(w, wait_reason)
            self._let_others_pass(left)
            return
        assert local_queue is not None and local_queue.fact is not None, w.key  # noqa: PT018
        cq = shard.queues[local_queue.fact.cluster_queue]
        if left is not cq:
            self._let_others_pass(left)
        w.shape = shard.shape_of(fact)
        if w.wait_reason is None or w.wait_reason.reason in BLOCKED:
            w.wait_reason = WaitReason(PENDING_EVALUATION, NOT_YET_EVALUATED)
            w.published_reason = ""
        enqueue(cq, w)
        w.last_queue = cq.name
        if not w.published_reason:
            shard.unpublished[w.key] = w
        if w.key in shard.restored_preemptors:
            # Its victims drain already: it stays at the head of its queue.
            del shard.restored_preemptors[w.key]
            if not cq.strict:
                cq.sticky_workload = w
        if w.requeue_at is not None and w.requeue_at > self.now:
            park(cq, w)
            heappush(shard.timers, (w.requeue_at, w.key, 0))
        if shard.stale:
            shard.queues_to_wake.setdefault(cq.name, None)
        else:
            shard.dirty_trees[tree_of(cq).key] = None

    def _let_others_pass(self, left: ClusterQueue | None) -> None:
        """Wake the queue that a workload has left in which others may have waited for it only.

        It was the head of a strict queue, or had a claim to what its victims free.
        """
        if left is not None:
            self.wake_queue(left)

    def _keeps_claim(self, w: Workload) -> bool:
        local_queue = self._shard.local_queues.get(w.local_queue)
        assert w.fact is not None, w.key
        return (
            self._rejection(w, local_queue) is None
            and w.shape is self._shard.shape_of(w.fact)
            and w.queue
            is self._shard.queues.get(
                local_queue.fact.cluster_queue if local_queue and local_queue.fact else ""
            )
        )

    def _rejection(self, w: Workload, local_queue: LocalQueue | None) -> WaitReason | None:
        """Why it may not enter a ClusterQueue; None: it may."""
        fact = w.fact
        assert fact is not None, w.key
        if not fact.active:
            return WaitReason(DEACTIVATED, "The workload is deactivated")
        if fact.on_hold is not None:
            return WaitReason(ON_HOLD, fact.on_hold or "Job is on hold")
        if fact.gated is not None:
            return WaitReason("AdmissionGated", f"Admission is gated by: {fact.gated}")
        if fact.unresolved is not None:
            return WaitReason(MISCONFIGURED, fact.unresolved)
        if not fact.pod_sets:
            return WaitReason(MISCONFIGURED, "the workload has no pod sets")
        name = fact.queue
        if local_queue is None or local_queue.fact is None:
            return WaitReason(MISCONFIGURED, f"LocalQueue {name} doesn't exist")
        if local_queue.fact.stop != "None":
            return WaitReason(SUSPENDED, f"LocalQueue {name} is inactive")
        if local_queue.fact.cluster_queue not in self._shard.queues:
            text = f"ClusterQueue {local_queue.fact.cluster_queue} doesn't exist"
            return WaitReason(MISCONFIGURED, text)
        return None

    def _reject(self, w: Workload, wait_reason: WaitReason) -> None:
        w.wait_reason = wait_reason
        if w.published_reason != wait_reason.publication_key:
            self._shard.changed_reasons[w.key] = w

    def on_held(self, fact: QuotaHeld) -> None:
        """Restore an admission on record, unless the workload holds quota already."""
        if (f"{fact.namespace}/{fact.name}", fact.uid) in self._shard.ended:
            return
        w = self._find_or_create(fact.namespace, fact.name, fact.uid)
        if w.phase is Phase.HOLDING:
            return
        if fact.queue:
            self._join_local_queue(w, f"{fact.namespace}/{fact.queue}")
        restore_admission(self._shard, w, fact)
        if (cq := self._shard.queues.get(fact.cluster_queue)) is not None:
            recheck(self._shard, cq, self.now, self._decisions)
        if w.fact is not None and not w.fact.active and not w.evicted:
            self._evict(w, DEACTIVATED, "The workload is deactivated")

    def on_running(self, fact: WorkloadRunning) -> None:
        """Pods run: without an admission the workload holds quota unplanned."""
        w = self.find_workload(fact.namespace, fact.name, fact.uid)
        if w is None or w.running:
            return
        w.running = True
        if w.phase is not Phase.HOLDING:
            hold_unplanned(self._shard, w, fact, self._decisions)

    def on_drained(self, fact: WorkloadDrained) -> None:
        """Pods are gone: an evicted or unplanned workload releases its quota and queues again."""
        w = self.find_workload(fact.namespace, fact.name, fact.uid)
        if w is None:
            return
        w.running = False
        if w.phase is not Phase.HOLDING or not (w.evicted or w.unplanned):
            return
        release_quota(self._shard, w, w.eviction_reason or "Drained", self._decisions)
        self.queue_or_reject(w)

    def on_ended(self, fact: WorkloadFinished | WorkloadGone) -> None:
        """The workload finished or was deleted."""
        w = self.find_workload(fact.namespace, fact.name, fact.uid)
        if w is not None:
            self._end(w, FINISHED if isinstance(fact, WorkloadFinished) else GONE)

    def _end(self, w: Workload, reason: str) -> None:
        shard = self._shard
        waited = w.phase is not Phase.HOLDING
        queue = w.queue or shard.queues.get(w.holding_queue)
        drop_claim(shard, w)
        dequeue(w)
        release_quota(shard, w, reason, self._decisions)
        if waited:
            self._decisions.append(
                Release(cluster=shard.name, key=w.key, uid=w.uid, cluster_queue="", reason=reason)
            )
        if queue is not None:
            self.wake_queue(queue)
        del shard.workloads[w.key]
        shard.changed_reasons.pop(w.key, None)
        if (local_queue := shard.local_queues.get(w.local_queue)) is not None:
            local_queue.remove(w.key)
        if w.uid:
            shard.ended[w.key, w.uid] = reason
            if len(shard.ended) > FINISHED_MAX:
                del shard.ended[next(iter(shard.ended))]

    def on_check(self, fact: CheckStateChanged) -> None:
        """An admission check changed its state."""
        w = self.find_workload(fact.namespace, fact.name, fact.uid)
        if w is None or w.phase is not Phase.HOLDING:
            return
        if w.checks.get(fact.check) == fact or (
            fact.at and fact.at < w.reserved_at // 10**9 * 10**9
        ):
            return
        w.checks[fact.check] = fact
        apply_check_states(self._shard, w, max(self.now, fact.at), self._decisions)

    def on_eviction(self, fact: EvictionRequested) -> None:
        """Something outside of quota wants the workload stopped."""
        w = self.find_workload(fact.namespace, fact.name, fact.uid)
        if w is None or w.phase is not Phase.HOLDING or w.evicted:
            return
        if fact.loses_position:
            w.queued_at = fact.at
        w.requeue_at = fact.requeue_at
        self._evict(
            w,
            fact.reason,
            fact.message,
            requeue_at=fact.requeue_at,
            deactivate=fact.deactivate,
        )

    def _evict(
        self,
        w: Workload,
        reason: str,
        message: str,
        *,
        requeue_at: int | None = None,
        deactivate: bool = False,
    ) -> None:
        evict(
            self._shard,
            w,
            reason,
            message,
            self._decisions,
            requeue_at=requeue_at,
            deactivate=deactivate,
        )
