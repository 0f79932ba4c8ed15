"""Waits for tests: until a condition holds, within one deadline that a loaded machine can keep.

A deadline here only tells a hang from a slow machine; no test passes or fails by how long something
takes. Time is that of the running event loop, so the same waits serve tests in virtual time.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from shared.bus.port import UnavailableError

T = TypeVar("T")

PATIENCE_SECONDS: Final = 120.0
"""How long a test waits for something that is expected to happen."""

LOOK_SECONDS: Final = 0.01


async def eventually(
    condition: Callable[[], object],
    otherwise: Callable[[], object] | str = "",
    *,
    seconds: float = PATIENCE_SECONDS,
    look_seconds: float = LOOK_SECONDS,
) -> None:
    """Return once `condition()` is true; it may return an awaitable.

    Raises TimeoutError after `seconds`, with what `otherwise` says.
    """

    async def holds() -> bool | None:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        return True if found else None

    await first_value(holds, otherwise, seconds=seconds, look_seconds=look_seconds)


async def first_value(
    fetch: Callable[[], Awaitable[T | None]],
    otherwise: Callable[[], object] | str = "",
    *,
    seconds: float = PATIENCE_SECONDS,
    look_seconds: float = LOOK_SECONDS,
) -> T:
    """Return the first result of `fetch()` that is not None. Raises TimeoutError as `eventually`.

    A bus that is unavailable for a moment is asked again.
    """
    try:
        async with asyncio.timeout(seconds) as deadline:
            while True:
                with contextlib.suppress(UnavailableError):
                    if (found := await fetch()) is not None:
                        return found
                await asyncio.sleep(look_seconds)
    except TimeoutError as error:
        if not deadline.expired():
            raise
        detail = otherwise if isinstance(otherwise, str) else otherwise()
        raise TimeoutError(f"not within {seconds:g} s: {detail}") from error
