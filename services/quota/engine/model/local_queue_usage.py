"""Admission fair sharing: past usage of LocalQueues, which decays with a half-life.

Inside a usage-based ClusterQueue, LocalQueues that used less go first. Usage is sampled in intervals,
that of other ClusterQueues too: it is shown, and counts from the moment in which the mode changes.
An admission counts as a penalty until the next sample, so that one LocalQueue cannot take everything
in between. Source: kubernetes-sigs/kueue pkg/util/admissionfairsharing.
"""

from collections.abc import Iterator
from math import inf

from services.quota.engine.facts import Key, LocalQueueChanged
from services.quota.engine.model.state import ClusterQueue, LocalQueue, Phase, Shard, Workload
from services.quota.engine.policy import Policy


def _decay(elapsed: int, half_life: int) -> float:
    """The share of past usage that is forgotten after `elapsed`."""
    if half_life <= 0:
        return 0.0
    return float(1.0 - 0.5 ** (elapsed / half_life))


def _current(local_queue: LocalQueue) -> dict[str, float]:
    """Present usage of its workloads, in whole units."""
    current: dict[str, float] = {}
    for w in local_queue.members.values():
        if w.phase is Phase.HOLDING:
            for (_, resource), amount in w.usage.items():
                current[resource] = current.get(resource, 0.0) + _units(resource, amount)
    return current


def _units(resource: str, amount: int) -> float:
    return amount / 1000 if resource == "cpu" else float(amount)


def _local_queues(shard: Shard) -> Iterator[tuple[LocalQueue, ClusterQueue]]:
    """Every LocalQueue whose ClusterQueue exists."""
    for local_queue in shard.local_queues.values():
        if local_queue.fact is None:
            continue
        if (cq := shard.queues.get(local_queue.fact.cluster_queue)) is not None:
            yield local_queue, cq


def restore_usage(local_queue: LocalQueue, fact: LocalQueueChanged) -> None:
    """Restore past usage from the record in its status, unless it is known already."""
    if fact.consumed is None or fact.consumed_at is None or local_queue.sampled_at is not None:
        return
    local_queue.consumed = {r: amount / 1000 for r, amount in fact.consumed.items()}
    local_queue.sampled_at = fact.consumed_at
    local_queue.penalties_missing = True


def sample_usage(shard: Shard, policy: Policy, now: int) -> int | None:
    """Sample every LocalQueue that is due; return when the next one is (None: there are none)."""
    due = []
    for local_queue, _ in _local_queues(shard):
        if local_queue.sampled_at is None:
            local_queue.sampled_at = now
        if local_queue.penalties_missing:
            local_queue.penalties_missing = False
            _add_penalties_since(local_queue, policy, local_queue.sampled_at)
        elapsed = now - local_queue.sampled_at
        if elapsed < policy.sampling_interval:
            due.append(local_queue.sampled_at + policy.sampling_interval)
            continue
        forgotten = _decay(elapsed, policy.half_life)
        current = _current(local_queue)
        local_queue.consumed = {
            r: local_queue.consumed.get(r, 0.0) * (1 - forgotten) + current.get(r, 0.0) * forgotten
            for r in sorted({*local_queue.consumed, *current})
        }
        local_queue.penalties.clear()
        local_queue.sampled_at = now
        due.append(now + policy.sampling_interval)
    return min(due, default=None)


def add_penalty(shard: Shard, policy: Policy, w: Workload) -> None:
    """Count an admission until the next sample does."""
    local_queue = shard.local_queues.get(w.local_queue)
    if local_queue is not None:
        _add_penalty(local_queue, policy, w)


def _add_penalty(local_queue: LocalQueue, policy: Policy, w: Workload) -> None:
    part = _decay(policy.sampling_interval, policy.half_life)
    for (_, resource), amount in w.usage.items():
        local_queue.penalties[resource] = local_queue.penalties.get(resource, 0.0) + part * _units(
            resource, amount
        )


def _add_penalties_since(local_queue: LocalQueue, policy: Policy, since: int) -> None:
    """Restore penalties, which no status records: one for each admission since the sample."""
    for w in local_queue.members.values():
        if w.phase is Phase.HOLDING and w.reserved_at > since:
            _add_penalty(local_queue, policy, w)


def usage_by_queue(shard: Shard, policy: Policy) -> dict[Key, float]:
    """Weighted past usage by LocalQueue, for usage-based ClusterQueues."""
    weights = policy.resource_weights or {}
    usage = {}
    for local_queue, cq in _local_queues(shard):
        if not cq.fact.usage_based:
            continue
        total = sum(
            weights.get(r, 1.0)
            * (local_queue.consumed.get(r, 0.0) + local_queue.penalties.get(r, 0.0))
            for r in sorted({*local_queue.consumed, *local_queue.penalties})
        )
        usage[local_queue.key] = total / local_queue.weight if local_queue.weight else inf
    return usage
