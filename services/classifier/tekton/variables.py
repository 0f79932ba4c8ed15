"""Finds variables such as `$(params.revision)` and repeated names in a PipelineRun."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_VARIABLE = re.compile(r"\$\(([^()$]+)\)")


def variables_in(value: Any) -> list[str]:
    """Return what stands between `$(` and `)` in the strings of a JSON value."""
    found: list[str] = []
    _visit_strings(value, lambda text: found.extend(_VARIABLE.findall(text)))
    return found


def _visit_strings(value: Any, visit: Callable[[str], None]) -> None:
    match value:
        case str():
            if "$(" in value:
                visit(value)
        case list():
            for item in value:
                _visit_strings(item, visit)
        case dict():
            for item in value.values():
                _visit_strings(item, visit)
        case _:
            pass


def repeated(names: Iterable[str]) -> Iterator[str]:
    """Yield each name that occurs more than once, in the order of its first occurrence."""
    yield from (name for name, times in Counter(names).items() if times > 1)
