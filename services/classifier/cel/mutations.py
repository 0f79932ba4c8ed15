"""What an expression may ask for: the three mutations, and the names Kubernetes allows in them."""

import re
from dataclasses import dataclass
from typing import Final

__all__ = [
    "AddRequest",
    "Mutation",
    "SetAnnotation",
    "SetLabel",
    "explain_annotation_value",
    "explain_label_value",
    "explain_qualified_name",
]

ANNOTATION_VALUE_BYTES_MAX: Final = 256 * 1024
NAME_MAX: Final = 63
PREFIX_MAX: Final = 253

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLabel:
    """Label `key` becomes `value`, whatever it was."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAnnotation:
    """Annotation `key` becomes `value`, whatever it was."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest:
    """`amount` more of a resource is asked for, on top of what the annotation already says."""

    key: str
    """The whole annotation key, prefix included."""

    amount: int
    """Zero or more, within int64."""


Mutation = SetLabel | SetAnnotation | AddRequest


def explain_qualified_name(key: str) -> str | None:
    """Say what is wrong with a label or annotation key, or None: Kubernetes' qualified name."""
    prefix, slash, name = key.rpartition("/")
    if slash:
        if "/" in prefix:
            return (
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', "
                "with at most one optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )
        if not prefix:
            return "prefix part must be non-empty"
        if len(prefix) > PREFIX_MAX:
            return f"prefix part must be no more than {PREFIX_MAX} characters"
        if not _SUBDOMAIN.fullmatch(prefix):
            return "prefix part must be a lowercase RFC 1123 subdomain (e.g. 'example.com')"
    if not name:
        return "name part must be non-empty"
    if len(name) > NAME_MAX:
        return f"name part must be no more than {NAME_MAX} characters"
    if not _NAME.fullmatch(name):
        return (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start "
            "and end with an alphanumeric character (e.g. 'MyName', or 'my.name', or '123-abc')"
        )
    return None


def explain_label_value(value: str) -> str | None:
    """Say what is wrong with a label value, or None. The empty value is allowed."""
    if len(value) > NAME_MAX:
        return f"must be no more than {NAME_MAX} characters"
    if value and not _NAME.fullmatch(value):
        return (
            "a valid label must be an empty string or consist of alphanumeric characters, "
            "'-', '_' or '.', and must start and end with an alphanumeric character "
            "(e.g. 'MyValue', or 'my_value', or '12345')"
        )
    return None


def explain_annotation_value(value: str) -> str | None:
    """Say what is wrong with an annotation value, or None: only its size is limited."""
    size = len(value.encode())
    if size > ANNOTATION_VALUE_BYTES_MAX:
        return (
            f"annotation value is too long: {size} bytes, "
            f"maximum allowed is {ANNOTATION_VALUE_BYTES_MAX} bytes"
        )
    return None
