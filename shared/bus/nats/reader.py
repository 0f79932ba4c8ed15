"""List and watch: existing entries, `CaughtUp`, then new entries, in one stream.

One ephemeral pull consumer without acknowledgements, fed by a callback (6 us a message, where
`fetch` takes 28). After any trouble (connection, silence, a gap) it is made anew behind the last
entry that was delivered.
"""

import asyncio
import base64
import json
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from shared.bus import headers as wire
from shared.bus.direct_read import source_sequence
from shared.bus.filters import prune
from shared.bus.nats.broker import Connection
from shared.bus.nats.jetstream_api import (
    CONSUMER_NOT_FOUND,
    STREAM_NOT_FOUND,
    ApiError,
    Json,
    call,
)
from shared.bus.nats.tails.compare import still_has, view_end, whole_log
from shared.bus.nats.tails.damaged_views import missed
from shared.bus.order.acknowledged import LastMessage
from shared.bus.order.generations import Generations
from shared.bus.order.terms import Terms
from shared.bus.port import BusError, CaughtUp, Entry, LogChangedError, UnavailableError
from shared.bus.streams import view_of

log = structlog.get_logger(__name__)

BATCH: Final = 2048
BATCH_BYTES: Final = 8 << 20
"""Entries of one pull request. Bounds the memory of a slow reader."""

EXPIRES_SECONDS: Final = 30.0
HEARTBEAT_SECONDS: Final = 2.0
SILENCE_SECONDS: Final = 3 * HEARTBEAT_SECONDS
"""A pull request can be lost silently: without a heartbeat for this long, it is sent again."""

INACTIVE_SECONDS: Final = 60.0
"""When the server deletes a consumer that is not pulled from any more."""

LAG_SECONDS: Final = 3.0
"""How long a view may be behind its log before the rest is read from the log itself."""

PAUSE_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.01
_REQUEST_OVER: Final = ("Batch Completed", "Message Size Exceeds MaxBytes", "Exceeded MaxRequest")
"""Status 409 with one of these ends a request, with any other the consumer."""

_ACK_TOKENS: Final = 9
"""``$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<nth>.<time>.<pending>``; newer servers
put domain and account hash before the stream."""


class ConsumerLostError(Exception):
    """The consumer must be created again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a message stands, from its reply subject."""

    deliveries: int
    sequence: int
    """In the stream that was read: the view's own in a view."""

    nth: int
    """Of those that this consumer was given, from 1."""

    time: datetime
    pending: int
    """How many match behind it."""


def position_of(reply: str) -> Position:
    """Read the reply subject of a delivered message."""
    tokens = reply.split(".")
    at = 0 if len(tokens) == _ACK_TOKENS else 2
    return Position(
        deliveries=int(tokens[at + 4]),
        sequence=int(tokens[at + 5]),
        nth=int(tokens[at + 6]),
        time=datetime.fromtimestamp(int(tokens[at + 7]) / 1e9, tz=UTC),
        pending=int(tokens[at + 8]),
    )


def status_of(message: Msg) -> str | None:
    """What the server says about a pull, as a number; None for a stored message.

    Only a stored message has a place to acknowledge it. Its writer may have named a header ``Status``, too.
    """
    return None if message.reply else (message.headers or {}).get("Status")


def entry_of(message: Msg, position: Position, generation: int = 0) -> Entry:
    """A delivered message in the words of the port; the sequence is the log's."""
    headers = message.headers or {}
    return Entry(
        subject=message.subject,
        data=message.data,
        headers=headers,
        sequence=source_sequence(headers) or position.sequence,
        time=wire.taken_at(headers, position.time),
        generation=generation,
        deliveries=position.deliveries,
    )


def stored_entry(stored: Mapping[str, str], generation: int) -> Entry:
    """An entry out of what the server answers to a look-up in a log."""
    return Entry(
        subject=stored["subject"],
        data=base64.b64decode(stored.get("data", "")),
        headers=wire.stored_headers(stored),
        sequence=int(stored["seq"]),
        time=datetime.fromisoformat(stored["time"]).astimezone(UTC),
        generation=generation,
    )


class Reader:
    """Reads one log, or its view, for one `watch` or `replay`."""

    def __init__(
        self,
        connection: Connection,
        log_name: str,
        filters: tuple[str, ...],
        *,
        view: bool,
        generations: Generations,
        terms: Terms | None,
        start: int = 1,
        headers_only: bool = False,
    ) -> None:
        """`terms`: None where the log has no decisions."""
        self._headers_only = headers_only
        self._generations = generations
        self._generation = 0
        self._terms = terms
        self._judged = 0
        """Entries of the buffer that were stored before `_terms` was refreshed last."""

        self._connection = connection
        self._log = log_name
        self._stream = view_of(log_name) if view else log_name
        self._view = view
        self._filters = prune(filters)
        self._start = start
        self._position = start - 1
        """The last sequence of `_stream` that was delivered."""

        self._delivered = 0
        """The last sequence of the log that was delivered; nothing older may follow."""

        self._target: int | None = None
        """The log's last sequence when reading began."""

        self._given: set[str] | None = set() if view and not headers_only else None
        """The subjects of a view that were delivered; None once it has caught up, or of a log."""

        self._caught_up = False
        self._latest: Entry | None = None
        """The last entry that was delivered, as the log that was read has it."""

        self._view_born = ""
        """When the view was made."""

        self._surveyed = False

        self._buffer: deque[Msg] = deque()
        self._wake = asyncio.Event()
        self._requested = 0
        self._broken: str | None = None
        self._idle = False
        self._consumer = ""
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._closed = False

    @property
    def view(self) -> bool:
        """Whether it reads the view, and not the log."""
        return self._view

    @property
    def closed(self) -> bool:
        """Whether the iteration has to end."""
        return self._closed

    def close(self) -> None:
        """End the iteration: the bus stops."""
        self._closed = True
        self._wake.set()

    async def read(self) -> AsyncGenerator[Entry | CaughtUp]:
        """Entries forever."""
        self._connection.down.append(self._on_down)
        try:
            while not self._closed:
                await self._connection.wait_ready()
                try:
                    async for item in self._read_once():
                        yield item
                except (ConsumerLostError, UnavailableError, NatsError) as trouble:
                    log.info(
                        "reading of a stream starts again",
                        stream=self._stream,
                        because=str(trouble),
                    )
                    await asyncio.sleep(PAUSE_SECONDS)
                except ApiError as error:
                    log.error(
                        "cannot read a stream; trying again",
                        stream=self._stream,
                        error=_advice(error),
                    )
                    await asyncio.sleep(PAUSE_SECONDS * 4)
                finally:
                    await self._drop_consumer()
        finally:
            self._connection.down.remove(self._on_down)

    async def _read_once(self) -> AsyncGenerator[Entry | CaughtUp]:
        self._broken = None
        mark = await self._survey()
        pending = await self._make_consumer()
        if not self._caught_up and (pending == 0 or mark <= self._position):
            for item in await self._catch_up():
                yield item
        expected = 1
        await self._ask()
        while not self._closed:
            if not self._buffer:
                if await self._wait() and not self._caught_up and await self._nothing_pending():
                    for item in await self._catch_up():
                        yield item
                continue
            if self._terms is not None and self._judged == 0:
                self._judged = len(self._buffer)
                await self._terms.refresh(self._generation)
            message = self._buffer.popleft()
            self._judged = max(0, self._judged - 1)
            self._requested -= 1
            position = position_of(message.reply)
            if position.nth != expected:
                raise ConsumerLostError(f"entry {expected} of consumer was lost")
            expected += 1
            self._position = position.sequence
            entry = entry_of(message, position, self._generation)
            if self._given is not None:
                self._given.add(entry.subject)
            # A view that is being rebuilt has older states for a while.
            if entry.sequence > self._delivered:
                self._delivered = entry.sequence
                self._latest = entry
                if self._terms is None or not self._terms.is_void(entry):
                    yield entry
            if not self._caught_up and (position.sequence >= mark or position.pending == 0):
                for item in await self._catch_up():
                    yield item
            if self._requested <= BATCH // 2:
                await self._ask()

    async def _catch_up(self) -> list[Entry | CaughtUp]:
        """What is left to yield: what the view could not give, and that this is all."""
        assert self._target is not None
        found = await self._missed(self._target)
        self._given = None
        self._caught_up = True
        return [*found, CaughtUp(sequence=self._target)]

    async def _missed(self, target: int) -> list[Entry]:
        """What the view lists and did not give, from the log. What is newer comes by itself."""
        if self._given is None:
            return []
        nc = self._connection.nc
        stored = await missed(nc, self._log, self._filters, self._given)
        entries = [stored_entry(each, self._generation) for each in stored]
        entries = [each for each in entries if each.sequence <= target]
        if entries:
            log.error(
                "a view is damaged; what it cannot give is read from its log",
                view=self._stream,
                subjects=len(entries),
                first=entries[0].subject,
                advice=f"sluice bus apply --rebuild {self._stream}",
            )
        if self._terms is not None and entries:
            await self._terms.refresh(self._generation)
            entries = [each for each in entries if not self._terms.is_void(each)]
        return entries

    async def _survey(self) -> int:
        """Return the sequence of our stream by which we have caught up.

        For a view that is the place by which it has taken in all that the log had.
        """
        nc = self._connection.nc
        info = await whole_log(nc, self._log)
        same = await still_has(nc, self._log, info, LastMessage.of(self._latest))
        lost = None if same else self._generation
        generation = self._generations.observe(self._log, identity=info["created"], lost=lost)
        if self._surveyed and generation != self._generation:
            raise LogChangedError(f"{self._log} was made anew, or lost what was read of it")
        self._generation = generation
        if self._view:
            born = (await call(nc, f"STREAM.INFO.{self._stream}"))["created"]
            if self._surveyed and born != self._view_born:
                self._position = self._start - 1
            self._view_born = born
        self._surveyed = True
        if self._target is None:
            self._target = int(info["state"]["last_seq"])
        if not self._view:
            return self._target
        return await self._view_mark(self._target)

    async def _view_mark(self, target: int) -> int:
        """Wait until the view holds `target`; return the view's last sequence then.

        The last message of a view is never purged, so it tells how far the view is.
        """
        loop = asyncio.get_running_loop()
        patience = loop.time() + LAG_SECONDS
        while target > 0:
            mark, taken = await view_end(self._connection.nc, self._log)
            if taken >= target:
                return mark
            if loop.time() > patience:
                return await self._doubt_the_view(taken, target)
            await asyncio.sleep(_POLL_SECONDS)
        return 0

    async def _doubt_the_view(self, taken: int, target: int) -> int:
        """Return the view's end if the view says that nothing is missing, else `ConsumerLostError`.

        Somebody purged its last message by hand, or the disk lost it after the server had been stopped:
        nothing tells which of both.
        """
        info = await call(self._connection.nc, f"STREAM.INFO.{self._stream}")
        source = info.get("sources", [{}])[0]
        active = 0 <= source.get("active", -1) < LAG_SECONDS * 1e9
        if not active or source.get("lag", 1) > 0:
            raise ConsumerLostError(f"the view has taken in {taken} of {target}: waiting")
        log.error(
            "the end of a view is gone: it was purged by hand, or is damaged",
            view=self._stream,
            ends_at=taken,
            log_ends_at=target,
            advice=f"sluice bus apply --rebuild {self._stream}",
        )
        return int(info["state"]["last_seq"])

    async def _make_consumer(self) -> int:
        """Make the consumer and its inbox; return how many entries wait for it."""
        nc = self._connection.nc
        self._buffer.clear()
        self._judged = 0
        self._requested = 0
        self._idle = False
        self._inbox = nc.new_inbox()
        self._subscription = await nc.subscribe(
            self._inbox, cb=self._on_message, pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        self._consumer = f"reader-{uuid.uuid4().hex}"
        config: Json = {
            "name": self._consumer,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._position + 1,
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(INACTIVE_SECONDS * 1e9),
        }
        if self._filters:
            config["filter_subjects"] = list(self._filters)
        if self._headers_only:
            config["headers_only"] = True
        body = {"stream_name": self._stream, "config": config, "action": "create"}
        created = await call(nc, f"CONSUMER.CREATE.{self._stream}.{self._consumer}", body)
        # To a spoke the hub's door gives one of the names that it may have.
        self._consumer = str(created["name"])
        return int(created["num_pending"])

    async def _drop_consumer(self) -> None:
        subscription, self._subscription = self._subscription, None
        consumer, self._consumer = self._consumer, ""
        if subscription is None:
            return
        try:
            # Also without a connection: the client would subscribe again on the next one.
            await subscription.unsubscribe()
            if consumer and self._connection.ready:
                await call(self._connection.nc, f"CONSUMER.DELETE.{self._stream}.{consumer}")
        except (NatsError, BusError) as error:
            # The server drops it by itself after `INACTIVE_SECONDS`.
            log.debug(
                "cannot delete the consumer; the server will", consumer=consumer, error=str(error)
            )

    async def _ask(self) -> None:
        wanted = BATCH - self._requested
        self._requested += wanted
        body = {
            "batch": wanted,
            "max_bytes": BATCH_BYTES,
            "expires": int(EXPIRES_SECONDS * 1e9),
            "idle_heartbeat": int(HEARTBEAT_SECONDS * 1e9),
        }
        await self._connection.nc.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
            json.dumps(body).encode(),
            self._inbox,
        )

    async def _on_message(self, message: Msg) -> None:
        headers, status = message.headers or {}, status_of(message)
        if status is None:
            self._buffer.append(message)
        elif status == "100":
            self._idle = True
        elif status in {"404", "408"} or headers.get("Description", "").startswith(_REQUEST_OVER):
            # A request ended; its headers tell how many entries it did not deliver.
            self._requested = max(0, self._requested - int(headers.get("Nats-Pending-Messages", 0)))
            self._idle = True
        else:
            self._broken = headers.get("Description", status)
        self._wake.set()

    def _on_down(self) -> None:
        self._broken = "connection lost"
        self._wake.set()

    async def _wait(self) -> bool:
        """Wait for entries; True if the server says that there are none. Raises `ConsumerLostError`."""
        if self._broken is not None:
            raise ConsumerLostError(self._broken)
        self._wake.clear()
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                await self._wake.wait()
        except TimeoutError as error:
            raise ConsumerLostError(f"silence for {SILENCE_SECONDS:g} s") from error
        if self._requested <= BATCH // 2 and not self._buffer:
            await self._ask()
        idle, self._idle = self._idle, False
        return idle and not self._buffer

    async def _nothing_pending(self) -> bool:
        info = await call(self._connection.nc, f"CONSUMER.INFO.{self._stream}.{self._consumer}")
        return int(info["num_pending"]) == 0 and not self._buffer


def _advice(error: ApiError) -> str:
    if error.code == STREAM_NOT_FOUND:
        return f"{error}: run `sluice bus apply`"
    if error.code == CONSUMER_NOT_FOUND:
        return f"{error}: the server dropped it"
    return str(error)
