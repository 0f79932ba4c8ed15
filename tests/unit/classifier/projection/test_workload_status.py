"""What a Workload's status says of its life, and how finished pods are counted."""

from datetime import UTC, datetime
from typing import Any

import pytest

from services.classifier.projection.projector import Projector
from services.classifier.projection.workload_status import status_fields, with_reclaimed
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.names import MAX_EXECUTION, workload_name
from shared.contracts.messages.workloads import PodSet, RecordedCheck, WorkloadState
from tests.unit.classifier.projection.objects import QUEUE, job, seen

Json = dict[str, Any]
SINCE = "2026-01-01T12:00:00Z"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAME = workload_name(kind="Job", group="batch", name="train", uid="u-1")


def workload(*true: str, spec: Json | None = None, **status: Any) -> Json:
    conditions = [
        {"type": type_, "status": "True", "reason": f"{type_}Reason", "lastTransitionTime": SINCE}
        for type_ in true
    ]
    return {
        "metadata": {"name": NAME, "namespace": "team-a", "uid": "w", "resourceVersion": "9"},
        "spec": spec or {},
        "status": {"conditions": conditions, **status},
    }


RECORDED: dict[str, tuple[Json | None, Json]] = {
    "no object, nothing": (None, {}),
    "who waits for the first time has nothing on record": (workload(), {}),
    "an admission, since when, and whether its pods are ready": (
        workload("QuotaReserved", "Admitted", "PodsReady", admission={"clusterQueue": "cq"}),
        {
            "admission": {"clusterQueue": "cq"}, "evicted": False, "admitted_at": NOON,
            "pods_ready_reason": "PodsReadyReason", "pods_ready_at": NOON,
        },
    ),
    "an eviction, its back-off, and the time that it ran before": (
        workload(
            "Evicted", requeueState={"count": 2, "requeueAt": SINCE},
            accumulatedPastExecutionTimeSeconds=70,
        ),
        {
            "evicted_at": NOON, "evicted_reason": "EvictedReason", "requeue_count": 2,
            "requeue_at": NOON, "executed_seconds": 70,
        },
    ),
    "that who stopped it waits for the end of its back-off": (
        {
            **workload("QuotaReserved", "Evicted", admission={"clusterQueue": "cq"}),
            "status": {
                "admission": {"clusterQueue": "cq"},
                "conditions": [
                    *workload("QuotaReserved", "Evicted")["status"]["conditions"],
                    {"type": "Requeued", "status": "False", "reason": "PodsReadyTimeout"},
                ],
            },
        },
        {
            "admission": {"clusterQueue": "cq"}, "evicted": True, "requeue_awaited": True,
            "evicted_at": NOON, "evicted_reason": "EvictedReason",
        },
    ),
    "answers of foreign checks, not those that our services publish": (
        workload(
            "QuotaReserved", admission={"clusterQueue": "cq"},
            admissionChecks=[
                {"name": "foreign", "state": "Retry", "message": "busy", "lastTransitionTime": SINCE,
                 "requeueAfterSeconds": 7, "retryCount": 1},
                {"name": "ours", "state": "Ready", "message": "", "lastTransitionTime": SINCE},
            ],
        ),
        {
            "admission": {"clusterQueue": "cq"}, "evicted": False,
            "checks": [RecordedCheck(
                check="foreign", state="Retry", message="busy", requeue_after_seconds=7, at=NOON,
            )],
        },
    ),
    "the mark of one that is being put out": (
        workload("DeactivationTarget"), {"deactivating": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("obj", "expected"), RECORDED.values(), ids=RECORDED.keys())
def test_status_of_workload_object_becomes_fields(obj: Json | None, expected: Json) -> None:
    given = None if obj is None else as_body(obj)
    assert status_fields(given, lambda name: name == "foreign") == expected


def reclaimed(by_job: int, said: int, before: int, *, holds: bool, count: int = 4) -> int:
    conditions = ("QuotaReserved",) if holds else ()
    obj = workload(*conditions, reclaimablePods=[{"name": "main", "count": said}])
    last = [PodSet(name="main", count=count, reclaimable=before)]
    [found] = with_reclaimed(
        [PodSet(name="main", count=count)], {"main": by_job}, as_body(obj), last
    )
    return found.reclaimable


COUNTS = {
    "what the job says": (reclaimed(2, 0, 0, holds=True), 2),
    "what the Workload says, if that is more": (reclaimed(1, 3, 0, holds=True), 3),
    "it does not shrink while it holds quota": (reclaimed(1, 1, 3, holds=True), 3),
    "it may, once it holds none": (reclaimed(1, 1, 3, holds=False), 1),
    "never more pods than there are": (reclaimed(9, 0, 0, holds=True), 4),
}


@pytest.mark.parametrize(("found", "expected"), COUNTS.values(), ids=COUNTS.keys())
def test_reclaimed_pods(found: int, expected: int) -> None:
    assert found == expected


def projected(label: str, *objects: Json) -> WorkloadState:
    projector = Projector("hub")
    projector.observe(seen(kinds.JOB, job(labels={**QUEUE, MAX_EXECUTION: label})))
    for obj in objects:
        projector.observe(seen(kinds.WORKLOAD, obj))
    [(state, _)] = projector.changes()
    return state


def test_label_limits_execution_time() -> None:
    assert projected("3600").max_execution_seconds == 3600


@pytest.mark.parametrize("label", ["0", "-5", "1h", "", "1e3", "٣", str(2**31), "9" * 63])
def test_invalid_execution_time_label_makes_job_inadmissible(
    label: str,
) -> None:
    state = projected(label)
    assert state.max_execution_seconds is None
    assert state.inadmissible is not None
    assert MAX_EXECUTION in state.inadmissible


def test_admitted_execution_time_holds_until_job_waits_again() -> None:
    limits = {"maximumExecutionTimeSeconds": 60}
    assert projected("3600", workload("QuotaReserved", spec=limits)).max_execution_seconds == 60
    assert projected("3600", workload(spec=limits)).max_execution_seconds == 3600
