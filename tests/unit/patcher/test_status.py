"""The status of a Workload after each decision, with Kueue's types, reasons and messages."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.patcher.workloads.status import finished_status, status_for
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.names import JOB_UID_LABEL
from shared.contracts.messages.admissions import Admission, AdmissionState, PodSetAssignment
from shared.contracts.messages.workloads import Finish, JobRef, WorkloadState
from shared.testing.builders import workload

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Json = dict[str, Any]


def decided(state: AdmissionState, *, after_seconds: int = 0, **more: Any) -> Admission:
    return Admission(
        cluster="hub", namespace="team-a", name="w", uid="u", state=state, term=1, number=1,
        decided_at=NOON + timedelta(seconds=after_seconds), cluster_queue="cq", **more,
    )  # fmt: skip


def admitted() -> Admission:
    pod_set = PodSetAssignment(name="main", count=2, flavors={"cpu": "spot"}, usage={"cpu": "2"})
    return decided("admitted", pod_sets=[pod_set])


def after(*admissions: Admission) -> Json:
    obj: Json = {"metadata": {"generation": 1}, "status": {}}
    for admission in admissions:
        obj = {**obj, "status": status_for(as_body(obj), admission)}
    return dict(obj["status"])


def conditions(status: Json) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def test_admission_sets_both_conditions_in_one_status() -> None:
    status = after(admitted())
    assert conditions(status) == {
        "QuotaReserved": ("True", "QuotaReserved"),
        "Admitted": ("True", "Admitted"),
    }
    assert status["admission"] == {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {"name": "main", "count": 2, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "2"}}
        ],
    }


CONDITIONS = {
    "who waits is told why": (
        [decided("waiting", reason="WaitingForQuota", message="2 more needed")],
        {"QuotaReserved": ("False", "WaitingForQuota"), "Admitted": ("False", "NoReservation")},
    ),
    "a reservation with pending checks is not admitted": (
        [decided("reserved", checks=["machines"])],
        {
            "QuotaReserved": ("True", "QuotaReserved"),
            "Admitted": ("False", "UnsatisfiedAdmissionChecks"),
        },
    ),
    "a preempted workload keeps its quota until its pods are gone": (
        [admitted(), decided("evicted", reason="InClusterQueue", preempted_by="team-b/x")],
        {
            "QuotaReserved": ("True", "QuotaReserved"),
            "Admitted": ("True", "Admitted"),
            "Evicted": ("True", "Preempted"),
            "Preempted": ("True", "InClusterQueue"),
        },
    ),
    "then it queues again": (
        [
            admitted(),
            decided("evicted", reason="InClusterQueue", preempted_by="team-b/x"),
            decided("waiting", reason="PendingEvaluation"),
        ],
        {
            "QuotaReserved": ("False", "PendingEvaluation"),
            "Admitted": ("False", "NoReservation"),
            "Evicted": ("True", "Preempted"),
            "Preempted": ("True", "InClusterQueue"),
            "Requeued": ("True", "Preempted"),
        },
    ),
    "and a new admission ends the eviction": (
        [
            admitted(),
            decided("evicted", reason="Deactivated", message="The workload is deactivated"),
            decided("waiting", reason="Deactivated"),
            admitted(),
        ],
        {
            "QuotaReserved": ("True", "QuotaReserved"),
            "Admitted": ("True", "Admitted"),
            "Evicted": ("False", "QuotaReserved"),
            "Requeued": ("True", "Reactivated"),
        },
    ),
}


def test_evictions_are_counted_by_reason_and_cause() -> None:
    preempted = decided("evicted", reason="InClusterQueue", preempted_by="team-b/x")
    late = decided("evicted", reason="PodsReadyTimeout")
    stopped = decided("evicted", reason="DeactivatedDueToAdmissionCheck")
    status = after(
        admitted(),
        preempted,
        preempted,
        admitted(),
        late,
        admitted(),
        preempted,
        admitted(),
        stopped,
    )
    assert status["schedulingStats"]["evictions"] == [
        {"reason": "Preempted", "underlyingCause": "", "count": 2},
        {"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 1},
        {"reason": "Deactivated", "underlyingCause": "AdmissionCheck", "count": 1},
    ]


PREEMPTED = decided(
    "evicted",
    reason="InClusterQueue",
    preempted_by="team-b/x",
    message="Preempted to accommodate a workload (UID: u-9) due to prioritization in the"
    " ClusterQueue; preemptor path: /co/cq; preemptee path: /co/other",
)
TEXTS: dict[str, tuple[Json | None, str]] = {
    "of a job": (
        {"metadata": {"uid": "w-2", "labels": {JOB_UID_LABEL: "j-2"}}},
        "(UID: w-2, JobUID: j-2)",
    ),
    "without a job": ({"metadata": {"uid": "w-2"}}, "(UID: w-2, JobUID: UNKNOWN)"),
    "that is not known, whose name only its tenant may read": (
        None,
        "(UID: UNKNOWN, JobUID: UNKNOWN)",
    ),
}


@pytest.mark.parametrize(("preemptor", "whom"), TEXTS.values(), ids=TEXTS)
def test_preemption_names_the_workload_and_both_paths(preemptor: Json | None, whom: str) -> None:
    obj = as_body({"metadata": {"generation": 1}, "status": {}})
    known = None if preemptor is None else as_body(preemptor)
    status = status_for(obj, PREEMPTED, preemptor=known)
    why = "due to prioritization in the ClusterQueue"
    paths = "preemptor path: /co/cq; preemptee path: /co/other"
    expected = f"Preempted to accommodate a workload {whom} {why}; {paths}"
    assert {c["message"] for c in status["conditions"]} == {expected}


def test_requests_are_shown_while_it_waits() -> None:
    pod_sets = [
        {"name": "driver", "count": 1, "requests": {}},
        {"name": "worker", "count": 3, "requests": {"cpu": "500m", "memory": "1Gi"}},
    ]
    state = workload("w", pod_sets=pod_sets)
    obj = as_body({"metadata": {"generation": 1}, "status": {}})
    waiting = status_for(obj, decided("waiting", reason="WaitingForQuota"), state)
    assert waiting["resourceRequests"] == [
        {"name": "driver"},
        {"name": "worker", "resources": {"cpu": "1500m", "memory": "3Gi"}},
    ]
    obj = as_body({"metadata": {"generation": 1}, "status": waiting})
    assert "resourceRequests" not in status_for(obj, admitted(), state)


LATER = NOON + timedelta(seconds=60)
TIMED_OUT = [
    admitted(),
    decided("evicted", reason="PodsReadyTimeout", requeue_at=LATER, requeue_count=1),
    decided("waiting", reason="PendingEvaluation", requeue_at=LATER, requeue_count=1),
]
REQUEUED = {
    "who backs off is not requeued": (TIMED_OUT, ("False", "PodsReadyTimeout")),
    "until the back-off is over": (
        [*TIMED_OUT, decided("waiting", reason="PendingEvaluation", requeue_count=1)],
        ("True", "BackoffFinished"),
    ),
    "or until it is admitted, if nobody said that before": (
        [*TIMED_OUT, admitted()], ("True", "BackoffFinished"),
    ),
    "who loses its quota to a stopped queue is not": (
        [
            admitted(),
            decided("evicted", reason="ClusterQueueStopped"),
            decided("waiting", reason="Suspended"),
            decided("waiting", reason="Suspended"),
        ],
        ("False", "ClusterQueueStopped"),
    ),
    "until the queue goes on": (
        [
            admitted(),
            decided("evicted", reason="LocalQueueStopped"),
            decided("waiting", reason="Suspended"),
            decided("waiting", reason="WaitingForQuota"),
        ],
        ("True", "LocalQueueRestarted"),
    ),
    "who is put out is not": (
        [
            admitted(),
            decided("evicted", reason="Deactivated"),
            decided("waiting", reason="Deactivated"),
        ],
        ("False", "Deactivated"),
    ),
    "until a user lets it in again": (
        [
            admitted(),
            decided("evicted", reason="Deactivated"),
            decided("waiting", reason="Deactivated"),
            decided("waiting", reason="WaitingForQuota"),
        ],
        ("True", "Reactivated"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("decisions", "expected"), REQUEUED.values(), ids=REQUEUED.keys())
def test_requeued_condition_follows_the_decisions(
    decisions: list[Admission], expected: tuple[str, str]
) -> None:
    assert conditions(after(*decisions))["Requeued"] == expected
    # Each is written whenever somebody looks, not once: the last one twice changes nothing.
    assert after(*decisions, decisions[-1]) == after(*decisions)


def test_requeue_backoff_ends_while_quota_is_held() -> None:
    status = after(admitted(), TIMED_OUT[1])
    waits = {
        "type": "Requeued",
        "status": "False",
        "reason": "PodsReadyTimeout",
        "message": "by another",
    }
    obj = {"metadata": {"generation": 1}, "status": status}
    status["conditions"].append(waits)
    still = status_for(as_body(obj), TIMED_OUT[1])
    assert conditions(still)["Requeued"] == ("False", "PodsReadyTimeout")
    over = status_for(as_body(obj), decided("evicted", reason="PodsReadyTimeout", requeue_count=1))
    assert conditions(over)["Requeued"] == ("True", "BackoffFinished")
    assert (over["requeueState"], "admission" in over) == ({"count": 1}, True)


def test_requeue_state_is_kept_until_a_decision_without_one() -> None:
    status = after(*TIMED_OUT, admitted().model_copy(update={"executed_seconds": 70}))
    assert status["accumulatedPastExecutionTimeSeconds"] == 70
    assert after(*TIMED_OUT)["requeueState"] == {"count": 1, "requeueAt": "2026-01-01T12:01:00Z"}
    assert "requeueState" not in after(*TIMED_OUT, admitted())
    assert "accumulatedPastExecutionTimeSeconds" not in after(admitted())


READINESS = {
    "": None,
    "WaitForStart": ("False", "WaitForStart"),
    "Started": ("True", "Started"),
    "WaitForRecovery": ("False", "WaitForRecovery"),
    "Recovered": ("True", "Recovered"),
}


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize(("reason", "expected"), READINESS.items())
def test_pods_ready_is_set_for_own_jobs_only(
    reason: str, expected: tuple[str, str] | None, ours: bool
) -> None:
    owner = JobRef(api_version="batch/v1", kind="Job", plural="jobs", name="j", uid="u")
    state = WorkloadState(
        cluster="hub", namespace="team-a", name="w", uid="u", phase="running", created_at=NOON,
        owner=owner if ours else None,
    )  # fmt: skip
    admission = admitted().model_copy(update={"pods_ready": reason, "pods_ready_at": LATER})
    status = status_for(as_body({"metadata": {"generation": 1}, "status": {}}), admission, state)
    assert conditions(status).get("PodsReady") == (expected if ours else None)
    if ours and expected:
        assert status["conditions"][-1]["lastTransitionTime"] == "2026-01-01T12:01:00Z"


@pytest.mark.parametrize(("decisions", "expected"), CONDITIONS.values(), ids=CONDITIONS.keys())
def test_conditions_follow_the_decisions(
    decisions: list[Admission], expected: dict[str, tuple[str, str]]
) -> None:
    assert conditions(after(*decisions)) == expected


def test_writing_the_same_decision_again_changes_nothing() -> None:
    assert after(admitted(), admitted()) == after(admitted())


def test_transition_time_moves_only_with_the_status() -> None:
    first = decided("waiting", reason="WaitingForQuota")
    later = decided("waiting", reason="ExceedsMaxQuota", after_seconds=60)
    [condition, admitted_] = after(first, later)["conditions"]
    assert condition["reason"] == "ExceedsMaxQuota"
    assert admitted_["lastTransitionTime"] == condition["lastTransitionTime"]
    assert condition["lastTransitionTime"] == "2026-01-01T12:00:00Z"


def test_conditions_of_other_controllers_are_kept() -> None:
    theirs = {"type": "PodsReady", "status": "True", "reason": "Started"}
    obj = {"metadata": {"generation": 1}, "status": {"conditions": [theirs]}}
    assert theirs in status_for(as_body(obj), admitted())["conditions"]


def test_finished_condition_is_written_once() -> None:
    obj: Json = {"metadata": {"generation": 1}, "status": after(admitted())}
    finish = Finish(success=False, message="OOM", at=NOON)
    obj["status"] = finished_status(as_body(obj), finish, at=NOON)
    assert conditions(obj["status"])["Finished"] == ("True", "Failed")
    assert (
        finished_status(as_body(obj), Finish(success=True, message="late", at=NOON), at=NOON)
        == obj["status"]
    )
    assert "admission" in obj["status"]
