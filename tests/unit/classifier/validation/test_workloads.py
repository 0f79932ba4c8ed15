"""Validation of Workloads, at creation and while they hold quota."""

from copy import deepcopy
from typing import Any, Final

import pytest

from shared.contracts.kube.kinds import Object
from tests.unit.classifier.validation.objects import obj, said

# Workloads -----------------------------------------------------------------------------------------


def pods(name: str = "main", count: int = 3, **more: Any) -> Object:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    return {"name": name, "count": count, "template": template, **more}


def workload(*sets: Object, **spec: Any) -> Object:
    return obj("Workload", {"podSets": list(sets) or [pods()], **spec})


def condition(type_: str, status: str = "True") -> Object:
    return {
        "type": type_,
        "status": status,
        "reason": "Test",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def holding(new: Object, *conditions: str, **status: Any) -> Object:
    admission = {
        "clusterQueue": "q",
        "podSetAssignments": [
            {"name": "main", "flavors": {"cpu": "a"}, "resourceUsage": {"cpu": "3"}, "count": 3}
        ],
    }
    found = [condition(type_) for type_ in ("QuotaReserved", *conditions)]
    return {**new, "status": {"conditions": found, "admission": admission, **status}}


def requests(**amounts: str) -> Object:
    changed = pods()
    changed["template"]["spec"]["containers"][0]["resources"]["requests"] = amounts
    return changed


BASE: Final = "spec.podSets[0].template.spec.containers[0].resources.requests"


CREATED: Final[dict[str, tuple[Object, str]]] = {
    "two pod sets that may shrink": (
        workload(pods("a", minCount=1), pods("b", minCount=1)),
        "spec.podSets: Invalid value: 2: at most one podSet can use minCount",
    ),
    "a pod set that may grow": (
        workload(pods(minCount=4)),
        (
            "spec.podSets[0].minCount: Invalid value: 4: "
            "minCount should be positive and less or equal to count"
        ),
    ),
    "a request for pods": (
        workload(requests(pods="1")),
        f'{BASE}[pods]: Invalid value: "pods": the key is reserved for internal kueue use',
    ),
    "a request for less than nothing": (
        workload(requests(cpu="-1")),
        f'{BASE}[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ),
    "no pods": (
        obj("Workload", {"podSets": []}),
        "spec.podSets: Invalid value: []: should have at least 1 items",
    ),
    "a class without its priority": (
        workload(
            priorityClassRef={
                "group": "kueue.x-k8s.io",
                "kind": "WorkloadPriorityClass",
                "name": "a",
            }
        ),
        "spec.priority: Required value: priority should not be nil when priorityClassRef is set",
    ),
    "a class of another group": (
        workload(
            priority=1,
            priorityClassRef={"group": "kueue.x-k8s.io", "kind": "PriorityClass", "name": "a"},
        ),
        (
            'spec.priorityClassRef.kind: Invalid value: "PriorityClass": only the '
            "WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group"
        ),
    ),
    "slices of no size": (
        workload(pods(topologyRequest={"podSetSliceRequiredTopology": "rack"})),
        (
            "spec.podSets[0].topologyRequest.podSetSliceSize: Required value: "
            "must be set when podSetSliceRequiredTopology is specified"
        ),
    ),
    "a size of no slices": (
        workload(pods(topologyRequest={"podSetSliceSize": 1})),
        (
            "spec.podSets[0].topologyRequest.podSetSliceSize: Forbidden: "
            "may not be set when podSetSliceRequiredTopology is not specified"
        ),
    ),
    "a boost that is no number": (
        {
            **workload(),
            "metadata": {"name": "x", "annotations": {"kueue.x-k8s.io/priority-boost": ""}},
        },
        (
            'metadata.annotations[kueue.x-k8s.io/priority-boost]: Invalid value: "": '
            "must be a valid signed integer"
        ),
    ),
    "quota without an admission": (
        holding(workload(), admission=None),
        "status.admission: Required value: must be set while the QuotaReserved condition is true",
    ),
    "quota for other pods": (
        holding(workload(pods("driver"))),
        'status.admission.podSetAssignments[0].name: Not found: "main"',
    ),
    "quota that does not divide among the pods": (
        holding(
            workload(),
            admission={
                "clusterQueue": "q",
                "podSetAssignments": [{"name": "main", "resourceUsage": {"cpu": "1"}, "count": 3}],
            },
        ),
        (
            'status.admission.podSetAssignments[0].resourceUsage[cpu]: Invalid value: "1": '
            "is not a multiple of 3"
        ),
    ),
    "more pods given back than there are": (
        {**workload(), "status": {"reclaimablePods": [{"name": "main", "count": 4}]}},
        "status.reclaimablePods[main].count: Invalid value: 4: should be less or equal to 3",
    ),
    "pods given back that are not there": (
        {**workload(), "status": {"reclaimablePods": [{"name": "other", "count": 1}]}},
        'status.reclaimablePods[other].name: Unsupported value: "other": supported values: "main"',
    ),
    "a cluster that is chosen and still sought": (
        {**workload(), "status": {"clusterName": "a", "nominatedClusterNames": ["a"]}},
        (
            'status.clusterName: Invalid value: "a": '
            "clusterName and nominatedClusterNames are mutually exclusive"
        ),
    ),
}


@pytest.mark.parametrize(("new", "problem"), CREATED.values(), ids=list(CREATED))
def test_invalid_workload_has_problem(new: Object, problem: str) -> None:
    assert said(new) == [problem]


def reference(name: str = "a", kind: str = "WorkloadPriorityClass") -> Object:
    groups = {"WorkloadPriorityClass": "kueue.x-k8s.io", "PriorityClass": "scheduling.k8s.io"}
    return {"group": groups[kind], "kind": kind, "name": name}


HELD: Final[dict[str, tuple[Object, Object, list[str]]]] = {
    "nothing": (holding(workload()), holding(workload()), []),
    "its pods": (
        holding(workload(pods())),
        holding(workload(pods(topologyRequest={"required": "rack"}))),
        [
            (
                "spec.podSets[0]: Invalid value: "
                '{"name": "main", "count": 3, "template": {"spec": {"containers": [{"name": "c", '
                '"resources": {"requests": {"cpu": "1"}}}]}}, "topologyRequest": {"required": "rack"}}: '
                "field is immutable"
            )
        ],
    ),
    "its queue": (
        holding(workload(queueName="a")),
        holding(workload(queueName="b")),
        [
            (
                'spec.queueName: Invalid value: "b": queueName is immutable while workload quota '
                "reserved"
            )
        ],
    ),
    "its queue, as its quota is taken back": (
        holding(workload(queueName="a")),
        workload(queueName="b"),
        [],
    ),
    "its class for another": (
        holding(workload(priority=1, priorityClassRef=reference("a"))),
        holding(workload(priority=2, priorityClassRef=reference("b"))),
        [],
    ),
    "its pods' class for another": (
        holding(workload(priority=1, priorityClassRef=reference("a", "PriorityClass"))),
        holding(workload(priority=2, priorityClassRef=reference("b", "PriorityClass"))),
        [
            (
                'spec.priorityClassRef.name: Invalid value: "b": priorityClassRef.name of a '
                "PriorityClass is immutable while workload quota reserved"
            )
        ],
    ),
    "its class for none": (
        holding(workload(priority=1, priorityClassRef=reference())),
        holding(workload(priority=1)),
        [
            (
                "spec.priorityClassRef: Invalid value: null: "
                "priorityClassRef is immutable while workload quota reserved"
            )
        ],
    ),
    "its time, once admitted": (
        holding(workload(maximumExecutionTimeSeconds=1), "Admitted"),
        holding(workload(maximumExecutionTimeSeconds=2), "Admitted"),
        [
            (
                "spec.maximumExecutionTimeSeconds: Invalid value: 2: "
                "maximumExecutionTimeSeconds is immutable while workload quota reserved"
            )
        ],
    ),
    "what it gave back": (
        holding(workload(), reclaimablePods=[{"name": "main", "count": 2}]),
        holding(workload(), reclaimablePods=[{"name": "main", "count": 1}]),
        ["status.reclaimablePods[main].count: Invalid value: 1: cannot be less than 2"],
    ),
    "that it gave anything back": (
        holding(workload(), reclaimablePods=[{"name": "main", "count": 2}]),
        holding(workload()),
        ["status.reclaimablePods[main]: Required value: cannot be removed"],
    ),
    "its cluster": (
        holding(workload(), clusterName="a"),
        holding(workload(), clusterName="b"),
        ['status.clusterName: Invalid value: "b": clusterName is immutable once set'],
    ),
    "its cluster to one that nobody asked": (
        holding(workload(), nominatedClusterNames=["a"]),
        holding(workload(), clusterName="b"),
        [
            (
                'status.clusterName: Invalid value: "b": when setting clusterName it must be one of '
                "the nominatedClusterNames"
            )
        ],
    ),
}


@pytest.mark.parametrize(("old", "new", "problems"), HELD.values(), ids=list(HELD))
def test_change_of_workload_with_quota_has_problems(
    old: Object, new: Object, problems: list[str]
) -> None:
    assert said(new, old) == problems


def test_admission_is_immutable_except_for_topology() -> None:
    old = holding(workload())
    placed, moved = deepcopy(old), deepcopy(old)
    placed["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = {
        "levels": ["rack"],
        "slices": [],
    }
    moved["status"]["admission"]["clusterQueue"] = "other"
    assert said(placed, old) == []
    (problem,) = said(moved, old)
    assert problem.startswith('status.admission: Invalid value: {"clusterQueue": "other"')
    assert problem.endswith("field is immutable")


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        ({"resourceUsage": {"cpu": "3000m"}}, 0),
        ({"resourceUsage": {"cpu": 3}, "delayedTopologyRequest": None}, 0),
        ({"resourceUsage": {"cpu": "3"}}, 0),
        ({"resourceUsage": {"cpu": "6"}}, 1),
        ({"resourceUsage": {}}, 1),
        ({"flavors": {"cpu": "3"}}, 1),
    ],
)
def test_admission_is_the_same_however_it_is_written(change: Object, problems: int) -> None:
    old = holding(workload())
    new = deepcopy(old)
    new["status"]["admission"]["podSetAssignments"][0] |= change
    assert len(said(new, old)) == problems
    assert len(said(old, new)) == problems


@pytest.mark.parametrize("empty", [{}, None])
def test_what_is_empty_counts_as_absent(empty: Object | None) -> None:
    old, new = holding(workload()), holding(workload(pods(topologyRequest=empty)))
    for one in (old, new):
        one["status"]["admission"]["podSetAssignments"] = [{"name": "main", "count": 3}]
    new["status"]["admission"]["podSetAssignments"][0] |= {"resourceUsage": empty, "flavors": empty}
    assert said(new, old) == said(old, new) == []


def test_elastic_workload_may_scale_down_while_it_runs() -> None:
    annotated = {"name": "x", "annotations": {"kueue.x-k8s.io/elastic-job": "true"}}
    old = {**holding(workload(pods(count=3))), "metadata": annotated}
    smaller = {**holding(workload(pods(count=2))), "metadata": annotated}
    larger = {**holding(workload(pods(count=4))), "metadata": annotated}
    assert said(smaller, old) == []
    assert len(said(larger, old)) == 1
