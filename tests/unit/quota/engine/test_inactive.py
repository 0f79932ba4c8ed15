"""What makes a ClusterQueue inactive, in Kueue's reasons and words."""

from dataclasses import replace
from typing import Any

import pytest

from services.quota.engine.facts import (
    AdmissionCheckChanged,
    CheckRule,
    ClusterQueueChanged,
    FlavorChanged,
    LocalQueueGone,
    Release,
)
from services.quota.wire.inbound import admission_check, cluster_queue, flavor, observed_facts
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.testing.builders import cluster_queue_spec, observed
from tests.unit.quota.builders import CLUSTER, Bench, admitted, queue, work

CHECKED = (CheckRule(name="c"),)
TOPOLOGY = FlavorChanged(cluster=CLUSTER, name="default", topology="racks")
PLAIN = FlavorChanged(cluster=CLUSTER, name="default")
NOBODY = AdmissionCheckChanged(cluster=CLUSTER, name="c", active=False)
SOMEBODY = AdmissionCheckChanged(cluster=CLUSTER, name="c", active=True)
NO_TOPOLOGY = (
    'there is no Topology "racks" for TAS flavor "default" (placement by topology is not offered)'
)


def check(name: str, controller: str) -> AdmissionCheckChanged:
    return admission_check(
        CLUSTER,
        as_body(
            {
                "metadata": {"name": name},
                "spec": {"controllerName": controller},
                "status": {"conditions": [{"type": "Active", "status": "True"}]},
            }
        ),
    )


CANNOT = "Can't admit new workloads: "
MULTIPLE = "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue"
BOTH = "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together"
ELSEWHERE = "kueue.x-k8s.io/multikueue"
MACHINES = check("c", "sluicegate.dev/machines")
TWO = (CheckRule(name="b"), CheckRule(name="a"), *CHECKED)

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
    "two checks that send work away": (
        queue("q", checks=TWO),
        (check("a", ELSEWHERE), check("b", ELSEWHERE), MACHINES),
        (check("b", "example.com/b"), queue("q")),
        (
            "MultipleMultiKueueAdmissionChecks",
            f"{CANNOT}{MULTIPLE}, found: a,b.",
        ),
    ),
    "one that sends only some away": (
        queue("q", checks=(CheckRule(name="c", on_flavors=frozenset({"default"})),)),
        check("c", ELSEWHERE),
        (MACHINES, queue("q")),
        (
            "MultiKueueAdmissionCheckAppliedPerFlavor",
            "Can't admit new workloads: Cannot specify MultiKueue AdmissionCheck per flavor, found: c.",
        ),
    ),
    "one that sends work away, and one that provides nodes here": (
        queue("q", checks=TWO[1:]),
        (check("a", ELSEWHERE), check("c", "kueue.x-k8s.io/provisioning-request")),
        queue("q"),
        (
            "MultiKueueWithProvisioningRequest",
            f"{CANNOT}{BOTH}, found: a, c.",
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
def test_inactive_queue_admits_nothing_until_it_is_active(
    cq: Any, problem: Any, cure: Any, told: tuple[str, str]
) -> None:
    bench = Bench(cq)
    problems = problem if isinstance(problem, tuple) else (problem,)
    assert admitted(bench.decide(*problems, work("w"))) == []
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
def test_check_is_active_by_condition_or_by_own_controller(
    controller: str, conditions: list[dict[str, str]], active: bool
) -> None:
    obj = {
        "metadata": {"name": "c"},
        "spec": {"controllerName": controller},
        "status": {"conditions": conditions},
    }
    assert admission_check(CLUSTER, as_body(obj)).active is active


@pytest.mark.parametrize("controller", ["example.com/gone", "kueue.x-k8s.io/provisioning-request"])
def test_check_whose_controller_was_declared_lost_is_inactive_whatever_it_says(
    controller: str,
) -> None:
    left_behind = {"conditions": [{"type": "Active", "status": "True"}]}
    obj = {
        "metadata": {"name": "c", "annotations": {"sluicegate.dev/lost": "uninstalled"}},
        "spec": {"controllerName": controller},
        "status": left_behind,
    }
    lost = admission_check(CLUSTER, as_body(obj))
    bench = Bench(lost, queue("q", checks=(CheckRule(name="c"),)))
    assert admitted(bench.decide(work("w"))) == []
    text = f"c: an operator declared its controller {controller} lost: uninstalled"
    assert text in bench.engine.explain(CLUSTER, "ns/w").message  # type: ignore[union-attr]


def test_topology_of_flavor_is_read() -> None:
    obj = {"metadata": {"name": "f"}, "spec": {"topologyName": "racks"}}
    assert flavor(CLUSTER, as_body(obj)).topology == "racks"
    assert flavor(CLUSTER, as_body({"metadata": {"name": "f"}})).topology is None
    queue = as_body({"metadata": {"name": "q"}, "spec": {}})
    assert cluster_queue(CLUSTER, queue).inactive is None


def test_policy_of_concurrent_admission_makes_a_queue_inactive() -> None:
    policy = {"migration": {"mode": "TryPreferredFlavors"}}
    body = {"metadata": {"name": "q"}, "spec": {"concurrentAdmissionPolicy": policy}}
    bench = Bench(
        queue("q"), replace(queue("q"), inactive=cluster_queue(CLUSTER, as_body(body)).inactive)
    )
    assert admitted(bench.decide(work("w"))) == []
    (shard,) = bench.engine.shards()
    assert shard.queues["q"].inactive == (
        "ConcurrentAdmissionNotSupported",
        f"{CANNOT}spec.concurrentAdmissionPolicy: trying several flavors at a time is not offered.",
    )
    explained = bench.engine.explain(CLUSTER, "ns/w")
    assert explained is not None
    assert explained.remedy == "make the ClusterQueue anew without the policy"


def test_queue_in_deletion_admits_no_workload_and_takes_reservations_back() -> None:
    check = AdmissionCheckChanged(cluster=CLUSTER, name="machines")
    checked = queue("q", checks=(CheckRule(name="machines"),))
    bench = Bench(check, checked)
    bench.decide(work("w1"))
    terminating = replace(
        checked, terminating=True, inactive=("Terminating", "it is being deleted")
    )
    decisions = bench.decide(terminating, work("w2"))
    assert [type(d) for d in decisions][:1] == [Release]
    assert bench.reason("w2") == "Suspended"
    view = bench.engine.cluster_queue(CLUSTER, "q")
    assert view is not None
    assert (view.reserving, view.inactive) == (0, ("Terminating", "it is being deleted"))


INVALID = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f"}]}]}


@pytest.mark.parametrize("spec", [INVALID, cluster_queue_spec(1)], ids=["invalid", "valid"])
def test_deletion_of_a_queue_is_read_whatever_its_spec(spec: dict[str, Any]) -> None:
    gone = {"deletionTimestamp": "2026-01-01T12:00:00Z"}
    [fact] = observed_facts(observed(kinds.CLUSTER_QUEUE, "q", spec, metadata=gone))
    assert isinstance(fact, ClusterQueueChanged)
    assert fact.terminating
    assert fact.inactive is not None
    assert fact.inactive[0] == "Terminating"
    [local] = observed_facts(observed(kinds.LOCAL_QUEUE, "q", {}, "team", metadata=gone))
    assert isinstance(local, LocalQueueGone)
