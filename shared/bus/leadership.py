"""Leadership: one replica of a service does the work, for as long as it holds a lease.

Each round has four steps:

1. `lead` waits until the lease is ours.
2. A term begins: `serve` rebuilds its state from the streams and works.
3. The term ends because the lease is lost, or because `serve` returned or raised.
4. `lead` gives the lease back, also when it is cancelled, and begins again.

The lease only saves work. What keeps two leaders from contradicting each other is the fence of each
publish: whoever is late gets a `FencedError`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NoReturn

import structlog

from shared.bus.port import Bus, BusError, FencedError, Lease

__all__ = ["lead"]

log = structlog.get_logger(__name__)

PAUSE_SECONDS: Final = 1.0


async def lead(
    bus: Bus,
    name: str,
    serve: Callable[[], Awaitable[None]],
    *,
    survives: tuple[type[Exception], ...] = (BusError,),
    pause_seconds: Callable[[], float] = lambda: PAUSE_SECONDS,
) -> NoReturn:
    """Call `serve` whenever the lease `name` is ours, until cancelled.

    `serve` works until it is cancelled, which is how a lost lease ends it. If all that it raises are
    errors of `survives` (exception groups are looked into), they are logged, and another term begins
    after `pause_seconds()`; anything else is raised, once the lease is released.
    """
    while True:
        lease = await bus.lease(name)
        try:
            error = await _term(lease, name, serve)
        finally:
            await lease.release()
        if error is None:
            continue
        causes = list(_leaves(error))
        if not all(isinstance(cause, survives) for cause in causes):
            raise error
        fenced = any(isinstance(cause, FencedError) for cause in causes)
        log.warning(
            "term ended: somebody else has written" if fenced else "term ended",
            lease=name,
            because=[str(cause) for cause in causes],
        )
        await asyncio.sleep(pause_seconds())


async def _term(
    lease: Lease, name: str, serve: Callable[[], Awaitable[None]]
) -> BaseException | None:
    """Serve until the lease is lost; return what `serve` raised, None if the lease was lost."""
    serving = asyncio.ensure_future(serve())
    losing = asyncio.ensure_future(lease.lost())
    try:
        await asyncio.wait({serving, losing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        serving.cancel()
        losing.cancel()
        await asyncio.gather(serving, losing, return_exceptions=True)
    if serving.cancelled():
        log.warning("the lease is lost", lease=name)
        return None
    return serving.exception()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """What was raised, out of the groups that brought it here."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
