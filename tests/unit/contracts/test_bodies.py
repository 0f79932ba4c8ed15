"""Reading parts of a body that may be missing."""

import pytest

from shared.contracts.kube.bodies import (
    annotations_of,
    labels_of,
    list_at,
    maps_at,
    spec_of,
    status_of,
)

FULL = {
    "metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}},
    "spec": {"c": 3},
    "status": {"d": 4},
}


def test_parts_of_full_body_are_returned() -> None:
    assert labels_of(FULL) == {"a": "1"}
    assert annotations_of(FULL) == {"b": "2"}
    assert spec_of(FULL) == {"c": 3}
    assert status_of(FULL) == {"d": 4}


@pytest.mark.parametrize(
    "obj",
    [None, {}, {"metadata": None, "spec": None}, {"metadata": {"labels": None}, "status": None}],
)
def test_missing_parts_are_empty(obj: dict[str, None] | None) -> None:
    assert [labels_of(obj), annotations_of(obj), spec_of(obj), status_of(obj)] == [{}, {}, {}, {}]


def test_list_is_returned_as_it_stands_and_its_maps_alone() -> None:
    obj = {"spec": {"of": [{"a": 1}, "text"]}}

    assert list_at(obj, "spec", "of") == list_at([{"a": 1}, "text"]) == [{"a": 1}, "text"]
    assert maps_at(obj, "spec", "of") == [{"a": 1}]


@pytest.mark.parametrize("obj", [None, {}, {"spec": None}, {"spec": {"of": {"a": 1}}}])
def test_what_is_no_list_is_an_empty_one(obj: object) -> None:
    assert list_at(obj, "spec", "of") == maps_at(obj, "spec", "of") == []
