"""Who imports whom, also late and by name: no circles."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count

from tests.architecture.sources import House, Source


def imports_have_no_circles(house: House) -> Iterator[str]:
    """Siblings in a package, with all below them, import each other in one direction only.

    Also where a module is imported late, by its name.
    """
    edges = dict(_edges(house.code))
    for parent in sorted(
        {".".join(name.split(".")[:depth]) for name in edges for depth in range(6)}
    ):
        graph = _between_children(parent, edges)
        for circle in _circles(graph):
            ways = "; ".join(
                graph[a][b] for a in circle for b in circle if a != b and b in graph[a]
            )
            yield f"circle in {parent or 'the root'}: {', '.join(sorted(circle))} ({ways})"


def _edges(files: Sequence[Source]) -> Iterator[tuple[str, set[str]]]:
    modules = {file.module for file in files}
    for file in files:
        found: set[str] = set()
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                found.update(name if name in modules else node.module for name in names)
            elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
                found.update(ast.unparse(each).strip("'") for each in node.args)
        yield file.module, {name for name in found if name in modules and name != file.module}


def _between_children(parent: str, edges: dict[str, set[str]]) -> dict[str, dict[str, str]]:
    """Child of `parent` to the children that it imports, each with one import that shows it."""
    graph: dict[str, dict[str, str]] = defaultdict(dict)
    for importer, imported in sorted(edges.items()):
        if (a := _child(parent, importer)) is None:
            continue
        for target in sorted(imported):
            b = _child(parent, target)
            if b is not None and b != a:
                graph[a].setdefault(b, f"{importer} -> {target}")
    return graph


def _child(parent: str, module: str) -> str | None:
    prefix = f"{parent}." if parent else ""
    if not module.startswith(prefix):
        return None
    return prefix + module.removeprefix(prefix).split(".")[0]


def _circles(graph: dict[str, dict[str, str]]) -> list[list[str]]:
    """Strongly connected components of more than one node (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    numbers = count()

    def visit(node: str) -> None:
        index[node] = low[node] = next(numbers)
        stack.append(node)
        for target in graph.get(node, {}):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            place = stack.index(node)
            component = stack[place:]
            del stack[place:]
            if len(component) > 1:
                found.append(component)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found
