"""What a bus in memory asks its server for: leases, deletions, large bodies, what a log has lost.

Leases have the timing of `shared.bus.nats.lease`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime
from typing import Final, Protocol, TypeVar

from shared.bus.headers import EVENT_ID
from shared.bus.nats.large_bodies import reference
from shared.bus.nats.lease import LEASE_SECONDS, LOOK_SECONDS
from shared.bus.order.acknowledged import Acknowledged
from shared.bus.order.terms import Terms, rules
from shared.bus.port import BusError, Entry, LogEnd, NewerFormatError, UnavailableError
from shared.testing.world.memory_server import MemoryServer
from shared.testing.world.memory_streams import Dialect, SilentError

T = TypeVar("T")

ASK_SECONDS: Final = 5.0
"""How long a bus waits for an answer."""

NO_LEADER_SECONDS: Final = 0.25
"""When a bus asks again that was not answered."""


class Asker(Protocol):
    """The part of the bus that a lease needs."""

    @property
    def holder(self) -> str:
        """A name that is never used again."""

    async def ask(self, question: Callable[[MemoryServer], T]) -> T:
        """Send a request to the server. Raises `UnavailableError`."""


async def acquire(bus: Asker, name: str) -> "MemoryLease":
    """Return once this bus holds the lease `name`."""
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
    """Return the request of `holder` to acquire or renew the lease `name`."""
    return lambda server: server.acquire(name, holder, LEASE_SECONDS)


class MemoryLease:
    """Implements `shared.bus.port.Lease`."""

    def __init__(self, bus: Asker, name: str, until: float) -> None:
        self._bus = bus
        self._name = name
        self._until = until
        self._over = asyncio.Event()
        self._task = asyncio.create_task(self._renew())

    @property
    def held(self) -> bool:
        """True until the last acknowledged renewal expires."""
        now = asyncio.get_running_loop().time()
        return not self._over.is_set() and now < self._until

    async def lost(self) -> None:
        """Return when the lease is lost."""
        await self._over.wait()

    async def release(self) -> None:
        """Release the lease at once."""
        self._task.cancel()
        if not self._over.is_set():
            self._over.set()
            # If this request is lost, the lease expires.
            with contextlib.suppress(UnavailableError, NewerFormatError):
                await self._bus.ask(lambda server: server.release(self._name, self._bus.holder))

    def abandon(self) -> None:
        """Stop renewing, as a crash does: the lease expires."""
        self._task.cancel()

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            sent = loop.time()
            try:
                async with asyncio.timeout(max(0.0, self._until - sent)):
                    ours = await self._bus.ask(acquisition(self._name, self._bus.holder))
            except (TimeoutError, NewerFormatError):
                ours = False
            except UnavailableError:
                continue
            if not ours:
                self._over.set()
                return
            self._until = sent + LEASE_SECONDS


def look_for_lost(server: MemoryServer, acknowledged: Acknowledged) -> None:
    """Tell which logs lack what they had acknowledged; without a round trip, once for each connection."""
    acknowledged.doubtful.clear()
    for name, last_message in acknowledged.last_messages().items():
        try:
            stream = server.known(name)
        except UnavailableError:
            continue
        stored = stream.messages.get(last_message.sequence)
        other = stored is not None and stored.headers.get(EVENT_ID) != last_message.event_id
        if last_message.sequence > stream.last or other:
            acknowledged.lost(name, last_message, identity=str(server.generation))


async def _soon(judging: Awaitable[T]) -> T:
    """Judge a decision. Raises `UnavailableError` if it is unknown for so long which leaders began."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await judging
    except TimeoutError as error:
        raise UnavailableError(f"no Term within {ASK_SECONDS:g} s") from error


async def heard(find: Callable[[], T]) -> T:
    """Return what `find` returns, once the server that it asks answers."""
    while True:
        with contextlib.suppress(SilentError):
            return find()
        await asyncio.sleep(NO_LEADER_SECONDS)


def resolve(future: "asyncio.Future[T]", result: T) -> None:
    """Give the answer to whoever still waits for it."""
    if not future.done():
        future.set_result(result)


def fail(future: "asyncio.Future[T]", error: BusError) -> None:
    """Give the error to whoever still waits for an answer."""
    if not future.done():
        future.set_exception(error)


class Requests:
    """Requests of one round trip: deletions, single messages, large bodies. `MemoryBus` makes them."""

    _server: MemoryServer
    _dialect: Dialect
    _terms: Terms

    async def ask(self, question: Callable[[MemoryServer], T]) -> T:
        """One round trip."""
        raise AssertionError(f"a bus asks its server: {question}")

    async def last_sequence(self, stream: str) -> int:
        """The log's last sequence."""
        return await self.ask(lambda server: server.stream(stream).led().last)

    async def log_end(self, stream: str) -> LogEnd:
        """Return how far the log is, and how full."""
        found = await self.ask(lambda server: server.led(stream))
        return LogEnd(last=found.last, fullness=found.fullness)

    async def purge(self, stream: str, subject: str, *, up_to: int) -> None:
        """Drop a tombstone from the view of `stream`."""
        await self.ask(lambda server: server.purge(stream, subject, up_to))

    async def sweep(self, stream: str, ended: Mapping[str, int]) -> Collection[str]:
        """Delete ended subjects from the view."""
        return await self.ask(lambda server: server.sweep(stream, ended))

    async def trim(self, stream: str, subject: str, *, up_to: int) -> int:
        """Delete a subject from the log."""
        return await self.ask(lambda server: server.trim(stream, subject, up_to))

    async def long_histories(self, stream: str, subjects: str, *, most: int) -> list[str]:
        """Return the subjects with more than `most` messages."""
        return await self.ask(lambda server: server.stream(stream).long_histories(subjects, most))

    async def shorten(self, stream: str, subject: str, *, keep: int) -> int:
        """Delete a subject's old messages from the log."""
        return await self.ask(lambda server: server.stream(stream).shorten(subject, keep))

    async def last_valid(self, stream: str, subject: str, *, current: bool) -> Entry | None:
        """Return the last message of a subject in the log, of a decision the last valid one, as stored."""
        if current and self._server.replicated:
            await self.ask(lambda server: server.led(stream))
        stored = await self.ask(lambda server: server.latest(stream, subject))
        if stored is None:
            return None
        last = self._dialect.read(stored)
        return await _soon(self._terms.valid(last)) if rules(stream) else last

    async def at_or_after(
        self, stream: str, sequence: int, *, subject: str = ">", valid: bool = False
    ) -> Entry | None:
        """Return the first entry of the log from `sequence` on."""
        while True:
            stored = await self._first(stream, sequence, subject)
            if stored is None:
                return None
            entry = self._dialect.read(stored)
            if not (valid and rules(stream)) or await _soon(self._terms.judge(entry)) is None:
                return entry
            sequence = entry.sequence + 1

    async def _first(self, stream: str, sequence: int, subject: str) -> Entry | None:
        return await self.ask(lambda server: server.at_or_after(stream, sequence, subject))

    async def tombstones(self, stream: str, *, before: datetime, most: int) -> dict[str, int]:
        """Return the tombstones of a view that are older than `before`."""
        return await self.ask(lambda server: server.tombstones(stream, before, most))

    async def put_body(self, name: str, data: bytes) -> str:
        """Store a body that is too large for a message."""
        ref = reference(name, data)
        await self.ask(lambda server: server.bodies.put(ref, data, at=server.seconds()))
        return ref

    async def get_body(self, ref: str) -> bytes | None:
        """Return the body of a reference; None if it is deleted."""
        return await self.ask(lambda server: server.bodies.get(ref))

    async def drop_body(self, ref: str) -> None:
        """Delete a body."""
        await self.ask(lambda server: server.bodies.drop(ref))

    async def keep_bodies(
        self, prefix: str, refs: Collection[str], *, older_than_seconds: float
    ) -> int:
        """Delete bodies without a reference."""
        kept = frozenset(refs)
        return await self.ask(
            lambda server: server.bodies.keep(
                prefix, kept, before=server.seconds() - older_than_seconds
            )
        )
