"""Names and labels of the systems that dashboards and alerts were made for, and how many series there can be.

Kueue's are held to its list in `tests/unit/quota/metrics/test_metrics.py`, but for the three that others
than the quota service tell.
"""

import re
from collections import Counter
from typing import Final

import pytest
from prometheus_client import CollectorRegistry

from services.quota.metrics import DecisionMetrics
from services.reference.metrics import VALUES, declared_metrics
from tests.monitoring.record import arrivals
from tests.monitoring.recording import NAME, read
from tests.unit.quota.metrics.kueue_metrics import KUEUE
from tests.unit.quota.metrics.test_metrics import decision, state

PLATFORM: Final = ("platform",)
PLACE: Final = ("platform", "taskrun_namespace")
ELSEWHERE: Final = {
    "kueue_workload_creation_latency_seconds": "patcher",
    "multikueue_workloads_admitted_total": "dispatcher",
    "multikueue_workloads_dispatched_total": "dispatcher",
}
THEIRS: Final = {
    **{name: (service, *KUEUE[name]) for name, service in ELSEWHERE.items()},
    "tekton_kueue_cel_evaluations_total": ("classifier", "counter", ("result",)),
    "tekton_kueue_cel_mutations_total": ("classifier", "counter", ("result",)),
    "tekton_kueue_config_reload_total": ("classifier", "counter", ("result",)),
    "tekton_kueue_config_reload_failure_total": ("classifier", "counter", ("result",)),
    "multi_platform_controller_host_allocation_time": ("provisioner", "histogram", PLATFORM),
    "multi_platform_controller_wait_time": ("provisioner", "histogram", PLATFORM),
    "multi_platform_controller_task_run_time": ("provisioner", "histogram", PLATFORM),
    "multi_platform_controller_provisioning_failures": ("provisioner", "counter", PLATFORM),
    "multi_platform_controller_provisioning_successes": ("provisioner", "counter", PLATFORM),
    "multi_platform_controller_cleanup_failures": ("provisioner", "counter", PLATFORM),
    "multi_platform_controller_host_allocation_failures": ("provisioner", "counter", PLATFORM),
    "multi_platform_controller_platform_pool_size": ("provisioner", "gauge", PLATFORM),
    "multi_platform_controller_running_tasks": ("provisioner", "gauge", PLACE),
    "multi_platform_controller_waiting_tasks": ("provisioner", "gauge", PLACE),
}
FEW: Final = 12
"""Values of a label that nobody configures."""

SCRAPED: Final = {"job", "instance", "le"}
ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-|[0-9a-f]{12}")


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_adopted_metrics_have_the_original_kind_and_labels(name: str) -> None:
    ours = {one.name: (one.service, one.kind, one.labels) for one in declared_metrics()}
    assert ours[name] == THEIRS[name]


def test_metric_is_declared_by_one_service_only() -> None:
    names = Counter(one.name for one in declared_metrics())
    assert names.most_common(1)[0][1] == 1


def test_no_label_is_a_name_or_an_id_of_a_workload() -> None:
    work = {arrival.object["metadata"]["name"] for arrival in arrivals()}
    assert len(work) > 50
    for series in read().series:
        for label, value in series.labels:
            assert value not in work, dict(series.labels)
            assert not any(name in value for name in work), dict(series.labels)
            assert label == NAME or not ID.search(value), dict(series.labels)
            assert len(value) <= 63, "it is a message"


def test_every_label_has_bounded_values() -> None:
    values: dict[str, set[str]] = {}
    for series in read().series:
        for label, value in series.labels:
            if label not in SCRAPED | {NAME}:
                values.setdefault(label, set()).add(value)
    for label, found in values.items():
        assert label in VALUES or len(found) <= FEW, f"{label}: {sorted(found)}"
    labels = {label for one in declared_metrics() for label in one.labels}
    assert VALUES.keys() <= labels, "the page tells of labels that there are"


def test_series_count_does_not_grow_with_workloads() -> None:
    def series_of(count: int) -> int:
        meter = DecisionMetrics(CollectorRegistry())
        for number in range(count):
            ident = {"name": f"job-{number}", "uid": f"u-{number}"}
            for after, stage in enumerate(("reserved", "admitted", "evicted", "waiting")):
                said = decision(stage, after, reason="InClusterQueue", message=f"of {number}")
                meter.record_decision(
                    said.model_copy(update=ident), state().model_copy(update=ident), preempting="cq"
                )
        return sum(len(family.samples) for family in meter.registry.collect())

    assert series_of(1_000) == series_of(1) > 0
