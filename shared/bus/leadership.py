"""Leadership: one replica of a service does the work, for as long as it holds a lease.

Each round has five steps:

1. `lead` waits until all that this process has published before is stored or given up.
2. It waits until this replica holds the lease.
3. A term begins: `serve` rebuilds its state from the streams and works.
4. The term ends because the lease is lost, because `serve` returned or raised, or because a log lacks
   what this process has published (`LogChangedError`). After an error `lead`
   pauses, still with the lease: otherwise each replica in turn would try at once what failed.
5. `lead` releases the lease, also when it is cancelled, and starts with step 1 again. Before it does, what
   is on its way gets `RELEASE_SECONDS`: the next leader, whoever it is, then reads it.

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

RELEASE_SECONDS: Final = 3.0
"""How long a lease is kept at most after its term, for what is on its way. Other replicas wait meanwhile."""


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
        # It may take as long as the bus tries. Meanwhile another replica may lead.
        await _flush(bus)
        lease = await bus.lease(name)
        try:
            error = await _term(bus, lease, name, serve)
            if error is not None:
                _raise_or_log(error, name, survives)
                # With the lease: what ends a term here would end the terms of the other replicas too.
                await asyncio.sleep(pause_seconds())
        finally:
            if lease.held:
                await _flush(bus, seconds=RELEASE_SECONDS)
            await lease.release()


async def _flush(bus: Bus, *, seconds: float | None = None) -> None:
    """Wait until all that this process has published is stored or given up, or `seconds` are over.

    What a term has on its way may be stored behind what the next one reads: no fence refuses the first
    message of a subject, and nobody would say that the object is gone.
    """
    with suppress(BusError, TimeoutError):  # Its publisher was told.
        async with asyncio.timeout(seconds):
            await bus.flush()


def _raise_or_log(error: BaseException, name: str, survives: tuple[type[Exception], ...]) -> None:
    causes = list(_leaves(error))
    if not all(isinstance(cause, survives) for cause in causes):
        raise error
    fenced = any(isinstance(cause, FencedError) for cause in causes)
    log.warning(
        "a term ended: another leader has written" if fenced else "a term ended",
        lease=name,
        because=[str(cause) for cause in causes],
    )


async def _term(
    bus: Bus, lease: Lease, name: str, serve: Callable[[], Awaitable[None]]
) -> BaseException | None:
    """Serve until the lease is lost; return what ended the term, None if the lease was lost."""
    serving = asyncio.ensure_future(serve())
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


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions inside exception groups."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
