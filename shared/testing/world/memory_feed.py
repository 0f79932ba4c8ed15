"""Delivery to a reader of the memory bus, as NATS delivers to a consumer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shared.testing.world.connection import Connection
from shared.testing.world.memory_server import MemoryServer
from shared.testing.world.memory_streams import Durable, NoLeaderError, Stored, matches

BATCH: Final = 64
"""Most messages of one batch."""

Given = tuple[list[Stored], int, bool]
"""Messages, the position up to which the stream was searched, and whether the target is reached."""


@dataclass(slots=True, kw_only=True)
class Feed:
    """One reader as the server sees it: a waiting reader gets messages as they arrive.

    A reader that does not wait, or lost a batch with its connection, asks for the next one.
    """

    connection: Connection
    alive: Callable[[], bool]
    next_batch: Callable[[int], Callable[[MemoryServer], Given]]
    """Reads the batch after a position."""

    position: int
    filters: tuple[str, ...]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    given: Given | None = None
    caught_up: bool = False
    waiting: bool = False
    on_the_way: bool = False
    more: bool = False
    """True if messages arrived after the last batch was sent."""

    over: bool = False

    async def wait(self) -> None:
        """Return when a batch has arrived, or when messages may have been lost."""
        self.waiting = True
        try:
            await self.wake.wait()
        finally:
            self.waiting = False

    def on_messages(self, subjects: tuple[str, ...]) -> bool:
        """Called at the server: the stream has new messages of these subjects; None means any subject."""
        if self.over or not self.alive():
            return False
        # Until the target is reached, any message may be the last one.
        if self.caught_up and subjects and not any(matches(s, self.filters) for s in subjects):
            return True
        if self.on_the_way:
            self.more = True
        elif self.waiting and not self.wake.is_set() and self.connection.open:
            try:
                given = self.next_batch(self.position)(self.connection.peer)
            except NoLeaderError:
                self.wake.set()
                return True
            self.on_the_way = True
            self.connection.answer(lambda: self._arrive(given))
        else:
            self.wake.set()
        return True

    def on_down(self) -> None:
        """The connection is lost, and with it the batch on its way."""
        if self.on_the_way:
            self.on_the_way = self.more = False
            self.wake.set()

    def _arrive(self, given: Given) -> None:
        self.on_the_way = False
        # Messages arrived meanwhile: ask again, which includes these.
        if not self.more:
            self.given = given
        self.more = False
        self.wake.set()


def batch_after(
    name: str,
    position: int,
    filters: tuple[str, ...],
    target: int,
    view: bool,
    server: MemoryServer,
) -> Given:
    """Return the batch after `position`, the new position, and whether `target` is reached."""
    stream = server.fed(name)
    stream.expire(server.seconds())
    batch: list[Stored] = []
    while len(batch) < BATCH:
        stored = stream.after(position, filters)
        if stored is None:
            return batch, stream.last, (stream.sourced if view else stream.last) >= target
        batch.append(stored)
        position = stored.sequence
    return batch, position, not view and position >= target


class Delivery:
    """The part of a NATS message that the worker uses: a message of a view and its acknowledgements."""

    def __init__(
        self, connection: Connection, durable: Durable, stored: Stored, deliveries: int
    ) -> None:
        self._connection = connection
        self._durable = durable
        self._sequence = stored.sequence
        self.subject = stored.subject
        self.data = stored.data
        self.headers = dict(stored.headers)
        nanoseconds = int(stored.time.timestamp() * 1e6) * 1000
        self.reply = (
            f"$JS.ACK.{durable.stream.name}.{durable.name}.{deliveries}.{stored.sequence}"
            f".{stored.sequence}.{nanoseconds}.0"
        )

    async def ack(self) -> None:
        """Done."""
        await self._answer("ack", lambda server: server.ack(self._durable, self._sequence))

    async def nak(self, delay: float | None = None) -> None:
        """Deliver it again after `delay` seconds."""
        await self._answer(
            "nak", lambda server: server.nak(self._durable, self._sequence, delay or 0.0)
        )

    async def term(self) -> None:
        """Never deliver it again."""
        await self.ack()

    async def in_progress(self) -> None:
        """Extend the time until it is delivered again."""
        await self._answer(
            "heartbeat", lambda server: server.in_progress(self._durable, self._sequence)
        )

    async def _answer(self, what: str, act: Callable[[MemoryServer], None]) -> None:
        connection = self._connection
        await connection.wire.point(f"{what} {self.subject}")
        connection.send(lambda: act(connection.peer))
