"""The objects of a list are found without reading the list."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.classifier.conversion.lists import split

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
        '{"request": ',
        "{5",
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        split(text.encode())
