"""State of a quota engine as plain values, and the facts that rebuild it."""

from collections.abc import Iterator

from services.quota.engine import QuotaEngine
from services.quota.engine.facts import (
    CheckStateChanged,
    Fact,
    QuotaHeld,
    WorkloadChanged,
    WorkloadFinished,
    WorkloadGone,
    WorkloadRunning,
)
from services.quota.engine.model.state import Phase, Shard, Workload
from tests.unit.quota.builders import (
    CLUSTER,
)


def state_of(engine: QuotaEngine) -> object:
    """All that decisions depend on, as plain values."""
    return [
        (
            {key: (w.phase, w.usage, w.evicted, w.admitted, w.priority) for key, w in s.workloads.items()},
            {t.key: [list(n.usage) for n in t.nodes] for t in s.trees.values()},
            sorted(s.claims),
        )
        for s in engine.shards()
    ]  # fmt: skip


def holdings(engine: QuotaEngine) -> object:
    return [
        (
            {key: w.usage for key, w in s.workloads.items() if w.phase is Phase.HOLDING},
            {
                (t.key, n.name): {fr: n.usage[i] for fr, i in t.index.items() if n.usage[i]}
                for t in s.trees.values()
                for n in t.nodes
            },
        )
        for s in engine.shards()
    ]


def rebuilt(told: list[Fact], shard: Shard) -> Iterator[Fact]:
    """The set-up as last told, what is on record, then the workloads."""
    for fact in told:
        if (
            not isinstance(
                fact,
                WorkloadChanged
                | WorkloadGone
                | WorkloadFinished
                | CheckStateChanged
                | WorkloadRunning,
            )
            and type(fact).__name__ != "WorkloadDrained"
        ):
            yield fact
    for w in shard.workloads.values():
        if w.phase is Phase.HOLDING:
            yield _held(w)
    for w in shard.workloads.values():
        if w.fact is not None:
            yield w.fact


def _held(w: Workload) -> QuotaHeld:
    return QuotaHeld(
        cluster=CLUSTER,
        namespace=w.namespace,
        name=w.key.removeprefix("ns/"),
        uid=w.uid,
        cluster_queue=w.holding_queue,
        pod_sets=w.assigned,
        state="evicted" if w.evicted else "admitted" if w.admitted else "reserved",
        at=w.reserved_at,
        priority=w.priority,
        preempted_by=w.preempted_by,
        reason=w.eviction_reason,
        unplanned=w.unplanned,
    )
