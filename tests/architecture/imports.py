"""Who imports whom, also late and by name: no circles."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count, pairwise

from tests.architecture.sources import House, Source


def imports_have_no_circles(house: House) -> Iterator[str]:
    """Siblings in a package, with all below them, import each other in one direction only.

    Also where a module is imported late, by its name, and where one service starts a program of another
    (`python -m`). A service may start itself again.
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
        constants = _constants(file.tree)
        found: set[str] = set()
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                found.update(name if name in modules else node.module for name in names)
            elif isinstance(node, ast.Call) and _imports_by_name(node):
                found.update(_text(each, constants) for each in node.args)
            elif isinstance(node, ast.Tuple | ast.List | ast.Call):
                found.update(_started(node, constants, file.service))
        yield file.module, {name for name in found if name in modules and name != file.module}


def _imports_by_name(call: ast.Call) -> bool:
    """Whether it calls `import_module`, or has it called, as by `asyncio.to_thread(import_module, name)`."""
    return any("import_module" in ast.unparse(each) for each in (call.func, *call.args[:1]))


def _constants(tree: ast.Module) -> dict[str, str]:
    """The strings of the module by the names that it gives them."""
    return {
        ast.unparse(target): node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    }


def _text(node: ast.expr, constants: dict[str, str]) -> str:
    """The string that is written there, or by a constant of the module; else empty."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return constants.get(node.id, "") if isinstance(node, ast.Name) else ""


def _started(
    node: ast.Tuple | ast.List | ast.Call, constants: dict[str, str], service: str
) -> Iterator[str]:
    """The modules of other services behind a `-m` in one command line."""
    words = node.args if isinstance(node, ast.Call) else node.elts
    for flag, program in pairwise(_text(each, constants) for each in words):
        if flag == "-m" and not f"{program}.".startswith(f"{service.replace('/', '.')}."):
            yield program


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
