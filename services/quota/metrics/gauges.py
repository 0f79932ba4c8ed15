"""Gauges, read from the engine at each scrape.

Queues of the same name in several clusters are summed, because Kueue's labels have no cluster.
"""

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.quota.engine import QuotaEngine
from services.quota.engine.model.local_queue_usage import in_units
from services.quota.engine.model.state import ClusterQueue, LocalQueue, Node, Phase, Shard, Workload
from services.quota.engine.views.queues import cluster_queue_view, precise_share
from services.quota.metrics.catalogue import OURS
from services.quota.metrics.custom_labels import CustomLabels
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import PENDING_EVALUATION, UNSATISFIED_CHECKS

QUEUE_STATUSES: Final = ("pending", "active", "terminating")
WHOLE: Final = ""
"""Underlying cause of a reason that has none."""

Sample = tuple[str, tuple[str, ...], float]
"""Name of the metric, values of its labels, value."""


class Source(Protocol):
    """The part of a term's state that gauges read."""

    @property
    def engine(self) -> QuotaEngine:
        """The engine of the term."""

    def states(self) -> Iterable[WorkloadState]:
        """Every known workload, finished ones included."""


class GaugeCollector(Collector):
    """Collects the gauges. Without a term there is only the one of the build."""

    def __init__(
        self,
        source: Callable[[], Source | None],
        *,
        version: str,
        custom_labels: CustomLabels | None = None,
    ) -> None:
        self._custom_labels = custom_labels or CustomLabels()
        self._source = source
        self._version = version

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering does not collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All gauges with their present values."""
        sums: dict[str, Counter[tuple[str, ...]]] = {
            name: Counter() for name, metric in OURS.items() if metric.kind == "gauge"
        }
        for name, labels, value in self._figures():
            # Sums over clusters.
            sums[name][labels] += value  # type: ignore[assignment]  # Counter takes floats
        for name, values in sums.items():
            metric = self._custom_labels.metrics[name]
            family = GaugeMetricFamily(name, metric.help, labels=metric.labels)
            for labels, amount in values.items():
                all_values = self._custom_labels.all_values(metric, labels)
                if all_values is not None:
                    family.add_metric(all_values, amount)
            yield family

    def _figures(self) -> Iterator[Sample]:
        yield "kueue_build_info", self._build(), 1
        source = self._source()
        if source is None:
            return
        for shard in source.engine.shards():
            if shard.stale:
                continue  # Its trees are rebuilt before the next decision.
            for cq in shard.queues.values():
                yield from _cluster_queue(cq)
                yield from _pending(cq)
            for tree in shard.trees.values():
                for node in tree.nodes:
                    if node.queue is None:
                        yield from _cohort(node)
            for local_queue in shard.local_queues.values():
                if local_queue.fact is not None:
                    yield from _local_queue(local_queue, shard)
        yield from _finished(source)

    def _build(self) -> tuple[str, ...]:
        return (
            self._version,
            *("", ""),
            f"python{platform.python_version()}",
            platform.python_implementation(),
            platform.machine(),
        )


def _cluster_queue(cq: ClusterQueue) -> Iterator[Sample]:
    view = cluster_queue_view(cq)
    cohort = cq.node.parent.name if cq.node.parent is not None else ""
    root = cq.node.ancestors[-1].name if cq.node.ancestors else ""
    yield "kueue_cluster_queue_info", (cq.name, cohort, root), 1
    status = "active" if cq.inactive is None else "pending"
    if cq.fact.terminating:
        status = "terminating"
    for each in QUEUE_STATUSES:
        yield "kueue_cluster_queue_status", (cq.name, each), float(each == status)
    yield "kueue_reserving_active_workloads", (cq.name,), view.reserving
    yield "kueue_admitted_active_workloads", (cq.name,), view.admitted
    share = precise_share(cq.node)
    yield "kueue_cluster_queue_weighted_share", (cq.name, cohort), share
    for (flavor, resource), quota in cq.node.quotas.items():
        labels = (cohort, cq.name, flavor, resource)
        for name, amount in (
            ("nominal_quota", quota.nominal),
            ("borrowing_limit", quota.borrowing_limit),
            ("lending_limit", quota.lending_limit),
        ):
            if amount is not None:
                yield f"kueue_cluster_queue_{name}", labels, in_units(resource, amount)
    for name, use in (("reservation", view.reservation), ("usage", view.usage)):
        for (flavor, resource), used in use.items():
            labels = (cohort, cq.name, flavor, resource)
            yield f"kueue_cluster_queue_resource_{name}", labels, in_units(resource, used.total)


def _pending(cq: ClusterQueue) -> Iterator[Sample]:
    asked: Counter[str] = Counter({resource: 0 for _, resource in cq.node.quotas})
    statuses = Counter(dict.fromkeys(("active", "inadmissible"), 0))
    shapes: dict[str, set[int]] = {status: set() for status in statuses}
    reasons: Counter[str] = Counter()
    for w in cq.waiting.values():
        status = _status(w, cq)
        statuses[status] += 1
        if w.shape is not None:
            shapes[status].add(w.shape.number)
        reasons[_reason(w)] += 1
        for pod_set in w.fact.pod_sets if w.fact is not None else ():
            for resource, amount in pod_set.requests.items():
                asked[resource] += amount * max(0, pod_set.count - pod_set.reclaimable)
    reasons[UNSATISFIED_CHECKS] += sum(not w.counts_as_admitted for w in cq.holders.values())
    for status, count in statuses.items():
        yield "kueue_pending_workloads", (cq.name, status), count
        yield "kueue_pending_scheduling_hashes", (cq.name, status), len(shapes[status])
    for reason, count in reasons.items():
        if count:
            yield "kueue_unadmitted_workloads", (cq.name, reason, WHOLE), count
    for resource, amount in asked.items():
        yield (
            "kueue_cluster_queue_resource_pending",
            (cq.name, resource),
            in_units(resource, amount),
        )


def _reason(w: Workload) -> str:
    """The reason token alone; messages with names and numbers would be an endless set of labels."""
    shared = (
        w.waiting_class.wait_reason
        if w.waiting_class is not None and w.waiting_class.parked
        else None
    )
    wait_reason = shared or w.wait_reason
    return PENDING_EVALUATION if wait_reason is None else wait_reason.reason


def _status(w: Workload, cq: ClusterQueue | None) -> str:
    """In an inactive queue, every workload waits for a change."""
    parked = w.phase is Phase.PARKED or (w.waiting_class is not None and w.waiting_class.parked)
    is_inactive = cq is not None and cq.inactive is not None
    return "inadmissible" if parked or is_inactive else "active"


def _cohort(node: Node) -> Iterator[Sample]:
    parent = node.parent.name if node.parent is not None else ""
    root = node.ancestors[-1].name if node.ancestors else node.name
    yield "kueue_cohort_info", (node.name, parent, root), 1
    yield "kueue_cohort_weighted_share", (node.name,), precise_share(node)
    for index, (flavor, resource) in enumerate(node.tree.flavor_resources):
        labels = (node.name, flavor, resource)
        yield "kueue_cohort_subtree_quota", labels, in_units(resource, node.subtree_quota[index])
        reserved = sum(
            queue.queue.holders[key].usage.get((flavor, resource), 0)
            for queue in _queues(node)
            if queue.queue is not None
            for key in queue.queue.holders
        )
        name = "kueue_cohort_subtree_resource_reservations"
        yield name, labels, in_units(resource, reserved)
    admitted = sum(
        w.counts_as_admitted
        for queue in _queues(node)
        if queue.queue is not None
        for w in queue.queue.holders.values()
    )
    yield "kueue_cohort_subtree_admitted_active_workloads", (node.name,), admitted


def _queues(node: Node) -> Iterator[Node]:
    yield from node.queues
    for below in node.cohorts:
        yield from _queues(below)


def _local_queue(local_queue: LocalQueue, shard: Shard) -> Iterator[Sample]:
    assert local_queue.fact is not None
    namespace, _, queue_name = local_queue.key.partition("/")
    labels = (queue_name, namespace)
    holders = [w for w in local_queue.members.values() if w.phase is Phase.HOLDING]
    waiting = [w for w in local_queue.members.values() if w.phase is not Phase.HOLDING]
    cq = shard.queues.get(local_queue.fact.cluster_queue)
    statuses = Counter({"active": 0, "inadmissible": 0})
    statuses.update(_status(w, cq) for w in waiting)
    for status, count in statuses.items():
        yield "kueue_local_queue_pending_workloads", (*labels, status), count
    reasons = Counter(_reason(w) for w in waiting)
    for reason, count in reasons.items():
        where = (*labels, local_queue.fact.cluster_queue)
        yield "kueue_local_queue_unadmitted_workloads", (*where, reason, WHOLE), count
    yield "kueue_local_queue_reserving_active_workloads", labels, len(holders)
    admitted = [w for w in holders if w.counts_as_admitted]
    yield "kueue_local_queue_admitted_active_workloads", labels, len(admitted)
    active = cq is not None and cq.inactive is None and local_queue.fact.stop == "None"
    for each, is_so in (("True", active), ("False", not active)):
        yield "kueue_local_queue_status", (*labels, each), float(is_so)
    for kind, some in (("reservation", holders), ("usage", admitted)):
        for (flavor, resource), amount in _sum(some).items():
            name = f"kueue_local_queue_resource_{kind}"
            yield name, (*labels, flavor, resource), in_units(resource, amount)
    if local_queue.sampled_at is not None:
        used = sum(local_queue.consumed.values())
        name = "kueue_local_queue_admission_fair_sharing_usage"
        yield name, (*labels, local_queue.fact.cluster_queue), used


def _sum(workloads: Iterable[Workload]) -> Counter[tuple[str, str]]:
    total: Counter[tuple[str, str]] = Counter()
    for w in workloads:
        total.update(w.usage)
    return total


def _finished(source: Source) -> Iterator[Sample]:
    queues = {
        (shard.name, key): local_queue.fact.cluster_queue
        for shard in source.engine.shards()
        for key, local_queue in shard.local_queues.items()
        if local_queue.fact is not None
    }
    for state in source.states():
        if state.phase != "finished":
            continue
        queue = queues.get((state.cluster, f"{state.namespace}/{state.queue}"))
        if queue is not None:  # Workloads may name any queue; only existing ones become labels.
            yield "kueue_finished_workloads", (queue,), 1
            yield "kueue_local_queue_finished_workloads", (state.queue, state.namespace), 1


def cohorts_of(engine: QuotaEngine, cluster: str, cluster_queue: str) -> tuple[str, ...]:
    """The cohorts above a ClusterQueue, nearest first; empty: none."""
    for shard in engine.shards():
        if shard.name == cluster and (cq := shard.queues.get(cluster_queue)) is not None:
            return tuple(node.name for node in cq.node.ancestors)
    return ()


def named_cohorts(engine: QuotaEngine) -> set[str]:
    """Every cohort that has an object, or that a queue or another cohort names."""
    names: set[str] = set()
    for shard in engine.shards():
        names |= shard.cohorts.keys()
        names |= {cohort.parent for cohort in shard.cohorts.values() if cohort.parent}
        names |= {cq.fact.cohort for cq in shard.queues.values() if cq.fact.cohort}
    return names


def queue_of(engine: QuotaEngine, cluster: str, key: str) -> str:
    """The ClusterQueue in which a workload waits or whose quota it holds; empty: none."""
    for shard in engine.shards():
        if shard.name == cluster and (w := shard.workloads.get(key)) is not None:
            return w.holding_queue or (w.queue.name if w.queue is not None else "")
    return ""
