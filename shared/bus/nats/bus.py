"""The bus over a real NATS server."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any
from uuid import uuid4

import structlog
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from shared.bus import headers as wire
from shared.bus.nats.answering.responders import ERROR_HEADER, Answer, Responders
from shared.bus.nats.broker import GRACEFUL_SECONDS, Connection
from shared.bus.nats.direct.reader import DirectReader
from shared.bus.nats.jetstream_api import MESSAGE_NOT_FOUND, ApiError, ask, call
from shared.bus.nats.large_bodies import BodyReader, whole_for_reading, whole_for_work
from shared.bus.nats.lease import NatsLease, acquire
from shared.bus.nats.object_store import ObjectStore
from shared.bus.nats.publisher import RETRY_SECONDS, Publisher
from shared.bus.nats.reader import Reader, stored_entry
from shared.bus.nats.stream_drift import until_declared
from shared.bus.nats.tails.compare import led_info
from shared.bus.nats.tails.lost import keep_looking, look_at_format, look_for_lost
from shared.bus.nats.tails.refill import fill_up_logs
from shared.bus.nats.tails.sources import ViewSources
from shared.bus.nats.work import ended as ended_work
from shared.bus.nats.work.declared import ACK_WAIT_SECONDS
from shared.bus.nats.work.durables import Durables
from shared.bus.nats.work.worker import Registration, Worker
from shared.bus.order.acknowledged import Acknowledged
from shared.bus.order.fences import Fences
from shared.bus.order.generations import Generations
from shared.bus.order.receipts import Receipt, failed, stored_at
from shared.bus.order.terms import Terms, rules
from shared.bus.port import (
    BusError,
    CaughtUp,
    Entry,
    Handler,
    Lease,
    LogEnd,
    NewerFormatError,
    TooLargeError,
    UnavailableError,
    VoidEntry,
)
from shared.bus.streams import OBJECTS, epoch_of
from shared.contracts.messages.admissions import Term
from shared.contracts.messages.base import FORMAT, Message
from shared.settings.access import OPEN, Access

log = structlog.get_logger(__name__)


class NatsBus:
    """Keeps the promises of `shared.bus.port.Bus`."""

    def __init__(
        self,
        *,
        url: str,
        instance: str,
        now: Callable[[], datetime],
        service: str | None = None,
        access: Access = OPEN,
        reads: Collection[str] | None = None,
        writes: Collection[str] | None = None,
        rng: Random | None = None,
        retry_seconds: float = RETRY_SECONDS,
        ack_wait_seconds: float = ACK_WAIT_SECONDS,
        consumers: bool = True,
        renews: Collection[str] = (),
        known_format: int = FORMAT,
    ) -> None:
        """`reads`: logs that this user may inspect; `writes`: filters of its subjects. None: all.

        `consumers`: whether it reads with consumers, if its user may make any. `renews`: logs whose views it
        has led by another server where an election cut them off. `known_format`: of the logs.
        """
        self._consumers = consumers
        self._instance = instance
        self._now = now
        self._connection = Connection(
            url=url, name=instance, access=access, known_format=known_format
        )
        self._server_id = access.message_ids()
        self._reads = reads
        self._generations = Generations()
        self._acknowledged = Acknowledged(self._generations)
        self._publisher = Publisher(
            self._connection,
            look_back=self._message_id_at,
            before_sending=partial(self._compare_logs, writes),
            on_stored=self._acknowledged.observe,
            retry_seconds=retry_seconds,
        )
        self._terms = Terms(self._next_decision)
        self._worker = self._new_worker(
            service or instance, rng or Random(instance), ack_wait_seconds
        )
        self._durables = Durables(
            self._connection,
            self._worker,
            generations=self._generations,
            terms=self._terms,
            ack_wait_seconds=ack_wait_seconds,
        )
        self._sources = ViewSources(self._connection, renews, rng or Random(instance))
        self._bodies = ObjectStore(self._connection, OBJECTS, now=now)
        self._readers: set[Reader] = set()
        self._leases: list[NatsLease] = []
        self._fences = Fences()
        self._single_server = False
        self._responders = Responders(self._connection)
        self._started = False
        self._start_id = uuid4().hex[:12]
        self._count = 0
        self._purges = ended_work.Purges()
        self._looking: asyncio.Task[None] | None = None

    def _new_worker(self, service: str, rng: Random, ack_wait_seconds: float) -> Worker:
        return Worker(
            service=service,
            put_dead=self._put,
            now=self._now,
            rng=rng,
            whole=partial(whole_for_work, self),
            is_void=self._terms.is_void,
            current=self._generations.current,
            ack_wait_seconds=ack_wait_seconds,
        )

    @property
    def instance(self) -> str:
        """Name of this process."""
        return self._instance

    @property
    def connected(self) -> bool:
        """Whether the server answers."""
        return self._started and self._connection.ready and self._publisher.open

    @property
    def registrations(self) -> tuple[Registration, ...]:
        """What `work` was called with, for the AsyncAPI page."""
        return self._durables.registrations

    @property
    def connection(self) -> Connection:
        """The connection, for other users of NATS in this process."""
        return self._connection

    async def start(self) -> None:
        """Connect and check the streams, retrying without end; then start the registered work.

        Raises `NewerFormatError`, before anything is sent, where this release may not serve.
        """
        await self._connection.open()
        await until_declared(self._connection, views=self._reads)
        info = await call(self._connection.nc, f"STREAM.INFO.{Term.stream}")
        self._single_server = info["config"]["num_replicas"] == 1
        await self._publisher.start()
        self._worker.start()
        await self._durables.start()
        self._started = True
        self._looking = asyncio.create_task(keep_looking(self._connection, self._acknowledged))
        self._sources.start()
        await self._responders.start()

    async def stop(self) -> None:
        """Finish the handlers that run, acknowledge, flush, disconnect."""
        self._started = False
        if self._looking is not None:
            self._looking.cancel()
        self._sources.stop()
        for reader in tuple(self._readers):
            reader.close()
        await self._durables.stop()
        await self._worker.stop(seconds=GRACEFUL_SECONDS)
        self._responders.stop()
        if self._connection.ready:
            try:
                async with asyncio.timeout(GRACEFUL_SECONDS):
                    await self._publisher.flush()
            except (BusError, TimeoutError) as error:
                log.warning("not everything was published", error=str(error))
        for lease in self._leases:
            # Only now: the next holder then finds all messages that this process has published.
            await lease.release()
        await self._publisher.stop()
        await self._connection.close()

    def publish(
        self, message: Message, *, expect_last: int | None = None, expect_subject: int | None = None
    ) -> asyncio.Future[int]:
        """Put `message` on its log without waiting; see the port."""
        fence = self._fences.headers(
            message, expect_last=expect_last, expect_subject=expect_subject
        )
        receipt = self._put(message, None, fence)
        if isinstance(message, Term) and self._single_server:
            receipt.add_done_callback(lambda done: self._fences.on_stored(message, stored_at(done)))
        return receipt

    def _put(
        self, message: Message, message_id: str | None, extra: dict[str, str] | None = None
    ) -> Receipt:
        if self._connection.outdated is not None:
            return failed(self._connection.outdated)
        self._count += 1
        identity = (
            message_id or message.message_id or f"{self._instance}:{self._start_id}:{self._count}"
        )
        headers = wire.build(
            message,
            message_id=identity,
            source=self._instance,
            now=self._now(),
            server_id=self._server_id(identity),
        ) | (extra or {})
        return self._publisher.publish(
            message.subject,
            message.encode(),
            headers,
            stream=message.stream,
            repeated=message_id is not None or message.message_id is not None,
        )

    async def _compare_logs(self, writes: Collection[str] | None) -> None:
        """Compare each log with its view and with what it acknowledged, before anything is sent."""
        try:
            await look_at_format(self._connection.nc)
            await fill_up_logs(self._connection, writes)
            await look_for_lost(self._connection.nc, self._acknowledged)
        except NewerFormatError:
            await self._connection.wait_ready()  # Never: nothing is sent any more.

    async def flush(self) -> None:
        """Wait for everything published; raise the first error since the last flush."""
        if self._connection.outdated is not None:
            raise self._connection.outdated
        await self._publisher.flush()

    def watch(self, stream: str, *filters: str) -> AsyncGenerator[Entry | CaughtUp]:
        """List and watch the view of `stream`."""
        return self._read(stream, self._reader(stream, filters, view=True))

    def replay(
        self, stream: str, *filters: str, start: int = 1
    ) -> AsyncGenerator[Entry | CaughtUp]:
        """Yield each entry of the log from `start`, `CaughtUp`, then new entries."""
        return self._read(stream, self._reader(stream, filters, view=False, start=start))

    def _reader(self, stream: str, filters: tuple[str, ...], *, view: bool, **more: Any) -> Reader:
        terms = self._terms if rules(stream) else None
        common: dict[str, Any] = {"generations": self._generations, "terms": terms, "view": view}
        reader = DirectReader(self._connection, stream, filters, **common, **more)
        reader.directly = not self._consumers
        return reader

    async def _next_decision(self, stream: str, subject: str, after: int) -> Entry | None:
        """Return the first decision or `Term` behind a sequence of the log, or of the view, as in the log."""
        stored = await self._get(stream, {"seq": after + 1, "next_by_subj": subject})
        if stored is None:
            return None
        entry = stored_entry(stored, self._generations.current(Term.stream))
        return (
            entry if stream == Term.stream else replace(entry, sequence=wire.log_sequence(stored))
        )

    async def _read(self, stream: str, reader: Reader) -> AsyncGenerator[Entry | CaughtUp]:
        self._readers.add(reader)
        wholes = BodyReader(self, stream, latest=reader.view, over=lambda: reader.closed)
        try:
            async with contextlib.aclosing(reader.read()) as items:
                async for item in items:
                    if isinstance(item, Entry) and (wholes.ahead or item.body_ref is not None):
                        if (entry := await wholes.of(item)) is not None:
                            yield entry
                    else:
                        yield item
        finally:
            self._readers.discard(reader)

    async def last_sequence(self, stream: str) -> int:
        """Return the log's last sequence, 0 if it is empty."""
        info = await call(self._connection.nc, f"STREAM.INFO.{stream}")
        return int(info["state"]["last_seq"])

    async def epoch(self, stream: str) -> int:
        """Return the epoch of the log; see the port."""
        return epoch_of((await call(self._connection.nc, f"STREAM.INFO.{stream}"))["config"])

    async def log_lost(self) -> str:
        """Return the name of a log once it lacks what it had acknowledged to us; see the port."""
        return await self._acknowledged.until_lost()

    async def outdated(self) -> NewerFormatError:
        """Return why this release may go on no more; see the port."""
        return await self._connection.until_outdated()

    async def highest_term(self, stream: str) -> tuple[int, int]:
        """Return the highest (epoch, term) of the leaders that the log names; see the port."""
        assert rules(stream), stream
        await self._terms.refresh(self._generations.current(stream))
        return self._terms.highest

    async def void(self, stream: str) -> list[VoidEntry]:
        """Return each subject whose last decision that was read is void; see the port."""
        if not rules(stream):
            return []
        if not self._single_server:
            await led_info(self._connection.nc, stream)
        return await self._terms.void_entries()

    async def log_end(self, stream: str) -> LogEnd:
        """Return how far the log is, and how full; see the port."""
        info = await led_info(self._connection.nc, stream)
        state, most = info["state"], int(info["config"]["max_bytes"])
        fullness = int(state["bytes"]) / most if most > 0 else 0.0
        return LogEnd(last=int(state["last_seq"]), fullness=fullness)

    async def _message_id_at(self, stream: str, sequence: int) -> str | None:
        stored = await self._get(stream, {"seq": sequence})
        if stored is None:
            return None
        return wire.stored_headers(stored).get(wire.MESSAGE_ID)

    async def latest(self, stream: str, subject: str, *, current: bool = False) -> Entry | None:
        """Return the last message of one subject in the log; see the port."""
        if current and not self._single_server:
            await led_info(self._connection.nc, stream)
        stored = await self._get(stream, {"last_by_subj": subject})
        if stored is None:
            return None
        last = stored_entry(stored, self._generations.current(stream))
        entry = await self._terms.valid(last) if rules(stream) else last
        return None if entry is None else await whole_for_reading(self, entry)

    async def at_or_after(
        self, stream: str, sequence: int, *, subject: str = ">", valid: bool = False
    ) -> Entry | None:
        """Return the first entry of the log from `sequence` on; see the port."""
        while True:
            stored = await self._get(stream, {"seq": sequence, "next_by_subj": subject})
            if stored is None:
                return None
            entry = stored_entry(stored, self._generations.current(stream))
            if not (valid and rules(stream)) or await self._terms.judge(entry) is None:
                return entry
            sequence = entry.sequence + 1

    def work(
        self,
        stream: str,
        durable: str,
        handler: Handler,
        *,
        filters: tuple[str, ...] = (),
        key: Callable[[Entry], str] | None = None,
    ) -> None:
        """Register `handler` for the view of `stream`; see the port."""
        assert not self._started, "register before start()"
        self._durables.add(
            Registration(stream=stream, durable=durable, handler=handler, filters=filters, key=key)
        )

    async def lease(self, name: str) -> Lease:
        """Wait until this process holds the lease `name`."""
        lease = await acquire(self._connection, name, instance=self._instance)
        self._leases.append(lease)
        return lease

    async def request(self, subject: str, data: bytes, *, timeout_seconds: float) -> bytes:
        """Send a request to `subject` and return the answer."""
        if len(data) > self._connection.nc.max_payload:
            raise TooLargeError(f"{subject}: request of {len(data)} bytes")
        try:
            reply = await ask(self._connection.nc, subject, data, timeout_seconds=timeout_seconds)
        except NoRespondersError as error:
            raise UnavailableError(f"{subject}: nobody answers") from error
        except (NatsTimeoutError, NatsError) as error:
            raise UnavailableError(f"{subject}: no answer in {timeout_seconds:g} s") from error
        if reply.headers and (problem := reply.headers.get(ERROR_HEADER)):
            raise UnavailableError(f"{subject}: {problem}")
        return bytes(reply.data)

    async def respond(
        self, subject: str, answer: Answer, *, alone: bool = True
    ) -> Callable[[], Awaitable[None]]:
        """Answer requests to `subject` until the bus stops; see the port."""
        return await self._responders.add(subject, answer, alone=alone)

    async def put_body(self, name: str, data: bytes) -> str:
        """Keep a body that is too large for a message; see the port."""
        return await self._bodies.put(name, data)

    async def get_body(self, ref: str) -> bytes | None:
        """The body behind a reference; None where it is gone."""
        return await self._bodies.get(ref)

    async def drop_body(self, ref: str) -> None:
        """Delete a body."""
        await self._bodies.drop(ref)

    async def keep_bodies(
        self, prefix: str, refs: Collection[str], *, older_than_seconds: float
    ) -> int:
        """Delete bodies without a reference; see the port."""
        before = self._now() - timedelta(seconds=older_than_seconds)
        return await self._bodies.keep(prefix, refs, before=before)

    async def purge(self, stream: str, subject: str, *, up_to: int) -> None:
        """Drop a tombstone from the view; see the port."""
        await self._purges.purge(self._connection.nc, stream, subject, up_to)

    async def sweep(self, stream: str, ended: Mapping[str, int]) -> Collection[str]:
        """Delete ended subjects from the view; see the port."""
        return await ended_work.sweep(self._connection.nc, stream, ended)

    async def tombstones(self, stream: str, *, before: datetime, most: int) -> dict[str, int]:
        """Return old tombstones of a view; see the port."""
        reader = self._reader(stream, (), view=True, headers_only=True)
        return await ended_work.tombstones(reader, before, most)

    async def stored_bytes(self, stream: str, subject: str) -> int:
        """Return how many bytes the view has of the subjects of a filter. Reads the headers of all."""
        return sum([size async for _, size in self.stored_sizes(stream, subject)])

    async def stored_sizes(self, stream: str, *filters: str) -> AsyncIterator[tuple[str, int]]:
        """Yield each subject that the view has of some filters, and the bytes of its last message."""
        reader = self._reader(stream, filters, view=True, headers_only=True)
        async with contextlib.aclosing(reader.read()) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    break
                yield item.subject, wire.stored_size(item.subject, item.headers)

    async def trim(self, stream: str, subject: str, *, up_to: int) -> int:
        """Delete a subject's messages from the log; see the port."""
        return await ended_work.trim(self._connection.nc, stream, subject, up_to)

    async def long_histories(self, stream: str, subjects: str, *, most: int) -> list[str]:
        """Return the subjects with more than `most` messages; see the port."""
        return await ended_work.long_histories(self._connection.nc, stream, subjects, most)

    async def shorten(self, stream: str, subject: str, *, keep: int) -> int:
        """Delete a subject's old messages from the log; see the port."""
        return await ended_work.shorten(self._connection.nc, stream, subject, keep)

    async def _get(self, stream: str, which: dict[str, Any]) -> dict[str, str] | None:
        try:
            answer = await call(self._connection.nc, f"STREAM.MSG.GET.{stream}", which)
        except ApiError as error:
            if error.code == MESSAGE_NOT_FOUND:
                return None
            raise
        stored: dict[str, str] = answer["message"]
        return stored
