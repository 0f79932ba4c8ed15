"""The docstrings below the names of a class, which Python does not keep. Reading them takes a while."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import ModuleType


@cache
def docstrings(cls: type) -> Mapping[str, str]:
    """Name of each field or member that `cls` itself defines to the docstring below it, if there is one.

    `cls` is defined at the top of its module.
    """
    return dict(_documented(_classes(sys.modules[cls.__module__])[cls.__name__]))


@cache
def _classes(module: ModuleType) -> Mapping[str, ast.ClassDef]:
    body = ast.parse(inspect.getsource(module)).body
    return {each.name: each for each in body if isinstance(each, ast.ClassDef)}


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
