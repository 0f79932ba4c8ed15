"""JSON patch, merge patch and strategic merge on values."""

from dataclasses import dataclass
from typing import Any

import pytest

from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.patches import json_patch, merge_patch, strategic_merge_patch

DOCUMENT = {"a": {"b": 1, "c/d": "x"}, "list": [1, 2, 3], "gone": None}


@dataclass(frozen=True, kw_only=True)
class Case:
    patch: Any
    outcome: Any = None
    code: int = 0


def changed(**members: Any) -> dict[str, Any]:
    return {**DOCUMENT, **members}


JSON = {
    "add puts a new member": Case(
        patch=[{"op": "add", "path": "/new", "value": 1}], outcome=changed(new=1)
    ),
    "add overwrites a member": Case(
        patch=[{"op": "add", "path": "/a", "value": 1}], outcome=changed(a=1)
    ),
    "add inserts into a list": Case(
        patch=[{"op": "add", "path": "/list/1", "value": 9}], outcome=changed(list=[1, 9, 2, 3])
    ),
    "add with - appends": Case(
        patch=[{"op": "add", "path": "/list/-", "value": 9}], outcome=changed(list=[1, 2, 3, 9])
    ),
    "add below a missing field does not apply": Case(
        patch=[{"op": "add", "path": "/x/y", "value": 1}], code=422
    ),
    "add behind the end of a list does not apply": Case(
        patch=[{"op": "add", "path": "/list/4", "value": 1}], code=422
    ),
    "remove takes a member away": Case(
        patch=[{"op": "remove", "path": "/a/b"}], outcome=changed(a={"c/d": "x"})
    ),
    "remove of a missing field does not apply": Case(
        patch=[{"op": "remove", "path": "/a/x"}], code=422
    ),
    "remove shifts a list": Case(
        patch=[{"op": "remove", "path": "/list/0"}], outcome=changed(list=[2, 3])
    ),
    "replace of a missing field does not apply": Case(
        patch=[{"op": "replace", "path": "/x", "value": 1}], code=422
    ),
    "a pointer may escape slashes": Case(
        patch=[{"op": "replace", "path": "/a/c~1d", "value": "y"}],
        outcome=changed(a={"b": 1, "c/d": "y"}),
    ),
    "move takes away and adds": Case(
        patch=[{"op": "move", "from": "/a/b", "path": "/b"}],
        outcome=changed(a={"c/d": "x"}, b=1),
    ),
    "copy leaves the source": Case(
        patch=[{"op": "copy", "from": "/a/b", "path": "/b"}], outcome=changed(b=1)
    ),
    "a test that holds lets the rest apply": Case(
        patch=[{"op": "test", "path": "/a/b", "value": 1}, {"op": "remove", "path": "/list"}],
        outcome={key: DOCUMENT[key] for key in ("a", "gone")},
    ),
    "a test that fails is 422": Case(
        patch=[{"op": "test", "path": "/a/b", "value": 2}, {"op": "remove", "path": "/list"}],
        code=422,
    ),
    "a test for null holds for a missing member": Case(
        patch=[{"op": "test", "path": "/a/missing", "value": None}], outcome=DOCUMENT
    ),
    "a test tells true from one": Case(
        patch=[{"op": "test", "path": "/a/b", "value": True}], code=422
    ),
    "a test below a missing member is 422": Case(
        patch=[{"op": "test", "path": "/x/y", "value": None}], code=422
    ),
    "a patch that is no list cannot be read": Case(patch={"op": "add"}, code=400),
    "an unknown operation cannot be read": Case(patch=[{"op": "put", "path": "/a"}], code=400),
    "a pointer without a slash cannot be read": Case(
        patch=[{"op": "remove", "path": "a"}], code=400
    ),
    "the whole document can be replaced": Case(
        patch=[{"op": "replace", "path": "", "value": {"z": 1}}], outcome={"z": 1}
    ),
}


@pytest.mark.parametrize("case", JSON.values(), ids=JSON.keys())
def test_json_patch_gives_the_expected_object(case: Case) -> None:
    if case.code:
        with pytest.raises(ApiError) as refused:
            json_patch(DOCUMENT, case.patch)
        assert refused.value.code == case.code
    else:
        assert json_patch(DOCUMENT, case.patch) == case.outcome
    assert DOCUMENT == {"a": {"b": 1, "c/d": "x"}, "list": [1, 2, 3], "gone": None}


# The table of RFC 7386, appendix A.
MERGE = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "outcome"), MERGE)
def test_merge_patch_gives_the_expected_object(target: Any, patch: Any, outcome: Any) -> None:
    assert merge_patch(target, patch) == outcome


POD = {"containers": [{"name": "a", "image": "1"}, {"name": "b"}], "args": ["x"]}
STRATEGIC = {
    "list entries merge by their key": Case(
        patch={"containers": [{"name": "a", "image": "2"}]},
        outcome={"containers": [{"name": "a", "image": "2"}, {"name": "b"}], "args": ["x"]},
    ),
    "a list entry can be deleted": Case(
        patch={"containers": [{"name": "b", "$patch": "delete"}]},
        outcome={"containers": [{"name": "a", "image": "1"}], "args": ["x"]},
    ),
    "lists without a key are replaced": Case(
        patch={"args": ["y", "z"]}, outcome={**POD, "args": ["y", "z"]}
    ),
    "orders and retained keys are no content": Case(
        patch={"$setElementOrder/containers": [{"name": "a"}], "args": None},
        outcome={"containers": POD["containers"]},
    ),
    "an entry without its key is refused": Case(patch={"containers": [{"image": "2"}]}, code=400),
}


@pytest.mark.parametrize("case", STRATEGIC.values(), ids=STRATEGIC.keys())
def test_strategic_merge_patch_gives_the_expected_object(case: Case) -> None:
    if case.code:
        with pytest.raises(ApiError) as refused:
            strategic_merge_patch(POD, case.patch)
        assert refused.value.code == case.code
    else:
        assert strategic_merge_patch(POD, case.patch) == case.outcome
