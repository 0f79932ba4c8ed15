"""Leadership: one replica of a service does the work, for as long as it holds a lease.

Each round has four steps:

1. `lead` waits until this replica holds the lease.
2. A term begins: when all that this process has published before is stored or given up, `serve`
   rebuilds its state from the streams and works.
3. The term ends because the lease is lost, because `serve` returned or raised, or because a log lacks
   what this process has published (`LogChangedError`). After an error `lead`
   pauses, still with the lease: otherwise each replica in turn would try at once what failed.
4. `lead` releases the lease, also when it is cancelled, and starts with step 1 again.

The lease only avoids double work. The fence of each publish keeps two leaders from contradicting each
other: the late one gets a `FencedError`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final, NoReturn

import structlog

from shared.bus.port import Bus, BusError, FencedError, Lease, LogChangedError
from shared.telemetry import probes

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
    """Call `serve` whenever this replica holds the lease `name`, until cancelled.

    `serve` works until it is cancelled; a lost lease cancels it. Errors of `survives`, also inside
    exception groups, are logged, and another term begins after `pause_seconds()`. Any other error is
    raised after the lease is released.
    """
    while True:
        lease = await bus.lease(name)
        try:
            error = await _term(bus, lease, name, serve)
            if error is not None:
                _raise_or_log(error, name, survives)
                # With the lease: what ends a term here would end the terms of the other replicas too.
                await asyncio.sleep(pause_seconds())
        finally:
            await lease.release()


def _raise_or_log(error: BaseException, name: str, survives: tuple[type[Exception], ...]) -> None:
    causes = list(_leaves(error))
    if not all(isinstance(cause, survives) for cause in causes):
        raise error
    fenced = any(isinstance(cause, FencedError) for cause in causes)
    log.warning(
        "term ended: another leader has written" if fenced else "term ended",
        lease=name,
        because=[str(cause) for cause in causes],
    )


async def _term(
    bus: Bus, lease: Lease, name: str, serve: Callable[[], Awaitable[None]]
) -> BaseException | None:
    """Serve until the lease is lost; return what ended the term, None if the lease was lost."""
    serving = asyncio.ensure_future(_serve(bus, serve))
    losing = asyncio.ensure_future(lease.lost())
    lacking = asyncio.ensure_future(bus.log_lost())
    tasks = (serving, losing, lacking)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        lost_log = lacking.result() if lacking.done() else ""
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if serving.cancelled() and lost_log:
        return LogChangedError(f"{lost_log} lacks what this process has published")
    if serving.cancelled():
        probes.LEASE_LOST.fired += 1
        log.warning("the lease is lost", lease=name)
        return None
    return serving.exception()


async def _serve(bus: Bus, serve: Callable[[], Awaitable[None]]) -> None:
    """Serve once all that this process has published before is stored or given up.

    What a term of before has on its way may be stored behind what this one reads: no fence refuses the first
    message of a subject, and nobody would say that the object is gone.
    """
    with suppress(BusError):  # Its publisher was told.
        await bus.flush()
    await serve()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions inside exception groups."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
