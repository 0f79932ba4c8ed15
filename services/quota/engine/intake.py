"""How each fact changes what is known. A repeated fact changes nothing; a late one is ignored."""

from dataclasses import replace
from heapq import heappush
from typing import Final

from services.quota.engine.facts import (
    CheckState,
    ClusterQueueChanged,
    Decision,
    Drained,
    EvictionRequested,
    Finished,
    Held,
    Key,
    LocalQueueChanged,
    Release,
    Running,
    StopPolicy,
    WorkloadChanged,
    WorkloadGone,
)
from services.quota.engine.holding import (
    adopt,
    drop_claim,
    evict,
    free,
    gone_from_claims,
    hold_unplanned,
    note_readiness,
    recount,
    weigh_checks,
)
from services.quota.engine.model.local_usage import restore
from services.quota.engine.model.queues import enqueue, leave, park, reorder
from services.quota.engine.model.state import (
    ClusterQueue,
    LocalQueue,
    Place,
    Shard,
    Verdict,
    Workload,
)
from services.quota.engine.model.topology import tree_of

__all__ = ["Intake"]

FINISHED_MAX: Final = 100_000
"""How many ended lives are remembered, so that late facts about them do no harm."""


class Intake:
    """Applies facts about queues and workloads to one cluster."""

    __slots__ = ("_decisions", "_shard", "now")

    def __init__(self, shard: Shard, decisions: list[Decision]) -> None:
        self._shard = shard
        self._decisions = decisions
        self.now = 0
        """When the engine decided last."""

    # Queues ----------------------------------------------------------------------------------

    def reshape(self, *queues: str) -> None:
        """The set-up changed; these queues and all in their trees are looked at again."""
        self._shard.stale = True
        self._shard.to_wake.update(dict.fromkeys(queues))

    def reshape_all(self) -> None:
        """Something that any queue may depend on changed."""
        self.reshape(*self._shard.queues)

    def on_cluster_queue(self, fact: ClusterQueueChanged) -> None:
        """A queue is new or changed."""
        shard = self._shard
        cq = shard.queues.get(fact.name)
        if cq is not None and cq.fact == fact:
            return
        if cq is None:
            cq = shard.queues[fact.name] = ClusterQueue(fact)
            self.reshape(fact.name)
            cq.holders.update(shard.orphans.pop(fact.name, {}))
            for lq in self._locals_of(fact.name):
                self._place_all(lq)
        else:
            old = cq.fact
            # The tree that it leaves may have more room without its use.
            self.reshape(fact.name, *self._neighbours(cq))
            cq.configure(fact)
            if old.usage_based != fact.usage_based:
                reorder(cq)
        self._stop_holders(cq.holders, fact.stop, "ClusterQueueStopped", "The ClusterQueue")

    def _neighbours(self, cq: ClusterQueue) -> list[str]:
        cohort = cq.fact.cohort
        if cohort is None:
            return []
        return [q.name for q in self._shard.queues.values() if q.fact.cohort == cohort][:2]

    def on_cluster_queue_gone(self, name: str) -> None:
        """A queue is gone: who waits in it is out, who holds goes on holding until it ends."""
        shard = self._shard
        cq = shard.queues.get(name)
        if cq is None:
            return
        self.reshape(*self._neighbours(cq))
        for w in list(cq.waiting.values()):
            drop_claim(shard, w)
            leave(w)
            text = f"ClusterQueue {name} doesn't exist"
            self._out(w, Verdict("Misconfigured", text))
        if cq.holders:
            shard.orphans[name] = dict(cq.holders)
            for w in cq.holders.values():
                w.holder = None
                gone_from_claims(shard, w)
        del shard.queues[name]

    def on_local_queue(self, fact: LocalQueueChanged) -> None:
        """A LocalQueue is new or changed."""
        key = f"{fact.namespace}/{fact.name}"
        lq = self._local_queue(key)
        restore(lq, fact)
        # What it used changes with each sample, and nothing depends on the record of it.
        fact = replace(fact, consumed=None, consumed_at=None)
        if lq.fact == fact:
            return
        lq.fact = fact
        self._place_all(lq)
        holders = {k: w for k, w in lq.members.items() if w.place is Place.HOLDING}
        self._stop_holders(holders, fact.stop, "LocalQueueStopped", "The LocalQueue")
        if fact.cluster_queue in self._shard.queues:
            self.wake(self._shard.queues[fact.cluster_queue])

    def on_local_queue_gone(self, key: Key) -> None:
        """A LocalQueue is gone: its workloads wait outside until it is back."""
        lq = self._shard.local_queues.get(key)
        if lq is None or lq.fact is None:
            return
        lq.fact = None
        self._place_all(lq)
        if not lq.members:
            del self._shard.local_queues[key]

    def wake(self, cq: ClusterQueue) -> None:
        """Everybody in the queue's tree is to be evaluated again."""
        if self._shard.stale:
            self._shard.to_wake[cq.name] = None
            return
        tree = tree_of(cq)
        tree.wake = True
        tree.seen.clear()
        self._shard.dirty[tree.key] = None

    def _local_queue(self, key: Key) -> LocalQueue:
        lq = self._shard.local_queues.get(key)
        if lq is None:
            lq = self._shard.local_queues[key] = LocalQueue(key)
        return lq

    def _locals_of(self, cluster_queue: str) -> list[LocalQueue]:
        return [
            lq
            for lq in self._shard.local_queues.values()
            if lq.fact is not None and lq.fact.cluster_queue == cluster_queue
        ]

    def _place_all(self, lq: LocalQueue) -> None:
        for w in lq.members.values():
            if w.place is not Place.HOLDING:
                self.place(w)

    def _stop_holders(
        self, holders: dict[Key, Workload], stop: StopPolicy, reason: str, subject: str
    ) -> None:
        """Hold takes reservations back; HoldAndDrain stops what runs as well."""
        if stop == "None":
            return
        for w in list(holders.values()):
            if w.admitted and stop == "HoldAndDrain":
                self._evict(w, reason, f"{subject} is stopped")
            elif not w.admitted and not w.evicted:
                free(self._shard, w, reason, self._decisions)
                self.place(w)

    # Workloads -------------------------------------------------------------------------------

    def find(self, namespace: str, name: str, uid: str) -> Workload | None:
        """The workload of that life, if it is known; an empty uid means whichever."""
        w = self._shard.workloads.get(f"{namespace}/{name}")
        return w if w is not None and uid in {"", w.uid} else None

    def _known(self, namespace: str, name: str, uid: str) -> Workload:
        """The workload of that life; another life of the same name has ended."""
        key = f"{namespace}/{name}"
        w = self._shard.workloads.get(key)
        if w is not None and w.uid != uid:
            self._end(w, "Gone")
            w = None
        if w is None:
            w = self._shard.workloads[key] = Workload(namespace, key, uid)
        return w

    def on_workload(self, fact: WorkloadChanged) -> None:
        """A workload is new or changed."""
        if fact.uid in self._shard.finished:
            return
        w = self._known(fact.namespace, fact.name, fact.uid)
        old = w.fact
        if old is not None and (fact.generation < old.generation or fact == old):
            return
        w.fact = fact
        w.priority = fact.priority
        w.vain.clear()
        if old is None or fact.queued_at is not None or old.created_at != fact.created_at:
            w.queued_at = fact.queued_at if fact.queued_at is not None else fact.created_at
        if old is None or fact.requeue_at != old.requeue_at:
            w.requeue_at = fact.requeue_at
        self._join(w, f"{fact.namespace}/{fact.queue}")
        if w.place is not Place.HOLDING:
            self.place(w)
            if w.queue is not None and not self._shard.stale:
                tree_of(w.queue).seen.clear()
            return
        if old is not None and fact.priority != old.priority and w.held_by in self._shard.queues:
            self.wake(self._shard.queues[w.held_by])
        recount(self._shard, w)
        note_readiness(self._shard, w)
        if not fact.active and not w.evicted:
            self._evict(w, "Deactivated", "The workload is deactivated")

    def _join(self, w: Workload, key: Key) -> None:
        if w.lq == key and w.key in self._local_queue(key).members:
            return
        if (before := self._shard.local_queues.get(w.lq)) is not None:
            before.members.pop(w.key, None)
        w.lq = key
        self._local_queue(key).members[w.key] = w

    def place(self, w: Workload) -> None:
        """Let it wait where it belongs, or nowhere, with the reason."""
        shard, fact = self._shard, w.fact
        if fact is None:
            return
        if w.place is Place.CLAIMING and self._keeps_claim(w):
            return
        drop_claim(shard, w)
        leave(w)
        lq = shard.local_queues.get(w.lq)
        verdict = self._kept_out(w, lq)
        if verdict is not None:
            self._out(w, verdict)
            return
        assert lq is not None and lq.fact is not None, w.key  # noqa: PT018
        cq = shard.queues[lq.fact.cluster_queue]
        w.shape = shard.shape_of(fact)
        if w.verdict is None:
            text = "Workload is pending evaluation in the scheduling queue"
            w.verdict = Verdict("PendingEvaluation", text)
        enqueue(cq, w)
        w.waited_in = cq.name
        if not w.said:
            shard.untold[w.key] = w
        if w.key in shard.awaited:
            # Its victims are on their way out already: nobody of its queue overtakes it.
            del shard.awaited[w.key]
            if not cq.strict:
                cq.sticky = w
        if w.requeue_at is not None and w.requeue_at > self.now:
            park(cq, w)
            heappush(shard.timers, (w.requeue_at, w.key, 0))
        if shard.stale:
            shard.to_wake.setdefault(cq.name, None)
        else:
            shard.dirty[tree_of(cq).key] = None

    def _keeps_claim(self, w: Workload) -> bool:
        lq = self._shard.local_queues.get(w.lq)
        assert w.fact is not None, w.key
        return (
            self._kept_out(w, lq) is None
            and w.shape is self._shard.shape_of(w.fact)
            and w.queue is self._shard.queues.get(lq.fact.cluster_queue if lq and lq.fact else "")
        )

    def _kept_out(self, w: Workload, lq: LocalQueue | None) -> Verdict | None:
        """Why it may not even wait in a ClusterQueue."""
        fact = w.fact
        assert fact is not None, w.key
        if not fact.active:
            return Verdict("Deactivated", "The workload is deactivated")
        if fact.on_hold is not None:
            return Verdict("OnHold", fact.on_hold or "Job is on hold")
        if fact.gated is not None:
            return Verdict("AdmissionGated", f"Admission is gated by: {fact.gated}")
        if fact.unresolved is not None:
            return Verdict("Misconfigured", fact.unresolved)
        if not fact.pod_sets:
            return Verdict("Misconfigured", "the workload has no pod sets")
        name = fact.queue
        if lq is None or lq.fact is None:
            return Verdict("Misconfigured", f"LocalQueue {name} doesn't exist")
        if lq.fact.stop != "None":
            return Verdict("Suspended", f"LocalQueue {name} is inactive")
        if lq.fact.cluster_queue not in self._shard.queues:
            text = f"ClusterQueue {lq.fact.cluster_queue} doesn't exist"
            return Verdict("Misconfigured", text)
        return None

    def _out(self, w: Workload, verdict: Verdict) -> None:
        w.verdict = verdict
        if w.said != verdict.news:
            self._shard.touched[w.key] = w

    def on_held(self, fact: Held) -> None:
        """Take over an admission on record; once is enough."""
        if fact.uid in self._shard.finished:
            return
        w = self._known(fact.namespace, fact.name, fact.uid)
        if w.place is Place.HOLDING:
            return
        if fact.queue:
            self._join(w, f"{fact.namespace}/{fact.queue}")
        adopt(self._shard, w, fact)
        if w.fact is not None and not w.fact.active and not w.evicted:
            self._evict(w, "Deactivated", "The workload is deactivated")

    def on_running(self, fact: Running) -> None:
        """Its pods run: if nobody admitted it, it holds unplanned."""
        w = self.find(fact.namespace, fact.name, fact.uid)
        if w is None or w.running:
            return
        w.running = True
        if w.place is not Place.HOLDING:
            hold_unplanned(self._shard, w, fact.at, self._decisions)

    def on_drained(self, fact: Drained) -> None:
        """Its pods are gone: an evicted one queues again, an unplanned one has ended."""
        w = self.find(fact.namespace, fact.name, fact.uid)
        if w is None:
            return
        w.running = False
        if w.place is not Place.HOLDING or not (w.evicted or w.unplanned):
            return
        free(self._shard, w, w.evict_reason or "Drained", self._decisions)
        self.place(w)

    def on_ended(self, fact: Finished | WorkloadGone) -> None:
        """It is over."""
        w = self.find(fact.namespace, fact.name, fact.uid)
        if w is not None:
            self._end(w, "Finished" if isinstance(fact, Finished) else "Gone")

    def _end(self, w: Workload, reason: str) -> None:
        shard = self._shard
        waited = w.place is not Place.HOLDING
        queue = w.queue or shard.queues.get(w.held_by)
        drop_claim(shard, w)
        leave(w)
        free(shard, w, reason, self._decisions)
        if waited:
            self._decisions.append(
                Release(cluster=shard.name, key=w.key, uid=w.uid, cluster_queue="", reason=reason)
            )
        if queue is not None:
            self.wake(queue)
        del shard.workloads[w.key]
        shard.touched.pop(w.key, None)
        if (lq := shard.local_queues.get(w.lq)) is not None:
            lq.members.pop(w.key, None)
        if w.uid:
            shard.finished[w.uid] = None
            if len(shard.finished) > FINISHED_MAX:
                del shard.finished[next(iter(shard.finished))]

    def on_check(self, fact: CheckState) -> None:
        """A check's owner has spoken."""
        w = self.find(fact.namespace, fact.name, fact.uid)
        if w is None or w.place is not Place.HOLDING:
            return
        if w.checks.get(fact.check) == fact or (
            fact.at and fact.at < w.reserved_at // 10**9 * 10**9
        ):
            return
        w.checks[fact.check] = fact
        weigh_checks(self._shard, w, max(self.now, fact.at), self._decisions)

    def on_eviction(self, fact: EvictionRequested) -> None:
        """Somebody else wants it stopped."""
        w = self.find(fact.namespace, fact.name, fact.uid)
        if w is None or w.place is not Place.HOLDING or w.evicted:
            return
        if fact.to_back:
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
            now=self.now,
            requeue_at=requeue_at,
            deactivate=deactivate,
        )
