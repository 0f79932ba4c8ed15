"""A test gives no verdict on time, pace or CPU: this finds where one does."""

import ast
from collections.abc import Iterator
from typing import Final

from tests.architecture.sources import House, Source

_CPU_CLOCKS: Final = frozenset(
    f"{name}{unit}"
    for name in ("perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
)
_WALL_CLOCKS: Final = frozenset({"monotonic", "monotonic_ns", "time", "now", "utcnow"})

_STDERR: Final = frozenset({"err", "stderr"})

MEASURES: Final = {
    "tests/fuzz/border.py": "a second of CPU for one example, three times in a row, is a denial of service",
    "tests/unit/integrations/bench.py": "a benchmark, which asserts nothing",
}
"""Files that may read a clock for measuring, with the reason."""

VIRTUAL: Final = {
    "tests/conformance/seeds": "its stage keeps the time of a virtual loop",
    "tests/simulation": "a world in virtual time",
    "tests/unit/provisioner/test_provider_failures.py": "a harness in virtual time",
    "tests/unit/provisioner/test_reservations.py": "a harness in virtual time",
}
"""Files and folders whose spans are those of a virtual clock, with the reason."""


def no_test_judges_time(house: House) -> Iterator[str]:
    """A stall of the machine fails no test: count, order, or run in virtual time.

    A lower bound is allowed: whoever is slow keeps it. So is a sentence on standard error, but not all that
    stands there: a command that takes more than a second tells what it does.
    """
    for file in house.tests:
        yield from _whole_stderr(file)
        if not file.inside(*MEASURES):
            for node in file.nodes:
                if (name := _name_of(node)) in _CPU_CLOCKS or _imports_cpu_clock(node):
                    what = name or "a clock"
                    yield f"{file.path}:{_line(node)}: {what}: measure in a benchmark, not in a test"
        if not file.inside(*MEASURES, *VIRTUAL):
            yield from _judged_spans(file)


def _whole_stderr(file: Source) -> Iterator[str]:
    for node in file.nodes:
        if _equals_text(node) or _asks_how_it_starts(node):
            yield (
                f"{file.path}:{_line(node)}: a slow machine sees progress there: look for the sentence"
                " that is meant"
            )


def _equals_text(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq)):
        return False
    text = node.comparators[0]
    is_text = isinstance(text, ast.Constant) and isinstance(text.value, str)
    return is_text and _name_of(node.left) in _STDERR


def _asks_how_it_starts(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Attribute) and node.attr == "startswith"):
        return False
    return _name_of(node.value) in _STDERR


def _imports_cpu_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and any(a.name in _CPU_CLOCKS for a in node.names)


def _judged_spans(file: Source) -> Iterator[str]:
    if not any(f"{clock}(" in file.text for clock in _WALL_CLOCKS):
        return
    for function in file.nodes:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            clocks = _Clocks(function)
            for node in ast.walk(function):
                if isinstance(node, ast.Assert) and clocks.judges(node.test):
                    yield (
                        f"{file.path}:{node.lineno}: a slow machine misses this: count, take virtual time,"
                        " or compare with a time before and one after"
                    )


class _Clocks:
    """The names of a function that hold a time, and those that hold a span between two times."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._times: set[str] = set()
        self._spans: set[str] = set()
        before = -1
        while before < (before := len(self._times) + len(self._spans)):
            for node in ast.walk(function):
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    self._learn(
                        node.targets if isinstance(node, ast.Assign) else [node.target], node.value
                    )

    def _learn(self, targets: list[ast.expr], value: ast.expr) -> None:
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        if self._is_span(value):
            self._spans |= names
        elif self._is_time(value):
            self._times |= names

    def judges(self, condition: ast.expr) -> bool:
        """Whether a condition has an upper bound for a time or a span, or a pace."""
        for node in ast.walk(condition):
            if not isinstance(node, ast.Compare):
                continue
            sides = [node.left, *node.comparators]
            for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
                smaller = left if isinstance(operator, ast.Lt | ast.LtE) else right
                if not isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                    continue
                if self._is_span(smaller) or _reads_clock(smaller):
                    return True
                if any(self._is_pace(side) for side in (left, right)):
                    return True
        return False

    def _is_time(self, expression: ast.expr) -> bool:
        return _reads_clock(expression) or self._names(expression, self._times)

    def _is_span(self, expression: ast.expr) -> bool:
        return self._names(expression, self._spans) or any(
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Sub)
            and (self._is_time(node.left) or self._is_time(node.right))
            for node in ast.walk(expression)
        )

    def _is_pace(self, expression: ast.expr) -> bool:
        return any(
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv)
            and self._is_span(node)
            for node in ast.walk(expression)
        )

    @staticmethod
    def _names(expression: ast.expr, names: set[str]) -> bool:
        return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(expression))


def _reads_clock(expression: ast.expr) -> bool:
    """Whether it has a call like `time.monotonic()`, `loop.time()` or `datetime.now(UTC)`."""
    return any(
        isinstance(node, ast.Call)
        and _name_of(node.func) in _WALL_CLOCKS
        and len(node.args) + len(node.keywords) <= 1
        for node in ast.walk(expression)
    )


def _name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))
