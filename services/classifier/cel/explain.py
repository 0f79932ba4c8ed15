"""Finding out where and why an evaluation failed, in the words of the expression's author.

The library says `No matching overloads found : <iter_range>`, without a place. Failures are rare
and end with a refusal that a person reads, so the parts of the expression are then evaluated one
by one until the smallest that fails is found.
"""

from collections.abc import Iterator
from typing import Any, Final

from cel_expr_python import cel

from services.classifier.cel import syntax
from services.classifier.cel.functions import SIGNATURES, children, inline_functions

__all__ = ["explain"]

NODES_MAX: Final = 500
"""How many parts are tried before giving up on a place."""

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
    said = _in_words(error)
    for tried, node in enumerate(_inner_first(checked.expr)):
        if tried >= NODES_MAX:
            break
        reason = _reason(node, checked, environment, activation)
        if reason is not None:
            return f"{_position(node, checked)}{reason if reason else said}"
    return said


def _reason(node: Any, checked: Any, environment: Any, activation: Any) -> str | None:
    """Why `node` fails though its parts do not; "" if no better words are known; None if well."""
    failure = _value(node, checked, environment, activation)
    if failure is None or failure.type() != cel.Type.ERROR:
        return None
    text = str(failure.value())
    if node.HasField("comprehension_expr") and "<iter_range>" in text:
        over = _value(node.comprehension_expr.iter_range, checked, environment, activation)
        got = over.type().name() if over is not None else "?"
        return f"no such overload: got {_GO_NAMES.get(got, got)!r}, expected iterable type"
    if node.HasField("call_expr") and node.call_expr.function in SIGNATURES:
        types = [
            _type_name(_value(argument, checked, environment, activation))
            for argument in node.call_expr.args
        ]
        if "No matching overloads" in text:
            return f"no such overload: {node.call_expr.function}({', '.join(types)})"
    return _in_words(text)


def _inner_first(expr: Any) -> Iterator[Any]:
    for child in children(expr):
        yield from _inner_first(child)
    yield expr


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
    name = value.type().name()
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
    _, _, said = error.partition(": ")
    said = said or error
    for prefix, usual in (
        ("No matching overloads found : ", "no such overload: "),
        ("Key not found in map : ", "no such key: "),
    ):
        if said.startswith(prefix):
            rest = said.removeprefix(prefix)
            return usual + (rest.strip('"') if "key" in usual else rest.replace("int64", "int"))
    return said
