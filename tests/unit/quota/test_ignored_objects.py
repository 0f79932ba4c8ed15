"""What quota says of objects that it ignores in their present form, and what the doctor makes of it."""

from typing import Any

import pytest

from services.ctl.doctor.bus import ignored_objects
from services.ctl.doctor.findings import Finding
from services.quota.decider import Decider
from services.quota.queries.explainer import Explainer
from services.quota.settings import QuotaSettings
from shared.contracts.kube.kinds import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, Kind
from shared.contracts.messages.explain import IGNORED_MAX, PositionsRequest
from shared.testing.builders import observed

Spec = dict[str, Any]
EVERYBODY = PositionsRequest(limit=1)


def quota(amount: str) -> Spec:
    flavors = [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": amount}]}]
    return {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}


@pytest.fixture
def decider() -> Decider:
    return Decider(QuotaSettings(cluster="hub"))


def found(decider: Decider) -> list[Finding]:
    return ignored_objects(Explainer(decider).positions(EVERYBODY).model_dump())


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
    decider: Decider, kind: Kind, spec: Spec, where: str, value: str
) -> None:
    decider.apply(observed(kind, "main", spec, "team" if kind is LOCAL_QUEUE else None))
    [finding] = found(decider)
    assert finding.where == where
    assert "last valid form is in force: spec." in finding.problem
    assert value in finding.problem
    assert finding.wrong


def test_object_is_not_named_any_more_once_it_is_corrected_or_deleted(decider: Decider) -> None:
    for name in ("first", "second"):
        decider.apply(observed(CLUSTER_QUEUE, name, quota("1 cpu")))
    decider.apply(observed(CLUSTER_QUEUE, "first", quota("1"), version=2))
    decider.apply(observed(CLUSTER_QUEUE, "second", quota("1 cpu"), version=2, deleted=True))
    assert found(decider) == []


def test_answer_is_bounded_and_says_nothing_to_who_asks_about_one_namespace(
    decider: Decider,
) -> None:
    for number in range(IGNORED_MAX + 1):
        decider.apply(observed(COHORT, f"c-{number}", quota("many")))
    assert len(found(decider)) == IGNORED_MAX
    answer = Explainer(decider).positions(PositionsRequest(namespace="team"))
    assert answer.ignored == []
