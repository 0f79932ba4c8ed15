"""Labels of queues and cohorts in metrics, and LocalQueues without metrics, as the Configuration says."""

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from services.quota.engine import QuotaEngine
from services.quota.metrics import CustomLabels, DecisionMetrics, GaugeCollector
from services.quota.wire.inbound import observed_facts
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.observed import Observed
from shared.settings.kueue_metrics import Metrics
from shared.testing.builders import cluster_queue_spec, observed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LABELS: list[dict[str, Any]] = [
    {"name": "team"},
    {"name": "cost", "sourceAnnotationKey": "example.com/cost"},
    {"name": "stage", "sourceKind": "LocalQueue", "trackedValues": ["prod"]},
    {"name": "area", "sourceKind": "Cohort", "sourceLabelKey": "example.com/area"},
]
QUEUE = {"labels": {"team": "red"}, "annotations": {"example.com/cost": "7"}}
LEADER = {"replica_role": "leader"}


class Metered:
    """Metrics of one queue of a cohort, with the labels that the test gives them."""

    def __init__(self, **settings: Any) -> None:
        self.registry = CollectorRegistry()
        labels = CustomLabels(Metrics.model_validate({"customLabels": LABELS, **settings}))
        self.meter = DecisionMetrics(self.registry, labels)
        self.engine = QuotaEngine()
        self.registry.register(GaugeCollector(lambda: self, version="1", custom_labels=labels))
        self.see(observed(kinds.RESOURCE_FLAVOR, "f", {}))
        self.cohort("north")
        self.cluster_queue(QUEUE)
        self.local_queue("prod")

    def states(self) -> list[Any]:
        return []

    def see(self, message: Observed) -> None:
        self.meter.observe(message)
        for fact in observed_facts(message):
            self.engine.apply(fact)
        self.engine.decide(0)

    def cohort(self, area: str) -> None:
        labels = {"example.com/area": area}
        self.see(observed(kinds.COHORT, "all", {}, metadata={"labels": labels}))

    def cluster_queue(self, metadata: dict[str, Any]) -> None:
        spec = cluster_queue_spec(1, "f", cohortName="all")
        self.see(observed(kinds.CLUSTER_QUEUE, "cq", spec, metadata=metadata))

    def local_queue(self, stage: str, *, gone: bool = False) -> None:
        labels = {"labels": {"stage": stage}}
        spec = {"clusterQueue": "cq"}
        self.see(observed(kinds.LOCAL_QUEUE, "lq", spec, "team", metadata=labels, deleted=gone))

    def admit(self, name: str) -> None:
        admission = Admission(
            cluster="hub", namespace="team", name=name, uid=name, term=1, number=1, state="admitted",
            decided_at=NOON, admitted_at=NOON, queue="lq", cluster_queue="cq",
        )  # fmt: skip
        self.meter.record_decision(admission, None, cohorts=("all",))

    def value(self, name: str, /, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {**labels, **LEADER})


def test_metrics_have_the_labels_of_their_queues_and_cohorts() -> None:
    metered = Metered()
    metered.admit("a")
    queue = {"cluster_queue": "cq", "custom_team": "red", "custom_cost": "7"}
    local = {"name": "lq", "namespace": "team", "custom_stage": "prod"}
    cohort = {"cohort": "all", "custom_area": "north"}
    assert metered.value("kueue_admitted_workloads_total", priority_class="", **queue) == 1
    assert metered.value("kueue_reserving_active_workloads", **queue) == 0
    assert metered.value("kueue_cluster_queue_status", status="active", **queue) == 1
    assert (
        metered.value("kueue_local_queue_admitted_workloads_total", priority_class="", **local) == 1
    )
    assert metered.value("kueue_local_queue_pending_workloads", status="active", **local) == 0
    assert (
        metered.value("kueue_cohort_subtree_admitted_workloads_total", priority_class="", **cohort)
        == 1
    )
    assert metered.value("kueue_cohort_weighted_share", **cohort) == 0


def test_changed_label_moves_gauges_and_new_counts() -> None:
    metered = Metered()
    metered.admit("a")
    metered.cluster_queue({"labels": {"team": "blue"}})
    metered.admit("b")
    red = {"cluster_queue": "cq", "custom_team": "red", "custom_cost": "7"}
    blue = {"cluster_queue": "cq", "custom_team": "blue", "custom_cost": ""}
    assert metered.value("kueue_reserving_active_workloads", **red) is None
    assert metered.value("kueue_reserving_active_workloads", **blue) == 0
    counted = "kueue_admitted_workloads_total"
    assert metered.value(counted, priority_class="", **red) == 1
    assert metered.value(counted, priority_class="", **blue) == 1


def test_value_that_is_not_tracked_is_named_so() -> None:
    metered = Metered()
    metered.local_queue("a-stage-of-its-own")
    untracked = {"custom_stage": "kueue.x-k8s.io/_UNTRACKED_VALUE_"}
    name = "kueue_local_queue_pending_workloads"
    assert metered.value(name, name="lq", namespace="team", status="active", **untracked) == 0


SELECTED = {"localQueueSelector": {"matchLabels": {"stage": "prod"}}}


@pytest.mark.parametrize(
    ("settings", "stage", "shown"),
    [
        ({"enable": True}, "test", True),
        ({"enable": False}, "prod", False),
        (SELECTED, "prod", True),
        (SELECTED, "test", False),
    ],
)
def test_local_queue_has_metrics_if_it_is_selected(
    settings: dict[str, Any], stage: str, shown: bool
) -> None:
    metered = Metered(customLabels=[], localQueueMetrics=settings)
    metered.admit("before")
    metered.local_queue(stage)
    metered.admit("after")
    names = {
        sample.name
        for metric in metered.registry.collect()
        for sample in metric.samples
        if sample.labels.get("name") == "lq"
    }
    assert bool(names) == shown
    assert (
        metered.value("kueue_admitted_workloads_total", cluster_queue="cq", priority_class="") == 2
    )


def test_deleted_local_queue_leaves_no_series_and_no_label() -> None:
    metered = Metered()
    metered.admit("a")
    metered.local_queue("prod", gone=True)
    metered.admit("b")
    name, local = "kueue_local_queue_admitted_workloads_total", {"name": "lq", "namespace": "team"}
    assert metered.value(name, priority_class="", custom_stage="prod", **local) is None
    assert metered.value(name, priority_class="", custom_stage="", **local) == 1
