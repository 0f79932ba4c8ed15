"""What the doctor says of objects that quota ignores in their present form."""

from typing import Any

import pytest

from services.ctl.doctor.configuration import configuration
from shared.contracts.kube.kinds import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, RESOURCE_FLAVOR, Kind
from tests.unit.ctl.test_doctor import observed, snapshot, told

Spec = dict[str, Any]


def quota(amount: str) -> Spec:
    flavors = [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": amount}]}]
    return {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}


UNUSABLE: list[Any] = [
    pytest.param(CLUSTER_QUEUE, quota("1 cpu"), "ClusterQueue main", "1 cpu", id="an amount"),
    pytest.param(
        CLUSTER_QUEUE, {"queueingStrategy": "Fifo"}, "ClusterQueue main", "Fifo", id="a strategy"
    ),
    pytest.param(COHORT, quota("many"), "Cohort main", "many", id="an amount of a cohort"),
    pytest.param(
        LOCAL_QUEUE,
        {"clusterQueue": "main", "stopPolicy": "Halt"},
        "LocalQueue team/main",
        "Halt",
        id="a policy",
    ),
]


@pytest.mark.parametrize(("kind", "spec", "where", "value"), UNUSABLE)
def test_object_that_quota_ignores_is_named_with_its_field_and_value(
    kind: Kind, spec: Spec, where: str, value: str
) -> None:
    namespace = "team" if kind is LOCAL_QUEUE else None
    messages = [observed(RESOURCE_FLAVOR, "any"), observed(kind, "main", spec, ns=namespace)]
    first = configuration(snapshot(*messages))[0]
    assert told([first])[0].startswith(f"{where}: is ignored, and its last valid state is in force")
    assert "spec." in first.problem
    assert value in first.problem
    assert first.wrong


def test_objects_that_quota_can_use_are_not_named() -> None:
    messages = [
        observed(RESOURCE_FLAVOR, "any"),
        observed(CLUSTER_QUEUE, "main", quota("1")),
        observed(COHORT, "main", quota("1")),
        observed(LOCAL_QUEUE, "main", {"clusterQueue": "main"}, ns="team"),
    ]
    assert told(configuration(snapshot(*messages))) == []
