"""Every field of Kueue's kinds and Configuration is on the page, and each row names a test that exists."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.settings.configuration import Configuration
from shared.settings.kueue_sections import UNUSED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/kueue-fields.md"
ROW = re.compile(r"\| `([^`]+)` \| (\w+) \| `([^`]+)` \|")
VERDICTS = {"works", "refused", "held", "unset", "named"}
CONFIGURATION = "Configuration"
Json = dict[str, Any]


def leaves(schema: Json, path: str) -> Iterator[str]:
    """Paths of all fields of a CRD's schema that have no fields of their own."""
    inner = schema.get("additionalProperties")
    if schema.get("properties"):
        for name, below in schema["properties"].items():
            yield from leaves(below, f"{path}.{name}" if path else name)
    elif isinstance(inner, dict):
        yield from leaves(inner, path + "{}")
    elif schema.get("type") == "array":
        yield from leaves(schema["items"], path + "[]")
    else:
        yield path


def fields() -> dict[str, list[str]]:
    """Kind to the fields of its `v1beta2`, without what every object has."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "deploy/kubernetes/crds").glob("kueue.x-k8s.io_*.yaml")):
        crd = yaml.load(file.read_text(), yaml.CSafeLoader)
        (version,) = [v for v in crd["spec"]["versions"] if v["name"] == "v1beta2"]
        schema = version["schema"]["openAPIV3Schema"]
        own = {
            k: v
            for k, v in schema["properties"].items()
            if k not in {"apiVersion", "kind", "metadata"}
        }
        found[crd["spec"]["names"]["kind"]] = list(leaves({"properties": own}, ""))
    return found


def resolved(schema: Json, all_: Json) -> Json:
    """A model's schema as one without references, where each field has one type."""
    while "$ref" in schema:
        schema = all_["$defs"][schema["$ref"].rpartition("/")[2]]
    options = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(options) == 1:
        return resolved(options[0], all_)
    named = schema.get("properties", {})
    made = {**schema, "properties": {name: resolved(one, all_) for name, one in named.items()}}
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            made[inner] = resolved(schema[inner], all_)
    return made


def configuration_fields() -> list[str]:
    """All fields that the Configuration may have: any other is an error."""
    model = Configuration.model_json_schema()
    return [
        *leaves(resolved(model, model), ""),
        *(f"{name}.{key}" for name, one in UNUSED.items() for key in one.fields or {}),
        *(name for name, one in UNUSED.items() if not one.fields),
        "featureGates{}",
    ]


def rows() -> dict[str, list[tuple[str, str, str]]]:
    """Kind to its rows: pattern, verdict, test."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    kind = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            kind = line.removeprefix("## ")
        elif match := ROW.fullmatch(line):
            pattern, verdict, test = match.groups()
            found.setdefault(kind, []).append((pattern, verdict, test))
    return found


def covers(pattern: str, field: str) -> bool:
    if pattern.endswith(".**"):
        return field.startswith(pattern.removesuffix("**"))
    return pattern == field


@cache
def defined_in(file: str) -> frozenset[str]:
    """Names of the functions that a test file defines."""
    tree = ast.parse((ROOT / file).read_text())
    defined = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, defined))


FIELDS = {**fields(), CONFIGURATION: configuration_fields()}
ROWS = rows()


@pytest.mark.parametrize("kind", FIELDS)
def test_every_field_is_in_one_row(kind: str) -> None:
    patterns = [pattern for pattern, _, _ in ROWS.get(kind, [])]
    times = {field: sum(covers(pattern, field) for pattern in patterns) for field in FIELDS[kind]}
    assert {field: n for field, n in times.items() if n != 1} == {}


@pytest.mark.parametrize("kind", ROWS)
def test_every_row_has_a_field_a_verdict_and_a_test(kind: str) -> None:
    for pattern, verdict, test in ROWS[kind]:
        if kind in FIELDS:
            assert any(covers(pattern, field) for field in FIELDS[kind]), (
                f"{pattern}: no such field"
            )
        assert verdict in VERDICTS
        file, _, name = test.partition("::")
        assert name in defined_in(file), f"{pattern}: {test} does not exist"


def test_nothing_of_the_configuration_is_named_that_decides_or_works_that_is_not_read() -> None:
    said = {pattern: verdict for pattern, verdict, _ in ROWS[CONFIGURATION]}
    unused = {verdict for pattern, verdict in said.items() if pattern.partition(".")[0] in UNUSED}
    assert unused == {"named"}


def test_row_that_is_missing_or_doubled_is_found() -> None:
    patterns = ["spec.a", "spec.b.**", "spec.b.c"]
    counts = Counter(
        field
        for field in ("spec.a", "spec.b.c", "spec.d")
        for one in patterns
        if covers(one, field)
    )
    assert counts == {"spec.a": 1, "spec.b.c": 2}
