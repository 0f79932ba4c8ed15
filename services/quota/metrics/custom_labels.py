"""What queues and cohorts add to the labels of their metrics, and which LocalQueues have metrics.

`metrics.customLabels` and `metrics.localQueueMetrics` of Kueue's Configuration. Which object a metric is
about follows from its labels, as in kubernetes-sigs/kueue@ff69552 pkg/metrics/metrics.go.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from services.quota.metrics.catalogue import OURS, Metric
from shared.contracts.kube.bodies import annotations_of, labels_of
from shared.contracts.kube.kinds import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE
from shared.contracts.messages.observed import Observed
from shared.settings.kueue_metrics import Metrics

NAME_LABELS: Final = {
    LOCAL_QUEUE.plural: ("name",),
    CLUSTER_QUEUE.plural: ("cluster_queue", "preempting_cluster_queue"),
    COHORT.plural: ("cohort",),
}
"""Plural of a kind to the labels that hold names of its objects."""

_SOURCES: Final = {kind.plural: kind.kind for kind in (LOCAL_QUEUE, CLUSTER_QUEUE, COHORT)}

_Name = tuple[str, str | None, str]
"""Plural of the kind, namespace, name."""


def subject_of(metric: Metric) -> str | None:
    """Plural of the kind that the metric is about; None: it is about no object."""
    for plural, names in NAME_LABELS.items():
        if any(name in metric.labels for name in names):
            return plural
    return None


class CustomLabels:
    """The values of custom labels, by object. Objects of one name in several clusters share theirs."""

    def __init__(self, settings: Metrics | None = None) -> None:
        self._settings = settings or Metrics()
        self._labels = {
            plural: [one for one in self._settings.custom_labels if one.source_kind == kind]
            for plural, kind in _SOURCES.items()
        }
        self._values: dict[_Name, tuple[str, ...]] = {}
        self._hidden: set[_Name] = set()
        """LocalQueues without metrics."""

        self.metrics = {name: self._extended(metric) for name, metric in OURS.items()}
        """Every metric by name, with all its labels."""

    def observe(self, observed: Observed) -> bool:
        """Note the labels of an object; return whether its series have other labels, or none, from now on."""
        plural, body = observed.plural, observed.body
        if plural not in _SOURCES or (body is None and not observed.deleted):
            return False
        name = (plural, observed.namespace, observed.name)
        before = (self._values.get(name), name in self._hidden)
        self._values.pop(name, None)
        self._hidden.discard(name)
        if not observed.deleted:
            labels, annotations = labels_of(body), annotations_of(body)
            if of_kind := self._labels[plural]:
                self._values[name] = tuple(one.value(labels, annotations) for one in of_kind)
            if plural == LOCAL_QUEUE.plural:
                shown = self._settings.local_queue_metrics.shows(labels)
                self._hidden.update(() if shown else (name,))
        return before != (self._values.get(name), name in self._hidden)

    def is_hidden(self, plural: str, namespace: str | None, name: str) -> bool:
        """Whether the object has no metrics."""
        return (plural, namespace, name) in self._hidden

    def all_values(self, metric: Metric, labels: Sequence[str]) -> tuple[str, ...] | None:
        """The values of all labels of a series, `labels` being those without the role; None: it is hidden."""
        plural = subject_of(metric)
        if plural is None or not (self._labels[plural] or self._hidden):
            return metric.values(labels)
        given = dict(zip(metric.labels, labels, strict=False))
        subject = next(given[name] for name in NAME_LABELS[plural] if name in given)
        name = (plural, given.get("namespace"), subject)
        if name in self._hidden:
            return None
        unknown = ("",) * len(self._labels[plural])
        return (*metric.values(labels), *self._values.get(name, unknown))

    def _extended(self, metric: Metric) -> Metric:
        plural = subject_of(metric)
        custom = [f"custom_{one.name}" for one in self._labels[plural]] if plural else []
        return replace(metric, labels=(*metric.labels, *custom))
