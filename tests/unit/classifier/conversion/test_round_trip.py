"""Any object of one version survives the conversion to the other and back."""

import json
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.classifier.conversion.convert import convert
from shared.contracts.kube.kinds import Object
from tests.unit.classifier.conversion.objects import V1, V2, Strategy, name, obj, some

CLASSES: Final = ["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""]


count = st.integers(1, 9)


def named(values: Strategy) -> Strategy:
    return st.lists(values, min_size=1, max_size=3, unique_by=lambda item: item["name"])


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
def test_v1beta1_survives_round_trip_through_v1beta2(kind: str) -> None:
    @settings(max_examples=30)
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
def test_v1beta2_survives_round_trip_through_v1beta1(kind: str) -> None:
    @settings(max_examples=30)
    @given(NEWER[kind])
    def holds(given_: Object) -> None:
        older = convert(given_, V1)
        assert older["apiVersion"] == V1
        assert convert(older, V2) == given_
        assert convert(convert(older, V2), V1) == older

    holds()
