"""From what is configured to what the engine decides by."""

import pytest

from services.quota.decider import Decider
from services.quota.engine import Policy
from services.quota.lifecycle.workload import backoff_seconds
from services.quota.policy import policy_of
from services.quota.settings import QuotaSettings
from shared.settings.configuration import Configuration

HOUR = 3600 * 10**9

DOCUMENTS: dict[str, tuple[dict[str, object], Policy]] = {
    "nothing said: classical preemption, and past usage does not matter": ({}, Policy()),
    "fair sharing with one strategy": (
        {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}},
        Policy(fair_sharing=True, strategies=("LessThanInitialShare",)),
    ),
    "past usage that halves within an hour": (
        {
            "admissionFairSharing": {
                "usageHalfLifeTime": "1h",
                "usageSamplingInterval": "90s",
                "resourceWeights": {"cpu": 2.0},
            }
        },
        Policy(resource_weights={"cpu": 2.0}, half_life=HOUR, sampling_interval=90 * 10**9),
    ),
}


@pytest.mark.parametrize(("document", "policy"), DOCUMENTS.values(), ids=list(DOCUMENTS))
def test_the_document_says(document: dict[str, object], policy: Policy) -> None:
    configuration = Configuration.model_validate(document)
    assert policy_of(configuration) == policy
    assert Decider(QuotaSettings(), configuration).engine.policy == policy


def test_the_setting_counts_before_the_document() -> None:
    configuration = Configuration.model_validate({"fairSharing": {}})
    policy = policy_of(configuration, ("LessThanInitialShare",))
    assert policy.strategies == ("LessThanInitialShare",)


def test_backoff_starts_with_the_base_doubles_and_ends_at_the_most() -> None:
    strategy = {"backoffBaseSeconds": 10, "backoffMaxSeconds": 25}
    document = {"waitForPodsReady": {"requeuingStrategy": strategy}}
    wait = Configuration.model_validate(document).pods_ready
    assert wait is not None
    seconds = [backoff_seconds(wait.requeuing_strategy, "uid", count) for count in (1, 2, 3, 4)]
    assert [int(one) for one in seconds] == [10, 20, 25, 25]
