"""There and back gives the same object, and what was changed meanwhile stays changed."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.classifier.conversion.convert import KEPT, ConversionError, convert
from shared.contracts.kube.kinds import Object

V1: Final = "kueue.x-k8s.io/v1beta1"
V2: Final = "kueue.x-k8s.io/v1beta2"
CLASSES: Final = ["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""]

name = st.sampled_from(["a", "b-1", "node-17", "node-18", "rack"])
count = st.integers(1, 9)
Strategy = st.SearchStrategy[Any]


def some(fixed: dict[str, Strategy] | None = None, /, **optional: Strategy) -> Strategy:
    return st.fixed_dictionaries(fixed or {}, optional=optional)


def named(values: Strategy) -> Strategy:
    return st.lists(values, min_size=1, max_size=3, unique_by=lambda item: item["name"])


def obj(version: str, kind: str, **parts: Strategy) -> Strategy:
    annotations = st.dictionaries(st.sampled_from(["a", "b.example/c"]), name, min_size=1)
    metadata = some({"name": name}, annotations=annotations, labels=annotations)
    fixed = {"apiVersion": st.just(version), "kind": st.just(kind), "metadata": metadata}
    return some(fixed, **parts)


STRATEGY: Final = some(
    {
        "admissionChecks": named(
            some({"name": name}, onFlavors=st.lists(name, unique=True, max_size=2))
        )
    }
)
SHARING: Final = some(weight=count)
CONSUMED: Final = some({"consumedResources": st.just({"cpu": "1"}), "lastUpdate": st.just("t")})
USAGES: Final = named(some({"name": name, "resources": st.just([{"name": "cpu", "total": "1"}])}))


def fungibility(*, older: bool = False) -> Strategy:
    words = ["MayStopSearch", "TryNextFlavor"]
    return some(
        whenCanBorrow=st.sampled_from([*words, "Borrow"] if older else words),
        whenCanPreempt=st.sampled_from([*words, "Preempt"] if older else words),
    )


DOMAINS: Final = some(
    {
        "levels": st.just(["rack", "host"]),
        "domains": st.lists(
            some({"values": st.lists(name, min_size=2, max_size=2), "count": count}),
            min_size=1,
            max_size=4,
        ),
    }
)
SLICES: Final = some(
    {
        "levels": st.just(["host"]),
        "slices": st.lists(
            st.sampled_from(
                [
                    {
                        "domainCount": 1,
                        "podCounts": {"universal": 2},
                        "valuesPerLevel": [{"universal": "a"}],
                    },
                    {
                        "domainCount": 2,
                        "podCounts": {"individual": [1, 3]},
                        "valuesPerLevel": [{"individual": {"roots": ["x", "y"]}}],
                    },
                    {
                        "domainCount": 2,
                        "podCounts": {"universal": 1},
                        "valuesPerLevel": [
                            {"individual": {"prefix": "n-", "suffix": "z", "roots": ["1", "2"]}}
                        ],
                    },
                ]
            ),
            max_size=3,
        ),
    }
)


def admission(places: Strategy) -> Strategy:
    assigned = some({"name": name}, topologyAssignment=places, count=count)
    return some({"clusterQueue": name, "podSetAssignments": named(assigned)})


def pod_sets(**request: Strategy) -> Strategy:
    template = st.just({"spec": {"containers": [{"name": "c", "env": None}]}})
    return named(some({"name": name, "template": template}, topologyRequest=some(**request)))


GATES: Final = named(some({"name": name}))
GATE_STATES: Final = named(
    some({"name": name, "position": st.just("Open"), "lastTransitionTime": st.just("t")})
)
CONSTRAINTS: Final = st.lists(some({"topology": name, "size": count}), max_size=2)

OLDER: Final = {
    "ClusterQueue": obj(
        V1,
        "ClusterQueue",
        spec=some(
            cohort=name,
            admissionChecks=st.lists(name, max_size=3),
            admissionChecksStrategy=STRATEGY,
            flavorFungibility=fungibility(older=True),
            fairSharing=SHARING,
        ),
        status=some(
            pendingWorkloadsStatus=st.just({"lastChangeTime": "t"}),
            fairSharing=some({"weightedShare": count}, admissionFairSharingStatus=CONSUMED),
            pendingWorkloads=count,
        ),
    ),
    "Cohort": obj(
        V1,
        "Cohort",
        spec=st.one_of(some(parentName=name), some(parent=name)),
        status=some(
            fairSharing=some({"weightedShare": count}, admissionFairSharingStatus=CONSUMED)
        ),
    ),
    "LocalQueue": obj(
        V1,
        "LocalQueue",
        spec=some(clusterQueue=name),
        status=some(
            flavorUsage=USAGES, flavorsReservation=USAGES, flavors=named(some({"name": name}))
        ),
    ),
    "AdmissionCheck": obj(
        V1, "AdmissionCheck", spec=some({"controllerName": name}, retryDelayMinutes=count)
    ),
    "MultiKueueCluster": obj(
        V1,
        "MultiKueueCluster",
        spec=some(
            kubeConfig=some({"location": name}, locationType=st.just("Path")),
            clusterProfileRef=some({"name": name}),
        ),
    ),
    "MultiKueueConfig": obj(V1, "MultiKueueConfig", spec=some({"clusters": st.just(["a"])})),
    "ResourceFlavor": obj(V1, "ResourceFlavor", spec=some(nodeLabels=st.just({"a": "b"}))),
    "Workload": obj(
        V1,
        "Workload",
        spec=some(
            {"podSets": pod_sets(required=name)},
            priorityClassName=name,
            priorityClassSource=st.sampled_from(CLASSES),
            queueName=name,
        ),
        status=some(
            admission=admission(DOMAINS),
            accumulatedPastExexcutionTimeSeconds=count,
            clusterName=name,
        ),
    ),
}
NEWER: Final = {
    "ClusterQueue": obj(
        V2,
        "ClusterQueue",
        spec=some(
            cohortName=name,
            admissionChecksStrategy=STRATEGY,
            flavorFungibility=fungibility(),
            concurrentAdmissionPolicy=st.just({"migration": {"mode": "RetainFirstAdmission"}}),
        ),
        status=some(fairSharing=some({"weightedShare": count})),
    ),
    "Cohort": obj(V2, "Cohort", spec=some(parentName=name)),
    "LocalQueue": obj(
        V2,
        "LocalQueue",
        spec=some(clusterQueue=name),
        status=some(
            flavorsUsage=USAGES,
            fairSharing=some({"weightedShare": count}, admissionFairSharingStatus=CONSUMED),
        ),
    ),
    "AdmissionCheck": obj(V2, "AdmissionCheck", spec=some({"controllerName": name})),
    "MultiKueueCluster": obj(
        V2,
        "MultiKueueCluster",
        spec=some(
            clusterSource=st.one_of(
                some({"kubeConfig": some({"location": name})}),
                some({"clusterProfileRef": some({"name": name})}),
            )
        ),
    ),
    "MultiKueueConfig": obj(
        V2,
        "MultiKueueConfig",
        spec=some({"clusters": st.just(["a"])}, quotaManagement=st.just("Automated")),
    ),
    "Topology": obj(V2, "Topology", spec=st.just({"levels": [{"nodeLabel": "a"}]})),
    "Workload": obj(
        V2,
        "Workload",
        spec=some(
            {
                "podSets": pod_sets(
                    required=name, podsetSliceRequiredTopologyConstraints=CONSTRAINTS
                )
            },
            priorityClassRef=st.sampled_from(
                [
                    {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "a"},
                    {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "a"},
                ]
            ),
            preemptionGates=GATES,
        ),
        status=some(
            admission=admission(SLICES),
            accumulatedPastExecutionTimeSeconds=count,
            preemptionGates=GATE_STATES,
        ),
    ),
}


@pytest.mark.parametrize("kind", OLDER)
def test_v1beta1_comes_back_from_v1beta2_as_it_went(kind: str) -> None:
    @settings(max_examples=30, deadline=None)
    @given(OLDER[kind])
    def holds(given_: Object) -> None:
        before = json.dumps(given_)
        newer = convert(given_, V2)
        assert newer["apiVersion"] == V2
        assert convert(newer, V1) == given_
        assert json.dumps(given_) == before, "the object that was given is left alone"
        assert convert(convert(newer, V1), V2) == newer

    holds()


@pytest.mark.parametrize("kind", NEWER)
def test_v1beta2_comes_back_from_v1beta1_as_it_went(kind: str) -> None:
    @settings(max_examples=30, deadline=None)
    @given(NEWER[kind])
    def holds(given_: Object) -> None:
        older = convert(given_, V1)
        assert older["apiVersion"] == V1
        assert convert(older, V2) == given_
        assert convert(convert(older, V2), V1) == older

    holds()


def queue(version: str, **spec: Any) -> Object:
    return {
        "apiVersion": version,
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": spec,
    }


WORDS: Final[dict[str, tuple[Object, Object]]] = {
    "a cohort is called by another name": (
        {"cohort": "research"},
        {"cohortName": "research"},
    ),
    "borrowing and preempting end the search": (
        {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}},
        {
            "flavorFungibility": {
                "whenCanBorrow": "MayStopSearch",
                "whenCanPreempt": "MayStopSearch",
            }
        },
    ),
    "a list of checks is a strategy for all flavors": (
        {"admissionChecks": ["a", "b"]},
        {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}},
    ),
    "an empty list of checks is none": ({"admissionChecks": []}, {}),
}


@pytest.mark.parametrize(("older", "newer"), WORDS.values(), ids=list(WORDS))
def test_a_cluster_queue_says_in_v1beta2(older: Object, newer: Object) -> None:
    assert convert(queue(V1, **older), V2)["spec"] == newer


def test_places_say_once_what_they_have_in_common() -> None:
    places = [{"values": ["r1", f"node-{n}.example"], "count": 2} for n in (1, 2)]
    placed = {"levels": ["rack", "host"], "domains": places}
    older: Object = {
        "apiVersion": V1,
        "kind": "Workload",
        "metadata": {"name": "w"},
        "status": {"admission": {"podSetAssignments": [{"topologyAssignment": placed}]}},
    }
    (assignment,) = convert(older, V2)["status"]["admission"]["podSetAssignments"]
    assert assignment["topologyAssignment"]["slices"] == [
        {
            "domainCount": 2,
            "podCounts": {"universal": 2},
            "valuesPerLevel": [
                {"universal": "r1"},
                {"individual": {"prefix": "node-", "suffix": ".example", "roots": ["1", "2"]}},
            ],
        }
    ]


# What happens in between ---------------------------------------------------------------------------


def borrow_changed(obj: Object) -> None:
    obj["spec"]["flavorFungibility"]["whenCanBorrow"] = "TryNextFlavor"


def strategy_changed(obj: Object) -> None:
    obj["spec"]["admissionChecksStrategy"]["admissionChecks"] = [{"name": "c"}]


EDITS: Final[dict[str, tuple[Object, Callable[[Object], None], Object]]] = {
    "a word that was changed in v1beta2 stays changed": (
        {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}},
        borrow_changed,
        {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "Preempt"}},
    ),
    "a strategy that was changed in v1beta2 is not overruled by the old list": (
        {"admissionChecks": ["a"]},
        strategy_changed,
        {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}},
    ),
}


@pytest.mark.parametrize(("older", "edit", "expected"), EDITS.values(), ids=list(EDITS))
def test_an_edit_wins_over_what_was_kept(
    older: Object, edit: Callable[[Object], None], expected: Object
) -> None:
    newer = convert(queue(V1, **older), V2)
    edit(newer)
    assert convert(newer, V1)["spec"] == expected


def test_a_client_of_v1beta1_that_edits_something_else_keeps_what_it_cannot_see() -> None:
    policy = {"migration": {"mode": "RetainFirstAdmission"}}
    older = convert(queue(V2, concurrentAdmissionPolicy=policy, cohortName="a"), V1)
    assert "concurrentAdmissionPolicy" not in older["spec"]
    older["spec"]["cohort"] = "b"
    newer = convert(older, V2)
    assert newer["spec"] == {"cohortName": "b", "concurrentAdmissionPolicy": policy}
    assert "annotations" not in newer["metadata"]


def forged(path: list[str], was: Any) -> Object:
    kept = json.dumps([{"path": path, "was": was}])
    return {
        "apiVersion": V1,
        "kind": "Workload",
        "metadata": {"name": "w", "annotations": {KEPT["v1beta2"]: kept}},
        "spec": {"podSets": [{"name": "main", "template": {}}]},
        "status": {},
    }


FORGERIES: Final = {
    "conditions": (["status", "conditions"], [{"type": "Admitted", "status": "True"}]),
    "the name": (["metadata", "name"], "other"),
    "a field that both versions have": (["spec", "priority"], 1000),
    "gates of the wrong type": (["spec", "preemptionGates"], "open"),
    "a field of a pod set that is not there": (
        [
            *("spec", "podSets", "x", "topologyRequest"),
            "podsetSliceRequiredTopologyConstraints",
        ],
        [],
    ),
}


@pytest.mark.parametrize(("path", "was"), FORGERIES.values(), ids=list(FORGERIES))
def test_an_annotation_that_somebody_wrote_cannot_set(path: list[str], was: Any) -> None:
    given_ = forged(path, was)
    newer = convert(given_, V2)
    assert newer == {
        **given_,
        "apiVersion": V2,
        "metadata": {"name": "w"},
    }


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"path": []}]', '[{"path": "spec"}]', "{}"])
def test_an_annotation_that_is_not_ours_is_dropped(text: str) -> None:
    given_ = queue(V1, cohort="a")
    given_["metadata"]["annotations"] = {KEPT["v1beta2"]: text}
    assert convert(given_, V2) == queue(V2, cohortName="a")


def test_a_list_is_converted_with_its_items() -> None:
    listed = {"apiVersion": V1, "kind": "ClusterQueueList", "items": [queue(V1, cohort="a")]}
    assert convert(listed, V2)["items"] == [queue(V2, cohortName="a")]


WRONG: Final = {
    "a version that nobody serves": (queue(V1), "kueue.x-k8s.io/v1"),
    "another group": (queue(V1), "batch/v1beta2"),
    "an object of another version": (queue("kueue.x-k8s.io/v1alpha1"), V2),
    "a kind that is not there": ({"apiVersion": V1, "kind": "Job"}, V2),
}


@pytest.mark.parametrize(("given_", "wanted"), WRONG.values(), ids=list(WRONG))
def test_not_converted_is(given_: Object, wanted: str) -> None:
    with pytest.raises(ConversionError):
        convert(given_, wanted)


@pytest.mark.parametrize(
    "broken", [None, [], "x", {"flavorFungibility": 1, "admissionChecks": "a"}, {"cohort": None}]
)
def test_a_broken_object_is_passed_on(broken: Any) -> None:
    given_ = {"apiVersion": V1, "kind": "ClusterQueue", "metadata": {}, "spec": broken}
    assert convert(given_, V2)["apiVersion"] == V2
