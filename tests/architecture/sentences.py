"""What one service says in several words, no other one parses: this finds where it does."""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from tests.architecture.sources import House, Source

_WORDS: Final = re.compile(r"[A-Za-z]\W* \W*[A-Za-z]")
_METHODS: Final = frozenset(
    {
        *("endswith", "removesuffix", "removeprefix", "startswith", "find", "index", "replace"),
        *("partition", "rpartition", "split", "rsplit"),
    }
)
_APART: Final = "services/simulator"
"""It plays the API server, whose sentences others may parse, and judges by what users read."""

_RULE: Final = "no_service_parses_a_sentence_of_another"

PARSED: Final[dict[str, tuple[str, Sequence[Source], str]]] = {
    "a command looks for words of a service": (
        _RULE,
        [
            Source("services/quota/a.py", 'x = f"platform {y} cannot be had: {z}"'),
            Source("services/ctl/a.py", 'x = y if "cannot be had" in y else ""'),
        ],
        "services/ctl/a.py:1: 'cannot be had' is part of what services/quota/a.py:1 says",
    ),
    "a service cuts off what another one puts before a cause": (
        _RULE,
        [
            Source("services/quota/a.py", 'x = f"It is deactivated due to {y}"'),
            Source("services/patcher/a.py", 'x = y.removeprefix("It is deactivated due to ")'),
        ],
        "services/patcher/a.py:1: 'It is deactivated due to' is part of what services/quota/a.py:1",
    ),
    "a service splits a sentence of shared code, by a constant": (
        _RULE,
        [
            Source("shared/bus/a.py", 'TEXT = "the log is full, for now"'),
            Source("services/ctl/a.py", '_FULL: Final = ("log is full",)\nx = y.startswith(_FULL)'),
        ],
        "services/ctl/a.py:2: 'log is full' is part of what shared/bus/a.py:1 says",
    ),
}
"""By case the rule, the files and the beginning of what the rule says."""


def no_service_parses_a_sentence_of_another(house: House) -> Iterator[str]:
    """A sentence may be put better at any time: what others look for in it is a constant."""
    said = [
        (file.service, f"{file.path}:{node.lineno}", str(node.value))
        for file in house.code
        if not file.inside(_APART)
        for node in file.strings()
    ]
    for file in house.code:
        if not file.inside("services") or file.inside(_APART):
            continue
        for place, text in _searched_in(file):
            for service, where, sentence in said:
                if service != file.service and text in sentence:
                    yield f"{place}: {text!r} is part of what {where} says: name it in shared/contracts"


def _searched_in(file: Source) -> Iterator[tuple[str, str]]:
    """Each text of several words that a file looks for, with its place."""
    constants = {
        ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0]): node.value
        for node in file.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
    }
    for node in file.nodes:
        for searched in _searched_by(node):
            value = constants.get(ast.unparse(searched)) or searched
            for each in ast.walk(value):
                text = each.value if isinstance(each, ast.Constant) else None
                if isinstance(text, str) and _WORDS.search(text):
                    yield f"{file.path}:{getattr(node, 'lineno', 0)}", text.strip()


def _searched_by(node: ast.AST) -> list[ast.expr]:
    """What an expression looks for in a text."""
    match node:
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()]):
            return [left]
        case ast.Call(func=ast.Attribute(attr=method), args=[first, *_]) if method in _METHODS:
            return [first]
        case _:
            return []
