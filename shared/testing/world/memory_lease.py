"""Leases of the server in memory, with the timing of `shared.bus.nats.lease`."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol, TypeVar

from shared.bus.nats.lease import LEASE_SECONDS, LOOK_SECONDS
from shared.bus.port import UnavailableError
from shared.testing.world.memory_server import MemoryServer

__all__ = ["MemoryLease", "acquire"]

T = TypeVar("T")


class Asker(Protocol):
    """The bus, as far as a lease needs it."""

    @property
    def holder(self) -> str:
        """A name that nobody else has, ever."""

    async def ask(self, question: Callable[[MemoryServer], T]) -> T:
        """One round trip; raises `UnavailableError`."""


async def acquire(bus: Asker, name: str) -> "MemoryLease":
    """Wait until the lease `name` is ours."""
    loop = asyncio.get_running_loop()
    while True:
        sent = loop.time()
        try:
            if await bus.ask(acquisition(name, bus.holder)):
                return MemoryLease(bus, name, sent + LEASE_SECONDS)
        except UnavailableError:
            continue
        await asyncio.sleep(LOOK_SECONDS)


def acquisition(name: str, holder: str) -> Callable[[MemoryServer], bool]:
    """The question whether `holder` may have, or keep, the lease `name`."""
    return lambda server: server.acquire(name, holder, LEASE_SECONDS)


class MemoryLease:
    """Keeps `shared.bus.port.Lease`."""

    def __init__(self, bus: Asker, name: str, until: float) -> None:
        self._bus = bus
        self._name = name
        self._until = until
        self._over = asyncio.Event()
        self._task = asyncio.create_task(self._renew())

    @property
    def held(self) -> bool:
        """Until the last renewal that was answered runs out."""
        now = asyncio.get_running_loop().time()
        return not self._over.is_set() and now < self._until

    async def lost(self) -> None:
        """Return when it is not ours any more."""
        await self._over.wait()

    async def release(self) -> None:
        """Let go at once."""
        self._task.cancel()
        if not self._over.is_set():
            self._over.set()
            # Where this is lost, the lease runs out.
            with contextlib.suppress(UnavailableError):
                await self._bus.ask(lambda server: server.release(self._name, self._bus.holder))

    def abandon(self) -> None:
        """Die without a word: the lease runs out."""
        self._task.cancel()

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            sent = loop.time()
            try:
                async with asyncio.timeout(max(0.0, self._until - sent)):
                    ours = await self._bus.ask(acquisition(self._name, self._bus.holder))
            except TimeoutError:
                ours = False
            except UnavailableError:
                continue
            if not ours:
                self._over.set()
                return
            self._until = sent + LEASE_SECONDS
