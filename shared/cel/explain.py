"""Explains where and why the evaluation of an expression failed.

The library reports `No matching overloads found : <iter_range>`, without a position. A person reads the
message, and failures are rare, so this module evaluates the parts of the expression one by one until
it finds the smallest part that fails in the same way.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from cel_expr_python import cel

from shared.cel import syntax
from shared.cel.syntax import children

NODES_MAX: Final = 500
"""Maximum number of parts that are evaluated to find the position."""

_LOCATED: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_TOO_DEEP: Final = "recursion"
_NO_OVERLOAD: Final = "UNKNOWN: No matching overloads found : "
_NO_KEY: Final = "NOT_FOUND: Key not found in map : "
_METHOD_REPLACE: Final = re.compile(r"^\((\w+)\)\.replace\(")

_GO_NAMES: Final = {
    "STRING": "types.String",
    "INT": "types.Int",
    "DOUBLE": "types.Double",
    "BOOL": "types.Bool",
    "NULL": "types.Null",
}
_CEL_NAMES: Final = {"INT": "int", "DOUBLE": "double", "BOOL": "bool", "STRING": "string"}


def explain_budget(error: str) -> str:
    """Say in words that an expression ran for too long."""
    if "budget" in error:
        return "more than 10,000 loop steps: the object is too large for this expression"
    return error


def in_words(error: str) -> str:
    """Return the compiler's errors with line and column, without its excerpt of the text."""
    if _TOO_DEEP in error:
        return "the expression is nested too deeply: at most 30 levels or branches"
    found = [
        f"line {line}, column {column}: {problem}" if int(line) > 0 else problem
        for line, column, problem in _LOCATED.findall(error)
    ]
    return "; ".join(dict.fromkeys(found)) or error


def explain(
    error: str,
    checked: Any,
    environment: Any,
    activation: Any,
    *,
    functions: Collection[str] = (),
    rewrite: Callable[[Any], None] = lambda _checked: None,
) -> str:
    """Return what failed and, if it can be found, where.

    `rewrite` changes a checked tree to the evaluated one; `functions` are those that it replaces.
    """
    search = _Search(
        checked=checked,
        environment=environment,
        activation=activation,
        functions=functions,
        rewrite=rewrite,
    )
    node, tried = checked.expr, 0
    # Down from the whole to the smallest part that fails in the same way. Only the same failure
    # counts: a part that fails in another way may never have been reached.
    while tried < NODES_MAX:
        for child in children(node):
            tried += 1
            if _failure(search.value(child)) == error:
                node = child
                break
        else:
            break
    if _failure(search.value(node)) != error:
        return _reworded(error)
    return _position(node, checked) + search.reason(node, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The parts of one expression that failed, evaluated one by one."""

    checked: Any
    environment: Any
    activation: Any
    functions: Collection[str]
    rewrite: Callable[[Any], None]

    def reason(self, node: Any, error: str) -> str:
        """Return why `node` fails although none of its parts does."""
        if node.HasField("comprehension_expr") and "<iter_range>" in error:
            over = self.value(node.comprehension_expr.iter_range)
            got = over.type().name() if over is not None else "?"
            return f"no such overload: got {_GO_NAMES.get(got, got)!r}, expected iterable type"
        calls_ours = node.HasField("call_expr") and node.call_expr.function in self.functions
        if calls_ours and error.startswith(_NO_OVERLOAD):
            types = [_type_name(self.value(argument)) for argument in node.call_expr.args]
            return f"no such overload: {node.call_expr.function}({', '.join(types)})"
        return _reworded(error)

    def value(self, node: Any) -> Any:
        """Return the value of a part; None if it needs a loop variable."""
        alone = syntax.CheckedExpr()
        alone.CopyFrom(self.checked)
        alone.expr.CopyFrom(node)
        self.rewrite(alone)
        try:
            return self.environment.deserialize(syntax.serialize(alone)).eval(self.activation)
        except RuntimeError:
            return None


def _failure(value: Any) -> str | None:
    return str(value.value()) if value is not None and value.type() == cel.Type.ERROR else None


def _type_name(value: Any) -> str:
    if value is None:
        return "dyn"
    name: str = value.type().name()
    return _CEL_NAMES.get(name, name.partition("<")[0].lower())


def _position(node: Any, checked: Any) -> str:
    """`line L, column C: ` of a node, or nothing."""
    offset = next((p.value for p in checked.source_info.positions if p.key == node.id), None)
    if offset is None:
        return ""
    before = [start for start in checked.source_info.line_offsets if start <= offset]
    return f"line {len(before) + 1}, column {offset - (before[-1] if before else 0) + 1}: "


def _reworded(error: str) -> str:
    """The library's sentence without its status code, in CEL's usual words."""
    if error.startswith(_NO_OVERLOAD):
        text = error.removeprefix(_NO_OVERLOAD).replace("int64", "int")
        # A part inside a loop cannot be evaluated alone. The method form of replace() exists only
        # in rewritten trees: report the form of the author.
        return "no such overload: " + _METHOD_REPLACE.sub(r"replace(\1, ", text)
    if error.startswith(_NO_KEY):
        key = error.removeprefix(_NO_KEY).strip('"')
        return f"no such key: {key}"
    return error.partition(": ")[2] or error
