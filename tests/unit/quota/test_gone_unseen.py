"""What ended while nobody looked gives its quota back: a new leader finds only its decision."""

from datetime import UTC, datetime

import pytest

from services.quota.decider import Decider
from services.quota.settings import QuotaSettings
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission, PodSetAssignment
from shared.contracts.messages.observed import Synced
from shared.telemetry import probes
from shared.testing.builders import observed, workload
from shared.testing.probing import acts

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FLAVORS = [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}]
QUEUE = {
    "namespaceSelector": {},
    "resourceGroups": [{"coveredResources": ["cpu"], "flavors": FLAVORS}],
}


@pytest.fixture
def decider() -> Decider:
    """That of a new leader, which has read a full queue, and no workloads yet."""
    subject = Decider(QuotaSettings())
    for kind, namespace, name, spec in (
        (kinds.NAMESPACE, None, "team", {}),
        (kinds.RESOURCE_FLAVOR, None, "f", {}),
        (kinds.CLUSTER_QUEUE, None, "cq", QUEUE),
        (kinds.LOCAL_QUEUE, "team", "main", {"clusterQueue": "cq"}),
    ):
        subject.apply(observed(kind, name, spec, namespace))
    assigned = PodSetAssignment(name="main", count=1, flavors={"cpu": "f"}, usage={"cpu": "1"})
    held = Admission(
        cluster="hub", namespace="team", name="x", uid="u-x", state="admitted", term=1, number=1,
        decided_at=NOON, queue="main", cluster_queue="cq", pod_sets=[assigned],
    )  # fmt: skip
    assert subject.restore(held) is None
    return subject


def admitted(decider: Decider) -> list[tuple[str, str]]:
    """Names and uids of those that get quota now."""
    return [(one.name, one.uid) for one in decider.decide(NOON) if one.state == "admitted"]


SYNCED = Synced(cluster="hub", epoch="1", kinds=[], at=NOON)


def test_workload_that_is_gone_when_its_cluster_is_listed_holds_nothing(decider: Decider) -> None:
    decider.apply(workload("y", namespace="team", queue="main", uid="u-y"))
    with acts(probes.GONE_WHILE_AWAY):
        decider.apply(SYNCED)
    assert admitted(decider) == [("y", "u-y")]


def test_workload_that_has_the_name_of_a_holder_gets_the_quota_of_that_one(
    decider: Decider,
) -> None:
    with acts(probes.EARLIER_UID_GONE):
        decider.apply(workload("x", namespace="team", queue="main", uid="u-x-2"))
    decider.apply(SYNCED)
    assert admitted(decider) == [("x", "u-x-2")]
