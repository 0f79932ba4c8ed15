"""Label selectors of `-l`, in kubectl's syntax."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from shared.runtime.command import CommandError

Selects = Callable[[Mapping[str, Any]], bool]

_SET: Final = re.compile(r"(?P<key>[^\s!=,()]+)\s+(?P<how>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUAL: Final = re.compile(r"(?P<key>[^\s!=,()]+)\s*(?P<how>==|=|!=)\s*(?P<value>[^\s!=,()]*)")
_THERE: Final = re.compile(r"(?P<how>!?)\s*(?P<key>[^\s!=,()]+)")
_COMMA: Final = re.compile(r",(?![^(]*\))")
"""A comma outside of parentheses."""


def selector(text: str | None) -> Selects:
    """A predicate on labels: all requirements must hold. Raises `CommandError` for a malformed selector."""
    tests = [_requirement(part.strip()) for part in _COMMA.split(text)] if text else []

    def selects(labels: Mapping[str, Any]) -> bool:
        return all(test(labels) for test in tests)

    return selects


def _requirement(text: str) -> Selects:
    if match := _SET.fullmatch(text):
        key, wanted = match["key"], {value.strip() for value in match["values"].split(",")}
        inside = match["how"] == "in"
        # As in the API server: `notin` also matches objects without the label.
        return lambda labels: (key in labels and labels[key] in wanted) == inside
    if match := _EQUAL.fullmatch(text):
        key, value, equal = match["key"], match["value"], match["how"] != "!="
        return lambda labels: (labels.get(key) == value) == equal
    if match := _THERE.fullmatch(text):
        key, there = match["key"], not match["how"]
        return lambda labels: (key in labels) == there
    raise CommandError(
        f"-l {text!r}",
        "is no label selector",
        hint="for example -l team=a,tier!=web or -l 'env in (dev,test)'",
    )
