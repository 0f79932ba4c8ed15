"""An expression is given no more of an object than it looks at, and returns the same."""

from typing import Any

import pytest
from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional

from shared.cel import syntax
from shared.cel.paths import ELEMENTS, Wanted, merge, pruned, wanted
from shared.cel.values import plain

ENVIRONMENT = cel.NewEnv(
    variables={"spec": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)},
    extensions=[ext_optional.ExtOptional(), ext_bindings.ExtBindings()],
)
SPEC: dict[str, Any] = {
    "a": {"b": 1, "c": {"d": [1, 2]}, "n": None},
    "list": [{"name": "x", "size": 1, "big": {"k": "v"}}, {"name": "y", "size": 2}],
    "map": {"k": {"v": 1}, "l": {"v": 2}},
    "text": "b",
    "none": None,
}

CASES: dict[str, Wanted] = {
    "spec.a.b": {"a": {"b": None}},
    "spec.a['b'] + spec.?a.?b.orValue(3)": {"a": {"b": None}},
    "has(spec.a.c)": {"a": {"c": {}}},
    "has(spec.a.c) && spec.a.c.d[0] == 1": {"a": {"c": {"d": None}}},
    "has(spec.none) || has(spec.a.n)": {"none": {}, "a": {"n": {}}},
    "spec.a[spec.text]": {"a": None, "text": None},
    "spec[?spec.text].orValue(4)": None,  # type: ignore[dict-item]
    "size(spec) == 5": None,  # type: ignore[dict-item]
    "spec.list.exists(one, one.name == 'x')": {"list": {ELEMENTS: {"name": None}}},
    "spec.?list.orValue([]).map(one, one.size)": {"list": {ELEMENTS: {"size": None}}},
    "spec.list.filter(one, one.size > 1)": {"list": {ELEMENTS: None}},
    "spec.list.map(one, 1)": {"list": {ELEMENTS: {}}},
    "spec.map.map(key, spec.map[key].v)": {"map": None},
    "spec.map.map(key, 1)": {"map": {ELEMENTS: {}}},
    "cel.bind(a, spec.a, a.b)": {"a": None},
    "spec.list.all(one, has(one.name) && spec.text != one.name)": {
        "list": {ELEMENTS: {"name": None}},
        "text": None,
    },
}


@pytest.mark.parametrize(("text", "fields"), CASES.items(), ids=CASES.keys())
def test_paths_read_by_an_expression_are_found_and_sufficient(text: str, fields: Wanted) -> None:
    program = ENVIRONMENT.compile(text)
    found = wanted(syntax.parse(program.serialize()))["spec"]
    assert found == fields
    whole = {key: value for key, value in SPEC.items() if value is not None}
    whole["a"] = {key: value for key, value in whole["a"].items() if value is not None}
    part = whole if found is None else pruned(SPEC, found)
    result, expected = (
        plain(program.eval(ENVIRONMENT.Activation({"spec": spec}))) for spec in (part, whole)
    )
    assert result == expected


def test_paths_of_two_expressions_are_the_union() -> None:
    fields: Wanted = {"a": {"b": None}, "c": None}
    merge(fields, {"a": {"d": {}}, "c": {"e": None}, "f": {"g": None}})
    merge(fields, {"f": None})
    assert fields == {"a": {"b": None, "d": {}}, "c": None, "f": None}


def test_merging_leaves_what_is_merged_as_it_is() -> None:
    one: Wanted = {"status": {"active": None}}
    together: Wanted = {}
    merge(together, one)
    merge(together, {"status": {"indexes": None}})
    assert one == {"status": {"active": None}}
    assert together == {"status": {"active": None, "indexes": None}}
