"""Validation of ClusterQueues and Cohorts: field, rule, value and detail of each problem."""

from typing import Final

import pytest

from shared.contracts.kube.kinds import Object
from tests.unit.classifier.validation.objects import cohort, group, obj, queue, quota, said

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
def test_invalid_queue_has_problem(new: Object, problem: str) -> None:
    problems = said(new)
    assert len(problems) == 1
    assert problems[0].startswith(problem) if problem.endswith(": ") else problems == [problem]


def test_number_of_flavors_is_bounded() -> None:
    groups = [group(*(f"f{n}-{m}" for m in range(64)), covered=(f"r{n}",)) for n in range(5)]
    assert said(queue(*groups)) == [
        (
            "spec.resourceGroups: Invalid value: 320: "
            "total number of flavors across all resourceGroups must be ≤ 256, got 320"
        )
    ]


def test_number_of_flavor_resource_combinations_is_bounded() -> None:
    wide = group(*(f"f{m}" for m in range(33)), covered=tuple(f"r{n}" for n in range(16)))
    assert said(queue(wide)) == [
        (
            "spec.resourceGroups[0]: Invalid value: 528: number of flavor-resource combinations in a "
            "resourceGroup must be ≤ 512, got 528"
        )
    ]
