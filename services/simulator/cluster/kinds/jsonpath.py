"""JSONPath as printer columns use it: members, indexes, wildcards, and one equality filter.

The dialect is that of kubectl, not RFC 9535: braces around a path, escaped dots in a member, and a
path that cannot be read gives an empty cell. No library implements it.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

_Step = Callable[[list[Any]], list[Any]]
_TOKEN: Final = re.compile(
    r"""\.(?P<member>(?:\\.|[^.\[\\])+)
      | \[\?\(@\.(?P<key>[\w.-]+)\s*==\s*["'](?P<value>[^"']*)["']\)\]
      | \[["'](?P<quoted>[^"']+)["']\]
      | \[(?P<index>-?\d+)\]
      | (?P<all>\[\*\])""",
    re.VERBOSE,
)


def _member(name: str) -> _Step:
    return lambda values: [v[name] for v in values if isinstance(v, dict) and name in v]


def _filter(key: str, wanted: str) -> _Step:
    return lambda values: [
        entry
        for value in values
        if isinstance(value, list)
        for entry in value
        if isinstance(entry, dict) and str(entry.get(key)) == wanted
    ]


def _index(index: int) -> _Step:
    return lambda values: [
        value[index]
        for value in values
        if isinstance(value, list) and -len(value) <= index < len(value)
    ]


def _every(values: list[Any]) -> list[Any]:
    return [entry for value in values if isinstance(value, list) for entry in value]


@lru_cache(maxsize=1024)
def _compiled(path: str) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    at = 0
    while at < len(path):
        token = _TOKEN.match(path, at)
        if token is None:
            return (lambda values: values[:0],)  # A path that cannot be read gives an empty cell.
        at = token.end()
        if (member := token["member"]) is not None:
            steps.append(_member(member.replace("\\", "")))
        elif token["key"] is not None:
            steps.append(_filter(token["key"], token["value"]))
        elif token["quoted"] is not None:
            steps.append(_member(token["quoted"]))
        elif token["index"] is not None:
            steps.append(_index(int(token["index"])))
        else:
            steps.append(_every)
    return tuple(steps)


def find(path: str, document: Any) -> Any:
    """Return the first value at `path`, or ``None``."""
    values = [document]
    for step in _compiled(path.strip("{}")):
        values = step(values)
    return values[0] if values else None
