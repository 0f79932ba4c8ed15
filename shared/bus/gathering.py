"""Sends what is said within a moment by one system call.

nats-py writes to its socket as soon as the event loop comes by: under load, one call for each
acknowledgement and each publish. Those calls were 63 % of the watcher's time and a quarter of the
others', and each wakes the server, which wakes whoever listens.
"""

import asyncio
import math
from typing import Any, Final

from nats.aio.client import Client

from shared.bus.cancellation import cancellable

__all__ = ["BURST", "GATHER_SECONDS", "STEADY_SECONDS", "gather_writes", "round_trip"]

GATHER_SECONDS: Final = 0.002
"""Between two writes. Who says something after a longer silence is heard at once."""

STEADY_SECONDS: Final = 0.01
"""Between two writes of many. A decision passes four connections: 20 ms more on the average, only
where so much is going on that it would stand in line for longer."""

BURST: Final = 20
"""Writes in a row that are not many yet: what asks and waits for the answer is not slowed down."""


class _Gathering(asyncio.Queue["asyncio.Future[Any]"]):
    """The queue on which nats-py's flusher waits for something to be written."""

    def __init__(self, maxsize: int, seconds: float, steady: float) -> None:
        super().__init__(maxsize)
        self._seconds = seconds
        self._steady = max(seconds, steady)
        self._wrote_at = -math.inf
        self._paid_until = -math.inf
        """A write pays for `steady`; who is `BURST` of them in debt waits."""

    async def get(self) -> "asyncio.Future[Any]":
        """Return when it is time to write."""
        written = await super().get()
        loop = asyncio.get_running_loop()
        due = max(self._wrote_at + self._seconds, self._paid_until - BURST * self._steady)
        wait = due - loop.time()
        if wait > 0:
            try:
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                # The flusher ends; nats-py itself writes the rest.
                if not written.done():
                    written.set_result(None)
                raise
        self._wrote_at = loop.time()
        self._paid_until = max(self._paid_until, self._wrote_at) + self._steady
        return written


def gather_writes(
    nc: Client, *, seconds: float = GATHER_SECONDS, steady: float = STEADY_SECONDS
) -> None:
    """Make a connected client write no more often than every `seconds`, or `steady` for long.

    May be repeated.
    """
    queue = nc._flush_queue  # noqa: SLF001  # there is no public way
    if queue is None or isinstance(queue, _Gathering):
        return
    nc._flush_queue = _Gathering(queue.maxsize, seconds, steady)  # noqa: SLF001
    # The flusher waits on the old one: this makes it look again.
    queue.put_nowait(asyncio.get_running_loop().create_future())


async def round_trip(nc: Client) -> None:
    """Return once the server has taken in all that was said so far.

    nats-py's own `flush` is not enough: it writes its PING past the commands that wait to be written,
    so the PONG proves nothing about them.
    """
    while nc.is_connected and nc.pending_data_size > 0:  # noqa: ASYNC110  # nobody tells
        await asyncio.sleep(GATHER_SECONDS)
    with cancellable():
        await nc.flush()
