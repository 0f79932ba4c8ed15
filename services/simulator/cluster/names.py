"""Syntax of names, labels and annotations, with the messages of apimachinery's validation."""

import re
from collections.abc import Iterable
from typing import Any, Final

from services.simulator.cluster.errors import Cause
from services.simulator.cluster.kinds.registry import Kind, Obj

ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
LABEL_MAX: Final = 63
SUBDOMAIN_MAX: Final = 253

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
QUALIFIED_RULE: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
STRICT_LABEL_KINDS: Final = frozenset({("", "namespaces"), ("", "services")})
"""Kinds whose names become DNS labels."""


def _invalid_value(field: str, value: Any, rule: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return Cause(reason="FieldValueInvalid", field=field, message=f"Invalid value: {shown}: {rule}")


def _subdomain_faults(value: str) -> Iterable[str]:
    if len(value) > SUBDOMAIN_MAX:
        yield f"must be no more than {SUBDOMAIN_MAX} characters"
    if not _SUBDOMAIN.fullmatch(value):
        yield SUBDOMAIN_RULE


def _label_faults(value: str) -> Iterable[str]:
    if len(value) > LABEL_MAX:
        yield f"must be no more than {LABEL_MAX} characters"
    if not _LABEL.fullmatch(value):
        yield LABEL_RULE


def _qualified_faults(key: str) -> Iterable[str]:
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        yield "prefix part must be non-empty"
    elif "/" in prefix:
        yield (
            "a qualified name " + QUALIFIED_RULE.removeprefix("name part ") + " with an optional "
            "DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
        return
    elif slash:
        yield from (f"prefix part {fault}" for fault in _subdomain_faults(prefix))
    if not name:
        yield "name part must be non-empty"
    elif len(name) > LABEL_MAX:
        yield f"name part must be no more than {LABEL_MAX} characters"
    if name and not _QUALIFIED.fullmatch(name):
        yield QUALIFIED_RULE


def _label_causes(labels: Any) -> Iterable[Cause]:
    field = "metadata.labels"
    for key, value in labels.items():
        yield from (_invalid_value(field, key, fault) for fault in _qualified_faults(key))
        if not value:
            continue
        if len(value) > LABEL_MAX:
            yield _invalid_value(field, value, f"must be no more than {LABEL_MAX} characters")
        if not _QUALIFIED.fullmatch(value):
            yield _invalid_value(field, value, VALUE_RULE)


def _annotation_causes(annotations: Any) -> Iterable[Cause]:
    field = "metadata.annotations"
    size = 0
    for key, value in annotations.items():
        yield from (_invalid_value(field, key, fault) for fault in _qualified_faults(key.lower()))
        size += len(key.encode()) + len(value.encode())
    if size > ANNOTATIONS_BYTES_MAX:
        message = f"Too long: may not be more than {ANNOTATIONS_BYTES_MAX} bytes"
        yield Cause(reason="FieldValueTooLong", field=field, message=message)


def _owner_causes(owners: Any) -> Iterable[Cause]:
    controllers = 0
    for index, owner in enumerate(owners):
        field = f"metadata.ownerReferences[{index}]"
        for part in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(part):
                yield _invalid_value(f"{field}.{part}", owner.get(part) or "", "must not be empty")
        controllers += owner.get("controller") is True
    if controllers > 1:
        yield _invalid_value(
            "metadata.ownerReferences",
            owners,
            "Only one reference can have Controller set to true.",
        )


def metadata_causes(kind: Kind, obj: Obj) -> list[Cause]:
    """Return the faults of an object's metadata; an empty list if there are none."""
    metadata = obj["metadata"]
    causes: list[Cause] = []
    name = metadata.get("name")
    if not name:
        message = "Required value: name or generateName is required"
        causes.append(Cause(reason="FieldValueRequired", field="metadata.name", message=message))
    else:
        strict = (kind.group, kind.plural) in STRICT_LABEL_KINDS
        faults = _label_faults(name) if strict else _subdomain_faults(name)
        causes += [_invalid_value("metadata.name", name, fault) for fault in faults]
    if labels := metadata.get("labels"):
        causes += _label_causes(labels)
    if annotations := metadata.get("annotations"):
        causes += _annotation_causes(annotations)
    if owners := metadata.get("ownerReferences"):
        causes += _owner_causes(owners)
    for finalizer in metadata.get("finalizers") or ():
        causes += [
            _invalid_value("metadata.finalizers", finalizer, fault)
            for fault in _qualified_faults(str(finalizer))
        ]
    return causes
