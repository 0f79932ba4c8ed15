"""Finding out where and why an evaluation failed, in the words of the expression's author.

The library says `No matching overloads found : <iter_range>`, without a place. Failures are rare
and end with a refusal that a person reads, so the parts of the expression are then evaluated one
by one until the smallest that fails in the same way is found.
"""

import re
from typing import Any, Final

from cel_expr_python import cel

from services.classifier.cel import syntax
from services.classifier.cel.functions import SIGNATURES, children, inline_functions

__all__ = ["explain"]

NODES_MAX: Final = 500
"""How many parts are tried before giving up on a place."""

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


def explain(error: str, checked: Any, environment: Any, activation: Any) -> str:
    """Say what failed and where, as well as it can be found out."""
    node, tried = checked.expr, 0
    # Down from the whole to the smallest part that fails in the same way. Only the same failure
    # counts: a part that fails in another way may never have been reached.
    while tried < NODES_MAX:
        for child in children(node):
            tried += 1
            if _failure(_value(child, checked, environment, activation)) == error:
                node = child
                break
        else:
            break
    if _failure(_value(node, checked, environment, activation)) != error:
        return _in_words(error)
    return _position(node, checked) + _reason(node, error, checked, environment, activation)


def _reason(node: Any, error: str, checked: Any, environment: Any, activation: Any) -> str:
    """Why `node` fails though none of its parts does."""
    if node.HasField("comprehension_expr") and "<iter_range>" in error:
        over = _value(node.comprehension_expr.iter_range, checked, environment, activation)
        got = over.type().name() if over is not None else "?"
        return f"no such overload: got {_GO_NAMES.get(got, got)!r}, expected iterable type"
    calls_ours = node.HasField("call_expr") and node.call_expr.function in SIGNATURES
    if calls_ours and error.startswith(_NO_OVERLOAD):
        types = [
            _type_name(_value(argument, checked, environment, activation))
            for argument in node.call_expr.args
        ]
        return f"no such overload: {node.call_expr.function}({', '.join(types)})"
    return _in_words(error)


def _failure(value: Any) -> str | None:
    return str(value.value()) if value is not None and value.type() == cel.Type.ERROR else None


def _value(node: Any, checked: Any, environment: Any, activation: Any) -> Any:
    """What a part evaluates to by itself; None where it needs a loop's variable."""
    alone = syntax.CheckedExpr()
    alone.CopyFrom(checked)
    alone.expr.CopyFrom(node)
    inline_functions(alone)
    try:
        return environment.deserialize(syntax.serialize(alone)).eval(activation)
    except RuntimeError:
        return None


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


def _in_words(error: str) -> str:
    """The library's sentence without its status code, in CEL's usual words."""
    if error.startswith(_NO_OVERLOAD):
        said = error.removeprefix(_NO_OVERLOAD).replace("int64", "int")
        # Inside a loop the failing part cannot be run by itself. An expression cannot call
        # replace() as a method, so this is our form of the function.
        return "no such overload: " + _METHOD_REPLACE.sub(r"replace(\1, ", said)
    if error.startswith(_NO_KEY):
        key = error.removeprefix(_NO_KEY).strip('"')
        return f"no such key: {key}"
    return error.partition(": ")[2] or error
