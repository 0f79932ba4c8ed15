"""Which definitions are used: what nobody reads is dead."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from tests.architecture.sources import House, Source

EXPORTED: Final = {
    "services/quota/engine/invariants.py": "called by tests after every step",
    "shared/testing": "fakes and helpers for tests",
    "services/classifier/metrics.py:RELOAD_FAILURES": "never counts, as in the reference",
    "services/dispatcher/planning/order_lifecycle.py:IMPOSSIBLE": "a test: the table is complete",
    "services/dispatcher/spokes/statuses.py:bytes_of": "tests measure what is kept",
    "services/simulator/mutants/unplanted.py:UNPLANTED": "a test: each ADR has a mutant or a reason",
    "services/simulator/scenarios/mechanisms.py:SHOWN_BY_TESTS": "a test: each probe is shown",
    "shared/bus/nats/work/durables.py:fetch": "FastStream calls it",
}
"""Files, and definitions of files, whose public definitions may be used by tests only, with the reason."""


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


def public_constants_are_used(house: House) -> Iterator[str]:
    """A public name that a module assigns, also a type alias, is read: by its module, or by another one.

    Most constants are limits that only their module reads: they are public for who reads the module, so
    these are no breach.
    """
    yield from (text for key, text in unused_constants(house) if key not in EXPORTED)


def public_methods_are_used(house: House) -> Iterator[str]:
    """Something calls or reads a public method, outside of the method itself.

    What a library calls carries `@override`: the type checker looks whether a base class has it.
    """
    yield from (text for key, text in unused_methods(house) if key not in EXPORTED)


def unused_constants(house: House) -> Iterator[tuple[str, str]]:
    """Each that no service reads: ``file:name``, and the breach."""
    readers: dict[str, set[str]] = defaultdict(set)
    for file in (*house.code, *house.tests):
        for name in (*_names_read(file), *_names_imported(file), *_names_in_signatures(file)):
            readers[name].add(file.path)
    for file in house.code:
        if not file.inside(*EXPORTED):
            for name, line in _public_constants(file):
                yield from _unused(file, name, line, readers[name])


def unused_methods(house: House) -> Iterator[tuple[str, str]]:
    """Each that no service calls or reads: ``file:name``, and the breach."""
    readers: dict[str, Counter[str]] = defaultdict(Counter)
    for file in (*house.code, *house.tests):
        for name in _members_read(file.nodes):
            readers[name][file.path] += 1
    for file in house.code:
        if not file.inside(*EXPORTED):
            for node in _public_methods(file):
                own = Counter({file.path: [*_members_read(ast.walk(node))].count(node.name)})
                yield from _unused(file, node.name, node.lineno, readers[node.name] - own)


def _unused(
    file: Source, name: str, line: int, readers: Collection[str]
) -> Iterator[tuple[str, str]]:
    if not readers:
        yield f"{file.path}:{name}", f"{file.path}:{line}: nothing reads {name}: delete it"
    elif all(path.startswith("tests/") for path in readers):
        yield f"{file.path}:{name}", f"{file.path}:{line}: only tests read {name}: delete it"


def _public_constants(file: Source) -> Iterator[tuple[str, int]]:
    for node in file.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name) and not name.id.startswith("_"):
                        yield name.id, node.lineno


def _public_methods(file: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for owner in file.classes():
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            is_override = "override" in map(ast.unparse, node.decorator_list)
            if not node.name.startswith("_") and not is_override:
                yield node


def _members_read(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Attributes that are read, by a dot, a pattern, a string for `getattr`, or inside of their class."""
    for node in nodes:
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()):
                yield name
            case ast.MatchClass(kwd_attrs=names):
                yield from names
            case ast.Call(func=ast.Name(id="getattr" | "attrgetter" | "methodcaller")):
                for argument in node.args:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        yield argument.value.rpartition(".")[2]
            case ast.ClassDef():
                for each in node.body:
                    if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield from (n.id for n in ast.walk(each) if isinstance(n, ast.Name))
            case _:
                pass


def _names_imported(file: Source) -> Iterator[str]:
    """What it imports, also by a string: entry points and commands name functions as "module:function"."""
    for node in file.nodes:
        if isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r":(\w+)$", node.value)


def _names_in_signatures(file: Source) -> Iterator[str]:
    """Names in annotations and base classes: types that other modules get without importing them."""
    for node in file.nodes:
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
    yield from _names_imported(file)
    for node in file.nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


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
    for node in file.nodes:
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
