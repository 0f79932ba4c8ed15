"""The checked syntax tree of an expression, as messages that can be read and rewritten.

The CEL library hands its tree out, and takes it back, only as bytes (`cel.expr.CheckedExpr`,
https://github.com/google/cel-spec, `proto/cel/expr/checked.proto` and `syntax.proto`). Only the
fields that Sluicegate reads are declared here; protobuf keeps the others unchanged.
"""

from collections.abc import Iterator
from typing import Any, Final

# protobuf ships no types; the messages made here are dynamic in any case.
from google.protobuf import (  # type: ignore[import-untyped]
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

_PACKAGE: Final = "cel.expr"
_TYPE_URL: Final = "type.googleapis.com/cel.expr.CheckedExpr"
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "bool": _FIELD.TYPE_BOOL,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "string": _FIELD.TYPE_STRING,
}
_MESSAGES: Final[dict[str, list[tuple[str, int, str]]]] = {
    "Constant": [
        ("bool_value", 2, "bool"),
        ("int64_value", 3, "int64"),
        ("string_value", 6, "string"),
    ],
    "Ident": [("name", 1, "string")],
    "Select": [("operand", 1, "Expr"), ("field", 2, "string"), ("test_only", 3, "bool")],
    "Call": [("target", 1, "Expr"), ("function", 2, "string"), ("args", 3, "*Expr")],
    "CreateList": [("elements", 1, "*Expr")],
    "Entry": [("id", 1, "int64"), ("map_key", 3, "Expr"), ("value", 4, "Expr")],
    "CreateStruct": [("entries", 2, "*Entry")],
    "Comprehension": [
        ("iter_var", 1, "string"),
        ("iter_range", 2, "Expr"),
        ("accu_var", 3, "string"),
        ("accu_init", 4, "Expr"),
        ("loop_condition", 5, "Expr"),
        ("loop_step", 6, "Expr"),
        ("result", 7, "Expr"),
    ],
    "Expr": [
        ("id", 2, "int64"),
        ("const_expr", 3, "Constant"),
        ("ident_expr", 4, "Ident"),
        ("select_expr", 5, "Select"),
        ("call_expr", 6, "Call"),
        ("list_expr", 7, "CreateList"),
        ("struct_expr", 8, "CreateStruct"),
        ("comprehension_expr", 9, "Comprehension"),
    ],
    # Maps travel as repeated entries, which is how they are read and pruned here.
    "ReferenceEntry": [("key", 1, "int64")],
    "PositionEntry": [("key", 1, "int64"), ("value", 2, "int32")],
    "SourceInfo": [("line_offsets", 3, "*int32"), ("positions", 4, "*PositionEntry")],
    "CheckedExpr": [
        ("reference_map", 2, "*ReferenceEntry"),
        ("expr", 4, "Expr"),
        ("source_info", 5, "SourceInfo"),
    ],
}


def _file() -> Any:
    # proto2, because its fields have presence: the constants "", 0 and false must survive.
    file = descriptor_pb2.FileDescriptorProto(
        name="sluicegate/cel_syntax.proto", package=_PACKAGE, syntax="proto2"
    )
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, declared in fields:
            kind = declared.removeprefix("*")
            repeated = declared.startswith("*")
            field = described.field.add(
                name=name,
                number=number,
                label=_FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL,
            )
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type = _FIELD.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind}"
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


CheckedExpr: Final = _message("CheckedExpr")
Expr: Final = _message("Expr")


def parse(serialized: bytes) -> Any:
    """Parse the output of the library's `serialize`. Raises `ValueError` on a tree too deep to carry."""
    try:
        envelope = any_pb2.Any.FromString(serialized)
        return CheckedExpr.FromString(envelope.value)
    except Exception as error:  # protobuf's DecodeError is a plain Exception
        raise ValueError("the expression is nested too deeply") from error


def serialize(checked: Any) -> bytes:
    """Return the input of the library's `deserialize`."""
    envelope = any_pb2.Any(type_url=_TYPE_URL, value=checked.SerializeToString())
    return bytes(envelope.SerializeToString())


def children(expr: Any) -> Iterator[Any]:
    """The direct sub-expressions of a node, in the order of the text."""
    if expr.HasField("select_expr"):
        yield expr.select_expr.operand
    elif expr.HasField("call_expr"):
        if expr.call_expr.HasField("target"):
            yield expr.call_expr.target
        yield from expr.call_expr.args
    elif expr.HasField("list_expr"):
        yield from expr.list_expr.elements
    elif expr.HasField("struct_expr"):
        for entry in expr.struct_expr.entries:
            if entry.HasField("map_key"):
                yield entry.map_key
            yield entry.value
    elif expr.HasField("comprehension_expr"):
        loop = expr.comprehension_expr
        yield from (
            loop.iter_range,
            loop.accu_init,
            loop.loop_condition,
            loop.loop_step,
            loop.result,
        )
