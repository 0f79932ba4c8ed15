"""Another quota of a ClusterQueue as it is now, for a what-if."""

from datetime import UTC, datetime

import pytest

from services.quota.forecast import Snapshot
from services.whatif.changes import Changes, with_quota
from shared.contracts.kube import kinds
from shared.runtime.command import CommandError
from shared.testing.builders import cluster_queue_spec, observed_object

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CPU = ("default", "cpu")


def snapshot() -> Snapshot:
    """ClusterQueue cq with 4 CPUs of flavor default, in a cluster that is not named hub."""
    found = Snapshot(at=NOON)
    spec = cluster_queue_spec(4, limits={"borrowingLimit": "2"}, cohortName="shared")
    obj = {"metadata": {"name": "cq"}, "spec": spec}
    found.observe(observed_object(kinds.CLUSTER_QUEUE, obj, cluster="north"))
    return found


def test_only_the_nominal_quota_differs_and_the_snapshot_stays() -> None:
    before, changed = snapshot(), snapshot()
    manifest = with_quota(changed, "north", "cq", CPU, "6500m")
    spec = dict(manifest.object["spec"])
    [group] = spec.pop("resourceGroups")
    [flavor] = group["flavors"]
    assert flavor["resources"] == [{"name": "cpu", "nominalQuota": "6500m", "borrowingLimit": "2"}]
    assert spec == {"namespaceSelector": {}, "cohortName": "shared"}
    assert changed.observed == before.observed

    changes = Changes()
    changes.apply(changed, [manifest], cluster="north")
    assert changes.notes == ["changed ClusterQueue cq"]
    assert changed.problems == []
    # A second change starts from the first.
    second = with_quota(changed, "north", "cq", CPU, "9")
    assert second.object["metadata"]["name"] == "cq"


REFUSED = [
    (
        ("hub", "cq", CPU, "4"),
        "ClusterQueue cq: cluster hub has no such queue; there is none at all",
    ),
    (
        ("north", "cqq", CPU, "4"),
        "ClusterQueue cqq: cluster north has no such queue; did you mean 'cq'?",
    ),
    (
        ("north", "cq", ("defalt", "cpu"), "4"),
        "ClusterQueue cq: spec.resourceGroups.flavors: 'defalt': it has no quota of this name; did",
    ),
    (
        ("north", "cq", ("default", "memory"), "4"),
        "ClusterQueue cq: spec.resourceGroups.resources: 'memory': it has no quota of this name; there",
    ),
    (
        ("north", "cq", CPU, "1 cpu"),
        "ClusterQueue cq: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: ",
    ),
    (
        ("north", "cq", CPU, "-1"),
        "ClusterQueue cq: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: '-1': must not",
    ),
]


@pytest.mark.parametrize(("asked", "message"), REFUSED)
def test_refused_quota_names_object_field_and_value(
    asked: tuple[str, str, tuple[str, str], str], message: str
) -> None:
    with pytest.raises(CommandError) as refused:
        with_quota(snapshot(), *asked)
    assert str(refused.value).startswith(message)
    if "1 cpu" in asked:
        assert "1 cpu" in str(refused.value)
