"""What is wrong with an object, in the form in which Kubernetes says it: field, rule, value, detail."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

__all__ = [
    "IMMUTABLE",
    "NEGATIVE",
    "Problem",
    "Rule",
    "duplicate",
    "forbidden",
    "invalid",
    "missing",
    "not_found",
    "unsupported",
]

IMMUTABLE: Final = "field is immutable"
NEGATIVE: Final = "must be greater than or equal to 0"
SHOWN_MAX: Final = 256
"""Characters of a value that are shown: it may be a whole pod template."""


class Rule(StrEnum):
    """The kinds of problem that API servers tell apart."""

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
    """One thing that is wrong."""

    field: str
    """Where, as a path: `spec.resourceGroups[0].flavors[1].name`."""

    rule: Rule
    shown: str
    """The value, as JSON."""

    detail: str

    @property
    def message(self) -> str:
        """Without the field."""
        value = "" if self.rule in _WITHOUT_VALUE else self.shown
        return ": ".join(part for part in (self.rule.value, value, self.detail) if part)

    @property
    def cause(self) -> dict[str, str]:
        """As it stands in the `details.causes` of a Status."""
        return {"reason": _REASONS[self.rule], "field": self.field, "message": self.message}

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def invalid(field: str, value: Any, detail: str) -> Problem:
    """The value breaks the rule that `detail` states."""
    return Problem(field, Rule.INVALID, _shown(value), detail)


def missing(field: str, detail: str = "") -> Problem:
    """There must be a value."""
    return Problem(field, Rule.REQUIRED, "", detail)


def forbidden(field: str, detail: str) -> Problem:
    """There must be no value, or no other than before."""
    return Problem(field, Rule.FORBIDDEN, "", detail)


def duplicate(field: str, value: Any, detail: str = "") -> Problem:
    """Another item has the same value."""
    return Problem(field, Rule.DUPLICATE, _shown(value), detail)


def unsupported(field: str, value: Any, supported: Iterable[str]) -> Problem:
    """The value is none of those that there are."""
    listed = ", ".join(f'"{name}"' for name in sorted(supported))
    return Problem(field, Rule.UNSUPPORTED, _shown(value), f"supported values: {listed}")


def not_found(field: str, value: Any) -> Problem:
    """The value names something that is not there."""
    return Problem(field, Rule.NOT_FOUND, _shown(value), "")
