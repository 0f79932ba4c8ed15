"""The event loop of every process of ours."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on uvloop, as `asyncio.run` does on asyncio's own loop.

    With the same code a workload costs our services a fifth less CPU: most of what they do is
    small messages over sockets and TLS (`docs/how-to/measure.md`).
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
