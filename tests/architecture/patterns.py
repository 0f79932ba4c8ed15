"""A pattern of names or numbers is compiled once: this finds one that two modules spell."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from tests.architecture.sources import House, Source

_APART: Final = ("services/simulator", "services/reference")
"""The simulator plays the API server by its own rules. What writes pages reads programs of others."""

_RULE: Final = "patterns_have_one_home"

PATTERNS_TWICE: Final[dict[str, tuple[str, Sequence[Source], str]]] = {
    "two services compile one pattern": (
        _RULE,
        [
            Source("services/ctl/a.py", 'NAME: Final = re.compile(r"[a-z]+")'),
            Source("services/patcher/b.py", '_LABEL = re.compile("[a-z]+")'),
        ],
        "'[a-z]+' is in services/ctl/a.py:1 and in services/patcher/b.py:1",
    ),
    "a service matches a pattern that shared code compiles": (
        _RULE,
        [
            Source("services/ctl/a.py", 'x = re.fullmatch("[a-z]+", y)'),
            Source("shared/contracts/b.py", 'NAME: Final = re.compile("[a-z]+")'),
        ],
        "'[a-z]+' is in services/ctl/a.py:1 and in shared/contracts/b.py:1",
    ),
}
"""By case the rule, the files and the beginning of what the rule says."""


def patterns_have_one_home(house: House) -> Iterator[str]:
    """What two modules accept by equal patterns, they accept by one of `shared/contracts`."""
    homes: dict[str, dict[str, str]] = defaultdict(dict)
    for file in house.code:
        for node in () if file.inside(*_APART) else file.nodes:
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re")),
                    args=[ast.Constant(value=str(pattern)), *_],
                ):
                    homes[pattern].setdefault(file.path, f"{file.path}:{node.lineno}")
                case _:
                    pass
    for pattern, places in homes.items():
        if len(places) > 1:
            yield f"{pattern!r} is in {' and in '.join(places.values())}: compile it in one"
