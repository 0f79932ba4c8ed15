"""A set of states has a name and one home: this finds one that is written twice."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from tests.architecture.sources import House, Source

MESSAGES: Final = "shared/contracts/messages"
_PHASES: Final = 'Phase = Literal["waiting", "finished", "gone"]'
_RULE: Final = "sets_of_states_have_one_home"

STATE_SETS: Final[dict[str, tuple[str, Sequence[Source], str]]] = {
    "two services write one set of states": (
        _RULE,
        [
            Source(f"{MESSAGES}/a.py", _PHASES),
            Source("services/quota/a.py", 'x = y.phase in {"finished", "gone"}'),
            Source("services/ctl/b.py", '_ENDED = frozenset(\n    ("gone", "finished")\n)'),
        ],
        "['finished', 'gone'] is written in services/quota/a.py:1 and in services/ctl/b.py:2",
    ),
    "a service writes one set of states twice": (
        _RULE,
        [
            Source(f"{MESSAGES}/a.py", _PHASES),
            Source("services/quota/a.py", 'x = ["finished", "gone"]\nz = {"gone", "finished"}'),
        ],
        "['finished', 'gone'] is written in services/quota/a.py:1 and in services/quota/a.py:2",
    ),
    "a service writes a set of states that contracts name": (
        _RULE,
        [
            Source(f"{MESSAGES}/a.py", f'{_PHASES}\nENDED = frozenset({{"finished", "gone"}})'),
            Source("services/quota/a.py", 'x = y.phase not in {"gone", "finished"}'),
        ],
        f"['finished', 'gone'] is written in {MESSAGES}/a.py:2 and in services/quota/a.py:1",
    ),
}
"""By case the rule, the files and the beginning of what the rule says."""


def sets_of_states_have_one_home(house: House) -> Iterator[str]:
    """Some states of a message are a constant of `shared/contracts` if two places ask for just these."""
    types = [
        _strings(node.slice)
        for file in house.code
        if file.inside(MESSAGES)
        for node in _literals(file)
    ]
    places: dict[frozenset[str], list[Source]] = defaultdict(list)
    lines: dict[frozenset[str], list[str]] = defaultdict(list)
    for file in house.code:
        of_types = {id(node.slice) for node in _literals(file)}
        for node in file.nodes:
            states = frozenset() if id(node) in of_types else _strings(node)
            if len(states) > 1 and any(states < every for every in types):
                places[states].append(file)
                lines[states].append(f"{file.path}:{getattr(node, 'lineno', 0)}")
    for states, files in places.items():
        if len(files) > 1 and any(file.inside("services") for file in files):
            where = " and in ".join(lines[states])
            yield f"{sorted(states)} is written in {where}: name it in {MESSAGES}"


def _literals(file: Source) -> Iterator[ast.Subscript]:
    """The `Literal[…]` types in a file."""
    for node in file.nodes:
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
            yield node


def _strings(node: ast.AST) -> frozenset[str]:
    """The members of a set, a tuple or a list of strings; empty if it is none, or has others."""
    if not isinstance(node, ast.Set | ast.Tuple | ast.List):
        return frozenset()
    values = [each.value for each in node.elts if isinstance(each, ast.Constant)]
    strings = [value for value in values if isinstance(value, str)]
    return frozenset(strings) if len(strings) == len(node.elts) else frozenset()
