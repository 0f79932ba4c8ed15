"""Finds the fields of an object that its kind does not have, by the model of the kind.

What the API server does for `kubectl apply`, without the schema that it has: to generate that takes as long
as all else that `sluice plan` does.
"""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from shared.contracts.kube.bodies import Body
from shared.contracts.kueue.schema import ApiModel

_OF_EVERY_OBJECT: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


def unknown_fields(model: type[ApiModel], obj: Body) -> Iterator[str]:
    """Paths of the fields that `model` does not have, outside of metadata and status."""
    for path in _unknown(model, {k: v for k, v in obj.items() if k not in _OF_EVERY_OBJECT}, ""):
        yield path.lstrip(".")


def _unknown(annotation: Any, value: Any, path: str) -> Iterator[str]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _unknown(arguments[0], value, path)
    elif origin in {Union, UnionType}:
        for each in arguments:
            yield from _unknown(each, value, path)
    elif origin is list and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(arguments[0], item, f"{path}[{index}]")
    elif origin is dict and isinstance(value, dict):
        for name, member in value.items():
            yield from _unknown(arguments[1], member, f"{path}.{name}")
    elif isinstance(annotation, type) and issubclass(annotation, ApiModel):
        yield from _unknown_members(annotation, value, path)


def _unknown_members(model: type[ApiModel], value: Any, path: str) -> Iterator[str]:
    known = {field.alias or name: field for name, field in model.model_fields.items()}
    for name, member in value.items() if isinstance(value, dict) else ():
        below = f"{path}.{name}"
        if name in known:
            yield from _unknown(known[name].annotation, member, below)
        elif not name.startswith("$"):
            yield below
