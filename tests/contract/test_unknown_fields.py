"""`sluice plan` finds by the models the same unknown fields as an API server finds by the schemas."""

from collections.abc import Iterator
from typing import Any

import pytest

from services.simulator.cluster.unknown_fields import unknown_fields as unknown_by_schema
from services.whatif.validation.unknown_fields import unknown_fields
from shared.contracts.kube.kinds import Object
from shared.contracts.kueue.definitions import ALL_DEFINITIONS, V1BETA1, shipped_schema
from shared.contracts.kueue.schema import ApiModel

VERSIONS = [
    (definition.kind, version, definition.model_of(version))
    for definition in ALL_DEFINITIONS
    for version in dict.fromkeys((definition.kind.version, V1BETA1))
    if shipped_schema(definition.kind.group, definition.kind.plural, version) is not None
]


def sample(schema: Object, *, more: bool) -> Any:
    """A value with every field of the schema; `more`: each object in it has one that is unknown."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return {"any": {"thing": 1}}
    if isinstance(schema.get("items"), dict):
        return [sample(schema["items"], more=more)]
    if isinstance(schema.get("additionalProperties"), dict):
        return {"key": sample(schema["additionalProperties"], more=more)}
    if "properties" not in schema:
        return "x"
    found = {name: sample(each, more=more) for name, each in schema["properties"].items()}
    return found | ({"mistyped": {"below": 1}} if more else {})


def outside_of_status(paths: Iterator[str]) -> list[str]:
    return sorted(path for path in paths if path.partition(".")[0] not in {"metadata", "status"})


@pytest.mark.parametrize(
    ("kind", "version", "model"), [pytest.param(*v, id=f"{v[0].kind} {v[1]}") for v in VERSIONS]
)
def test_models_know_the_fields_of_the_schemas(
    kind: Any, version: str, model: type[ApiModel]
) -> None:
    schema = shipped_schema(kind.group, kind.plural, version)
    assert schema is not None
    assert list(unknown_fields(model, sample(schema, more=False))) == []
    mistyped = sample(schema, more=True)
    expected = outside_of_status(unknown_by_schema(schema, mistyped))
    assert sorted(unknown_fields(model, mistyped)) == expected
    assert any(path.startswith("spec") for path in expected) == ("spec" in schema["properties"])
