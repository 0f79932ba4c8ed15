"""A row of the table: a parser, what it is given, and what it may raise."""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

SECONDS_MAX: Final = 1.0
"""CPU time that no input may take in `make fuzz`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """A parser that reads what somebody else wrote."""

    name: str
    strategy: st.SearchStrategy[Any]
    call: Callable[[Any], object]
    """Reads one example; may return an awaitable."""

    allowed: tuple[type[Exception], ...] = ()
    """The errors that it declares. Nothing else may come out."""

    weight: float = 1.0
    """Its share of the examples: less for a parser whose calls cost more."""

    tested: int = 20
    """Examples in the suite of tests: less for a parser whose calls cost more."""

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class Result:
    """What came out of a border."""

    examples: int = 0
    slowest: float = 0.0
    slowest_example: Any = None
    error: BaseException | None = None
    example: Any = field(default=None)

    @property
    def problem(self) -> str | None:
        """In words, what is wrong; None: it holds."""
        if self.error is not None:
            frames = traceback.extract_tb(self.error.__traceback__)[-3:]
            where = ", ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames)
            text = f"{type(self.error).__name__}: {str(self.error)[:300]} (at {where})"
            return f"{text}\n    given {_shown(self.example)}"
        return None

    @property
    def delay(self) -> str | None:
        """In words, what took too long; None: nothing did. A benchmark's question, not a test's."""
        if self.slowest > SECONDS_MAX:
            return f"took {self.slowest:.1f} s of CPU\n    given {_shown(self.slowest_example)}"
        return None


@dataclass(frozen=True, slots=True, repr=False)
class _Hidden:
    """An example that hypothesis does not print: it may be nested too deeply for that."""

    value: Any


def probe(border: Border, examples: int, *, number: int | None = None) -> Result:
    """Give the border so many examples. `number`: the seed; None: always the same examples."""
    result = Result()

    @settings(
        max_examples=examples,
        derandomize=number is None,
        database=None,
        deadline=None,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(border.strategy.map(_Hidden))
    def one(hidden: _Hidden) -> None:
        example = hidden.value
        result.examples += 1
        started = time.process_time()
        try:
            found = border.call(example)
            if isinstance(found, Awaitable):
                runner.run(_awaited(found))
        except border.allowed:
            pass
        except BaseException:
            result.example = example
            raise
        finally:
            _note(result, time.process_time() - started, example)

    run = one if number is None else seed(number)(one)
    with asyncio.Runner() as runner:
        try:
            run()
        except Exception as error:  # noqa: BLE001 # Whatever comes out is what is looked for.
            result.error = error
        if result.slowest > SECONDS_MAX:
            _repeat(border, result, runner)
    return result


def _shown(example: Any) -> str:
    try:
        return repr(str(example)[:1500])
    except (RecursionError, ValueError):
        return "something too deep or too large to show"


def _note(result: Result, seconds: float, example: Any) -> None:
    if seconds > result.slowest:
        result.slowest, result.slowest_example = seconds, example


def _repeat(border: Border, result: Result, runner: asyncio.Runner) -> None:
    """Measure the slowest example anew: a garbage collection may have come into the first time."""
    for _ in range(3):
        started = time.process_time()
        try:
            found = border.call(result.slowest_example)
            if isinstance(found, Awaitable):
                runner.run(_awaited(found))
        except border.allowed:
            pass
        result.slowest = min(result.slowest, time.process_time() - started)


async def _awaited(found: Awaitable[object]) -> object:
    return await found
