"""The docstrings below the names of a class, which Python does not keep. Reading them takes a while."""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise


def docstrings(cls: type) -> dict[str, str]:
    """Name of each field or member that `cls` itself defines to the docstring below it, if there is one."""
    [definition] = ast.parse(inspect.getsource(cls)).body
    assert isinstance(definition, ast.ClassDef)
    return dict(_documented(definition))


def _documented(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for defined, below in pairwise(definition.body):
        match defined, below:
            case (
                ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)
            case _:
                pass
