"""Resources that a queue has no quota for: by default they keep a workload waiting; they can be ignored."""

import pytest

from services.quota.engine import Policy
from services.quota.engine.facts import PodSet, Reserve
from services.quota.policy import policy_of
from shared.settings.configuration import Configuration
from tests.unit.quota.builders import Bench, admitted, queue, work

IGNORING = policy_of(
    Configuration.model_validate({"resources": {"quotaCheckStrategy": "IgnoreUndeclared"}})
)
TWO = (PodSet(name="main", count=1, requests={"slot": 1, "example.com/gpu": 4}),)
BLOCKING = policy_of(Configuration())


@pytest.mark.parametrize(
    ("policy", "gets"), [(IGNORING, ["w1"]), (BLOCKING, [])], ids=["ignored", "blocking"]
)
def test_resource_without_quota_blocks_unless_it_is_ignored(
    policy: Policy, gets: list[str]
) -> None:
    bench = Bench(queue("q"), policy=policy)
    decisions = bench.decide(work("w1", pod_sets=TWO))
    assert admitted(decisions) == gets


def test_ignored_resource_is_not_counted() -> None:
    bench = Bench(queue("q"), policy=IGNORING)
    (reserve,) = [
        decision
        for decision in bench.decide(work("w1", pod_sets=TWO))
        if isinstance(decision, Reserve)
    ]
    assert [list(pods.usage) for pods in reserve.pod_sets] == [["slot"]]
