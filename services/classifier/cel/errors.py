"""The two errors of a configured expression: at compilation and at evaluation."""

_QUOTED_CHARS_MAX = 200


class _ExpressionError(Exception):
    """Names the expression by its index, and quotes the start of its text."""

    def __init__(self, *, index: int, expression: str, problem: str) -> None:
        line = " ".join(expression.split())
        if len(line) > _QUOTED_CHARS_MAX:
            line = line[:_QUOTED_CHARS_MAX] + "…"
        super().__init__(f"cel.expressions[{index}] ({line!r}): {problem}")
        self.index = index
        self.problem = problem


class CompileError(_ExpressionError, ValueError):
    """The configuration is invalid: the expression can never work. The last good one stays in force."""


class EvaluationError(_ExpressionError):
    """The expression failed on this object. The webhook must refuse to create the object."""
