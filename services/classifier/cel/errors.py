"""The two ways in which a configured expression can be wrong."""

__all__ = ["CompileError", "EvaluationError"]

_QUOTED_CHARS_MAX = 200


def _quoted(expression: str) -> str:
    """One line of the expression, short enough for a log or an API server's message."""
    line = " ".join(expression.split())
    return repr(line if len(line) <= _QUOTED_CHARS_MAX else line[:_QUOTED_CHARS_MAX] + "…")


class CompileError(ValueError):
    """The configuration is at fault: an expression can never work. Keep the last good one."""

    def __init__(self, *, index: int, expression: str, problem: str) -> None:
        super().__init__(f"cel.expressions[{index}] ({_quoted(expression)}): {problem}")
        self.index = index
        self.problem = problem


class EvaluationError(Exception):
    """An expression failed on this object. The object's creation must be refused."""

    def __init__(self, *, index: int, expression: str, problem: str) -> None:
        super().__init__(f"cel.expressions[{index}] ({_quoted(expression)}): {problem}")
        self.index = index
        self.problem = problem
