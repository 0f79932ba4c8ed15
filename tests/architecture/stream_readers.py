"""Streams are read in one place: this finds who reads `watch` or `replay`, or notices `CaughtUp`, by hand."""

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from tests.architecture.sources import House

HOMES: Final = ("shared/bus", "shared/testing")

READ_BY_HAND: Final = {
    "services/tracer/term.py": "follows logs no faster than it delivers: it awaits room for each entry",
    "services/ctl/admin/dead_letters.py": "stops at the last answer, or when its time is over",
}
"""Files that read a stream themselves, with the reason. ADR 83 has them, too."""

HAND_LOOPS: Final = {
    "a service watches a view": "async for item in self._bus.watch(stream): ...",
    "a service replays a log": "async with aclosing(bus.replay(log)) as items: ...",
    "a service notices that it has caught up": "if isinstance(item, CaughtUp): ...",
    "a handler gets entries and the end of reading": "def on_item(item: Entry | port.CaughtUp): ...",
}
"""Planted breaches of the rule."""


def streams_are_read_by_the_bus(house: House) -> Iterator[str]:
    """`shared/bus/follow.py` knows when a reader has caught up, and what hides an earlier message."""
    for file in house.code:
        if file.inside(*HOMES) or file.path in READ_BY_HAND:
            continue
        for line in _hand_loops(file.nodes):
            yield f"{file.path}:{line}: read by follow, recall or stored_entries of shared/bus/follow.py"


def needless_readers(house: House) -> list[str]:
    """The files of `READ_BY_HAND` that do not read a stream themselves."""
    readers = {file.path for file in house.code if any(_hand_loops(file.nodes))}
    return [path for path in READ_BY_HAND if path not in readers]


def _hand_loops(nodes: Sequence[ast.AST]) -> Iterator[int]:
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=on, attr="watch" | "replay"), lineno=line):
                if ast.unparse(on).endswith("bus"):
                    yield line
            case ast.Name(id="CaughtUp", lineno=line) | ast.Attribute(attr="CaughtUp", lineno=line):
                yield line
            case _:
                pass
