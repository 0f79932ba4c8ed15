"""From a pydantic model to a structural schema, as an API server wants it.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from shared.contracts.kueue.docstrings import docstrings

Schema = dict[str, Any]

_UNKNOWN_TO_KUBERNETES: Final = ("title", "$defs", "propertyNames", "discriminator")
_TYPE_META: Final[Schema] = {
    "apiVersion": {
        "type": "string",
        "description": "Group and version of the schema that this object follows.",
    },
    "kind": {"type": "string", "description": "Name of the kind that this object is of."},
    "metadata": {"type": "object"},
}


class ApiModel(BaseModel):
    """A part of an object. Unknown fields are dropped, as an API server drops them."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="ignore",
        frozen=True,
        strict=True,
        defer_build=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Schema:
        """Describe the fields by their docstrings. Whoever only validates does not pay for that."""
        schema = handler.resolve_ref_schema(generated := handler(core_schema))
        for name, text in descriptions(cls).items():
            field = schema["properties"][cls.model_fields[name].alias or name]
            field.setdefault("description", text)
        return generated


def descriptions(model: type[ApiModel]) -> dict[str, str]:
    """Name of each field of a model to the docstring below it."""
    found: dict[str, str] = {}
    for base in model.__mro__[: model.__mro__.index(ApiModel)]:
        found = {**docstrings(base), **found}
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Extra:
    """Keys that a type's schema gets beside what pydantic says of it."""

    keys: Mapping[str, Any] = field(default_factory=dict)

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Schema:
        """Add the keys; pydantic calls this."""
        return {**handler(core_schema), **self.keys}


def keyed(*keys: str) -> Extra:
    """A list that server-side apply merges by these keys; no two items share them."""
    return Extra({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


def listed(kind: str) -> Extra:
    """A list that is replaced as one (`atomic`) or holds nothing twice (`set`)."""
    return Extra({"x-kubernetes-list-type": kind})


def defaulted(value: Any) -> Extra:
    """What the API server writes where the field is absent."""
    return Extra({"default": value})


def rules(*pairs: tuple[str, str]) -> Extra:
    """CEL rules with the message for who breaks them."""
    found = [{"rule": rule, "message": message} for rule, message in pairs]
    return Extra({"x-kubernetes-validations": found})


def structural(model: type[ApiModel]) -> Schema:
    """The schema of a whole object: no references, no nulls, nothing that is not in the format."""
    generated = _generated(model)
    schema = _inlined(generated, generated.get("$defs", {}))
    schema["properties"] = {**_TYPE_META, **schema["properties"]}
    return schema


@cache
def _generated(model: type[ApiModel]) -> Schema:
    """What pydantic says of a model: nobody changes it."""
    return model.model_json_schema(by_alias=True)


def _inlined(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Resolve one node: what stands beside a reference or a null wins over what it refers to."""
    node = {key: value for key, value in node.items() if key not in _UNKNOWN_TO_KUBERNETES}
    if node.get("default", ...) is None:
        del node["default"]
    if reference := node.pop("$ref", None):
        return {**_inlined(definitions[reference.rpartition("/")[2]], definitions), **node}
    if "x-kubernetes-int-or-string" not in node and (choices := node.pop("anyOf", None)):
        (only,) = (choice for choice in choices if choice.get("type") != "null")
        return {**_inlined(only, definitions), **node}
    if node.get("additionalProperties") is False:
        del node["additionalProperties"]  # An API server prunes instead of refusing.
    if "const" in node:
        node = {"enum": [node.pop("const")], **node}
    if "properties" in node:
        node["properties"] = {
            name: _inlined(child, definitions) for name, child in node["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            node[key] = _inlined(node[key], definitions)
    return deepcopy(node)
