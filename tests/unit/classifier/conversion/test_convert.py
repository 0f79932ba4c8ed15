"""Conversion of single fields, edits between conversions, and forged annotations."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from services.classifier.conversion.convert import KEPT, ConversionError, convert
from shared.contracts.kube.kinds import Object
from tests.unit.classifier.conversion.objects import V1, V2


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
def test_cluster_queue_converts_to_v1beta2(older: Object, newer: Object) -> None:
    assert convert(queue(V1, **older), V2)["spec"] == newer


def test_topology_slices_compress_common_parts_of_domains() -> None:
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
def test_edited_value_wins_over_kept_value(
    older: Object, edit: Callable[[Object], None], expected: Object
) -> None:
    newer = convert(queue(V1, **older), V2)
    edit(newer)
    assert convert(newer, V1)["spec"] == expected


def test_v1beta1_edit_of_other_field_keeps_v1beta2_fields() -> None:
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
def test_forged_annotation_cannot_set_field(path: list[str], was: Any) -> None:
    given_ = forged(path, was)
    newer = convert(given_, V2)
    assert newer == {
        **given_,
        "apiVersion": V2,
        "metadata": {"name": "w"},
    }


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"path": []}]', '[{"path": "spec"}]', "{}"])
def test_malformed_annotation_is_dropped(text: str) -> None:
    given_ = queue(V1, cohort="a")
    given_["metadata"]["annotations"] = {KEPT["v1beta2"]: text}
    assert convert(given_, V2) == queue(V2, cohortName="a")


def test_list_is_converted_with_its_items() -> None:
    listed = {"apiVersion": V1, "kind": "ClusterQueueList", "items": [queue(V1, cohort="a")]}
    assert convert(listed, V2)["items"] == [queue(V2, cohortName="a")]


WRONG: Final = {
    "a version that nobody serves": (queue(V1), "kueue.x-k8s.io/v1"),
    "another group": (queue(V1), "batch/v1beta2"),
    "an object of another version": (queue("kueue.x-k8s.io/v1alpha1"), V2),
    "a kind that is not there": ({"apiVersion": V1, "kind": "Job"}, V2),
}


@pytest.mark.parametrize(("given_", "wanted"), WRONG.values(), ids=list(WRONG))
def test_unknown_kind_or_version_is_refused(given_: Object, wanted: str) -> None:
    with pytest.raises(ConversionError):
        convert(given_, wanted)


@pytest.mark.parametrize(
    "broken", [None, [], "x", {"flavorFungibility": 1, "admissionChecks": "a"}, {"cohort": None}]
)
def test_malformed_object_is_converted_without_error(broken: Any) -> None:
    given_ = {"apiVersion": V1, "kind": "ClusterQueue", "metadata": {}, "spec": broken}
    assert convert(given_, V2)["apiVersion"] == V2
