"""The metrics that dashboards made for Kueue ask for: names, labels, and what they count."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from services.quota.engine import QuotaEngine
from services.quota.engine.facts import (
    ClusterQueueChanged,
    CohortChanged,
    FlavorChanged,
    FlavorQuotas,
    LocalQueueChanged,
    NamespaceChanged,
    PodSet,
    Quota,
    ResourceGroup,
    Selector,
    WorkloadChanged,
)
from services.quota.metrics import DecisionMetrics, GaugeCollector
from services.quota.metrics.catalogue import NOT_OURS, OURS
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import WorkloadState
from tests.unit.quota.metrics.kueue_metrics import KUEUE

AT = datetime(2026, 1, 1, tzinfo=UTC)
LABELS = {"replica_role": "leader"}


# Names -------------------------------------------------------------------------------------------


def test_every_kueue_metric_is_published_or_has_reason() -> None:
    assert OURS.keys() | NOT_OURS.keys() == KUEUE.keys()
    assert not OURS.keys() & NOT_OURS.keys()


@pytest.mark.parametrize("name", sorted(OURS))
def test_kinds_and_labels_equal_those_of_kueue(name: str) -> None:
    assert (OURS[name].kind, OURS[name].labels) == KUEUE[name]


# Decisions ---------------------------------------------------------------------------------------


def state(**more: Any) -> WorkloadState:
    given = {"queue": "lq", "priority_class": "high", "created_at": AT, "phase": "waiting"}
    return WorkloadState(
        cluster="hub", namespace="team", name="job-a", uid="u", **{**given, **more}
    )


def decision(state: str, after: float, **more: Any) -> Admission:
    given: dict[str, Any] = {"cluster_queue": "cq", "queue": "lq", "term": 1, "number": 1}
    return Admission(
        cluster="hub",
        namespace="team",
        name="job-a",
        uid="u",
        state=state,
        decided_at=AT + timedelta(seconds=after),
        **{**given, **more},
    )


class Bench:
    """A meter, and what it says."""

    def __init__(self) -> None:
        self.meter = DecisionMetrics()

    def tell(self, *admissions: Admission, **more: Any) -> None:
        for admission in admissions:
            self.meter.record_decision(admission, state(), **more)

    def value(self, metric: str, /, **labels: str) -> float | None:
        return self.meter.registry.get_sample_value(metric, {**labels, **LABELS})

    def of_queue(self, metric: str, /, **labels: str) -> float | None:
        return self.value(metric, cluster_queue="cq", **labels)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_workload_counts_once_in_each_metric(bench: Bench) -> None:
    bench.tell(
        decision("reserved", 10),
        decision("admitted", 15, admitted_at=AT + timedelta(seconds=15)),
        decision(
            "admitted",
            35,
            admitted_at=AT + timedelta(seconds=15),
            pods_ready="Started",
            pods_ready_at=AT + timedelta(seconds=30),
        ),
        decision("released", 115, reason="Finished"),
        cohorts=("team-cohort", "root"),
    )
    high = {"priority_class": "high"}
    for name in ("quota_reserved", "admitted", "finished"):
        assert bench.of_queue(f"kueue_{name}_workloads_total", **high) == 1
        local = {"name": "lq", "namespace": "team", **high}
        assert bench.value(f"kueue_local_queue_{name}_workloads_total", **local) == 1
    for name, seconds in {
        "quota_reserved_wait_time": 10,
        "admission_wait_time": 15,
        "admission_checks_wait_time": 5,
        "ready_wait_time": 30,
        "admitted_until_ready_wait_time": 15,
        "execution_time": 100,
    }.items():
        assert bench.of_queue(f"kueue_{name}_seconds_sum", **high) == seconds
        assert bench.of_queue(f"kueue_{name}_seconds_count", **high) == 1
    for cohort in ("team-cohort", "root"):
        name = "kueue_cohort_subtree_admitted_workloads_total"
        assert bench.value(name, cohort=cohort, **high) == 1


def test_preemption_counts_preemptor_and_latency(bench: Bench) -> None:
    bench.tell(decision("admitted", 0))
    bench.tell(
        decision("evicted", 60, reason="InCohortReclamation", preempted_by="t/x"),
        preempting="owner",
    )
    bench.tell(decision("waiting", 75))
    labels = {"reason": "Preempted", "underlying_cause": "", "priority_class": "high"}
    assert bench.of_queue("kueue_evicted_workloads_total", **labels) == 1
    assert bench.of_queue("kueue_evicted_workloads_once_total", **labels) == 1
    told = bench.value(
        "kueue_preempted_workloads_total",
        preempting_cluster_queue="owner",
        reason="InCohortReclamation",
    )
    assert told == 1
    latency = "kueue_workload_eviction_latency_seconds_sum"
    assert bench.of_queue(latency, reason="Preempted") == 15


def test_requeued_workload_waits_anew_and_counts_as_evicted_once(bench: Bench) -> None:
    for begin in (0, 100):
        bench.tell(
            decision("admitted", begin + 10),
            decision("evicted", begin + 50, reason="InClusterQueue", preempted_by="t/x"),
            decision("waiting", begin + 60),
        )
    labels = {"reason": "Preempted", "underlying_cause": "", "priority_class": "high"}
    assert bench.of_queue("kueue_evicted_workloads_total", **labels) == 2
    assert bench.of_queue("kueue_evicted_workloads_once_total", **labels) == 1
    # 10 s after its creation, and 50 s after it gave its quota back.
    assert bench.of_queue("kueue_admission_wait_time_seconds_sum", priority_class="high") == 60


def test_decision_of_earlier_term_is_remembered_but_not_counted(bench: Bench) -> None:
    bench.meter.restore(decision("admitted", 10, admitted_at=AT + timedelta(seconds=10)))
    bench.tell(decision("released", 40, reason="Finished"))
    assert bench.of_queue("kueue_admitted_workloads_total", priority_class="high") is None
    assert bench.of_queue("kueue_execution_time_seconds_sum", priority_class="high") == 30


def test_short_cycles_fall_into_different_buckets(bench: Bench) -> None:
    for seconds in (0.002, 0.004, 0.2):
        bench.meter.record_attempt(seconds=seconds, admitted=True)
    shorter = {
        limit: bench.value(
            "kueue_admission_attempt_duration_seconds_bucket", result="success", le=limit
        )
        for limit in ("0.001", "0.0025", "0.005", "0.25")
    }
    assert shorter == {"0.001": 0, "0.0025": 1, "0.005": 2, "0.25": 3}


CAUSES: dict[str, tuple[str, str]] = {
    "InCohortFairSharing": ("Preempted", ""),
    "PodsReadyTimeout": ("PodsReadyTimeout", "WaitForStart"),
    "AdmissionCheck": ("AdmissionCheck", ""),
    "Deactivated": ("Deactivated", ""),
    "DeactivatedDueToRequeuingLimitExceeded": ("Deactivated", "RequeuingLimitExceeded"),
    "ClusterQueueStopped": ("ClusterQueueStopped", ""),
}


@pytest.mark.parametrize(("reason", "labels"), CAUSES.items(), ids=list(CAUSES))
def test_eviction_has_labels_of_kueue(reason: str, labels: tuple[str, str]) -> None:
    preemptor = "team/urgent" if labels[0] == "Preempted" else None
    evicted = decision("evicted", 0, reason=reason, pods_ready="WaitForStart", pods_ready_at=AT)
    evicted = evicted.replace(preempted_by=preemptor)
    assert evicted.eviction_cause == labels
    cause = labels[1].replace("WaitForStart", "WaitForRecovery")
    assert evicted.replace(pods_ready="WaitForRecovery").eviction_cause == (labels[0], cause)


# How things stand --------------------------------------------------------------------------------


class Leading:
    """A leadership with one queue of 4 CPUs in a cohort, of which 3 are in use; another waits."""

    def __init__(self) -> None:
        self.engine = QuotaEngine()
        quotas = {"cpu": Quota(nominal=4000, borrowing_limit=2000)}
        group = ResourceGroup(
            covered=("cpu",), flavors=(FlavorQuotas(name="default", quotas=quotas),)
        )
        self.queue = ClusterQueueChanged(
            cluster="hub", name="cq", cohort="near", groups=(group,), namespaces=Selector()
        )
        for fact in (
            NamespaceChanged(cluster="hub", name="team"),
            FlavorChanged(cluster="hub", name="default"),
            CohortChanged(cluster="hub", name="root"),
            CohortChanged(cluster="hub", name="near", parent="root"),
            self.queue,
            LocalQueueChanged(cluster="hub", namespace="team", name="lq", cluster_queue="cq"),
            self.workload("a", 3000),
            self.workload("b", 3000),
            self.workload("c", 100, unresolved="PriorityClass team/urgent is not there"),
        ):
            self.engine.apply(fact)
        self.engine.decide(0)

    def workload(
        self, name: str, cpu: int, unresolved: str | None = None, reclaimable: int = 0
    ) -> WorkloadChanged:
        return WorkloadChanged(
            cluster="hub",
            namespace="team",
            name=name,
            uid=name,
            queue="lq",
            pod_sets=(
                PodSet(name="main", count=1, requests={"cpu": cpu}, reclaimable=reclaimable),
            ),
            unresolved=unresolved,
        )

    def states(self) -> list[WorkloadState]:
        return [_finished("lq"), _finished("a-queue-that-nobody-has")]


def _finished(queue: str) -> WorkloadState:
    return state().model_copy(update={"name": "job-old", "phase": "finished", "queue": queue})


STANDING: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {
    ("kueue_pending_workloads", (("cluster_queue", "cq"), ("status", "inadmissible"))): 1,
    ("kueue_pending_workloads", (("cluster_queue", "cq"), ("status", "active"))): 0,
    ("kueue_pending_scheduling_hashes", (("cluster_queue", "cq"), ("status", "inadmissible"))): 1,
    ("kueue_pending_scheduling_hashes", (("cluster_queue", "cq"), ("status", "active"))): 0,
    ("kueue_reserving_active_workloads", (("cluster_queue", "cq"),)): 1,
    ("kueue_admitted_active_workloads", (("cluster_queue", "cq"),)): 1,
    ("kueue_finished_workloads", (("cluster_queue", "cq"),)): 1,
    ("kueue_cluster_queue_status", (("cluster_queue", "cq"), ("status", "active"))): 1,
    ("kueue_cluster_queue_status", (("cluster_queue", "cq"), ("status", "pending"))): 0,
    (
        "kueue_cluster_queue_info",
        (("cluster_queue", "cq"), ("parent_cohort", "near"), ("root_cohort", "root")),
    ): 1,
    ("kueue_cluster_queue_resource_pending", (("cluster_queue", "cq"), ("resource", "cpu"))): 3,
    (
        "kueue_unadmitted_workloads",
        (("cluster_queue", "cq"), ("reason", "WaitingForQuota"), ("underlying_cause", "")),
    ): 1,
    (
        "kueue_local_queue_unadmitted_workloads",
        (
            ("name", "lq"),
            ("namespace", "team"),
            ("cluster_queue", "cq"),
            ("reason", "Misconfigured"),
            ("underlying_cause", ""),
        ),
    ): 1,
    ("kueue_cohort_subtree_admitted_active_workloads", (("cohort", "root"),)): 1,
    (
        "kueue_cohort_subtree_quota",
        (("cohort", "root"), ("flavor", "default"), ("resource", "cpu")),
    ): 4,
    (
        "kueue_cohort_subtree_resource_reservations",
        (("cohort", "root"), ("flavor", "default"), ("resource", "cpu")),
    ): 3,
    (
        "kueue_local_queue_resource_usage",
        (("name", "lq"), ("namespace", "team"), ("flavor", "default"), ("resource", "cpu")),
    ): 3,
    (
        "kueue_local_queue_status",
        (("name", "lq"), ("namespace", "team"), ("active", "True")),
    ): 1,
    **{
        (
            f"kueue_cluster_queue_{name}",
            (
                ("cohort", "near"),
                ("cluster_queue", "cq"),
                ("flavor", "default"),
                ("resource", "cpu"),
            ),
        ): value
        for name, value in {
            "nominal_quota": 4,
            "borrowing_limit": 2,
            "resource_usage": 3,
            "resource_reservation": 3,
        }.items()
    },
}


@pytest.fixture(scope="module")
def scraped() -> CollectorRegistry:
    registry = CollectorRegistry()
    leading = Leading()
    registry.register(GaugeCollector(lambda: leading, version="1"))
    return registry


@pytest.mark.parametrize(
    ("sample", "value"), STANDING.items(), ids=[f"{n} {dict(v)}" for n, v in STANDING]
)
def test_scrape_shows_what_queues_hold_now(
    scraped: CollectorRegistry,
    sample: tuple[str, tuple[tuple[str, str], ...]],
    value: float,
) -> None:
    name, labels = sample
    assert scraped.get_sample_value(name, {**dict(labels), **LABELS}) == value


INACTIVE: dict[str, dict[str, Any]] = {
    "pending": {"stop": "Hold"},
    "terminating": {"terminating": True, "inactive": ("Terminating", "no")},
}


@pytest.mark.parametrize("status", INACTIVE)
def test_inactive_queue_counts_no_active_pending_workload(status: str) -> None:
    leading, registry = Leading(), CollectorRegistry()
    leading.engine.apply(replace(leading.queue, **INACTIVE[status]))
    leading.engine.apply(leading.workload("d", 1000, reclaimable=1))
    leading.engine.decide(0)
    registry.register(GaugeCollector(lambda: leading, version="1"))

    def value(metric: str, **labels: str) -> float | None:
        return registry.get_sample_value(metric, {"cluster_queue": "cq", **labels, **LABELS})

    assert value("kueue_cluster_queue_status", status=status) == 1
    assert value("kueue_cluster_queue_status", status="active") == 0
    assert value("kueue_pending_workloads", status="active") == 0
    assert value("kueue_pending_workloads", status="inadmissible") == 2
    asked = value("kueue_cluster_queue_resource_pending", resource="cpu")
    assert asked == 3, "finished pods of who waits ask for nothing"


def test_standby_publishes_build_info_only() -> None:
    registry = CollectorRegistry()
    registry.register(GaugeCollector(lambda: None, version="1"))
    samples = [line for line in generate_latest(registry).splitlines() if line[:1] != b"#"]
    assert [line.split(b"{")[0] for line in samples] == [b"kueue_build_info"]


def test_deleted_queue_leaves_no_series(bench: Bench) -> None:
    def told() -> str:
        return generate_latest(bench.meter.registry).decode()

    bench.tell(
        decision("admitted", 1, admitted_at=AT),
        decision("evicted", 2, reason="InClusterQueue", preempted_by="t/x"),
        cohorts=("team-cohort",), preempting="owner",
    )  # fmt: skip
    for plural, namespace, name in (
        ("localqueues", "team", "lq"),
        ("clusterqueues", None, "cq"),
        ("clusterqueues", None, "owner"),
        ("cohorts", None, "team-cohort"),
    ):
        bench.meter.remove_series("localqueues", "another-team", name)
        assert f'"{name}"' in told()
        bench.meter.remove_series(plural, namespace, name)
        assert f'"{name}"' not in told(), name
    bench.tell(decision("released", 3, reason="Finished"), decision("admitted", 4, admitted_at=AT))
    again = 'kueue_admitted_workloads_total{cluster_queue="cq"'
    assert again in told(), "who is there again is counted again"


def test_unknown_queue_name_is_no_label() -> None:
    registry, meter = CollectorRegistry(), DecisionMetrics()
    registry.register(GaugeCollector(Leading, version="1"))
    meter.record_decision(
        decision("released", 5, reason="Finished", queue="nowhere", cluster_queue=""), None
    )
    text = (generate_latest(registry) + generate_latest(meter.registry)).decode()
    assert [name for name in ("a-queue-that-nobody-has", "nowhere") if name in text] == []
