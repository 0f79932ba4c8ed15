"""The fair sharing status of a queue."""

from typing import Any

import pytest

from services.patcher.cluster.queue_status import queue_status
from shared.contracts.kube.bodies import as_body
from shared.contracts.messages.queues import QueueStatus
from tests.unit.patcher.stage import NOON

OBJ = as_body({"metadata": {"name": "q", "namespace": "team", "generation": 1}})
EARLIER = "2025-12-31T23:59:00Z"


def told(**more: Any) -> QueueStatus:
    fields: dict[str, Any] = {
        "cluster": "hub",
        "kind": "LocalQueue",
        "namespace": "team",
        "name": "q",
        "at": NOON,
    }
    fields |= {"active": True, "reason": "Ready", "message": "Can submit new workloads"}
    fields |= {"pending": 0, "reserving": 0, "admitted": 0}
    return QueueStatus.model_validate(fields | more)


def test_consumed_resources_are_in_kueues_field() -> None:
    """Kueue reads it at the same place."""
    status = queue_status(OBJ, told(consumed={"cpu": "1500m"}, consumed_at=EARLIER), at=NOON)
    assert status["fairSharing"] == {
        "weightedShare": 0,
        "admissionFairSharingStatus": {
            "consumedResources": {"cpu": "1500m"},
            "lastUpdate": EARLIER,
        },
    }


@pytest.mark.parametrize("kind", ["LocalQueue", "ClusterQueue"])
def test_fair_sharing_is_absent_without_consumption(kind: str) -> None:
    assert "fairSharing" not in queue_status(OBJ, told(kind=kind), at=NOON)
