"""The objects of a list are found without reading the list."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.classifier.conversion import lists
from services.classifier.conversion.lists import first_namespace, split

texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.one_of(texts, st.integers(-(2**53), 2**53), st.booleans(), st.none())
values = st.recursive(
    scalars, lambda some: st.lists(some) | st.dictionaries(texts, some), max_leaves=20
)
indents = st.sampled_from([None, 0, 3])


def review(request: Any, **fields: Any) -> Any:
    return {"kind": "ConversionReview", "request": request, **fields}


@given(
    objects=st.lists(values, max_size=9),
    before=st.dictionaries(texts, values, max_size=3),
    after=st.dictionaries(texts, values, max_size=3),
    indent=indents,
    ascii_only=st.booleans(),
)
def test_each_object_is_found_and_the_rest_is_left(
    objects: list[Any],
    before: dict[str, Any],
    after: dict[str, Any],
    indent: int | None,
    ascii_only: bool,
) -> None:
    request = {
        **{f"a{name}": value for name, value in before.items()},
        "objects": objects,
        **{f"z{name}": value for name, value in after.items()},
    }
    text = json.dumps(review(request, other=before), indent=indent, ensure_ascii=ascii_only)
    body = text.encode()
    rest, spans = split(body)
    assert [orjson.loads(body[begin:end]) for begin, end in spans] == objects
    assert orjson.loads(rest) == review({**request, "objects": []}, other=before)


@pytest.mark.parametrize("window", range(1, 9))
def test_value_that_is_cut_by_the_edge_of_a_window_is_found_whole(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "_WINDOW_BYTES", window)
    body = b'{"a": -1.5E+20, "request": {"b": 12345, "objects": [1E-2, true, {"c": -0.25}, 70]}}'
    _, spans = split(body)
    assert [orjson.loads(body[begin:end]) for begin, end in spans] == [0.01, True, {"c": -0.25}, 70]


NAMESPACES: dict[str, tuple[Any, str]] = {
    "the first object's": (
        [{"metadata": {"name": "a", "namespace": "ns"}}, {"metadata": {}}],
        "ns",
    ),
    "not an annotation's": (
        [{"metadata": {"annotations": {"name": "a", "namespace": "other"}, "namespace": "ns"}}],
        "ns",
    ),
    "none of an object without one": (
        [
            {"metadata": {"name": "a"}, "spec": {"namespace": "other"}},
            {"metadata": {"namespace": "b"}},
        ],
        "",
    ),
    "none of an object whose metadata is none": ([{"metadata": 5}], ""),
    "none of a list of something else": ([5], ""),
    "none of an empty list": ([], ""),
    "none where it comes late": ([{"a": "x" * 100_000, "metadata": {"namespace": "ns"}}], ""),
}


@pytest.mark.parametrize("named", NAMESPACES)
def test_namespace_of_a_list_is(named: str) -> None:
    objects, found = NAMESPACES[named]
    assert first_namespace(orjson.dumps(review({"uid": "u", "objects": objects}))) == found


@pytest.mark.parametrize("size", [65_000, 65_536, 65_537, 300_000])
def test_object_that_is_larger_than_what_is_looked_at_first_is_found_whole(size: int) -> None:
    objects = [12, {"a": "é" * size}, 3456789, {"b": list(range(size // 6))}, 7]
    body = orjson.dumps(review({"objects": objects}))
    _, spans = split(body)
    assert [orjson.loads(body[begin:end]) for begin, end in spans] == objects


@pytest.mark.parametrize(
    "text",
    [
        '{"request": {"uid": "u"}}',
        '{"request": {"objects": 5}}',
        '{"request": ["objects"]}',
        '{"other": {"objects": [1]}}',
        "[]",
        "5",
        '{"request": ',
        "",
    ],
)
def test_what_has_no_objects_is_left_as_it_is(text: str) -> None:
    assert split(text.encode()) == (text.encode(), [])


@pytest.mark.parametrize(
    "text",
    [
        '{"request": {"objects": [1, 2',
        '{"request": {"objects": [1 2]}}',
        '{"request": {"objects" [1]}}',
        '{"request": {"a": "' + "x" * 70_000,
        "{5",
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        split(text.encode())
