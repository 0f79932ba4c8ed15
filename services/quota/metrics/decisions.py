"""Counters and histograms of decisions, fed with the decisions of each term in their order."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram

from services.quota.metrics.custom_labels import NAME_LABELS, CustomLabels
from services.quota.metrics.service import NAMED
from shared.contracts.kube.conditions import PREEMPTED
from shared.contracts.messages.admissions import GRANTED, READY, Admission
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState


@dataclass(slots=True)
class _Record:
    """Times of one workload that durations are computed from."""

    uid: str
    waiting_since: datetime | None = None
    """When it was requeued; None: it has waited since its creation."""

    cluster_queue: str = ""
    """The last ClusterQueue whose quota it held; evictions and ends count there."""

    reserved_at: datetime | None = None
    admitted_at: datetime | None = None
    ready_at: datetime | None = None
    evicted_at: datetime | None = None
    evicted_for: tuple[str, str] = ("", "")
    counted_once: set[tuple[str, str]] = field(default_factory=set)


class DecisionMetrics:
    """Counts decisions. One for the process, over all terms."""

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        custom_labels: CustomLabels | None = None,
    ) -> None:
        self._custom_labels = custom_labels or CustomLabels()
        self.registry = registry if registry is not None else CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in self._custom_labels.metrics.values():
            if metric.kind == "counter":
                name = metric.name.removesuffix("_total")
                self._counters[metric.name] = Counter(
                    name, metric.help, metric.labels, registry=self.registry
                )
            elif metric.kind == "histogram":
                self._histograms[metric.name] = Histogram(
                    metric.name,
                    metric.help,
                    metric.labels,
                    registry=self.registry,
                    buckets=metric.buckets,
                )
        self._series: dict[tuple[str, ...], Any] = {}
        """(metric, labels) to the series: prometheus_client finds it more slowly than it counts."""

        self._records: dict[tuple[str, str], _Record] = {}
        self._cohorts: set[str] = set()
        """Cohorts that have series."""

    def reset(self) -> None:
        """Forget all workloads: a new term begins."""
        self._records.clear()

    def record_attempt(self, *, seconds: float, admitted: bool) -> None:
        """Count a call of `decide` that decided something."""
        result = "success" if admitted else "inadmissible"
        self._count("kueue_admission_attempts_total", result)
        self._series_of("kueue_admission_attempt_duration_seconds", result).observe(seconds)

    def restore(self, admission: Admission) -> None:
        """Remember a decision of an earlier term without counting it."""
        record = self._record(admission)
        record.cluster_queue = admission.cluster_queue or record.cluster_queue
        if admission.state in GRANTED:
            record.reserved_at = admission.admitted_at or admission.decided_at
        record.admitted_at = admission.admitted_at
        record.ready_at = admission.pods_ready_at if admission.pods_ready in READY else None

    def record_decision(
        self,
        admission: Admission,
        state: WorkloadState | None,
        *,
        cohorts: tuple[str, ...] = (),
        preempting: str = "",
    ) -> None:
        """Count a decision of this term.

        `cohorts`: of its ClusterQueue, from the nearest to the root. `preempting`: the ClusterQueue for
        which it is preempted.
        """
        record = self._record(admission)
        context = _DecisionContext(admission, state, record)
        match admission.state:
            case "reserved":
                self._reserved(context)
            case "admitted":
                self._admitted(context, cohorts)
            case "evicted":
                self._evicted(context, preempting)
            case "released" | "waiting":
                self._released(context)
        if admission.state == "released":
            self._records.pop((admission.cluster, context.key), None)

    def observe(self, observed: Observed) -> None:
        """Follow the labels of queues and cohorts; drop the series of those that are gone or hidden."""
        name = (observed.plural, observed.namespace, observed.name)
        changed = self._custom_labels.observe(observed)
        if observed.deleted or (changed and self._custom_labels.is_hidden(*name)):
            self.remove_series(*name)
        elif changed:
            self._series.clear()

    def remove_series(self, plural: str, namespace: str | None, name: str) -> None:
        """Drop the series of a deleted queue or cohort; other kinds have none."""
        if plural not in NAME_LABELS:
            return
        for label in NAME_LABELS[plural]:
            found = {label: name} if namespace is None else {label: name, "namespace": namespace}
            for metric, series in (*self._counters.items(), *self._histograms.items()):
                if found.keys() <= {*self._custom_labels.metrics[metric].labels}:
                    series.remove_by_labels(found)
            for own in NAMED.get(label, ()):
                own.remove_by_labels({label: name})
        self._series.clear()

    def keep_cohorts(self, named: Collection[str]) -> None:
        """Drop the series of cohorts that nothing names any more. A cohort may exist without an object."""
        for cohort in self._cohorts.difference(named):
            self.remove_series("cohorts", None, cohort)
        self._cohorts.intersection_update(named)

    # Kinds of decisions ---------------------------------------------------------------------------

    def _reserved(self, context: "_DecisionContext") -> None:
        record = context.record
        if record.reserved_at is not None:
            return  # A repetition with other details.
        record.reserved_at = context.at
        record.cluster_queue = context.admission.cluster_queue
        self._count_both("quota_reserved_workloads_total", context)
        self._observe_both("quota_reserved_wait_time_seconds", context, context.since)

    def _admitted(self, context: "_DecisionContext", cohorts: tuple[str, ...]) -> None:
        self._reserved(context)
        record = context.record
        if record.admitted_at is None:
            record.admitted_at = context.at
            self._count_both("admitted_workloads_total", context)
            for cohort in cohorts:
                name = "kueue_cohort_subtree_admitted_workloads_total"
                self._count(name, cohort, context.priority_class)
                self._cohorts.add(cohort)
            self._observe_both("admission_wait_time_seconds", context, context.since)
            self._observe_both("admission_checks_wait_time_seconds", context, record.reserved_at)
        ready_at = context.admission.pods_ready_at
        if (
            context.admission.pods_ready in READY
            and record.ready_at is None
            and ready_at is not None
        ):
            record.ready_at = ready_at
            self._observe_both("ready_wait_time_seconds", context, context.since, ready_at)
            self._observe_both(
                "admitted_until_ready_wait_time_seconds", context, record.admitted_at, ready_at
            )

    def _evicted(self, context: "_DecisionContext", preempting: str) -> None:
        record = context.record
        if record.evicted_at is not None:
            return
        reason, cause = record.evicted_for = context.admission.eviction_cause
        record.evicted_at = context.at
        queue, priority_class = record.cluster_queue, context.priority_class
        self._count("kueue_evicted_workloads_total", queue, reason, cause, priority_class)
        name = "kueue_local_queue_evicted_workloads_total"
        self._count(name, *context.local_queue, reason, cause, priority_class)
        if (reason, cause) not in record.counted_once:
            record.counted_once.add((reason, cause))
            self._count("kueue_evicted_workloads_once_total", queue, reason, cause, priority_class)
        if reason == PREEMPTED:
            self._count("kueue_preempted_workloads_total", preempting, context.admission.reason)
        if record.ready_at is not None:
            name = "kueue_pods_ready_to_evicted_time_seconds"
            self._observe(name, (queue, reason, cause), record.ready_at, context.at)

    def _released(self, context: "_DecisionContext") -> None:
        record = context.record
        if record.evicted_at is not None:
            name = "kueue_workload_eviction_latency_seconds"
            labels = (record.cluster_queue, record.evicted_for[0])
            self._observe(name, labels, record.evicted_at, context.at)
        if context.admission.reason == "Finished" and record.cluster_queue:
            # A workload that never had quota may name a queue that does not exist.
            self._count_both("finished_workloads_total", context)
            self._observe_both("execution_time_seconds", context, record.admitted_at)
        if record.reserved_at is not None:
            record.waiting_since = context.at
        record.reserved_at = record.admitted_at = record.ready_at = record.evicted_at = None

    # Counting -------------------------------------------------------------------------------------

    def _record(self, admission: Admission) -> _Record:
        ident = (admission.cluster, f"{admission.namespace}/{admission.name}")
        record = self._records.get(ident)
        if record is None or record.uid != admission.uid:
            record = self._records[ident] = _Record(admission.uid)
        return record

    def _series_of(self, name: str, *labels: str) -> Any:
        """The series with those labels; None for a LocalQueue that has no metrics."""
        key = (name, *labels)
        if (series := self._series.get(key)) is None:
            declared = self._custom_labels.metrics[name]
            values = self._custom_labels.all_values(declared, labels)
            if values is None:
                return None
            metric = self._counters.get(name) or self._histograms[name]
            series = self._series[key] = metric.labels(*values)
        return series

    def _count(self, name: str, *labels: str) -> None:
        if (series := self._series_of(name, *labels)) is not None:
            series.inc()

    def _count_both(self, name: str, context: "_DecisionContext") -> None:
        """Count for the ClusterQueue and for the LocalQueue."""
        self._count(f"kueue_{name}", context.record.cluster_queue, context.priority_class)
        self._count(f"kueue_local_queue_{name}", *context.local_queue, context.priority_class)

    def _observe_both(
        self,
        name: str,
        context: "_DecisionContext",
        since: datetime | None,
        until: datetime | None = None,
    ) -> None:
        at = until or context.at
        queue = (context.record.cluster_queue, context.priority_class)
        self._observe(f"kueue_{name}", queue, since, at)
        local = (*context.local_queue, context.priority_class)
        self._observe(f"kueue_local_queue_{name}", local, since, at)

    def _observe(
        self, name: str, labels: tuple[str, ...], since: datetime | None, until: datetime
    ) -> None:
        if since is not None:
            seconds = max(0.0, (until - since).total_seconds())
            if (series := self._series_of(name, *labels)) is not None:
                series.observe(seconds)


class _LocalQueueLabels(NamedTuple):
    """The values of the labels `name` and `namespace`, in this order."""

    name: str
    namespace: str


@dataclass(frozen=True, slots=True)
class _DecisionContext:
    """One decision with its workload, for labels and durations."""

    admission: Admission
    state: WorkloadState | None
    record: _Record

    @property
    def at(self) -> datetime:
        return self.admission.decided_at

    @property
    def key(self) -> str:
        return f"{self.admission.namespace}/{self.admission.name}"

    @property
    def since(self) -> datetime | None:
        """When it began to wait."""
        created = None if self.state is None else self.state.created_at
        return self.record.waiting_since or created

    @property
    def priority_class(self) -> str:
        return (self.state.priority_class or "") if self.state is not None else ""

    @property
    def local_queue(self) -> _LocalQueueLabels:
        """The labels of its LocalQueue."""
        return _LocalQueueLabels(name=self.admission.queue, namespace=self.admission.namespace)
