"""A what-if has an end, and a size, whatever is asked."""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from services.classifier.projection.policy import DEFAULT_POLICY
from services.console.documents import SimulateRequest
from services.console.status_error import StatusError
from services.console.whatif import ProposedChange
from services.quota.forecast import History, Snapshot
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import QUEUE

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def queues(flavors: int) -> list[Object]:
    """A ClusterQueue whose flavors have a CPU each, and a LocalQueue for it."""
    names = [f"f{number}" for number in range(flavors)]
    group = {
        "coveredResources": ["cpu"],
        "flavors": [
            {"name": name, "resources": [{"name": "cpu", "nominalQuota": "1"}]} for name in names
        ],
    }
    kueue: Any = {"apiVersion": "kueue.x-k8s.io/v1beta1"}
    flavor_objects = [
        {**kueue, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {}}
        for name in names
    ]
    queue = {
        "metadata": {"name": "cq"},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
    }
    local = {"metadata": {"name": "lq", "namespace": "team"}, "spec": {"clusterQueue": "cq"}}
    return [
        *flavor_objects,
        {**kueue, "kind": "ClusterQueue", **queue},
        {**kueue, "kind": "LocalQueue", **local},
    ]


def jobs(number: int) -> list[Object]:
    """Jobs of two CPUs: none of them fits."""
    pod = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]}
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"j{n}", "namespace": "team", "labels": {QUEUE: "lq"}},
            "spec": {"template": {"spec": {**pod, "restartPolicy": "Never"}}},
        }
        for n in range(number)
    ]


def asked(manifests: list[Object], over: Callable[[], bool]) -> Any:
    request = SimulateRequest.model_validate({"manifests": manifests})
    change = ProposedChange(request, DEFAULT_POLICY, cluster="hub")
    empty = Snapshot(at=NOON)
    return change.simulate(empty, History(), shows=lambda _: True, guesses=True, over=over)


def test_question_of_many_decisions_ends_at_its_time_within_one_instant() -> None:
    looks = count()
    with pytest.raises(StatusError) as caught:
        asked([*queues(2), *jobs(40)], lambda: next(looks) > 20)
    assert caught.value.code == 503
    assert next(looks) < 30


def test_question_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.console.whatif.TRIALS_MAX", 20)
    assert asked([*queues(2), *jobs(10)], lambda: False).after.queues
    with pytest.raises(StatusError) as caught:
        asked([*queues(3), *jobs(10)], lambda: False)
    assert caught.value.code == 422
    assert "the change makes 30 requests of pod sets times flavors, and 20 are the most" in str(
        caught.value
    )
