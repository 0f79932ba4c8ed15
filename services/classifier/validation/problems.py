"""Problems of an object in the form of Kubernetes' field errors: field, rule, value, detail."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

IMMUTABLE: Final = "field is immutable"
NEGATIVE: Final = "must be greater than or equal to 0"
VALUE_CHARS_MAX: Final = 256
"""Limit for a value in a message: it may be a whole pod template."""


NAMES_SHOWN_MAX: Final = 50
"""Limit for the supported values in a message."""


class Rule(StrEnum):
    """The kinds of field error."""

    INVALID = "Invalid value"
    REQUIRED = "Required value"
    FORBIDDEN = "Forbidden"
    DUPLICATE = "Duplicate value"
    UNSUPPORTED = "Unsupported value"
    NOT_FOUND = "Not found"


_REASONS: Final = {
    Rule.INVALID: "FieldValueInvalid",
    Rule.REQUIRED: "FieldValueRequired",
    Rule.FORBIDDEN: "FieldValueForbidden",
    Rule.DUPLICATE: "FieldValueDuplicate",
    Rule.UNSUPPORTED: "FieldValueNotSupported",
    Rule.NOT_FOUND: "FieldValueNotFound",
}
_WITHOUT_VALUE: Final = frozenset({Rule.REQUIRED, Rule.FORBIDDEN})


@dataclass(frozen=True, slots=True)
class Problem:
    """One field error."""

    field: str
    """Path of the field, for instance `spec.resourceGroups[0].flavors[1].name`."""

    rule: Rule
    shown: str
    """The value, as JSON."""

    detail: str

    @property
    def message(self) -> str:
        """The message without the field."""
        value = "" if self.rule in _WITHOUT_VALUE else self.shown
        return ": ".join(part for part in (self.rule.value, value, self.detail) if part)

    @property
    def cause(self) -> dict[str, str]:
        """The entry in `details.causes` of a Status."""
        return {"reason": _REASONS[self.rule], "field": self.field, "message": self.message}

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"


def invalid(field: str, value: Any, detail: str) -> Problem:
    """The value violates the rule in `detail`."""
    return Problem(field, Rule.INVALID, _shown(value), detail)


def missing(field: str, detail: str = "") -> Problem:
    """A required value is missing."""
    return Problem(field, Rule.REQUIRED, "", detail)


def forbidden(field: str, detail: str) -> Problem:
    """No value is allowed, or no change of it."""
    return Problem(field, Rule.FORBIDDEN, "", detail)


def duplicate(field: str, value: Any, detail: str = "") -> Problem:
    """Another item has the same value."""
    return Problem(field, Rule.DUPLICATE, _shown(value), detail)


def unsupported(field: str, value: Any, supported: Iterable[str]) -> Problem:
    """The value is not one of the supported values."""
    names = sorted(supported)
    listed = ", ".join(f'"{name}"' for name in names[:NAMES_SHOWN_MAX])
    if len(names) > NAMES_SHOWN_MAX:
        listed += f" and {len(names) - NAMES_SHOWN_MAX} more"
    return Problem(field, Rule.UNSUPPORTED, _shown(value), f"supported values: {listed}")


def not_found(field: str, value: Any) -> Problem:
    """The value names something that does not exist."""
    return Problem(field, Rule.NOT_FOUND, _shown(value), "")
