"""What is refused, and in which words: field, rule, value, detail."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.classifier.validation import RULES, validate
from services.classifier.webhook.conversion_review import answer_conversion
from services.classifier.webhook.review import Outcome, answer_validation
from shared.contracts.kube.kinds import Object

V1: Final = "kueue.x-k8s.io/v1beta1"
V2: Final = "kueue.x-k8s.io/v1beta2"


def obj(kind: str, spec: Object | None = None, **more: Any) -> Object:
    made: Object = {"apiVersion": V2, "kind": kind, "metadata": {"name": "x"}, **more}
    return made if spec is None else {**made, "spec": spec}


def quota(name: str = "cpu", nominal: Any = 4, **limits: Any) -> Object:
    return {"name": name, "nominalQuota": nominal, **limits}


def group(*flavors: str, covered: tuple[str, ...] = ("cpu",), **limits: Any) -> Object:
    return {
        "coveredResources": list(covered),
        "flavors": [
            {"name": name, "resources": [quota(resource, **limits) for resource in covered]}
            for name in flavors
        ],
    }


def queue(*groups: Object, **spec: Any) -> Object:
    return obj("ClusterQueue", {"resourceGroups": list(groups), **spec})


def cohort(*groups: Object, **spec: Any) -> Object:
    return obj("Cohort", {"resourceGroups": list(groups), **spec})


def said(new: Object, old: Object | None = None) -> list[str]:
    return [str(problem) for problem in validate(new, old)]


FINE: Final = {
    "a queue with all there is": queue(
        group("a", "b", covered=("cpu", "tekton.dev/pipelineruns"), borrowingLimit=1),
        group("c", covered=("memory",), nominal="2Gi", lendingLimit="2048Mi"),
        cohortName="research",
        namespaceSelector={
            "matchLabels": {"team": ""},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}],
        },
        preemption={
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 1},
        },
        flavorFungibility={
            "whenCanBorrow": "TryNextFlavor",
            "preference": "PreemptionOverBorrowing",
        },
        fairSharing={"weight": "500m"},
        admissionChecksStrategy={"admissionChecks": [{"name": "m", "onFlavors": ["a"]}]},
    ),
    "a queue of nothing": queue(namespaceSelector={}),
    "a cohort that lends more than it has": cohort(
        group("a", nominal=1, lendingLimit=5), parentName="root"
    ),
    "a flavor that is only a name": obj("ResourceFlavor"),
    "a job that waits": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"parallelism": 2},
    },
    "a kind without rules": {"apiVersion": "v1", "kind": "Pod", "spec": 7},
}


@pytest.mark.parametrize("new", FINE.values(), ids=list(FINE))
def test_allowed_is(new: Object) -> None:
    assert said(new) == []
    assert said(new, new) == []


QUEUES: Final[dict[str, tuple[Object, str]]] = {
    "a negative quota": (
        queue(group("a", nominal=-1)),
        (
            'spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value: "-1": '
            "must be greater than or equal to 0"
        ),
    ),
    "a limit on borrowing from nobody": (
        queue(group("a", borrowingLimit=1)),
        (
            'spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: Invalid value: "1": '
            "must be nil when cohort is empty"
        ),
    ),
    "a cohort's limit on borrowing from nobody": (
        cohort(group("a", borrowingLimit=1)),
        (
            'spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: Invalid value: "1": '
            "must be nil when parent is empty"
        ),
    ),
    "lending more than there is": (
        queue(group("a", lendingLimit="4100m"), cohortName="c"),
        (
            'spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: "4100m": '
            "must be less than or equal to the nominalQuota"
        ),
    ),
    "resources in another order": (
        queue(
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "a", "resources": [quota("memory")]}],
            }
        ),
        (
            'spec.resourceGroups[0].flavors[0].resources[0].name: Invalid value: "memory": '
            "must match the name in coveredResources"
        ),
    ),
    "a resource that is covered and has no quota": (
        queue(
            {
                "coveredResources": ["cpu", "memory"],
                "flavors": [{"name": "a", "resources": [quota()]}],
            }
        ),
        (
            "spec.resourceGroups[0].flavors[0].resources: Invalid value: 1: "
            "flavors must have the same number of resources as the coveredResources"
        ),
    ),
    "a resource in two groups": (
        queue(group("a"), group("b")),
        'spec.resourceGroups[1].coveredResources[0]: Duplicate value: "cpu"',
    ),
    "a flavor in two groups": (
        queue(group("a"), group("a", covered=("memory",))),
        'spec.resourceGroups[1].flavors[0].name: Duplicate value: "a"',
    ),
    "a resource that is no name": (
        queue(group("a", covered=("*",))),
        (
            'spec.resourceGroups[0].coveredResources[0]: Invalid value: "*": name part must be letters, '
            "digits, '-', '_' or '.', with a letter or a digit at both ends"
        ),
    ),
    "borrowing preempts where reclaiming does not": (
        queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        (
            'spec.preemption: Invalid value: {"borrowWithinCohort": {"policy": "LowerPriority"}}: '
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"
        ),
    ),
    "a preference where the search stops": (
        queue(flavorFungibility={"preference": "BorrowingOverPreemption"}),
        (
            'spec.flavorFungibility.preference: Invalid value: "BorrowingOverPreemption": preference can '
            "only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor"
        ),
    ),
    "a negative weight": (
        queue(fairSharing={"weight": "-1"}),
        'spec.fairSharing.weight: Invalid value: "-1": must be greater than or equal to 0',
    ),
    "a weight by which shares overflow": (
        cohort(fairSharing={"weight": "1n"}),
        'spec.fairSharing.weight: Invalid value: "1n": When not 0, weight must be > 10e-9',
    ),
    "a check for a flavor of others": (
        queue(
            group("b", "a"),
            admissionChecksStrategy={"admissionChecks": [{"name": "m", "onFlavors": ["c"]}]},
        ),
        (
            "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]: Unsupported value: "
            '"c": supported values: "a", "b"'
        ),
    ),
    "a selector that asks for none of many": (
        queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
        (
            "spec.namespaceSelector.matchExpressions[0].values: Invalid value: []: "
            "must be specified when operator is In or NotIn"
        ),
    ),
    "a selector that knows values and does not want them": (
        queue(
            namespaceSelector={
                "matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]
            }
        ),
        (
            "spec.namespaceSelector.matchExpressions[0].values: Forbidden: "
            "may not be specified when operator is Exists or DoesNotExist"
        ),
    ),
    "a strategy that there is not": (
        queue(queueingStrategy="Random"),
        (
            'spec.queueingStrategy: Unsupported value: "Random": '
            'supported values: "StrictFIFO", "BestEffortFIFO"'
        ),
    ),
    "a quota that is no number": (
        queue(group("a", nominal="many")),
        (
            'spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value: "many": '
            "'many' is no quantity: expected a number with a suffix like 500m, 1.5Gi or 2e3"
        ),
    ),
    "a quota that is true": (
        queue(group("a", nominal=True)),
        (
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value: true: "
            "must be an integer or a string such as 500m or 2Gi"
        ),
    ),
    "no quota at all": (
        queue(
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "a", "resources": [{"name": "cpu"}]}],
            }
        ),
        "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Required value",
    ),
    "a list where an object is wanted": (
        obj("ClusterQueue", {"preemption": []}),
        "spec.preemption: Invalid value: []: must be of type object",
    ),
    "too many groups": (
        queue(*(group(f"f{n}", covered=(f"r{n}",)) for n in range(17))),
        "spec.resourceGroups: Invalid value: ",
    ),
    "several flavors at a time in two groups": (
        queue(
            group("a"),
            group("b", covered=("memory",)),
            concurrentAdmissionPolicy={"migration": {"mode": "RetainFirstAdmission"}},
        ),
        (
            "spec.resourceGroups: Invalid value: 2: "
            "must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined"
        ),
    ),
}


@pytest.mark.parametrize(("new", "problem"), QUEUES.values(), ids=list(QUEUES))
def test_refused_is(new: Object, problem: str) -> None:
    problems = said(new)
    assert len(problems) == 1
    assert problems[0].startswith(problem) if problem.endswith(": ") else problems == [problem]


def test_a_queue_has_no_more_flavors_than_can_be_weighed() -> None:
    groups = [group(*(f"f{n}-{m}" for m in range(64)), covered=(f"r{n}",)) for n in range(5)]
    assert said(queue(*groups)) == [
        (
            "spec.resourceGroups: Invalid value: 320: "
            "total number of flavors across all resourceGroups must be ≤ 256, got 320"
        )
    ]


def test_flavors_times_resources_are_bounded() -> None:
    wide = group(*(f"f{m}" for m in range(33)), covered=tuple(f"r{n}" for n in range(16)))
    assert said(queue(wide)) == [
        (
            "spec.resourceGroups[0]: Invalid value: 528: number of flavor-resource combinations in a "
            "resourceGroup must be ≤ 512, got 528"
        )
    ]


HOST: Final = "kubernetes.io/hostname"


def levels(*labels: str) -> Object:
    return obj("Topology", {"levels": [{"nodeLabel": label} for label in labels]})


def flavor(**spec: Any) -> Object:
    return obj("ResourceFlavor", spec)


OTHERS: Final[dict[str, tuple[Object, str]]] = {
    "a label that is none": (
        flavor(nodeLabels={"a": "not this"}),
        (
            'spec.nodeLabels[a]: Invalid value: "not this": a valid label must be empty or letters, '
            "digits, '-', '_' or '.', with a letter or a digit at both ends"
        ),
    ),
    "the same taint twice": (
        flavor(nodeTaints=[{"key": "a", "effect": "NoExecute"}] * 2),
        (
            'spec.nodeTaints[1]: Duplicate value: {"key": "a", "effect": "NoExecute"}: '
            "taints must be unique by key and effect pair"
        ),
    ),
    "an effect that there is not": (
        flavor(nodeTaints=[{"key": "a", "effect": "Never"}]),
        (
            'spec.nodeTaints[0].effect: Invalid value: "Never": '
            "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'"
        ),
    ),
    "tolerating everything by a value": (
        flavor(tolerations=[{"value": "a"}]),
        (
            "spec.tolerations[0].operator: Invalid value: null: operator must be Exists when 'key' is "
            "empty, which means 'match all values and all keys'"
        ),
    ),
    "tolerating for a while what does not evict": (
        flavor(tolerations=[{"key": "a", "tolerationSeconds": 1}]),
        (
            "spec.tolerations[0].effect: Invalid value: null: "
            "effect must be 'NoExecute' when 'tolerationSeconds' is set"
        ),
    ),
    "a topology of no nodes": (
        flavor(topologyName="t"),
        "spec.nodeLabels: Invalid value: {}: at least one nodeLabel is required when topology is set",
    ),
    "a level twice": (
        levels("rack", "rack"),
        'spec.levels[1].nodeLabel: Duplicate value: "rack": must be unique',
    ),
    "hosts above racks": (
        levels(HOST, "rack"),
        (
            'spec.levels: Invalid value: ["kubernetes.io/hostname", "rack"]: '
            f"the {HOST} label can only be used at the lowest level of topology"
        ),
    ),
    "a cluster twice": (
        obj("MultiKueueConfig", {"clusters": ["a", "a"]}),
        'spec.clusters[1]: Duplicate value: "a": must be unique',
    ),
    "a cluster that is reached in no way": (
        obj("MultiKueueCluster", {"clusterSource": {}}),
        (
            "spec.clusterSource: Invalid value: []: "
            "exactly one of the fields in [kubeConfig clusterProfileRef] must be set"
        ),
    ),
}


@pytest.mark.parametrize(("new", "problem"), OTHERS.values(), ids=list(OTHERS))
def test_refused_too_is(new: Object, problem: str) -> None:
    assert said(new) == [problem]


CHANGES: Final[dict[str, tuple[Object, Object, list[str]]]] = {
    "where a LocalQueue leads": (
        obj("LocalQueue", {"clusterQueue": "a"}),
        obj("LocalQueue", {"clusterQueue": "b"}),
        ['spec.clusterQueue: Invalid value: "b": field is immutable'],
    ),
    "a LocalQueue's first ClusterQueue": (
        obj("LocalQueue", {}),
        obj("LocalQueue", {"clusterQueue": "b"}),
        [],
    ),
    "who answers a check": (
        obj("AdmissionCheck", {"controllerName": "a"}),
        obj("AdmissionCheck", {"controllerName": "b"}),
        ['spec.controllerName: Invalid value: "b": field is immutable'],
    ),
    "the topology of a flavor": (
        flavor(topologyName="a", nodeLabels={"a": "b"}),
        flavor(nodeLabels={"a": "b"}),
        [
            (
                "spec.topologyName: Invalid value: null: "
                "topologyName is immutable when topologyName is set"
            )
        ],
    ),
    "levels above hosts": (levels("rack", HOST), levels("block", "rack", HOST), []),
    "levels that end elsewhere": (
        levels("block", "rack"),
        levels("rack"),
        [
            (
                'spec.levels: Invalid value: ["rack"]: levels are mutable only when '
                f"{HOST} is the lowest level both before and after the change"
            )
        ],
    ),
    "whether several flavors are tried": (
        queue(group("a")),
        queue(
            group("a"), concurrentAdmissionPolicy={"migration": {"mode": "RetainFirstAdmission"}}
        ),
        [
            (
                "spec.concurrentAdmissionPolicy: Invalid value: "
                '{"migration": {"mode": "RetainFirstAdmission"}}: field is immutable'
            )
        ],
    ),
    "something beside what was wrong before": (
        queue(group("a", nominal=-1)),
        queue(group("a", nominal=-1), stopPolicy="Hold"),
        [],
    ),
    "finalizers of what is being deleted": (
        queue(),
        {
            **queue(group("a", nominal=-1)),
            "metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        },
        [],
    ),
}


@pytest.mark.parametrize(("old", "new", "problems"), CHANGES.values(), ids=list(CHANGES))
def test_changing(old: Object, new: Object, problems: list[str]) -> None:
    assert said(new, old) == problems


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
def test_no_workload_has(new: Object, problem: str) -> None:
    assert said(new) == [problem]


def reference(name: str = "a", kind: str = "WorkloadPriorityClass") -> Object:
    groups = {"WorkloadPriorityClass": "kueue.x-k8s.io", "PriorityClass": "scheduling.k8s.io"}
    return {"group": groups[kind], "kind": kind, "name": name}


HELD: Final[dict[str, tuple[Object, Object, list[str]]]] = {
    "nothing": (holding(workload()), holding(workload()), []),
    "its pods": (
        holding(workload(pods())),
        holding(workload(pods(topologyRequest={}))),
        [
            (
                "spec.podSets[0]: Invalid value: "
                '{"name": "main", "count": 3, "template": {"spec": {"containers": [{"name": "c", '
                '"resources": {"requests": {"cpu": "1"}}}]}}, "topologyRequest": {}}: '
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
def test_a_workload_with_quota_changes(old: Object, new: Object, problems: list[str]) -> None:
    assert said(new, old) == problems


def test_an_admission_does_not_change_but_for_where_pods_go() -> None:
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


def test_an_elastic_workload_may_shrink_while_it_runs() -> None:
    annotated = {"name": "x", "annotations": {"kueue.x-k8s.io/elastic-job": "true"}}
    old = {**holding(workload(pods(count=3))), "metadata": annotated}
    smaller = {**holding(workload(pods(count=2))), "metadata": annotated}
    larger = {**holding(workload(pods(count=4))), "metadata": annotated}
    assert said(smaller, old) == []
    assert len(said(larger, old)) == 1


# Jobs ----------------------------------------------------------------------------------------------

QUEUE: Final = "kueue.x-k8s.io/queue-name"
CLASS: Final = "kueue.x-k8s.io/priority-class"
LIMIT: Final = "kueue.x-k8s.io/max-exec-time-seconds"
LEAST: Final = "kueue.x-k8s.io/job-min-parallelism"


def job(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    *,
    suspend: bool = True,
    **spec: Any,
) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"suspend": suspend, "template": {}, **spec},
    }


JOBS: Final[dict[str, tuple[Object | None, Object, list[str]]]] = {
    "a queue that cannot be one": (
        None,
        job({QUEUE: "Not_A_Name"}),
        [
            (
                f'metadata.labels[{QUEUE}]: Invalid value: "Not_A_Name": must be a lowercase RFC 1123 '
                "subdomain: lower case letters, digits, '-' or '.', with a letter or a digit at both ends"
            )
        ],
    ),
    "a limit in words": (
        None,
        job({LIMIT: "soon"}),
        [f'metadata.labels[{LIMIT}]: Invalid value: "soon": must be an integer'],
    ),
    "no time at all": (
        None,
        job({LIMIT: "0"}),
        [f"metadata.labels[{LIMIT}]: Invalid value: 0: should be greater than 0"],
    ),
    "more time than a Workload holds": (
        None,
        job({LIMIT: "999999999999"}),
        [
            (
                f"metadata.labels[{LIMIT}]: Invalid value: 999999999999: "
                "should be less than or equal to 2147483647"
            )
        ],
    ),
    "at least as many as there are": (
        None,
        job(annotations={LEAST: "3"}, parallelism=3),
        [f"metadata.annotations[{LEAST}]: Invalid value: 3: should be between 0 and 2"],
    ),
    "two topologies": (
        None,
        job(
            template={
                "metadata": {
                    "annotations": {
                        "kueue.x-k8s.io/podset-required-topology": "rack",
                        "kueue.x-k8s.io/podset-preferred-topology": "rack",
                    }
                }
            }
        ),
        [
            (
                "spec.template.metadata.annotations: Invalid value: "
                '["kueue.x-k8s.io/podset-preferred-topology", '
                '"kueue.x-k8s.io/podset-required-topology"]: must not contain more than one topology '
                "annotation: ['kueue.x-k8s.io/podset-preferred-topology', "
                "'kueue.x-k8s.io/podset-required-topology']"
            )
        ],
    ),
    "another queue while it runs": (
        job({QUEUE: "a"}, suspend=False),
        job({QUEUE: "b"}, suspend=False),
        [f'metadata.labels[{QUEUE}]: Invalid value: "b": field is immutable'],
    ),
    "no queue any more while it runs": (
        job({QUEUE: "a"}, suspend=False),
        job(suspend=False),
        [f'metadata.labels[{QUEUE}]: Invalid value: "": field is immutable'],
    ),
    "running and no queue any more at once": (
        job({QUEUE: "a"}),
        job(suspend=False),
        [f'metadata.labels[{QUEUE}]: Invalid value: "": field is immutable'],
    ),
    "another queue while it waits": (job({QUEUE: "a"}), job({QUEUE: "b"}), []),
    "a job of nobody's": (job(suspend=False), job({"a": "b"}, suspend=False), []),
    "a class while it runs": (
        job(suspend=False),
        job({CLASS: "high"}, suspend=False),
        [
            (
                f'metadata.labels[{CLASS}]: Invalid value: "high": '
                "WorkloadPriorityClass cannot be added to a non-suspended workload"
            )
        ],
    ),
    "no class any more": (
        job({CLASS: "high"}),
        job(),
        [
            (
                f'metadata.labels[{CLASS}]: Invalid value: "": '
                "WorkloadPriorityClass cannot be removed from a workload"
            )
        ],
    ),
    "more time as it starts": (
        job({LIMIT: "1"}),
        job({LIMIT: "2"}, suspend=False),
        [f'metadata.labels[{LIMIT}]: Invalid value: "2": field is immutable'],
    ),
    "more pods than were admitted": (
        job(annotations={LEAST: "1"}, parallelism=2, suspend=False),
        job(annotations={LEAST: "1"}, parallelism=3, suspend=False),
        [
            (
                "spec.parallelism: Forbidden: "
                "cannot change when partial admission is enabled and the job is not suspended"
            )
        ],
    ),
}


@pytest.mark.parametrize(("old", "new", "problems"), JOBS.values(), ids=list(JOBS))
def test_a_job_with(old: Object | None, new: Object, problems: list[str]) -> None:
    assert said(new, old) == problems


# Anything at all -----------------------------------------------------------------------------------

junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "-1", "cpu"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("spec", "status", "metadata", "labels", "annotations", "podSets", "levels"),
                    *("resourceGroups", "flavors", "resources", "name", "count", "admission"),
                    *("conditions", "type", "podSetAssignments", "template", "nodeTaints", QUEUE),
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("kind", sorted(RULES))
def test_whatever_is_sent_gets_an_answer(kind: tuple[str, str]) -> None:
    group_, name = kind
    version = "v1" if group_ == "batch" else "v1beta2"

    @settings(max_examples=60, deadline=None)
    @given(junk, junk, junk)
    def answers(spec: Any, status: Any, metadata: Any) -> None:
        head = {"apiVersion": f"{group_}/{version}", "kind": name}
        new = {**head, "metadata": metadata, "spec": spec, "status": status}
        old = {**head, "metadata": spec, "spec": status, "status": metadata}
        for before in (None, new, old):
            for problem in validate(new, before):
                assert str(problem)
        assert [p for p in validate(new, new) if "immutable" in p.detail] == []

    answers()


# The review ----------------------------------------------------------------------------------------


def review(new: Object, old: Object | None = None, operation: str = "CREATE") -> bytes:
    request = {"uid": "u", "operation": operation, "object": new, "oldObject": old}
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()


def response(body: bytes) -> Object:
    answer: Object = json.loads(body)
    assert answer["response"]["uid"] == "u"
    found: Object = answer["response"]
    return found


def test_a_refusal_reads_like_the_api_servers_own() -> None:
    reply = answer_validation(review(queue(group("a", nominal=-1), group("a"))))
    assert reply.outcome is Outcome.REFUSED
    status = response(reply.body)["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"].startswith('ClusterQueue.kueue.x-k8s.io "x" is invalid: [spec.')
    assert status["details"]["causes"][0] == {
        "reason": "FieldValueInvalid",
        "field": "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
        "message": 'Invalid value: "-1": must be greater than or equal to 0',
    }


def test_the_older_version_is_judged_by_the_same_rules() -> None:
    older = {**queue(group("a", borrowingLimit=1), cohort="c"), "apiVersion": V1}
    assert response(answer_validation(review(older)).body)["allowed"]
    alone = {**queue(group("a", borrowingLimit=1)), "apiVersion": V1}
    assert not response(answer_validation(review(alone)).body)["allowed"]


ASKED: Final[dict[str, tuple[bytes, bool]]] = {
    "a deletion": (review(queue(group("a", nominal=-1)), operation="DELETE"), True),
    "a kind without rules": (review({"apiVersion": "v1", "kind": "Pod"}), True),
    "no object": (review({}), True),
    "a version of ours that nobody serves": (
        review({"apiVersion": "kueue.x-k8s.io/v1alpha1", "kind": "ClusterQueue"}),
        False,
    ),
}


@pytest.mark.parametrize(("body", "allowed"), ASKED.values(), ids=list(ASKED))
def test_asked_about(body: bytes, allowed: bool) -> None:
    assert response(answer_validation(body).body)["allowed"] is allowed


def conversion(*objects: Object, wanted: str = V2) -> bytes:
    request = {"uid": "u", "desiredAPIVersion": wanted, "objects": list(objects)}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    return json.dumps({**kind, "request": request}).encode()


async def test_all_objects_of_a_conversion_are_converted_in_order() -> None:
    older = [{**queue(cohort=f"c{n}"), "apiVersion": V1} for n in range(120)]
    found = response((await answer_conversion(conversion(*older))).body)
    assert found["result"] == {"status": "Success"}
    names = [one["spec"]["cohortName"] for one in found["convertedObjects"]]
    assert names == [f"c{n}" for n in range(120)]


async def test_a_conversion_that_cannot_be_done_says_why() -> None:
    reply = await answer_conversion(conversion(queue(), wanted="kueue.x-k8s.io/v2"))
    assert response(reply.body)["result"] == {
        "status": "Failure",
        "message": "apiVersion: kueue.x-k8s.io/v2 is not served",
    }


MALFORMED: Final[dict[str, Callable[[], bytes]]] = {
    "no JSON": lambda: b"{",
    "another review": lambda: review(queue()),
    "no uid": lambda: conversion().replace(b'"u"', b"7"),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=list(MALFORMED))
async def test_no_conversion_review_is(body: Callable[[], bytes]) -> None:
    reply = await answer_conversion(body())
    assert (reply.status, reply.outcome) == (400, Outcome.MALFORMED)
