"""The mutations that an expression may return, and Kubernetes' rules for their names."""

from dataclasses import dataclass
from typing import Final

from shared.contracts.kube.names import LABEL_NAME, SUBDOMAIN

ANNOTATION_VALUE_BYTES_MAX: Final = 256 * 1024
NAME_MAX: Final = 63
PREFIX_MAX: Final = 253
"""The API server's limits: of all annotations together, of a name or a label's value, and of a prefix."""

_LETTERS: Final = "consist of alphanumeric characters, '-', '_' or '.'"
_ENDS: Final = "must start and end with an alphanumeric character"
_NAME_RULE: Final = f"must {_LETTERS}, and {_ENDS} (e.g. 'MyName', 'my.name' or '123-abc')"
_VALUE_RULE: Final = f"{_LETTERS}, and {_ENDS} (e.g. 'MyValue', 'my_value' or '12345')"
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    f"'-' or '.', and {_ENDS} (e.g. 'example.com')"
)
"""The API server's own sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLabel:
    """Set the label `key` to `value`."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAnnotation:
    """Set the annotation `key` to `value`."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest:
    """Add `amount` to the requested quantity in an annotation."""

    key: str
    """The annotation's key with its prefix."""

    amount: int
    """Zero or more, within int64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetManager:
    """Set `spec.managedBy`: who runs the object."""

    manager: str | None
    """None: MultiKueue, that is, another cluster."""

    queue: str = ""
    """The LocalQueue of the object from then on; empty: its queue stays."""


Mutation = SetLabel | SetAnnotation | AddRequest | SetManager


def explain_qualified_name(key: str) -> str | None:
    """Return what is wrong with a label or annotation key (a qualified name), or None."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return (
            f"a qualified name {_NAME_RULE} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        )
    problems = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        if len(prefix.encode()) > PREFIX_MAX:
            problems.append(f"prefix part must be no more than {PREFIX_MAX} bytes")
        if not SUBDOMAIN.fullmatch(prefix):
            problems.append(f"prefix part {_SUBDOMAIN_RULE}")
    if not name:
        problems.append("name part must be non-empty")
    elif len(name.encode()) > NAME_MAX:
        problems.append(f"name part must be no more than {NAME_MAX} bytes")
    if not LABEL_NAME.fullmatch(name):
        problems.append(f"name part {_NAME_RULE}")
    return ", ".join(problems) or None


def explain_label_value(value: str) -> str | None:
    """Return what is wrong with a label value, or None. It may be empty."""
    problems = []
    if len(value.encode()) > NAME_MAX:
        problems.append(f"must be no more than {NAME_MAX} bytes")
    if value and not LABEL_NAME.fullmatch(value):
        problems.append(f"a valid label must be an empty string or {_VALUE_RULE}")
    return ", ".join(problems) or None


def explain_annotation_value(value: str) -> str | None:
    """Return what is wrong with an annotation value, or None. Only its size is limited."""
    size = len(value.encode())
    if size > ANNOTATION_VALUE_BYTES_MAX:
        return (
            f"annotation value is too long: {size} bytes, "
            f"maximum allowed is {ANNOTATION_VALUE_BYTES_MAX} bytes"
        )
    return None
