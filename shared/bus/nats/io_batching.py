"""Collects writes of a short time into one system call, and reads in the same way.

nats-py writes to its socket as soon as the event loop comes by, and reads as soon as a byte is there:
under load, one call for each message in each direction. Those calls were 63 % of the watcher's time
and a quarter of the others', and each wakes the server, which wakes whoever listens.
"""

import asyncio
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from nats.aio.client import Client

from shared.bus.nats.cancellation import cancellable

GATHER_SECONDS: Final = 0.002
"""Between two writes. The first write after a longer pause goes out at once."""

STEADY_SECONDS: Final = 0.04
"""Between two gulps of many, where the machine has no time left. A decision passes four connections: 160 ms
more on the average, only where so much is going on that it would stand in line for longer."""

BRISK_SECONDS: Final = 0.004
"""Between two gulps of many, where a core is free and a sleeper wakes up on time: a decision is not to wait
for nothing."""

LOAD_SECONDS: Final = 1.0
"""How often the machine is asked how much there is to run."""

LOAD_FREE: Final = 0.75
LOAD_FULL: Final = 1.5
"""So much to run for each core, over a minute, is no reason to gather, and a reason to gather for long. Who
wakes up is often preferred, and on time where there is no time left for the others."""

LATE_WEIGHT: Final = 0.1
"""Of the newest of the delays that are averaged."""

LATE_FACTOR: Final = 8.0
"""So many times as long as sleepers wake up late, on the average, is the time between two gulps."""

BURST: Final = 20
"""Gulps in a row that are not many yet."""

WORTH_MESSAGES: Final = 3
"""A gulp that was waited for brings so many, or waiting is not worth it: the traffic is
requests, each sent after the answer to the one before."""


def _load_of_machine() -> float:
    """How much there is to run for each core, over a minute. In a container: of its host."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


class _ReadBatches:
    """When the next one may be. A silence pays for some at once, a gulp of too few for `BURST`."""

    def __init__(self, moment: float, brisk: float, steady: float) -> None:
        self._load_at = -math.inf
        self._loaded = 0.0
        """0 where a core is free, 1 where there is too much to run."""

        self._moment = moment
        self._steady_max = max(moment, steady)
        self._brisk = min(max(moment, brisk), self._steady_max)
        self._steady = self._brisk
        self._late = 0.0
        self._credit = float(BURST)
        self._last = -math.inf
        self._gathers = False

    def wait(self, now: float) -> float:
        """Seconds until the next one is due."""
        self._gathers = self._credit < 1.0
        return self._last + (self._steady if self._gathers else self._moment) - now

    def woke(self, late: float, now: float) -> None:
        """Record how much later than asked for a sleep ended: the longer, the less time is there."""
        self._late += LATE_WEIGHT * (max(0.0, late) - self._late)
        if now - self._load_at >= LOAD_SECONDS:
            self._load_at = now
            beyond = (_load_of_machine() - LOAD_FREE) / (LOAD_FULL - LOAD_FREE)
            self._loaded = min(1.0, max(0.0, beyond))
        wanted = max(self._brisk, LATE_FACTOR * self._late, self._loaded * self._steady_max)
        self._steady = min(self._steady_max, wanted)

    async def sleep(self, seconds: float) -> None:
        """Sleep, and record how late that ended."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        await asyncio.sleep(seconds)
        now = loop.time()
        self.woke(now - due, now)

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


class _BatchedFlushes(asyncio.Queue["asyncio.Future[Any]"]):
    """The queue on which nats-py's flusher waits for something to be written."""

    def __init__(self, nc: Client, maxsize: int, gulps: _ReadBatches) -> None:
        super().__init__(maxsize)
        self._nc = nc
        self._gulps = gulps
        self._sent = 0

    async def get(self) -> "asyncio.Future[Any]":
        """Return when it is time to write."""
        written = await super().get()
        loop = asyncio.get_running_loop()
        wait = self._gulps.wait(loop.time())
        if wait > 0:
            try:
                await self._gulps.sleep(wait)
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
    nc: Client,
    *,
    seconds: float = GATHER_SECONDS,
    brisk: float = BRISK_SECONDS,
    steady: float = STEADY_SECONDS,
) -> None:
    """Make a connected client write no more often than every `seconds`.

    For long no more often than every `brisk`, and every `steady` where the machine has no time left. May be
    repeated.
    """
    queue = nc._flush_queue  # noqa: SLF001  # there is no public way
    if queue is None or isinstance(queue, _BatchedFlushes):
        return
    nc._flush_queue = _BatchedFlushes(  # noqa: SLF001
        nc, queue.maxsize, _ReadBatches(seconds, brisk, steady)
    )
    # The flusher waits for the old queue: this wakes it, so that it uses the new one.
    queue.put_nowait(asyncio.get_running_loop().create_future())


class _Reading:
    """What nats-py's reader calls for the next bytes."""

    def __init__(self, nc: Client, transport: Any, gulps: _ReadBatches) -> None:
        self._nc = nc
        self._transport = transport
        self._read = transport.read
        self._gulps = gulps
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
                await self._gulps.sleep(wait)

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


def gather_reads(
    nc: Client,
    *,
    brisk: float = BRISK_SECONDS,
    steady: float = STEADY_SECONDS,
) -> None:
    """Make a connected client read no more often than every `brisk`, where it has much to read.

    Where the machine has no time left, no more often than every `steady`. May be repeated.
    """
    transport: Any = nc._transport  # noqa: SLF001  # there is no public way
    if not isinstance(transport.read, _Reading):
        transport.read = _Reading(nc, transport, _ReadBatches(0.0, brisk, steady))


async def round_trip(nc: Client) -> None:
    """Return once the server has processed all that was sent so far.

    nats-py's own `flush` is not enough: it writes its PING past the commands that wait to be written,
    so the PONG proves nothing about them.
    """
    while nc.is_connected and nc.pending_data_size > 0:  # noqa: ASYNC110  # nobody tells
        await asyncio.sleep(GATHER_SECONDS)
    with cancellable():
        await nc.flush()
