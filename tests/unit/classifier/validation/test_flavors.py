"""Validation of flavors, topologies and checks, and of changes of objects."""

from typing import Any, Final

import pytest

from shared.contracts.kube.kinds import Object
from tests.unit.classifier.validation.objects import group, obj, queue, said

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
def test_invalid_object_of_other_kind_has_problem(new: Object, problem: str) -> None:
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
def test_change_has_problems(old: Object, new: Object, problems: list[str]) -> None:
    assert said(new, old) == problems
