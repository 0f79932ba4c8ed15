"""The one place where an admission is decided."""

from heapq import heappop
from typing import Final, assert_never

from services.quota.engine.cycle import Policy, Round
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
    LocalQueueChanged,
    LocalQueueGone,
    NamespaceChanged,
    NamespaceGone,
    Running,
    Wait,
    WorkloadChanged,
    WorkloadGone,
)
from services.quota.engine.intake import Intake
from services.quota.engine.queues import enqueue, wake_tree
from services.quota.engine.state import Place, Shard
from services.quota.engine.topology import rebuild
from services.quota.engine.tree import Tree

__all__ = ["Policy", "QuotaEngine"]

QUIET_ROUNDS_MAX: Final = 18
"""Rounds in which only flavor scans go on: more than a group has flavors never helps."""


class QuotaEngine:
    """Turns facts into decisions. The same facts in the same order give the same decisions.

    It never awaits and knows no clock: `now` is handed in, in nanoseconds.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Policy()
        self._shards: dict[str, Shard] = {}
        self._pending: list[Decision] = []
        self._now = 0

    def take(self, fact: Fact) -> None:
        """Note what became true. Decisions follow from `cycle` or `decide`."""
        shard = self._shards.get(fact.cluster)
        if shard is None:
            shard = self._shards[fact.cluster] = Shard(fact.cluster)
        intake = Intake(shard, self._pending, self._now)
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
                intake.on_cluster_queue(fact)
            case ClusterQueueGone():
                intake.on_cluster_queue_gone(fact.name)
            case LocalQueueChanged():
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
            for key in list(shard.dirty):
                tree = shard.trees.get(key)
                if tree is None or not self._round(shard, tree, now):
                    del shard.dirty[key]
            self._speak(shard)
        return self._flush()

    def decide(self, now: int) -> list[Decision]:
        """Rounds, in every tree that something touched, until nothing changes any more."""
        self._now = now
        for name in sorted(self._shards):
            shard = self._shards[name]
            self._prepare(shard, now)
            if not shard.dirty and not shard.touched:
                continue
            for key in list(shard.dirty):
                tree = shard.trees.get(key)
                while tree is not None and self._round(shard, tree, now):
                    pass
            shard.dirty.clear()
            self._speak(shard)
        return self._flush()

    @property
    def busy(self) -> bool:
        """Another round could decide something without any new fact."""
        return any(shard.dirty or shard.stale for shard in self._shards.values())

    def shards(self) -> list[Shard]:
        """All state, for invariants and views. Not to be changed."""
        return list(self._shards.values())

    def next_at(self) -> int | None:
        """When `decide` should be called even if no fact comes: a back-off ends."""
        times = [shard.timers[0][0] for shard in self._shards.values() if shard.timers]
        return min(times, default=None)

    def _prepare(self, shard: Shard, now: int) -> None:
        if shard.stale:
            rebuild(shard)
        while shard.timers and shard.timers[0][0] <= now:
            _, key, _ = heappop(shard.timers)
            w = shard.workloads.get(key)
            if w is None or w.place is not Place.PARKED or w.queue is None:
                continue
            if w.requeue_at is None or w.requeue_at <= now:
                shard.dirty[w.queue.node.tree.key] = None
                enqueue(w.queue, w)

    def _round(self, shard: Shard, tree: Tree, now: int) -> bool:
        """Run one round; whether another one could bring more."""
        wake_tree(shard, tree, now)
        this = Round(
            shard=shard,
            tree=tree,
            policy=self._policy,
            now=now,
            decisions=self._pending,
        )
        this.run()
        if this.changed:
            tree.quiet = 0
            return True
        tree.quiet += 1
        return this.retry and tree.quiet < QUIET_ROUNDS_MAX

    def _speak(self, shard: Shard) -> None:
        """Publish the reasons that changed."""
        for w in shard.touched.values():
            verdict = w.verdict
            if w.place is Place.HOLDING or verdict is None or w.said == verdict.reason:
                continue
            w.said = verdict.reason
            self._pending.append(
                Wait(
                    cluster=shard.name,
                    key=w.key,
                    uid=w.uid,
                    reason=verdict.reason,
                    message=verdict.text(),
                    cluster_queue=w.queue.name if w.queue else "",
                    requeue_at=w.requeue_at,
                )
            )
        shard.touched.clear()

    def _flush(self) -> list[Decision]:
        decisions = list(self._pending)
        self._pending.clear()
        return decisions


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
