"""What makes a ClusterQueue inactive, in Kueue's reasons and words."""

from typing import Any

import pytest

from services.quota.engine.facts import AdmissionCheckChanged, CheckRule, FlavorChanged
from services.quota.translate import admission_check, cluster_queue, flavor
from tests.unit.quota.builders import CLUSTER, Bench, admitted, queue, work

CHECKED = (CheckRule(name="c"),)
TOPOLOGY = FlavorChanged(cluster=CLUSTER, name="default", topology="racks")
PLAIN = FlavorChanged(cluster=CLUSTER, name="default")
NOBODY = AdmissionCheckChanged(cluster=CLUSTER, name="c", active=False)
SOMEBODY = AdmissionCheckChanged(cluster=CLUSTER, name="c", active=True)
NO_TOPOLOGY = (
    'there is no Topology "racks" for TAS flavor "default" (placement by topology is not offered)'
)

CASES: dict[str, tuple[Any, Any, Any, tuple[str, str]]] = {
    "a flavor of a topology is not placed without it": (
        queue("q"),
        TOPOLOGY,
        PLAIN,
        (
            "TopologyNotFound",
            f"Can't admit new workloads: {NO_TOPOLOGY}.",
        ),
    ),
    "a check whose controller nobody runs": (
        queue("q", checks=CHECKED),
        NOBODY,
        SOMEBODY,
        (
            "AdmissionCheckInactive",
            "Can't admit new workloads: references inactive AdmissionCheck(s): c.",
        ),
    ),
    "the first problem is the reason, the text has all": (
        queue("q", checks=CHECKED),
        TOPOLOGY,
        (PLAIN, SOMEBODY),
        (
            "AdmissionCheckNotFound",
            f"Can't admit new workloads: references missing AdmissionCheck(s): c, {NO_TOPOLOGY}.",
        ),
    ),
}


@pytest.mark.parametrize(("cq", "problem", "cure", "told"), CASES.values(), ids=CASES.keys())
def test_nothing_is_admitted_until_the_queue_is_active(
    cq: Any, problem: Any, cure: Any, told: tuple[str, str]
) -> None:
    bench = Bench(cq)
    assert admitted(bench.decide(problem, work("w"))) == []
    (shard,) = bench.engine.shards()
    assert shard.queues["q"].inactive == told
    assert bench.reason("w") == "Suspended"
    assert "active" in bench.engine.explain(CLUSTER, "ns/w").message  # type: ignore[union-attr]

    cured = cure if isinstance(cure, tuple) else (cure,)
    assert admitted(bench.decide(*cured)) == ["w"]
    assert shard.queues["q"].inactive is None


@pytest.mark.parametrize(
    ("controller", "conditions", "active"),
    [
        ("example.com/nobody", [], False),
        ("example.com/somebody", [{"type": "Active", "status": "True"}], True),
        ("example.com/ill", [{"type": "Active", "status": "False"}], False),
        ("sluicegate.dev/window", [], True),
        ("kueue.x-k8s.io/multikueue", [], True),
        ("kueue.x-k8s.io/multikueue", [{"type": "Active", "status": "False"}], False),
    ],
)
def test_a_check_is_active_if_its_controller_says_so_or_is_ours(
    controller: str, conditions: list[dict[str, str]], active: bool
) -> None:
    obj = {
        "metadata": {"name": "c"},
        "spec": {"controllerName": controller},
        "status": {"conditions": conditions},
    }
    assert admission_check(CLUSTER, obj).active is active


def test_the_topology_of_a_flavor_is_read() -> None:
    obj = {"metadata": {"name": "f"}, "spec": {"topologyName": "racks"}}
    assert flavor(CLUSTER, obj).topology == "racks"
    assert flavor(CLUSTER, {"metadata": {"name": "f"}}).topology is None
    assert cluster_queue(CLUSTER, {"metadata": {"name": "q"}, "spec": {}}).inactive is None
