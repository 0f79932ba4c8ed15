"""Assignments are the same on the wire and in a Workload's status; drafts become admissions."""

from datetime import UTC, datetime

import pytest

from shared.contracts.kube.quantities import QuantityError
from shared.contracts.kueue.assignments import amounts, from_status, to_status
from shared.contracts.messages.admissions import Admission, PodSetAssignment

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
MAIN = PodSetAssignment(
    name="main", count=2, flavors={"cpu": "spot"}, usage={"cpu": "500m", "memory": "1Gi"}
)
SIDE = PodSetAssignment(name="side", count=1, flavors={"cpu": "spot"}, usage={"cpu": "2"})


def draft() -> Admission:
    return Admission(
        cluster="hub", namespace="team", name="job-x", uid="u", state="admitted",
        term=0, number=0, decided_at=NOON, cluster_queue="q", pod_sets=[MAIN], traceparent="00-a-b-01",
    )  # fmt: skip


def test_assignments_survive_encoding_in_a_status() -> None:
    status = to_status("q", [MAIN, SIDE])

    assert status["clusterQueue"] == "q"
    assert status["podSetAssignments"][0]["resourceUsage"] == {"cpu": "500m", "memory": "1Gi"}
    assert from_status(status) == [MAIN, SIDE]


def test_workload_without_quota_has_no_assignments() -> None:
    assert from_status({}) == []
    assert from_status({"podSetAssignments": None}) == []


def test_usage_is_counted_as_quota_counts_it() -> None:
    assert amounts(MAIN.usage) == {"cpu": 500, "memory": 1 << 30}


def test_invalid_usage_quantity_is_refused() -> None:
    broken = MAIN.replace(usage={"cpu": "much"})

    with pytest.raises(QuantityError):
        amounts(broken.usage)


def test_numbered_draft_is_a_whole_admission() -> None:
    admission = draft().numbered(term=3, number=7, inputs={"WORKLOADS": 41})

    assert isinstance(admission, Admission)
    assert (admission.term, admission.number) == (3, 7)
    assert admission.inputs == {"WORKLOADS": 41}
    assert admission.traceparent == "00-a-b-01"
    assert admission.pod_sets == [MAIN]
    assert admission.message_id == "admission:3:7"


def test_replacing_an_unknown_field_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="Admission has no field nmber"):
        draft().replace(nmber=2)


def test_same_except_ignores_the_named_fields_only() -> None:
    assert MAIN.same_except(MAIN.replace(count=3), "count")
    assert not MAIN.same_except(MAIN.replace(count=3), "name")
    assert not MAIN.same_except(None)
