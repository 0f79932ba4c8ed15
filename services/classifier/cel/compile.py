"""Compiles expressions to programs: checks syntax, types, and the static type of the result."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from services.classifier.cel.errors import CompileError
from services.classifier.cel.evaluate import Program, Programs
from services.classifier.cel.functions import (
    checking_environment,
    evaluating_environment,
    inline_functions,
)
from shared.cel import syntax
from shared.cel.explain import in_words
from shared.cel.syntax import children

EXPRESSION_CHARS_MAX: Final = 100_000
"""Code points in one expression: the limit of cel-go's parser, which tekton-kueue uses."""

_RESULT: Final = re.compile(r"(LIST<)?MAP<STRING, .*")
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")


class CelEngine:
    """Compiles the expressions of configurations."""

    def __init__(self) -> None:
        self._checking = checking_environment()
        self._evaluating = evaluating_environment()

    def compile(self, expressions: Sequence[str]) -> Programs:
        """Compile all expressions. Raises `CompileError` for the first invalid one."""
        return Programs(
            environment=self._evaluating,
            programs=tuple(
                self._compile(index, expression) for index, expression in enumerate(expressions)
            ),
        )

    def _compile(self, index: int, expression: str) -> Program:
        def refuse(problem: str) -> CompileError:
            return CompileError(index=index, expression=expression, problem=problem)

        if not expression.strip():
            raise refuse("the expression is empty")
        if len(expression) > EXPRESSION_CHARS_MAX:
            raise refuse(
                f"{len(expression)} characters, at most {EXPRESSION_CHARS_MAX} are allowed"
            )
        try:
            expression.encode()  # the library cannot read a lone surrogate (YAML's "\ud800")
            original = self._checking.compile(expression)
        except (RuntimeError, UnicodeEncodeError) as error:
            raise refuse(in_words(str(error))) from error
        result = original.return_type().name()
        if not _RESULT.fullmatch(result):
            raise refuse(
                "must return a mutation or a list of mutations, "
                f"map(string, dyn) or list(map(string, dyn)), but returns {result.lower()}"
            )
        try:
            checked = syntax.parse(original.serialize())
            if quoted := next(_quoted_fields(checked.expr), None):
                raise refuse(f'field `{quoted}` in backticks: write .field or ["{quoted}"]')
            tree = syntax.parse(original.serialize())
            inline_functions(tree)
            runnable = self._evaluating.deserialize(syntax.serialize(tree))
        except CompileError:
            raise
        except (RuntimeError, ValueError) as error:
            raise refuse(in_words(str(error))) from error
        return Program(index=index, expression=expression, checked=checked, runnable=runnable)


def _quoted_fields(expr: Any) -> Iterator[str]:
    """Yield fields that are no identifiers, because cel-go's parser refuses them."""
    if expr.HasField("select_expr") and not _IDENTIFIER.fullmatch(expr.select_expr.field):
        yield expr.select_expr.field
    for child in children(expr):
        yield from _quoted_fields(child)
