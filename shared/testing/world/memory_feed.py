"""How a reader of the memory bus is fed: what it waits for is sent to it, as NATS sends to a consumer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shared.testing.world.connection import Connection
from shared.testing.world.memory_server import MemoryServer
from shared.testing.world.memory_streams import Stored, Stream, matches

__all__ = ["BATCH", "Feed", "Given", "batch_after"]

BATCH: Final = 64
"""Messages at a time, at most."""

Given = tuple[list[Stored], int, bool]
"""Messages, up to where the stream was looked through, and whether the target is behind us then."""


@dataclass(slots=True, kw_only=True)
class Feed:
    """One reader as the server sees it: who waits is sent what comes, as a consumer of NATS does.

    Who does not wait, or has lost something on its way, asks for it.
    """

    connection: Connection
    alive: Callable[[], bool]
    next_batch: Callable[[int], Callable[[MemoryServer], Given]]
    """What follows a position."""

    position: int
    filters: tuple[str, ...]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    given: Given | None = None
    caught_up: bool = False
    waiting: bool = False
    on_the_way: bool = False
    more: bool = False
    """Something came after what is on the way had been sent."""

    over: bool = False

    async def wait(self) -> None:
        """Until there is something, or it is known that something may be missing."""
        self.waiting = True
        try:
            await self.wake.wait()
        finally:
            self.waiting = False

    def on_messages(self, subjects: tuple[str, ...]) -> bool:
        """The stream has these subjects anew; none: it may be anything. At the server."""
        if self.over or not self.alive():
            return False
        # Until all is read, any news may be the end.
        if self.caught_up and subjects and not any(matches(s, self.filters) for s in subjects):
            return True
        if self.on_the_way:
            self.more = True
        elif self.waiting and not self.wake.is_set() and self.connection.open:
            self.on_the_way = True
            given = self.next_batch(self.position)(self.connection.server)
            self.connection.answer(lambda: self._arrive(given))
        else:
            self.wake.set()
        return True

    def on_down(self) -> None:
        """The connection is lost, with what was on the way."""
        if self.on_the_way:
            self.on_the_way = self.more = False
            self.wake.set()

    def _arrive(self, given: Given) -> None:
        self.on_the_way = False
        # What came meanwhile is asked for, and this with it.
        if not self.more:
            self.given = given
        self.more = False
        self.wake.set()


def batch_after(
    stream: Stream,
    position: int,
    filters: tuple[str, ...],
    target: int,
    view: bool,
    server: MemoryServer,
) -> Given:
    """What follows `position`, up to where that is, and whether `target` is behind us then."""
    stream.expire(server.seconds())
    batch: list[Stored] = []
    while len(batch) < BATCH:
        stored = stream.after(position, filters)
        if stored is None:
            return batch, stream.last, (stream.sourced if view else stream.last) >= target
        batch.append(stored)
        position = stored.sequence
    return batch, position, not view and position >= target
