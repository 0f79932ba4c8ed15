"""Admission fair sharing: past usage of LocalQueues, which decays with a half-life.

Inside a usage-based ClusterQueue, LocalQueues that used less go first. Usage of admitted workloads is
sampled in intervals, that of other ClusterQueues too: it is shown, and counts from the moment in which the
mode changes. A reservation has a price, so that one LocalQueue cannot take everything between two samples.
The price is pending until the workload is admitted, and is past usage from then on: it stays when a short
job ends before the next sample. Source: kubernetes-sigs/kueue@ff69552 pkg/util/admissionfairsharing and
pkg/cache/queue/afs.
"""

from collections.abc import Iterable, Iterator
from math import inf

from services.quota.engine.facts import Admit, Decision, Key, LocalQueueChanged, Reserve
from services.quota.engine.model.state import ClusterQueue, LocalQueue, Phase, Shard, Workload
from services.quota.engine.policy import Policy


def _decay(elapsed: int, half_life: int) -> float:
    """The share of past usage that is forgotten after `elapsed`."""
    if half_life <= 0:
        return 0.0
    return float(1.0 - 0.5 ** (elapsed / half_life))


def _current(local_queue: LocalQueue, cq: ClusterQueue) -> dict[str, float]:
    """Present usage of its admitted workloads, in whole units; 0 for an unused resource."""
    current = {resource: 0.0 for _, resource in cq.node.quotas}
    for w in local_queue.members.values():
        if w.phase is Phase.HOLDING and w.counts_as_admitted:
            _add(current, _usage_of(w))
    return current


def _usage_of(w: Workload) -> dict[str, float]:
    usage: dict[str, float] = {}
    for (_, resource), amount in w.usage.items():
        usage[resource] = usage.get(resource, 0.0) + in_units(resource, amount)
    return usage


def _add(total: dict[str, float], more: dict[str, float]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0.0) + amount


def in_units(resource: str, amount: int) -> float:
    """The amount in Kueue's units: CPUs, bytes, pieces."""
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
    local_queue.prices_missing = True


def sample_usage(shard: Shard, policy: Policy, now: int) -> int | None:
    """Sample every LocalQueue that is due; return when the next one is (None: there are none)."""
    due = []
    for local_queue, cq in _local_queues(shard):
        if local_queue.sampled_at is None:
            local_queue.sampled_at = now
        if local_queue.prices_missing:
            local_queue.prices_missing = False
            if cq.fact.usage_based:
                _restore_prices(local_queue, policy, local_queue.sampled_at)
        if now - local_queue.sampled_at >= policy.sampling_interval:
            _sample(local_queue, cq, policy, now)
        due.append(local_queue.sampled_at + policy.sampling_interval)
    return min(due, default=None)


def _sample(local_queue: LocalQueue, cq: ClusterQueue, policy: Policy, now: int) -> None:
    since = now if local_queue.sampled_at is None else local_queue.sampled_at
    forgotten = _decay(max(0, now - since), policy.half_life)
    current = _current(local_queue, cq)
    local_queue.consumed = {
        r: local_queue.consumed.get(r, 0.0) * (1 - forgotten) + current.get(r, 0.0) * forgotten
        for r in sorted({*local_queue.consumed, *current})
    }
    local_queue.sampled_at = max(now, since)


def charge(shard: Shard, policy: Policy, decisions: Iterable[Decision], now: int) -> None:
    """Charge LocalQueues of usage-based ClusterQueues for what was reserved and admitted."""
    for decision in decisions:
        if not isinstance(decision, Reserve | Admit) or decision.cluster != shard.name:
            continue
        w = shard.workloads.get(decision.key)
        cq = shard.queues.get(decision.cluster_queue)
        local_queue = None if w is None else shard.local_queues.get(w.local_queue)
        if w is None or w.uid != decision.uid or local_queue is None:
            continue
        if cq is None or not cq.fact.usage_based:
            local_queue.prices.pop(w.key, None)
            continue
        if isinstance(decision, Reserve):
            local_queue.prices[w.key] = _price(policy, w)
        if w.admitted:
            _sample(local_queue, cq, policy, now)
            _add(local_queue.consumed, local_queue.prices.pop(w.key, {}))


def _price(policy: Policy, w: Workload) -> dict[str, float]:
    part = _decay(policy.sampling_interval, policy.half_life)
    return {resource: part * amount for resource, amount in _usage_of(w).items()}


def _restore_prices(local_queue: LocalQueue, policy: Policy, since: int) -> None:
    """Restore what no status records: prices that are pending, and those that were charged since then."""
    for w in local_queue.members.values():
        if w.phase is not Phase.HOLDING:
            continue
        if not w.admitted:
            local_queue.prices[w.key] = _price(policy, w)
        elif w.reserved_at > since:
            _add(local_queue.consumed, _price(policy, w))


def _pending(local_queue: LocalQueue) -> dict[str, float]:
    """Prices of reservations that are not admitted yet; one that can only wait costs nothing."""
    pending: dict[str, float] = {}
    for key, price in local_queue.prices.items():
        w = local_queue.members[key]
        if w.phase is Phase.HOLDING or w.fact is None or w.fact.active:
            _add(pending, price)
    return pending


def usage_by_queue(shard: Shard, policy: Policy) -> dict[Key, float]:
    """Weighted past usage by LocalQueue, for usage-based ClusterQueues."""
    weights = policy.resource_weights or {}
    usage = {}
    for local_queue, cq in _local_queues(shard):
        if not cq.fact.usage_based:
            continue
        consumed, pending = local_queue.consumed, _pending(local_queue)
        total = sum(
            weights.get(r, 1.0) * (consumed.get(r, 0.0) + pending.get(r, 0.0))
            for r in sorted({*consumed, *pending})
        )
        usage[local_queue.key] = total / local_queue.weight if local_queue.weight else inf
    return usage
