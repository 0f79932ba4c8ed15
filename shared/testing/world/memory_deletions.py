"""The part of `MemoryBus` that deletes what has ended, from views and logs."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import TypeVar

from shared.bus.port import Entry
from shared.testing.world.memory_server import MemoryServer

T = TypeVar("T")


class Deletions:
    """Deletions, as requests to the server. `MemoryBus` is one."""

    async def ask(self, question: Callable[[MemoryServer], T]) -> T:
        """One round trip."""
        raise AssertionError(f"a bus asks its server: {question}")

    async def purge(self, stream: str, subject: str, *, up_to: int) -> None:
        """Drop a tombstone from the view of `stream`."""
        await self.ask(lambda server: server.purge(stream, subject, up_to))

    async def sweep(self, stream: str, ended: Mapping[str, int]) -> Collection[str]:
        """Delete ended subjects from the view."""
        return await self.ask(lambda server: server.sweep(stream, ended))

    async def trim(self, stream: str, subject: str, *, up_to: int) -> int:
        """Delete a subject from the log."""
        return await self.ask(lambda server: server.trim(stream, subject, up_to))

    async def at_or_after(self, stream: str, sequence: int) -> Entry | None:
        """Return the first entry of the log from `sequence` on."""
        return await self.ask(lambda server: server.at_or_after(stream, sequence))

    async def tombstones(self, stream: str, *, before: datetime, most: int) -> dict[str, int]:
        """Return the tombstones of a view that are older than `before`."""
        return await self.ask(lambda server: server.tombstones(stream, before, most))
