"""Series of cohorts end with the last object that names them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import generate_latest

from services.quota.engine.facts import ClusterQueueGone, CohortGone
from services.quota.metrics import DecisionMetrics
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
