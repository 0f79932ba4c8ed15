"""`shared.bus.port.Bus` over a server in memory, with the real bus's publisher and worker.

Only NATS itself is replaced: the server, and the connection with its loss and latency. Window,
retries, acknowledgements, ordering by key and dead letters are production code.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

import structlog

from shared.bus import headers as wire_headers
from shared.bus.nats.large_bodies import BodyReader, whole_for_reading, whole_for_work
from shared.bus.nats.publisher import Publisher
from shared.bus.nats.work.worker import IN_FLIGHT_MAX, Registration, Worker
from shared.bus.order.acknowledged import Acknowledged
from shared.bus.order.fences import Fences
from shared.bus.order.generations import Generations
from shared.bus.order.receipts import failed, stored_at
from shared.bus.order.terms import Terms, rules
from shared.bus.port import (
    AnswerError,
    BusError,
    CaughtUp,
    Entry,
    Handler,
    Lease,
    LogChangedError,
    NewerFormatError,
    PublishFuture,
    UnavailableError,
    VoidEntry,
)
from shared.bus.streams import view_of
from shared.contracts.messages.admissions import Term
from shared.contracts.messages.base import Message
from shared.testing.world import memory_server
from shared.testing.world.connection import Connection
from shared.testing.world.memory_feed import BATCH, Delivery, Feed, batch_after
from shared.testing.world.memory_requests import (
    ASK_SECONDS,
    NO_LEADER_SECONDS,
    MemoryLease,
    Requests,
    acquire,
    fail,
    heard,
    look_for_lost,
    resolve,
)
from shared.testing.world.memory_server import MemoryServer, Reply, Subscriber, answer_of
from shared.testing.world.memory_streams import PLAIN, Dialect, NoLeaderError, SilentError, Stored
from shared.testing.world.wire import PlainWire, Wire, WorldWire

__all__ = ["MemoryBus", "MemoryServer"]

T = TypeVar("T")

log = structlog.get_logger(__name__)

NO_FENCE: Final[Mapping[str, str]] = {}
STOP_SECONDS: Final = 20.0


class MemoryBus(Requests):
    """Implements `shared.bus.port.Bus`. In a world, create it in the process that uses it."""

    def __init__(
        self,
        server: MemoryServer,
        *,
        instance: str,
        wire: Wire | None = None,
        random: Random | None = None,
        dialect: Dialect = PLAIN,
    ) -> None:
        """`dialect`: how this release writes and reads messages, for worlds of several releases."""
        if wire is None:
            wire = PlainWire() if server.world is None else WorldWire(server.world, "bus")
        server.connections += 1
        self._instance = instance
        self.holder = f"{instance}/{server.connections}"
        """Unlike the instance's name, this one is never used again."""

        self._server = server
        self._wire = wire
        self._count = 0
        self._dialect = dialect
        self._fences = Fences()
        self._random = random if random is not None else Random(self.holder)
        owner, known = instance.partition(".")[0], dialect.known_format
        self.connection = Connection(server, wire, owner=owner, known_format=known)
        # The publisher expects a NATS connection; this one implements the part that it uses.
        connection: Any = self.connection
        self._acknowledged = Acknowledged(Generations())
        self.connection.up.append(lambda: look_for_lost(self.connection.peer, self._acknowledged))
        self._publisher = Publisher(
            connection, look_back=self._message_id_at, on_stored=self._acknowledged.observe
        )
        self._terms = Terms(self._next_decision)
        self._worker = Worker(
            service=instance.partition(".")[0].partition("-")[0],
            put_dead=self._put,
            now=wire.now,
            rng=self._random,
            whole=partial(whole_for_work, self),
            is_void=self._terms.is_void,
            current=lambda _log: server.generation,
            ack_wait_seconds=memory_server.ACK_WAIT_SECONDS,
        )
        self._registrations: list[Registration] = []
        self._subscribers: list[Subscriber] = []
        self._leases: list[MemoryLease] = []
        self._ending: list[asyncio.Task[None]] = []
        self._stopped = asyncio.Event()
        self._started = False

    @property
    def instance(self) -> str:
        """Name of this instance."""
        return self._instance

    @property
    def connected(self) -> bool:
        """True while connected to the server."""
        return self.connection.open and self._wire.reaches() and self._server.up

    async def start(self) -> None:
        """Connect, then start the registered work."""
        await self._wire.point("start")
        there = asyncio.Event()
        self.connection.up.append(there.set)
        self.connection.down.append(there.set)
        self.connection.ours(self.connection.connect)
        await there.wait()
        self.connection.check()
        self.connection.up.remove(there.set)
        await self._publisher.start()
        self._worker.start()
        self._started = True
        for registration in self._registrations:
            self._subscribe(registration)

    async def stop(self) -> None:
        """Finish, acknowledge, flush, disconnect."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        for subscriber in self._subscribers:
            subscriber.credit = 0
        if self._started:
            await self._worker.stop(seconds=STOP_SECONDS)
            for lease in self._leases:
                await lease.release()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self._publisher.flush()
                    # Acknowledgements that were sent arrive before the connection closes.
                    await self.ask(lambda _: None)
            except (BusError, TimeoutError) as error:
                log.warning("not everything was published", error=str(error))
            await self._publisher.stop()
        self.connection.close()

    def crash(self) -> None:
        """Stop as by SIGKILL, outside a world: acknowledge nothing."""
        self._stopped.set()
        self.connection.close()
        for lease in self._leases:
            lease.abandon()
        for stopping in (self._worker.stop(seconds=0), self._publisher.stop()):
            self._ending.append(asyncio.get_running_loop().create_task(stopping))

    def publish(
        self, message: Message, *, expect_last: int | None = None, expect_subject: int | None = None
    ) -> PublishFuture:
        """Put `message` on its log, behind all that was published before."""
        self._wire.check()
        identity = message.message_id
        if identity is None:
            self._count += 1
            identity = f"{self.holder}:{self._count}"
        fence = self._fences.headers(
            message, expect_last=expect_last, expect_subject=expect_subject
        )
        receipt = self._put(message, identity, fence)
        if isinstance(message, Term) and not self._server.replicated:
            receipt.add_done_callback(lambda done: self._fences.on_stored(message, stored_at(done)))
        return receipt

    async def flush(self) -> None:
        """Wait for all acknowledgements; raise the first error since the last flush."""
        self._wire.check()
        self.connection.check()
        await self._publisher.flush()

    def watch(self, stream: str, *filters: str) -> AsyncGenerator[Entry | CaughtUp, None]:
        """List and watch the view of `stream`."""
        return self._read(stream, filters, view=True, start=1)

    def replay(
        self, stream: str, *filters: str, start: int = 1
    ) -> AsyncGenerator[Entry | CaughtUp, None]:
        """Read the log from `start`, then follow it."""
        return self._read(stream, filters, view=False, start=start)

    async def epoch(self, stream: str) -> int:
        """Return the log's epoch."""
        self.connection.look()
        return self._server.stream(stream).epoch

    async def log_lost(self) -> str:
        """Return the name of a log once it lacks what it had acknowledged."""
        return await self._acknowledged.until_lost()

    async def outdated(self) -> NewerFormatError:
        """Return why this release may go on no more, once it has found that."""
        return await self.connection.until_outdated()

    async def highest_term(self, stream: str) -> tuple[int, int]:
        """Return the highest (epoch, term) of the leaders that the log names."""
        assert rules(stream), stream
        await self._terms.refresh(self._server.generation)
        return self._terms.highest

    async def void(self, stream: str) -> list[VoidEntry]:
        """Return each subject whose last decision that was read is void."""
        if not rules(stream):
            return []
        if self._server.replicated:
            await self.ask(lambda server: server.led(stream))
        return await self._terms.void_entries()

    async def _next_decision(self, stream: str, subject: str, after: int) -> Entry | None:
        # Without a round trip: the answer of a moment later would hold no other Term before the entry.
        stored = await heard(lambda: self.connection.peer.stream(stream).after(after, (subject,)))
        if stored is None:
            return None
        return self._dialect.read(stored.entry(generation=self._server.generation))

    async def _message_id_at(self, stream: str, sequence: int) -> str | None:
        stored = await self.ask(lambda server: server.stream(stream).led().messages.get(sequence))
        return None if stored is None else stored.headers.get(wire_headers.MESSAGE_ID)

    async def latest(self, stream: str, subject: str, *, current: bool = False) -> Entry | None:
        """Return the last message of a subject in the log, of a decision the last valid one."""
        entry = await self.last_valid(stream, subject, current=current)
        return None if entry is None else await whole_for_reading(self, entry)

    def work(
        self,
        stream: str,
        durable: str,
        handler: Handler,
        *,
        filters: tuple[str, ...] = (),
        key: Callable[[Entry], str] | None = None,
    ) -> None:
        """Register `handler`. Before `start`."""
        assert not self._started, "register work before the bus starts"
        self._registrations.append(
            Registration(stream=stream, durable=durable, handler=handler, filters=filters, key=key)
        )

    async def lease(self, name: str) -> Lease:
        """Return once this bus holds the lease `name`."""
        lease = await acquire(self, name)
        self._leases.append(lease)
        return lease

    async def request(self, subject: str, data: bytes, *, timeout_seconds: float) -> bytes:
        """Send a request to one responder of `subject`; return its reply."""
        await self._wire.point(f"request {subject}")
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def replied(answer: bytes | AnswerError | None) -> None:
            if future.done():
                return
            if isinstance(answer, bytes):
                future.set_result(answer)
            else:
                future.set_exception(UnavailableError(f"{subject}: {answer or 'nobody answers'}"))

        def arrived() -> None:
            responder = self.connection.peer.responder(subject)
            if responder is None:
                self.connection.answer(lambda: replied(None))
            else:
                responder(data, lambda answer: self.connection.answer(lambda: replied(answer)))

        self.connection.send(arrived)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await future
        except TimeoutError as error:
            raise UnavailableError(f"{subject}: no answer within {timeout_seconds:g} s") from error

    async def respond(
        self, subject: str, answer: Callable[[bytes], Awaitable[bytes]], *, alone: bool = True
    ) -> Callable[[], Awaitable[None]]:
        """Answer requests to `subject` until the bus stops; see the port."""
        del alone
        tasks: set[asyncio.Task[None]] = set()

        async def work(data: bytes, reply: Reply) -> None:
            await self._wire.point(f"respond {subject}")
            answered = await answer_of(answer, data)
            self.connection.send(lambda: reply(answered))

        def begin(data: bytes, reply: Reply) -> None:
            task = asyncio.get_running_loop().create_task(work(data, reply))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        def receive(data: bytes, reply: Reply) -> None:
            self.connection.answer(lambda: begin(data, reply))

        withdrawn = False

        def reaches() -> bool:
            return self._is_heard() and not withdrawn

        async def withdraw() -> None:
            nonlocal withdrawn
            withdrawn = True
            self.connection.send(lambda: self._server.withdraw(subject, receive))

        await self.ask(lambda server: server.respond(subject, reaches, receive))
        return withdraw

    async def ask(self, question: Callable[[MemoryServer], T]) -> T:
        """One round trip. Raises `UnavailableError` when it is lost."""
        await self._wire.point("ask")
        self.connection.check()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self.connection.send(partial(self._settle, future, question))
        # A plain timer instead of asyncio.timeout: worlds send requests more often than anything else.
        silence = UnavailableError(f"no answer within {ASK_SECONDS:g} s")
        timer = loop.call_later(ASK_SECONDS, fail, future, silence)
        try:
            return await future
        finally:
            timer.cancel()

    def _settle(self, future: "asyncio.Future[T]", question: Callable[[MemoryServer], T]) -> None:
        try:
            self.connection.look()
            act = partial(resolve, future, question(self.connection.peer))
        except SilentError:
            return
        except NewerFormatError as error:
            self.connection.ours(fail, future, error)
            return
        except BusError as error:
            act = partial(fail, future, error)
        self.connection.answer(act)

    def _put(
        self, message: Message, identity: str, fence: Mapping[str, str] = NO_FENCE
    ) -> "asyncio.Future[int]":
        if self.connection.outdated is not None:
            return failed(self.connection.outdated)
        headers = wire_headers.build(
            message, message_id=identity, source=self._instance, now=self._wire.now()
        )
        data, added = self._dialect.written(message.encode(), headers, stream=message.stream)
        return self._publisher.publish(
            message.subject, data, {**added, **fence}, stream=message.stream
        )

    def _subscribe(self, registration: Registration) -> None:
        durable = self._server.durable(
            registration.stream, registration.durable, registration.filters
        )
        tasks: set[asyncio.Task[None]] = set()

        def deliver(stored: Stored, deliveries: int) -> None:
            read = self._dialect.read(stored)
            for _ in range(1 + self._wire.doubles()):
                delivery = Delivery(self.connection, durable, read, deliveries)
                self.connection.answer(partial(begin, delivery))

        def begin(delivery: Delivery) -> None:
            task = asyncio.get_running_loop().create_task(process(delivery))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        async def process(delivery: Any) -> None:
            await self._wire.point(f"deliver {delivery.subject}")
            if rules(registration.stream):
                await self._terms.refresh(self._server.generation)
            await self._worker.accept(registration, delivery)
            subscriber.credit += 1
            self._server.pump(durable)

        subscriber = Subscriber(
            credit=IN_FLIGHT_MAX,
            alive=self._alive,
            reaches=self._is_heard,
            deliver=deliver,
        )

        def arrived() -> None:
            nonlocal durable
            durable = self._server.durable(
                registration.stream, registration.durable, registration.filters
            )
            if subscriber not in durable.subscribers:
                durable.subscribers.append(subscriber)
            self._server.pump(durable)

        def ask() -> None:
            # Deliveries that were lost with the connection are in nobody's hand.
            subscriber.credit = IN_FLIGHT_MAX - len(tasks)
            self.connection.send(arrived)

        self._subscribers.append(subscriber)
        durable.subscribers.append(subscriber)
        self.connection.up.append(ask)
        ask()

    def _is_heard(self) -> bool:
        """Whether the server that leads reaches this bus."""
        return self.connected and self.connection.peer is self._server

    def _alive(self) -> bool:
        return not self.connection.closed and self._wire.alive()

    async def _read(
        self, log_name: str, filters: tuple[str, ...], *, view: bool, start: int
    ) -> AsyncGenerator[Entry | CaughtUp, None]:
        name = view_of(log_name) if view else log_name
        self._server.stream(name)  # It has to exist.
        generation = self._server.generation
        target = await self._retry(lambda server: server.led(log_name).last)
        feed = Feed(
            connection=self.connection,
            alive=self._alive,
            next_batch=lambda at: partial(batch_after, name, at, filters, target, view),
            position=start - 1,
            filters=filters,
        )
        if view and (late := self._server.lag_seconds(log_name)):
            await asyncio.sleep(late)  # Each view answers a new reader at its own time.
        self._server.listen(name, feed.on_messages)
        self.connection.down.append(feed.on_down)
        stopped = asyncio.create_task(self._stopped.wait())
        stopped.add_done_callback(lambda _: feed.wake.set())
        wholes = BodyReader(self, log_name, latest=view, over=self._stopped.is_set)
        delivered = 0
        try:
            while not self._stopped.is_set():
                feed.wake.clear()
                given, feed.given = feed.given, None
                if given is None:
                    given = await self._retry(feed.next_batch(feed.position))
                if generation != self._server.generation:
                    raise LogChangedError(f"{log_name} was made anew")
                if rules(log_name) and given[0]:
                    await self._terms.refresh(self._server.generation)
                batch, feed.position, done = given
                for stored in batch:
                    entry = self._dialect.read(stored.entry(generation=generation))
                    if rules(log_name) and self._terms.is_void(entry):
                        continue
                    for _ in range(1 + (view and self._wire.doubles())):
                        if not view or entry.sequence >= delivered:
                            delivered = entry.sequence
                            if (whole := await wholes.of(entry)) is not None:
                                yield whole
                if done and not feed.caught_up:
                    feed.caught_up = True
                    yield CaughtUp(sequence=target)
                if len(batch) < BATCH:
                    await feed.wait()
        finally:
            stopped.cancel()
            self.connection.down.remove(feed.on_down)
            feed.over = True

    async def _retry(self, question: Callable[[MemoryServer], T]) -> T:
        while True:
            try:
                return await self.ask(question)
            except UnavailableError as error:
                log.debug("reading of a stream starts again", because=str(error))
                if isinstance(error, NoLeaderError):
                    await asyncio.sleep(NO_LEADER_SECONDS)
