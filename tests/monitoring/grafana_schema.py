"""Whether a dashboard is one by Grafana's own schema, as far as its SDK knows it.

The classes of the SDK are generated from that schema. They read any JSON: a field that the schema does not
have is dropped, and a value of another type is kept. So what was read is written again and compared, and each
value is held against the type that its class declares.
"""

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from types import NoneType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

plugins.register_default_plugins()  # They read the options and queries of each type of panel.


def problems(dashboard: Mapping[str, Any]) -> list[str]:
    """Paths in `dashboard` that the schema does not have, and values that are none of its types."""
    try:
        read = Dashboard.from_json(dict(dashboard))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return [f"cannot be read: {error!r}"]
    written = json.loads(JSONEncoder().encode(read))
    return [*_dropped(dashboard, written, ""), *_mistyped(read, Dashboard, "")]


def _dropped(given: object, kept: object, path: str) -> Iterator[str]:
    if isinstance(given, Mapping) and isinstance(kept, Mapping):
        for key, value in given.items():
            if key in kept:
                yield from _dropped(value, kept[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}: the schema has no such field"
    elif isinstance(given, list) and isinstance(kept, list):
        for index, pair in enumerate(zip(given, kept, strict=True)):
            yield from _dropped(*pair, f"{path}[{index}]")
    elif given != kept:
        yield f"{path}: {given!r} is read as {kept!r}"


def _mistyped(value: object, hint: Any, path: str) -> Iterator[str]:
    arms, origin = get_args(hint), get_origin(hint)
    if type(value).__module__.startswith("grafana_foundation_sdk."):
        for field, declared in get_type_hints(type(value)).items():
            yield from _mistyped(getattr(value, field), declared, f"{path}.{field}")
    elif origin is Union:
        tried = [[*_mistyped(value, arm, path)] for arm in arms if arm is not NoneType]
        if value is not None and all(tried):
            yield from max(tried, key=lambda wrong: wrong[0].count("."))  # It came furthest.
    elif isinstance(value, list) and origin is list:
        for index, item in enumerate(value):
            yield from _mistyped(item, arms[0], f"{path}[{index}]")
    elif isinstance(value, dict) and origin is dict:
        for key, item in value.items():
            yield from _mistyped(item, arms[1], f"{path}.{key}")
    elif not _fits(value, hint, origin, arms):
        yield f"{path}: {value!r} is no {hint}"


def _fits(value: object, hint: Any, origin: Any, arms: tuple[Any, ...]) -> bool:
    if origin is Literal:
        return value in arms
    if origin is not None:
        return False
    if issubclass(hint, Enum):
        return value in {member.value for member in hint}
    if isinstance(value, bool):
        return hint in {bool, object}
    return isinstance(value, (int, float) if hint is float else hint)
