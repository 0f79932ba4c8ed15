"""Converts results of the library to Python values, around a bug of the library.

`plain_value` of the library (0.1.3) drops a reference to `None` that it does not own, for each null in
a result: after some thousand of them CPython 3.11 aborts ("deallocating None").
"""

from typing import Any, Final

from cel_expr_python import cel

NULL: Final = "\x00null"
"""What a `scalar` expression returns instead of null."""

MAP: Final = "\x00map"
"""What it returns instead of a map or a list, which may contain nulls."""

_NULL_TYPE: Final = cel.Type.NULL


def plain(value: Any) -> Any:
    """Return the Python value of a result that is no error."""
    type_ = value.type()
    if type_ == _NULL_TYPE:
        return None
    name = type_.name()
    if name.startswith("LIST"):
        return [plain(item) for item in value.value()]
    if name.startswith("MAP"):
        return {key: plain(item) for key, item in value.value().items()}
    return value.plain_value()


def scalar(expression: str, type_: str) -> str:
    """Return an expression with the same result, or `NULL` or `MAP`, that is safe for `plain_value`.

    `type_` is the result type that the checker reports, in lower case.
    """
    if type_ in {"bool", "int", "uint", "double", "string", "timestamp", "duration"}:
        return f"dyn({expression})"
    if type_.startswith("optional_type"):
        expression = f"{expression}.orValue(dyn(null))"
    return (
        f'cel.bind(found_, dyn({expression}), type(found_) == null_type ? dyn("\\x00null") '
        ': (type(found_) in [map, list] ? dyn("\\x00map") : found_))'
    )
