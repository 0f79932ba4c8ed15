"""Collects writes of a short time into one system call, and reads in the same way.

nats-py writes to its socket as soon as the event loop comes by, and reads as soon as a byte is there:
under load, one call for each message in each direction. Those calls were 63 % of the watcher's time
and a quarter of the others', and each wakes the server, which wakes whoever listens.
"""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from nats.aio.client import Client

from shared.bus.nats.cancellation import cancellable

GATHER_SECONDS: Final = 0.002
"""Between two writes. The first write after a longer pause goes out at once."""

STEADY_SECONDS: Final = 0.04
"""Between two gulps of many. A decision passes four connections: 160 ms more on the average, only
where so much is going on that it would stand in line for longer."""

BURST: Final = 20
"""Gulps in a row that are not many yet."""

WORTH_MESSAGES: Final = 3
"""A gulp that was waited for brings so many, or waiting is not worth it: somebody asks, and waits for
the answer before he asks again."""


class _Gulps:
    """When the next one may be. A silence pays for some at once, a gulp of too few for `BURST`."""

    def __init__(self, moment: float, steady: float) -> None:
        self._moment = moment
        self._steady = max(moment, steady)
        self._credit = float(BURST)
        self._last = -math.inf
        self._gathers = False

    def wait(self, now: float) -> float:
        """Seconds until the next one is due."""
        self._gathers = self._credit < 1.0
        return self._last + (self._steady if self._gathers else self._moment) - now

    def spend(self, now: float) -> None:
        """Count one batch that is read or written at `now`."""
        if not self._gathers:
            self._credit -= 1.0
        silence = max(0.0, now - self._last - self._steady)
        self._credit = min(float(BURST), self._credit + silence / self._steady)
        self._last = now

    def record(self, messages: int) -> None:
        """Record how many messages a write or read had; after a small one the next `BURST` do not wait."""
        if self._gathers and messages < WORTH_MESSAGES:
            self._credit = float(BURST)


class _Gathering(asyncio.Queue["asyncio.Future[Any]"]):
    """The queue on which nats-py's flusher waits for something to be written."""

    def __init__(self, nc: Client, maxsize: int, seconds: float, steady: float) -> None:
        super().__init__(maxsize)
        self._nc = nc
        self._gulps = _Gulps(seconds, steady)
        self._sent = 0

    async def get(self) -> "asyncio.Future[Any]":
        """Return when it is time to write."""
        written = await super().get()
        loop = asyncio.get_running_loop()
        wait = self._gulps.wait(loop.time())
        if wait > 0:
            try:
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                # The flusher ends; nats-py itself writes the rest.
                if not written.done():
                    written.set_result(None)
                raise
        self._gulps.spend(loop.time())
        sent = self._nc.stats["out_msgs"]
        self._gulps.record(sent - self._sent)
        self._sent = sent
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
    nc._flush_queue = _Gathering(nc, queue.maxsize, seconds, steady)  # noqa: SLF001
    # The flusher waits for the old queue: this wakes it, so that it uses the new one.
    queue.put_nowait(asyncio.get_running_loop().create_future())


class _Reading:
    """What nats-py's reader calls for the next bytes."""

    def __init__(self, nc: Client, transport: Any, steady: float) -> None:
        self._nc = nc
        self._transport = transport
        self._read = transport.read
        self._gulps = _Gulps(0.0, steady)
        self._received = nc.stats["in_msgs"]
        self._unfinished = False
        """Whether more data was available than one read returns."""

    async def __call__(self, size: int) -> bytes:
        """Return what came, when it is time to read."""
        if not self._unfinished:
            await self._wait()
        got: bytes = await self._read(size)
        if not self._unfinished:
            self._gulps.spend(asyncio.get_running_loop().time())
        self._unfinished = len(got) >= size
        return got

    async def _wait(self) -> None:
        # The bytes of the last read have been parsed by now.
        received = self._nc.stats["in_msgs"]
        self._gulps.record(received - self._received)
        self._received = received
        wait = self._gulps.wait(asyncio.get_running_loop().time())
        if wait > 0:
            with self._deaf():
                await asyncio.sleep(wait)

    @contextmanager
    def _deaf(self) -> Iterator[None]:
        """Leave arriving data in the kernel's buffer, instead of waking up for each piece."""
        writer = getattr(self._transport, "_io_writer", None)  # Not every transport has one.
        below = None if writer is None else writer.transport
        if below is None or below.is_closing():
            yield
            return
        below.pause_reading()
        try:
            yield
        finally:
            if not below.is_closing():
                below.resume_reading()


def gather_reads(nc: Client, *, steady: float = STEADY_SECONDS) -> None:
    """Make a connected client read no more often than every `steady`, where it has much to read.

    May be repeated.
    """
    transport: Any = nc._transport  # noqa: SLF001  # there is no public way
    if not isinstance(transport.read, _Reading):
        transport.read = _Reading(nc, transport, steady)


async def round_trip(nc: Client) -> None:
    """Return once the server has processed all that was sent so far.

    nats-py's own `flush` is not enough: it writes its PING past the commands that wait to be written,
    so the PONG proves nothing about them.
    """
    while nc.is_connected and nc.pending_data_size > 0:  # noqa: ASYNC110  # nobody tells
        await asyncio.sleep(GATHER_SECONDS)
    with cancellable():
        await nc.flush()
