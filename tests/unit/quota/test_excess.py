"""What a running job asks for beyond its admission."""

from datetime import UTC, datetime

import pytest

from services.quota.wire.outbound import eviction_cause
from shared.contracts.messages.admissions import Admission, PodSetAssignment
from shared.contracts.messages.workloads import PodSet, WorkloadState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
GIVEN = PodSetAssignment(name="main", count=2, flavors={"cpu": "f"}, usage={"cpu": "2"})


@pytest.mark.parametrize(
    ("requests", "ignores", "says"),
    [
        ({"cpu": "1"}, False, None),
        ({"cpu": "2"}, True, "2 cpu for each of 2 pods in main, admitted 2 for all"),
        ({"cpu": "1", "memory": "1Gi"}, False, "1Gi memory for each of 2 pods in main, admitted 0"),
        ({"cpu": "1", "memory": "1Gi"}, True, None),
        ({"cpu": "1", "memory": "0"}, False, None),
    ],
    ids=["none", "more", "undeclared", "undeclared and ignored", "nothing of it"],
)
def test_larger_pods_are_stopped_for(
    requests: dict[str, str], ignores: bool, says: str | None
) -> None:
    state = WorkloadState(
        cluster="hub",
        namespace="team-a",
        name="x",
        uid="u",
        phase="running",
        held=False,
        created_at=NOON,
        enlarged=True,
        pod_sets=[PodSet(name="main", count=2, requests=requests)],
    )
    admission = Admission(
        cluster="hub",
        namespace="team-a",
        name="x",
        uid="u",
        state="admitted",
        term=1,
        number=1,
        decided_at=NOON,
        pod_sets=[GIVEN],
    )
    found = eviction_cause(state, admission, ignore_undeclared=ignores)
    assert (found is not None) == (says is not None)
    assert says is None or (found is not None and says in found[1])
