"""Series that hold the name of a queue or a cohort end with it."""

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import Counter, Gauge, generate_latest

from services.quota.engine.facts import ClusterQueueGone, CohortGone
from services.quota.metrics import DecisionMetrics, service
from services.quota.metrics.custom_labels import NAME_LABELS
from services.quota.metrics.gauges import named_cohorts
from shared.contracts.messages.admissions import Admission
from tests.unit.quota.builders import CLUSTER, Bench, cohort, queue, slots

ADMITTED = Admission(
    cluster=CLUSTER, namespace="ns", name="w1", uid="u", state="admitted", cluster_queue="q",
    queue="q", term=1, number=1, decided_at=datetime(2026, 1, 1, 12, tzinfo=UTC),
)  # fmt: skip
QUEUE_GONE = ClusterQueueGone(cluster=CLUSTER, name="q")


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        ([], {"child", "root"}),
        ([CohortGone(cluster=CLUSTER, name="child")], {"child"}),
        ([QUEUE_GONE], {"child", "root"}),
        ([CohortGone(cluster=CLUSTER, name="child"), QUEUE_GONE], set()),
    ],
)
def test_series_of_a_cohort_end_with_what_names_it(gone: list[Any], left: set[str]) -> None:
    bench = Bench(cohort("child", "root"), queue("q", slots(1), cohort="child"))
    meter = DecisionMetrics()
    meter.record_decision(ADMITTED, None, cohorts=("child", "root"))
    bench.take(*gone)
    meter.keep_cohorts(named_cohorts(bench.engine))
    text = generate_latest(meter.registry).decode()
    assert {name for name in ("child", "root") if f'cohort="{name}"' in text} == left


def test_series_of_our_own_metrics_end_with_their_queue() -> None:
    for name in ("gone", "here"):
        service.UNPLANNED.labels(cluster_queue=name).inc()
    DecisionMetrics().remove_series("clusterqueues", None, "gone")
    samples = [sample for metric in service.UNPLANNED.collect() for sample in metric.samples]
    left = {sample.labels["cluster_queue"] for sample in samples}
    assert "gone" not in left
    assert "here" in left


def test_each_metric_of_our_own_with_a_name_of_a_queue_is_known() -> None:
    labels = [label for names in NAME_LABELS.values() for label in names]
    own = [one for one in vars(service).values() if isinstance(one, Counter | Gauge)]
    with_name = {(label, one) for one in own for label in labels if label in one._labelnames}
    assert with_name == {(label, one) for label, known in service.NAMED.items() for one in known}
