"""Durable consumers through FastStream's pull subscribers."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import structlog
from faststream.message import StreamMessage
from faststream.nats import ConsumerConfig, JStream, PullSub
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import AckPolicy, DeliverPolicy
from nats.js.errors import Error as JetStreamError

from shared.bus.filters import prune
from shared.bus.nats.broker import Connection
from shared.bus.nats.tails.compare import still_has, whole_log
from shared.bus.nats.work.backlog import follow_backlog
from shared.bus.nats.work.declared import durable_config, until_declared
from shared.bus.nats.work.pull import Pull
from shared.bus.nats.work.worker import Registration, Worker
from shared.bus.order.acknowledged import LastMessage
from shared.bus.order.generations import Generations
from shared.bus.order.terms import Terms, rules
from shared.bus.port import BusError
from shared.bus.streams import view_of
from shared.telemetry.metrics import RESULTS, WORK

log = structlog.get_logger(__name__)

BATCH: Final = 128
"""With a gulp each `STEADY_SECONDS`, this bounds how fast a backlog is worked off. Nobody tells the server
that these are not forgotten: a handler slower than so many in `ACK_WAIT_SECONDS` is given some twice."""

FETCH_SECONDS: Final = 2.0
"""A request that is lost with the connection is missed for this long."""

PAUSE_SECONDS: Final = 1.0
CANCEL_SECONDS: Final = 0.1


class _PacedSubscription:
    """A pull subscription whose failures cost a pause, after which the consumer is made again.

    FastStream's loop asks again at once: with the stream gone or JetStream still starting, that is
    a busy loop over the network, and a consumer that went with its view never comes back.
    """

    def __init__(
        self,
        pull: Pull,
        durable: str,
        connection: Connection,
        mend: Callable[[], Awaitable[None]],
        room: Callable[[], int],
        check: Callable[[], Awaitable[bool]],
        judge: Callable[[], Awaitable[None]],
    ) -> None:
        """`room`: how many deliveries the worker can accept at once.

        `check` asks whether the log is another one and returns True if so. `judge` learns what decides
        whether fetched entries are void. Both raise a `BusError`.
        """
        self._check = check
        self._judge = judge
        self._checked = -1
        """The epoch of the connection on which the log was checked."""

        self._pull = pull
        self._durable = durable
        self._connection = connection
        self._mend = mend
        self._room = room

    async def fetch(
        self,
        batch: int = 1,
        timeout: float | None = FETCH_SECONDS,  # noqa: ASYNC109  # nats-py's signature
    ) -> list[Msg]:
        """Fetch, or wait a little and return nothing.

        FastStream asks for the rest of a batch that is not full; what there is must not wait for it.
        """
        if batch < BATCH:
            raise NatsTimeoutError
        try:
            await self._connection.wait_ready()
            if self._checked != self._connection.epoch:
                epoch = self._connection.epoch
                if await self._check():
                    self._pull.discard()
                self._checked = epoch
            seconds = FETCH_SECONDS if timeout is None else timeout
            taken = await self._pull.fetch(batch, seconds, most=max(1, self._room()))
            await self._judge_all(taken)
        except (NatsError, JetStreamError, BusError) as error:
            log.warning(
                "cannot fetch entries of a durable; trying again",
                durable=self._durable,
                error=repr(error),
            )
            # Streams may be made anew while the connection stays.
            self._checked = -1
            await asyncio.sleep(PAUSE_SECONDS)
            if self._connection.ready:
                await self._mend()
            return []
        return taken

    async def _judge_all(self, taken: list[Msg]) -> None:
        """Give back what cannot be judged: nobody may act on a decision that may be void."""
        if not taken:
            return
        try:
            await self._judge()
        except BusError:
            for message in taken:
                await message.nak(delay=PAUSE_SECONDS)
            raise

    async def unsubscribe(self) -> None:
        """Ask no more."""
        await self._pull.close()


class Durables:
    """All durable consumers of one bus."""

    def __init__(
        self,
        connection: Connection,
        worker: Worker,
        *,
        generations: Generations,
        terms: Terms,
        ack_wait_seconds: float,
    ) -> None:
        self._generations = generations
        self._terms = terms
        self._ack_wait_seconds = ack_wait_seconds
        self._connection = connection
        self._worker = worker
        self._registrations: list[Registration] = []
        self._subscribers: list[Any] = []
        """FastStream's, in the order of the registrations: the broker gives them in another."""

        self._nc: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None

    @property
    def registrations(self) -> tuple[Registration, ...]:
        """What was added."""
        return tuple(self._registrations)

    def add(self, registration: Registration) -> None:
        """Register; nothing runs before `start`."""
        taken = {(other.stream, other.durable) for other in self._registrations}
        assert (registration.stream, registration.durable) not in taken, "durable used twice"
        self._registrations.append(registration)
        for result in RESULTS:
            WORK.labels(
                registration.durable, result
            )  # There from the start: a rate sees the first.
        self._subscribers.append(subscribe(self._connection, registration, self._worker))

    async def start(self) -> None:
        """Make the consumers as registered, then begin to pull."""
        await self._begin()
        self._connection.up.append(self._on_up)
        if self._registrations:
            self._measuring = asyncio.create_task(
                follow_backlog(self._connection, self._registrations)
            )

    async def _begin(self) -> None:
        for registration in self._registrations:
            await self._ensure(registration)
        self._nc = self._connection.nc
        for registration, subscriber in zip(self._registrations, self._subscribers, strict=True):
            # Before FastStream starts, which makes no subscription of its own then. Its own would ask
            # once, for two seconds; an entry that comes when that time is over stays in its queue,
            # and the server gives it out again only after `ACK_WAIT_SECONDS`.
            subscriber.subscription = _PacedSubscription(
                Pull(self._connection, view_of(registration.stream), registration.durable),
                registration.durable,
                self._connection,
                partial(self._ensure, registration),
                self._worker.room,
                partial(self._check_log, registration),
                partial(self._judge, registration),
            )
        await self._connection.broker.start()
        for subscriber in self._subscribers:
            subscriber.add_task(subscriber._consume_pull)  # noqa: SLF001  # what it starts with its own

    def _on_up(self) -> None:
        # One at a time: a connection that flaps must not begin twice.
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        if self._connection.nc is not self._nc:
            await self._begin()

    async def _check_log(self, registration: Registration) -> bool:
        """Look at the log before the first fetch on a new connection; True if it is another one.

        After a power cut a log may have lost its last second, and after a disaster it begins at 1:
        what comes now must not look older than what was handled. Raises a `BusError`.
        """
        stream, nc = registration.stream, self._connection.nc
        before, latest = (
            self._generations.current(stream),
            self._worker.latest(registration.durable),
        )
        info = await whole_log(nc, stream)
        same = await still_has(nc, stream, info, LastMessage.of(latest))
        lost = None if same or latest is None else latest.generation
        return self._generations.observe(stream, identity=info["created"], lost=lost) != before

    async def _judge(self, registration: Registration) -> None:
        """One request for a batch of decisions, none for anything else."""
        if rules(registration.stream):
            await self._terms.refresh(self._generations.current(registration.stream))

    async def stop(self) -> None:
        """Stop pulling; the worker finishes accepted deliveries."""
        for task in (self._task, self._measuring):
            if task is not None:
                await _ended(task)
        for subscriber in self._connection.broker.subscribers:
            try:
                await subscriber.stop()
            except NatsError as error:
                log.debug("an error while a durable is stopped", error=repr(error))

    async def _ensure(self, registration: Registration) -> None:
        """Wait until the consumer is as registered: FastStream takes one that exists as it is, silently."""
        config = durable_config(
            registration.durable, registration.filters, ack_wait_seconds=self._ack_wait_seconds
        )
        await until_declared(self._connection, view_of(registration.stream), config)


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel it until it is: nats-py, while it flushes, swallows a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_SECONDS)


def subscribe(connection: Connection, registration: Registration, worker: Worker) -> Any:
    """Hang `registration` on the broker: the only place that makes a subscriber."""

    async def deliver(messages: list[Msg]) -> None:
        for message in messages:
            await worker.accept(registration, message)

    subscriber = connection.broker.subscriber(
        stream=JStream(view_of(registration.stream), declare=False),
        durable=registration.durable,
        config=ConsumerConfig(
            filter_subjects=list(prune(registration.filters)) or [">"],
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.ALL,
        ),
        # FastStream's path to a handler takes longer than most handlers: it is resolved once.
        pull_sub=PullSub(batch_size=BATCH, timeout=FETCH_SECONDS, batch=True),
        inbox_prefix=f"{connection.inbox}.".encode(),
        decoder=_raw,
        no_reply=True,
    )
    subscriber(deliver)
    return subscriber


async def _raw(message: StreamMessage[list[Msg]]) -> list[Msg]:
    """Pass the raw body on: the service decodes it and handles errors of decoding."""
    return message.raw_message
