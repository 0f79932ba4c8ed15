"""Kubernetes' rules for names, labels, annotations, selectors, taints and tolerations.

https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
"""

from collections.abc import Iterator
from typing import Any, Final

from services.classifier.validation.problems import Problem, duplicate, forbidden, invalid
from services.classifier.validation.reading import indexed, listed, mapping
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import LABEL_NAME, SUBDOMAIN

SUBDOMAIN_MAX: Final = 253
LABEL_MAX: Final = 63
ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
"""The API server's limits: of a DNS subdomain, of a label's name or value, and of all annotations."""

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINT_EFFECTS: Final = (
    "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'"
)


def subdomain(field: str, value: str) -> Iterator[Problem]:
    """Check a DNS subdomain, the form of most objects' names."""
    if len(value) > SUBDOMAIN_MAX:
        yield invalid(field, value, f"must be no more than {SUBDOMAIN_MAX} characters")
    if not SUBDOMAIN.fullmatch(value):
        yield invalid(
            field,
            value,
            "must be a lowercase RFC 1123 subdomain: lower case letters, digits, '-' or '.', "
            "with a letter or a digit at both ends",
        )


def label_key(field: str, value: str) -> Iterator[Problem]:
    """Check a label's key. Names of resources follow the same rule."""
    prefix, slash, name = value.rpartition("/")
    if slash and (len(prefix) > SUBDOMAIN_MAX or not SUBDOMAIN.fullmatch(prefix)):
        yield invalid(field, value, "the part before '/' must be a lowercase RFC 1123 subdomain")
    if len(name) > LABEL_MAX:
        yield invalid(field, value, f"name part must be no more than {LABEL_MAX} characters")
    if not LABEL_NAME.fullmatch(name):
        yield invalid(
            field,
            value,
            "name part must be letters, digits, '-', '_' or '.', with a letter or a digit at both "
            "ends",
        )


def _label_value(field: str, value: str) -> Iterator[Problem]:
    """Check a label's value. It may be empty."""
    if len(value) > LABEL_MAX:
        yield invalid(field, value, f"must be no more than {LABEL_MAX} characters")
    if value and not LABEL_NAME.fullmatch(value):
        yield invalid(
            field,
            value,
            "a valid label must be empty or letters, digits, '-', '_' or '.', with a letter or a "
            "digit at both ends",
        )


def labels(field: str, values: Object) -> Iterator[Problem]:
    """Check labels: keys and values."""
    for key, value in values.items():
        yield from label_key(field, key)
        yield from _label_value(f"{field}[{key}]", str(value))


def annotations(field: str, values: Object) -> Iterator[Problem]:
    """Check annotations: keys, and the size of all together."""
    for key in values:
        yield from label_key(field, key.lower())
    size = sum(len(key) + len(str(value).encode()) for key, value in values.items())
    if size > ANNOTATIONS_BYTES_MAX:
        yield invalid(field, size, f"must be no more than {ANNOTATIONS_BYTES_MAX} bytes together")


def selector(field: str, given: Any) -> Iterator[Problem]:
    """Check a label selector."""
    yield from labels(f"{field}.matchLabels", mapping(given, "matchLabels"))
    for path, expression in indexed(f"{field}.matchExpressions", listed(given, "matchExpressions")):
        values = listed(expression, "values")
        operator = expression.get("operator")
        match operator:
            case "In" | "NotIn":
                if not values:
                    yield invalid(
                        f"{path}.values", values, "must be specified when operator is In or NotIn"
                    )
            case "Exists" | "DoesNotExist":
                if values:
                    yield forbidden(
                        f"{path}.values",
                        "may not be specified when operator is Exists or DoesNotExist",
                    )
            case _:
                yield invalid(f"{path}.operator", operator, "not a valid selector operator")
        yield from label_key(f"{path}.key", str(expression.get("key", "")))
        for index, value in enumerate(values):
            yield from _label_value(f"{path}.values[{index}]", str(value))


def taints(field: str, values: list[Any]) -> Iterator[Problem]:
    """Check taints. The pair of key and effect is unique."""
    seen = set()
    for path, taint in indexed(field, values):
        key, effect = str(taint.get("key", "")), taint.get("effect")
        yield from label_key(f"{path}.key", key)
        yield from _label_value(f"{path}.value", str(taint.get("value") or ""))
        if effect not in _EFFECTS:
            yield invalid(f"{path}.effect", effect, _TAINT_EFFECTS)
        if (key, effect) in seen:
            yield duplicate(path, taint, "taints must be unique by key and effect pair")
        seen.add((key, effect))


def tolerations(field: str, values: list[Any]) -> Iterator[Problem]:
    """Check tolerations."""
    for path, toleration in indexed(field, values):
        key, operator = toleration.get("key"), toleration.get("operator")
        effect = toleration.get("effect")
        if key:
            yield from label_key(f"{path}.key", str(key))
        elif operator != "Exists":
            yield invalid(
                f"{path}.operator",
                operator,
                "operator must be Exists when 'key' is empty, which means "
                "'match all values and all keys'",
            )
        if operator not in {None, "", "Equal", "Exists"}:
            yield invalid(
                f"{path}.operator",
                operator,
                "supported toleration values: 'Equal'(default), 'Exists'",
            )
        if operator == "Exists" and toleration.get("value"):
            yield invalid(
                f"{path}.value",
                toleration["value"],
                "a value must be empty when 'operator' is 'Exists'",
            )
        if effect and effect not in _EFFECTS:
            yield invalid(f"{path}.effect", effect, _TAINT_EFFECTS)
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            yield invalid(
                f"{path}.effect",
                effect,
                "effect must be 'NoExecute' when 'tolerationSeconds' is set",
            )
