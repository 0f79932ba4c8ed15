"""Which definitions are used: what nobody reads is dead."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from tests.architecture.sources import House, Source

EXPORTED: Final = {
    "services/quota/engine/invariants.py": "called by tests after every step",
    "shared/testing": "fakes and helpers for tests",
}
"""Files whose public definitions may be used by tests only, with the reason."""


def public_definitions_are_used(house: House) -> Iterator[str]:
    """What no other module uses is dead, or private, or a part that its own module and a test use."""
    users: dict[str, set[str]] = defaultdict(set)
    for file in (*house.code, *house.tests):
        for name in _names_used(file):
            users[name].add(file.path)
    for file in house.code:
        if file.is_package or file.inside(*EXPORTED) or file.parts[-1] in _ENTRIES:
            continue
        signatures = set(_names_in_signatures(file))
        for node in file.tree.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("_") or node.name in signatures or _is_registered(node):
                continue
            others = users[node.name] - {file.path}
            if not others:
                yield f"{file.path}:{node.lineno}: only its module uses {node.name}: hide or delete it"
            elif file.path not in users[node.name] and all(p.startswith("tests/") for p in others):
                yield f"{file.path}:{node.lineno}: only tests use {node.name}: delete it"


def _names_in_signatures(file: Source) -> Iterator[str]:
    """Names in annotations and base classes: types that other modules get without importing them."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts: list[ast.AST | None] = [node.returns, node.args]
        elif isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.ClassDef):
            parts = [*node.bases]
        else:
            continue
        for part in filter(None, parts):
            for name in ast.walk(part):
                if isinstance(name, ast.Name):
                    yield name.id
                elif isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield from re.findall(r"\w+", name.value)


_ENTRIES: Final = frozenset({"__main__.py", "bench.py", "commands.py", "main.py"})


def _is_registered(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a decorator hands the definition to a framework (`@app.command()`)."""
    return any(
        isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute)
        for decorator in node.decorator_list
    )


def _names_used(file: Source) -> Iterator[str]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # Entry points and commands name functions as "module:function".
            yield from re.findall(r":(\w+)$", node.value)


READ_OUTSIDE: Final = {
    "shared/testing/world/loop.py": "takes the place of asyncio's loop and handles, which asyncio reads",
}
"""Files whose private names are read by a library, with the reason."""


def private_definitions_are_read(house: House) -> Iterator[str]:
    """A private name of a module, or of its classes, that nothing reads is dead, also if it is written.

    Who reads: the module itself, and those of the classes that its classes inherit from, and the other way
    round.
    """
    reads = {file.path: set(_names_read(file)) for file in house.code}
    relatives = _relatives(house)
    for file in house.code:
        if file.inside(*READ_OUTSIDE):
            continue
        read: set[str] = set().union(*(reads[path] for path in {file.path, *relatives[file.path]}))
        for name, line in sorted({*_private_names(file)}, key=lambda found: found[1]):
            if name not in read:
                yield f"{file.path}:{line}: nothing reads {name}: delete it"


def _relatives(house: House) -> dict[str, set[str]]:
    """Path to those of the files whose classes inherit from its classes, and of which its classes inherit."""
    homes: dict[str, set[str]] = defaultdict(set)
    for file in house.code:
        for node in file.classes():
            homes[node.name].add(file.path)
    found: dict[str, set[str]] = defaultdict(set)
    for file in house.code:
        for node in file.classes():
            for base in node.bases:
                name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
                for home in homes.get(name, ()):
                    found[home].add(file.path)
                    found[file.path].add(home)
    return found


def _private_names(file: Source) -> Iterator[tuple[str, int]]:
    """What a module or one of its classes defines or assigns with one underscore, with its line."""
    scopes: list[ast.Module | ast.ClassDef] = [file.tree, *file.classes()]
    for scope in scopes:
        for node in scope.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if _is_private(node.name) and not node.decorator_list:
                    yield node.name, node.lineno
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                yield from _stored(node, ast.Name)
    for owner in file.classes():
        yield from _stored(owner, ast.Attribute)


def _stored(scope: ast.AST, sort: type[ast.Name | ast.Attribute]) -> Iterator[tuple[str, int]]:
    """The private names, or the private attributes of `self`, to which `scope` assigns."""
    for node in ast.walk(scope):
        if isinstance(node, sort) and isinstance(node.ctx, ast.Store):
            owner, _, name = ast.unparse(node).rpartition(".")
            if owner in {"", "self"} and _is_private(name):
                yield name, node.lineno


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def _names_read(file: Source) -> Iterator[str]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.AugAssign) and not isinstance(node.value, ast.Constant):
            # A list that grows may be somebody else's, too. A count that only grows is not read.
            yield ast.unparse(node.target).rpartition(".")[2]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # Annotations in quotes, and names for `getattr` and `setattr`.
            yield from re.findall(r"\b_\w+", node.value)
