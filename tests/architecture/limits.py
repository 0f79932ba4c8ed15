"""Which limits say why they have their value."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.architecture.sources import House, is_bench

SIMULATED: Final = (
    "services/simulator",
    "services/reference",
    "services/ctl/demo",
    "shared/testing",
)
"""Their limits are sizes of worlds and pages, which another value would serve as well."""


def limits_say_why_that_value(house: House) -> Iterator[str]:
    """A docstring stands below a public `_MAX`, or below the last of the block that it is in."""
    for file in house.code:
        if file.inside(*SIMULATED) or is_bench(file):
            continue
        for block in _blocks(file.tree.body):
            if not isinstance(block[-1], ast.Expr):
                for node in block:
                    for name in filter(_is_limit, _assigned(node)):
                        yield f"{file.path}:{node.lineno}: {name}: say why that value"


def _blocks(body: list[ast.stmt]) -> list[list[ast.stmt]]:
    """The statements between two blank lines, or up to a docstring."""
    blocks: list[list[ast.stmt]] = []
    for node in body:
        before = blocks[-1][-1] if blocks else None
        continues = before is not None and before.end_lineno == node.lineno - 1
        if continues and not isinstance(before, ast.Expr):
            blocks[-1].append(node)
        else:
            blocks.append([node])
    return blocks


def _assigned(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets]
    return [ast.unparse(node.target)] if isinstance(node, ast.AnnAssign) else []


def _is_limit(name: str) -> bool:
    return re.fullmatch(r"[A-Z]\w*_MAX", name) is not None
