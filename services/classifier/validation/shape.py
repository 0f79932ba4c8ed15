"""Checks an object against the model of its kind, from which the CRD schemas are generated.

On a cluster the API server has checked the same before. The webhook repeats it, because it may be registered
where other definitions are installed, or none.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from services.classifier.validation.problems import Problem, Rule, invalid, missing
from shared.contracts.kube.kinds import Object
from shared.contracts.kueue.definitions import DEFINITIONS, STORAGE

_DEFINITIONS: Final = {definition.kind.kind: definition for definition in DEFINITIONS}

_DETAILS: Final[Mapping[str, str]] = {
    "string_type": "must be of type string",
    "int_type": "must be of type integer",
    "bool_type": "must be of type boolean",
    "dict_type": "must be of type object",
    "model_type": "must be of type object",
    "model_attributes_type": "must be of type object",
    "list_type": "must be of type array",
    "string_too_long": "may not be more than {max_length} characters",
    "string_too_short": "should be at least {min_length} characters long",
    "string_pattern_mismatch": "should match '{pattern}'",
    "too_long": "must have at most {max_length} items",
    "too_short": "should have at least {min_length} items",
    "greater_than_equal": "should be greater than or equal to {ge}",
    "less_than_equal": "should be less than or equal to {le}",
    "value_error": "{error}",
}


def shape_problems(obj: Object, kind: str) -> list[Problem]:
    """Return where an object differs from the `v1beta2` model of its kind; none without a model."""
    definition = _DEFINITIONS.get(kind)
    if definition is None:
        return []
    try:
        definition.model_of(STORAGE).model_validate(obj)
    except ValidationError as error:
        return list(_problems(error))
    return []


def _problems(error: ValidationError) -> Iterator[Problem]:
    for fault in error.errors(include_url=False):
        field, value = _path(fault), fault["input"]
        context = fault.get("ctx", {})
        match fault["type"]:
            case "missing":
                yield missing(field)
            case "literal_error":
                listed = str(context["expected"]).replace("'", '"').replace(" or ", ", ")
                yield Problem(
                    field, Rule.UNSUPPORTED, invalid(field, value, "").shown, _values(listed)
                )
            case other:
                detail = _DETAILS.get(other, fault["msg"]).format_map(context)
                yield invalid(field, value, detail)


def _values(listed: str) -> str:
    return f"supported values: {listed}"


def _path(fault: ErrorDetails) -> str:
    path = ""
    for step in fault["loc"]:
        path += _step(step)
    return path.removeprefix(".") or "object"


def _step(step: Any) -> str:
    if isinstance(step, int) or "/" in str(step) or "." in str(step):
        return f"[{step}]"
    return f".{step}"
