"""Label and field selectors, from query parameters and from LabelSelector objects."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from services.simulator.cluster.errors import bad_request
from services.simulator.cluster.kinds.registry import Kind, Obj

Selector = Callable[[Obj], bool]
_Test = Callable[[Mapping[str, str]], bool]

ALWAYS_SELECTABLE: Final = ("metadata.name", "metadata.namespace")
_SET: Final = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUALITY: Final = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<op>==|!=|=)\s*(?P<value>[^=!\s]*)$")
_EXISTS: Final = re.compile(r"^(?P<not>!?)\s*(?P<key>[A-Za-z0-9][A-Za-z0-9._/-]*)$")


def ALL(obj: Obj) -> bool:  # noqa: N802 - it stands where a constant would
    """Select every object."""
    del obj
    return True


def _requirements(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _label_test(requirement: str) -> _Test:
    if found := _SET.match(requirement):
        key = found["key"]
        values = frozenset(value.strip() for value in found["values"].split(","))
        if found["op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUALITY.match(requirement):
        key, value = found["key"], found["value"]
        if found["op"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTS.match(requirement):
        key = found["key"]
        if found["not"]:
            return lambda labels: key not in labels
        return lambda labels: key in labels
    raise bad_request(f"unable to parse requirement: {requirement!r}")


def _over_labels(tests: Sequence[_Test]) -> Selector:
    def selects(obj: Obj) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return selects


def _labels_selector(text: str) -> Selector:
    """Read a ``labelSelector`` parameter: equality, set and existence requirements."""
    tests = [_label_test(requirement) for requirement in _requirements(text)]
    return _over_labels(tests) if tests else ALL


def _expression_test(expression: Mapping[str, Any]) -> _Test:
    key, operator = str(expression.get("key", "")), expression.get("operator")
    values = frozenset(expression.get("values") or ())
    match operator:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
        case _:
            raise bad_request(f"{operator!r} is not a valid label selector operator")


def label_object_selector(selector: Mapping[str, Any] | None) -> Selector:
    """Read a ``metav1.LabelSelector``. Empty or missing selects everything."""
    if not selector:
        return ALL
    tests: list[_Test] = []
    for key, value in (selector.get("matchLabels") or {}).items():
        tests.append(lambda labels, key=key, value=value: labels.get(key) == value)  # type: ignore[misc]
    tests += [_expression_test(entry) for entry in selector.get("matchExpressions") or ()]
    return _over_labels(tests)


def _at(obj: Obj, path: Sequence[str]) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None or isinstance(value, dict | list) else str(value)


def _fields_selector(text: str, kind: Kind) -> Selector:
    """Read a ``fieldSelector`` parameter. Raises 400 for a field that this kind does not support."""
    tests: list[tuple[tuple[str, ...], str, bool]] = []
    for requirement in _requirements(text):
        found = _EQUALITY.match(requirement)
        if found is None:
            raise bad_request(
                f"invalid selector: '{requirement}'; can't understand '{requirement}'"
            )
        if found["key"] not in ALWAYS_SELECTABLE and found["key"] not in kind.selectable:
            raise bad_request(f"field label not supported: {found['key']}")
        tests.append((tuple(found["key"].split(".")), found["value"], found["op"] != "!="))
    if not tests:
        return ALL
    return lambda obj: all((_at(obj, path) == value) is wanted for path, value, wanted in tests)


def select(kind: Kind, labels: str = "", fields: str = "") -> Selector | None:
    """Combine both parameters. Returns None if they select every object."""
    chosen = [_labels_selector(labels)] if labels else []
    chosen += [_fields_selector(fields, kind)] if fields else []
    chosen = [selector for selector in chosen if selector is not ALL]
    if not chosen:
        return None
    return lambda obj: all(selector(obj) for selector in chosen)
