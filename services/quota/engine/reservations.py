"""Quota from reservation to release: restoring, evicting, releasing, and admission checks."""

from collections.abc import Sequence

from services.quota.engine.facts import (
    Admit,
    AssignedPodSet,
    CheckStateChanged,
    Decision,
    Evict,
    QuotaHeld,
    Recheck,
    Release,
    Reserve,
    WorkloadRunning,
)
from services.quota.engine.model.matching import flavor_mismatch
from services.quota.engine.model.queues import dequeue, enqueue, head
from services.quota.engine.model.shapes import PODS, FlavorResource
from services.quota.engine.model.state import ClusterQueue, Phase, Shard, Tree, Workload
from services.quota.engine.model.topology import attach_holder, detach_holder, tree_of
from services.quota.engine.model.tree import add_usage
from services.quota.engine.reasons import (
    ADMISSION_CHECK,
    CHECK_REJECTED,
    DEACTIVATION_PREFIX,
    MISCONFIGURED,
)

SECOND = 1_000_000_000
_LAST = (1 << 63, 0, "")
"""Rank of a tree in which nobody waits: behind all others."""


def _usage_of(assigned: Sequence[AssignedPodSet], w: Workload) -> dict[FlavorResource, int]:
    """Present usage: what was assigned, less finished pods and returned amounts; or what runs beyond it.

    A job that asks for fewer pods gives nothing back: its user writes that number, and may write the old
    one again.
    """
    usage: dict[FlavorResource, int] = {}
    left, returned, running = {}, {}, {}
    if w.fact is not None:
        given = {a.name: a.count for a in assigned}
        left = {
            ps.name: max(0, max(ps.count, given.get(ps.name, 0)) - ps.reclaimable)
            for ps in w.fact.pod_sets
        }
        returned = {ps.name: ps.returned for ps in w.fact.pod_sets if ps.returned}
        running = {ps.name: ps.running for ps in w.fact.pod_sets if ps.running}
    for a in assigned:
        count = max(min(a.count, left.get(a.name, a.count)), running.get(a.name, 0))
        back = returned.get(a.name)
        for resource, flavor in a.flavors.items():
            amount = max(0, a.usage.get(resource, 0))
            if count != a.count:
                amount = amount // max(1, a.count) * count
            if back:
                amount = max(0, amount - max(0, back.get(resource, 0)))
            usage[flavor, resource] = usage.get((flavor, resource), 0) + amount
    return usage


def restore_admission(shard: Shard, w: Workload, fact: QuotaHeld) -> None:
    """Count an admission that was decided before a restart."""
    drop_claim(shard, w)
    dequeue(w)
    w.local_queue = f"{w.namespace}/{fact.queue}" if fact.queue else w.local_queue
    if w.fact is None:
        w.priority = fact.priority
    w.phase = Phase.HOLDING
    w.holding_queue = fact.cluster_queue
    w.assigned = fact.pod_sets
    w.usage = _usage_of(fact.pod_sets, w)
    w.reserved_at = fact.at
    w.admitted = fact.state == "admitted"
    w.evicted = fact.state == "evicted"
    w.was_admitted = w.evicted and not fact.checks
    w.eviction_reason = fact.reason
    w.preempted_by = fact.preempted_by
    if w.evicted and w.preempted_by is not None:
        shard.restored_preemptors[w.preempted_by] = None
    w.unplanned = fact.unplanned
    w.needed_checks = fact.checks
    _count(shard, w)


def update_readiness(shard: Shard, w: Workload) -> None:
    """Note whether this holder's unready pods block other admissions; unblock after the last one."""
    if w.phase is Phase.HOLDING and w.fact is not None and w.fact.unready:
        shard.unready_holders[w.key] = None
    elif w.key in shard.unready_holders:
        del shard.unready_holders[w.key]
        if shard.unready_holders:
            return
        if shard.stale:
            shard.queues_to_wake.update(dict.fromkeys(shard.queues))
        else:
            # Every queue's head may have waited for it. The tree with the first head goes first,
            # because its admission may block all others again.
            shard.dirty_trees = dict.fromkeys(
                sorted(shard.trees, key=lambda k: _rank(shard.trees[k]))
            )


def _rank(tree: Tree) -> tuple[int, int, str]:
    """Sort key of a tree by its first head; trees without a head come last."""
    queues = [node.queue for node in tree.queues if node.queue is not None]
    heads = [w for cq in queues if cq.waiting and (w := head(cq)) is not None]
    ranks = [(-w.priority, w.queued_at, w.uid) for w in heads]
    return min(ranks, default=_LAST)


def _count(shard: Shard, w: Workload) -> None:
    update_readiness(shard, w)
    cq = shard.queues.get(w.holding_queue)
    if cq is None:
        shard.orphaned_holders.setdefault(w.holding_queue, {})[w.key] = w
        return
    cq.holders[w.key] = w
    if shard.stale:
        return
    if all(fr in tree_of(cq).index for fr in w.usage):
        attach_holder(cq, w)
        shard.dirty_trees[tree_of(cq).key] = None
    else:
        shard.stale = True


def recount_usage(shard: Shard, w: Workload) -> None:
    """Count the usage anew after pods finished or returned something."""
    usage = _usage_of(w.assigned, w)
    if usage == w.usage:
        return
    cq = shard.queues.get(w.holding_queue)
    if cq is not None and not shard.stale and w.holding_node is not None:
        detach_holder(w)
        w.usage = usage
        attach_holder(cq, w)
        _woken(shard, cq)
    else:
        w.usage = usage
        if cq is not None:
            shard.queues_to_wake[cq.name] = None


def count_reservation(shard: Shard, cq: ClusterQueue, w: Workload) -> None:
    """Count a new holder as a leader does that reads it from the log: by what it returned, and what runs."""
    add_usage(cq.node, w.indexed_usage)
    for pod_set in w.fact.pod_sets if w.fact is not None else ():
        if pod_set.returned or pod_set.running:
            recount_usage(shard, w)
            return


def _woken(shard: Shard, cq: ClusterQueue) -> None:
    if shard.stale:
        shard.queues_to_wake[cq.name] = None
        return
    cq.generation += 1
    tree = tree_of(cq)
    tree.needs_wake = True
    shard.dirty_trees[tree.key] = None


def _detach(shard: Shard, w: Workload) -> ClusterQueue | None:
    """Stop counting a holder; return its ClusterQueue, None if that does not exist."""
    if w.phase is not Phase.HOLDING:
        return None
    if (orphans := shard.orphaned_holders.get(w.holding_queue)) is not None:
        orphans.pop(w.key, None)
        if not orphans:
            del shard.orphaned_holders[w.holding_queue]
    cq = shard.queues.get(w.holding_queue)
    if cq is not None and cq.holders.pop(w.key, None) is not None:
        if w.holding_node is not None and not shard.stale:
            detach_holder(w)
    else:
        cq = None
    w.holding_node = None
    w.phase = Phase.NOT_QUEUED
    return cq


def release_quota(shard: Shard, w: Workload, reason: str, decisions: list[Decision]) -> None:
    """Release the quota of a workload, and let go of the claims and queues that wait for it."""
    if w.phase is not Phase.HOLDING:
        return
    held_by, evicted = w.holding_queue, w.evicted
    cq = _detach(shard, w)
    decisions.append(
        Release(cluster=shard.name, key=w.key, uid=w.uid, cluster_queue=held_by, reason=reason)
    )
    update_readiness(shard, w)
    w.holding_queue = ""
    w.assigned = ()
    w.usage = {}
    w.indexed_usage = ()
    w.admitted = w.was_admitted = w.evicted = w.unplanned = False
    w.eviction_reason = ""
    w.checks.clear()
    claimer = shard.claims.get(w.preempted_by) if w.preempted_by else None
    w.preempted_by = None
    if claimer is not None:
        _victim_gone(shard, claimer, w)
    if evicted:  # Else no claim waits for it.
        remove_from_claims(shard, w)
    if cq is not None:
        _woken(shard, cq)


def remove_from_claims(shard: Shard, victim: Workload) -> None:
    """Stop every claim from waiting for a victim that ended or whose queue was deleted."""
    for claimer in shard.claims.values():
        _victim_gone(shard, claimer, victim)


def _victim_gone(shard: Shard, claimer: Workload, victim: Workload) -> None:
    """Remove a victim from a claim; after the last one the next cycle fulfils the claim."""
    claim, cq = claimer.claim, claimer.queue
    if claim is None or cq is None:
        return
    claim.victims.pop(victim.key, None)
    if not claim.victims and not shard.stale:
        shard.dirty_trees[tree_of(cq).key] = None


def end_claim(shard: Shard, w: Workload) -> None:
    """Turn a claim back into a queued workload."""
    cq = w.queue
    assert cq is not None, w.key
    drop_claim(shard, w)
    enqueue(cq, w)


def drop_claim(shard: Shard, w: Workload) -> None:
    """Give up a claim; its victims stay evicted."""
    w.claim = None
    shard.claims.pop(w.key, None)


def evict(
    shard: Shard,
    w: Workload,
    reason: str,
    message: str,
    decisions: list[Decision],
    *,
    requeue_at: int | None = None,
    deactivate: bool = False,
) -> None:
    """Evict a workload; it holds its quota until it is drained."""
    if w.phase is not Phase.HOLDING or (w.evicted and w.eviction_reason == reason):
        return
    w.evicted = True
    w.eviction_reason = reason
    w.was_admitted = w.counts_as_admitted
    w.admitted = False
    w.checks.clear()
    decisions.append(
        Evict(
            cluster=shard.name,
            key=w.key,
            uid=w.uid,
            cluster_queue=w.holding_queue,
            reason=reason,
            message=message,
            requeue_at=requeue_at,
            deactivate=deactivate,
        )
    )


def hold_unplanned(
    shard: Shard, w: Workload, running: WorkloadRunning, decisions: list[Decision]
) -> None:
    """Count a workload that runs without an admission, on the first flavors that match.

    If its LocalQueue leads to no ClusterQueue, it counts in the one where it waited last. If it never
    waited in one, it is evicted, because no queue could count it.
    """
    fact = w.fact
    if fact is None or w.phase is Phase.HOLDING:
        return
    local_queue = shard.local_queues.get(w.local_queue)
    wanted = (
        local_queue.fact.cluster_queue
        if local_queue is not None and local_queue.fact is not None
        else ""
    )
    name = wanted if wanted in shard.queues else w.last_queue
    cq = shard.queues.get(name)
    assigned = [] if cq is None else _first_match(shard, cq, w)
    drop_claim(shard, w)
    dequeue(w)
    w.phase = Phase.HOLDING
    w.holding_queue = name
    w.assigned = tuple(assigned)
    w.usage = _usage_of(assigned, w)
    w.reserved_at = running.at
    w.admitted = True
    w.unplanned = True
    _count(shard, w)
    decisions.append(
        Reserve(
            cluster=shard.name,
            key=w.key,
            uid=w.uid,
            cluster_queue=name,
            pod_sets=w.assigned,
            generation=fact.generation,
            unplanned=True,
        )
    )
    if cq is None:
        missing = f"ClusterQueue {wanted}" if wanted else f"LocalQueue {fact.queue}"
        why = f"It runs without quota: {missing} doesn't exist"
        evict(shard, w, running.eviction_reason or MISCONFIGURED, why, decisions)


def _first_match(shard: Shard, cq: ClusterQueue, w: Workload) -> list[AssignedPodSet]:
    assert w.fact is not None, w.key
    result = []
    for ps in w.fact.pod_sets:
        chosen: dict[str, str] = {}
        amounts = {r: max(0, v) * ps.count for r, v in ps.requests.items()}
        if PODS in cq.group_of:
            amounts[PODS] = ps.count
        for group in cq.fact.groups:
            fitting = [
                f for f in group.flavors if flavor_mismatch(ps, f.name, shard.flavors) is None
            ]
            for flavor in (*fitting, *group.flavors)[:1]:
                chosen.update((r, flavor.name) for r in group.covered if r in amounts)
        usage = {r: amounts[r] for r in chosen}
        result.append(AssignedPodSet(name=ps.name, count=ps.count, flavors=chosen, usage=usage))
    return result


def recheck(shard: Shard, cq: ClusterQueue, now: int, decisions: list[Decision]) -> None:
    """Give the holders of a queue the checks that the queue has now.

    One that is admitted stays so while a new check is pending; it is evicted if that says Retry or
    Rejected. Source: kubernetes-sigs/kueue pkg/controller/core/workload_controller.go
    (reconcileSyncAdmissionChecks).
    """
    for w in list(cq.holders.values()):
        if w.evicted or w.unplanned:
            continue
        needed, before = cq.required_checks(w.assigned), w.needed_checks
        w.needed_checks = needed
        if before not in {None, needed}:
            decisions.append(
                Recheck(
                    cluster=shard.name, key=w.key, uid=w.uid, cluster_queue=cq.name, checks=needed
                )
            )
        if not w.admitted:
            apply_check_states(shard, w, now, decisions)


def apply_check_states(shard: Shard, w: Workload, now: int, decisions: list[Decision]) -> None:
    """Admit when all checks are Ready; evict when one is Retry or Rejected.

    Source: kubernetes-sigs/kueue pkg/controller/core/workload_controller.go (admission checks).
    """
    cq = shard.queues.get(w.holding_queue)
    if w.phase is not Phase.HOLDING or w.evicted or cq is None or w.unplanned:
        return
    needed = cq.required_checks(w.assigned)
    states = [w.checks[name] for name in needed if name in w.checks]
    if rejected := [s for s in states if s.state == "Rejected"]:
        text = f"{DEACTIVATION_PREFIX}{_check_text('Rejected', rejected)}"
        evict(shard, w, CHECK_REJECTED, text, decisions, deactivate=True)
    elif retries := [s for s in states if s.state == "Retry"]:
        at = max(s.at + s.retry_after for s in retries)
        w.requeue_at = at if at > now else None
        w.queued_at = now
        text = f"Evicted due to {_check_text('Retry', retries)}"
        evict(shard, w, ADMISSION_CHECK, text, decisions, requeue_at=w.requeue_at)
    elif not w.admitted and len(states) == len(needed) and all(s.state == "Ready" for s in states):
        w.admitted = True
        decisions.append(Admit(cluster=shard.name, key=w.key, uid=w.uid, cluster_queue=cq.name))


def _check_text(state: str, checks: list[CheckStateChanged]) -> str:
    ordered = sorted(checks, key=lambda c: c.check)
    shown = "; ".join(
        f'"{c.check}" ({c.message})' if c.message else f'"{c.check}"' for c in ordered
    )
    noun = "AdmissionCheck" if len(checks) == 1 else "AdmissionChecks"
    return f"{noun} in {state} state: {shown}"
