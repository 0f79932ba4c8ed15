"""The one FastStream broker factory, and the connection that it holds.

FastStream's own defaults lose events: a handler's exception terminates the message, streams are
overwritten at start, and after 60 attempts a lost connection becomes a busy loop. Every subscriber
of ours is made here; `tests/architecture` fails where one is not.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from zlib import crc32

import structlog
from faststream import AckPolicy
from faststream.nats import NatsBroker
from faststream.nats.security import NatsCredentials, NatsNKey, NatsSecurity
from nats.aio.client import Client
from nats.errors import Error as NatsError

from shared.bus.direct_read import parse_block
from shared.bus.nats.cancellation import cancellable, end_if_cancelled
from shared.bus.nats.io_batching import gather_reads, gather_writes
from shared.bus.nats.jetstream_api import look_at_streams
from shared.bus.nats.tls import refuse_plain_text
from shared.bus.port import NewerFormatError
from shared.bus.streams import newer_format
from shared.contracts.messages.base import FORMAT
from shared.settings.access import INBOX, LOCAL_NATS, OPEN, Access

log = structlog.get_logger(__name__)

GRACEFUL_SECONDS: Final = 20.0
"""For handlers at the end. Kubernetes waits 30 s before it kills."""

CLOSE_SECONDS: Final = 5.0
"""For the connection, after them."""

RECONNECT_SECONDS: Final = 1
CONNECT_SECONDS: Final = 5
PING_SECONDS: Final = 20
"""Two unanswered pings make a half-open connection a lost one."""

COMPLAIN_SECONDS: Final = 5.0
"""Interval of log lines while no server answers."""

PENDING_BYTES: Final = 64 << 20

RENEW_SECONDS: Final = 10.0
"""How often keys and certificates are looked at. A Secret takes a minute to reach its mount anyway."""

RENEW_WITHIN_SECONDS: Final = 30.0
"""Connections of services whose keys were renewed at once are opened anew within this time, not together."""

Hook = Callable[[], Awaitable[None]]

refuse_plain_text(Client)


def make_broker(
    url: str = LOCAL_NATS,
    options: Mapping[str, Any] | None = None,
    **callbacks: Hook | None,
) -> NatsBroker:
    """Build a broker with the policy for everyone: explicit acks, endless reconnection, no log.

    Opens no connection. `options` are those of an `Access`.
    """
    options = options or {}
    return NatsBroker(
        [part.strip() for part in url.split(",")],
        ack_policy=AckPolicy.MANUAL,
        max_reconnect_attempts=-1,
        reconnect_time_wait=RECONNECT_SECONDS,
        connect_timeout=CONNECT_SECONDS,
        ping_interval=PING_SECONDS,
        pending_size=PENDING_BYTES,
        graceful_timeout=GRACEFUL_SECONDS,
        security=_security(options),
        **({"inbox_prefix": options["inbox_prefix"]} if "inbox_prefix" in options else {}),
        logger=None,
        # Handlers take the raw delivery: nothing to inject, nothing to convert.
        apply_types=False,
        error_cb=callbacks.get("error_cb"),  # type: ignore[arg-type]  # FastStream's alias differs
        disconnected_cb=callbacks.get("disconnected_cb"),
        reconnected_cb=callbacks.get("reconnected_cb"),
        closed_cb=callbacks.get("closed_cb"),
    )


def _security(options: Mapping[str, Any]) -> NatsSecurity | None:
    """The same options in FastStream's words."""
    context = options.get("tls")
    if "nkeys_seed_str" in options:
        return NatsNKey.from_seed(options["nkeys_seed_str"], ssl_context=context)
    if "user_credentials" in options:
        return NatsCredentials(options["user_credentials"], ssl_context=context)
    return None if context is None else NatsSecurity(ssl_context=context)


class Connection:
    """One connection that reconnects without end and notifies its listeners.

    `epoch` counts the times that it was lost: whoever saw another value then must ask anew.
    """

    def __init__(
        self,
        *,
        url: str,
        name: str,
        access: Access = OPEN,
        known_format: int = FORMAT,
        renew_seconds: float = RENEW_SECONDS,
        renew_within_seconds: float = RENEW_WITHIN_SECONDS,
    ) -> None:
        """`known_format`: of the logs. Where they are committed to a higher one, this is no connection."""
        self._known_format = known_format
        self._access = access
        self._renew_seconds = renew_seconds
        self._renew_pause = renew_within_seconds * (crc32(name.encode()) % 1000) / 1000
        """Seconds from a renewed key to the new connection: not all services shall leave at once."""

        self._identity, self._trust = access.identity(), access.trust()
        options = access.options()
        self.inbox: str = options.get("inbox_prefix", INBOX)
        """Below it is all that is sent to us alone."""

        self._url = url
        self.url = without_secrets(url)
        """For people: without user and password."""

        self.name = name
        self.broker = make_broker(
            url,
            options,
            error_cb=self._on_error,  # type: ignore[arg-type]  # takes the error
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
        )
        self.epoch = 0
        self.up: list[Callable[[], None]] = []
        """Called when it is there, the first time and again; new listeners must not wait."""

        self.down: list[Callable[[], None]] = []
        """Called when it is lost."""

        self.refused: str | None = None
        """The last permission that the server denied, in its words."""

        self.outdated: NewerFormatError | None = None
        """Why it is never ready again: a stream is committed to a newer format."""

        self._outdated = asyncio.Event()
        self._nc: Client | None = None
        self._ready = asyncio.Event()
        self._closing = False
        self._complained_at: float | None = None
        self._revival: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None

    def another(self, name: str) -> "Connection":
        """One more connection of the same user, not opened yet: what it is sent does not delay this one."""
        return Connection(
            url=self._url, name=name, access=self._access, known_format=self._known_format
        )

    @property
    def nc(self) -> Client:
        """The client. Only after `open`."""
        assert self._nc is not None, "open() connects"
        return self._nc

    @property
    def ready(self) -> bool:
        """Whether the server answers, as far as we know."""
        return self._ready.is_set()

    async def wait_ready(self) -> None:
        """Return once the server answers."""
        await self._ready.wait()

    async def until_outdated(self) -> NewerFormatError:
        """Return why this release may not use the streams, once it is known."""
        await self._outdated.wait()
        assert self.outdated is not None
        return self.outdated

    def _look(self, config: dict[str, Any]) -> None:
        """Look at how a stream is configured. Raises `NewerFormatError`, and is never ready again then."""
        if self.outdated is None and (newer := newer_format(config, self._known_format)):
            self.outdated = NewerFormatError(config["name"], newer, self._known_format)
            log.error("cannot go on", problem=self.outdated.problem, to_do=self.outdated.to_do)
            self._left()
            self._outdated.set()
        if self.outdated is not None:
            raise self.outdated

    async def open(self) -> None:
        """Connect, retrying and logging without end."""
        pause = RECONNECT_SECONDS
        while True:
            try:
                with cancellable():
                    self._nc = await self.broker.connect()
                break
            except (NatsError, OSError, TimeoutError) as error:
                # Not what nats-py tries again by itself: a name that means nothing, a bad file.
                self._complain(error)
                await asyncio.sleep(pause)
        log.info("connected to NATS", url=self.url)
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._keep_renewed())
        self._arrived()

    async def close(self) -> None:
        """Flush pending writes and disconnect for good."""
        self._closing = True
        self._ready.clear()
        for task in (self._revival, self._renewing):
            if task is not None:
                task.cancel()
        if self._nc is not None and not self._nc.is_closed and not self._nc.is_connected:
            # Draining would wait for a server that is not there.
            try:
                await self._nc.close()
            except (NatsError, OSError) as error:
                log.debug("an error while the connection to NATS is closed", error=repr(error))
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._stop_broker()
        except TimeoutError:
            # The end of TLS is a talk of two; a process that shall end must not wait for the other.
            log.warning("the connection to NATS did not close in time", url=self.url)

    def _arrived(self) -> None:
        self._complained_at = None
        gather_writes(self.nc)
        gather_reads(self.nc)
        # Its own looks at each letter of each name for blanks; there is no public way.
        self.nc._parse_header_lines = parse_block  # type: ignore[method-assign]  # noqa: SLF001
        look_at_streams(self.nc, self._look)
        if self.outdated is not None:
            return
        self._ready.set()
        for listener in tuple(self.up):
            listener()

    def _left(self) -> None:
        if self._ready.is_set():
            self._ready.clear()
            self.epoch += 1
            for listener in tuple(self.down):
                listener()

    async def _on_error(self, error: Exception) -> None:
        end_if_cancelled()
        if "permissions violation" in str(error).lower():
            self.refused = str(error)
            log.error("NATS denies permission", error=str(error), user=self.name)
        else:
            self._renew()
            self._complain(error)
        if isinstance(error, NatsError) and not (self._nc is not None and self.ready):
            # FastStream compares the words: it takes some errors for final. Of the first connection it
            # leaves the socket open, and later it ends nats-py's attempts for good. A wrong password, or a
            # user that the server does not have for a moment, is mended more often than not.
            error.args = (f"{error}; trying again",)

    def _complain(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if self._complained_at is not None and now - self._complained_at < COMPLAIN_SECONDS:
            return
        self._complained_at = now
        log.warning("cannot reach NATS; trying again", url=self.url, error=repr(error))

    async def _on_disconnected(self) -> None:
        self._left()
        self._renew()
        if self._nc is not None and not self._closing:
            # What nats-py has not sent yet would be sent first after the reconnection, before
            # what was lost on the way: an older state would overtake a newer one. Publisher,
            # readers and workers all ask or send again in their own order.
            self._nc._pending.clear()  # noqa: SLF001  # there is no public way
            self._nc._pending_data_size = 0  # noqa: SLF001
            log.warning("connection to NATS lost; trying again", url=self.url)

    async def _keep_renewed(self) -> None:
        while True:
            await asyncio.sleep(self._renew_seconds)
            self._renew()

    def _renew(self) -> None:
        """Take up keys and certificates that were renewed in their files.

        A certificate is for the next connection. A key is for another connection, which is opened soon; at
        once if there is none. Files that cannot be used change nothing.
        """
        identity, trust = self._access.identity(), self._access.trust()
        if (identity, trust) == (self._identity, self._trust):
            return
        try:
            options = self._access.options()
        except ValueError as error:
            log.warning("keys for NATS cannot be read again", error=str(error))
            return
        moved = identity != self._identity
        self._identity, self._trust = identity, trust
        # What both libraries connect with the next time; there is no public way.
        self.broker._connection_kwargs.update(options)  # noqa: SLF001
        if self._nc is not None and "tls" in options:
            self._nc.options["tls"] = options["tls"]
        log.info("took up renewed keys for NATS", url=self.url, another_connection=moved)
        if moved and self._nc is not None and self._revival is None and not self._closing:
            pause = self._renew_pause if self.ready else 0.0
            self._revival = asyncio.create_task(self._revive(pause))

    async def _on_reconnected(self) -> None:
        log.info("connected to NATS again", url=self.url)
        self._arrived()

    async def _on_closed(self) -> None:
        self._left()
        if not self._closing and self._nc is not None and self._revival is None:
            # nats-py gives up for good after some errors ("maximum control line exceeded"): it
            # would stay silent forever.
            log.error("NATS closed the connection for good; opening another", url=self.url)
            self._revival = asyncio.create_task(self._revive(RECONNECT_SECONDS))

    async def _revive(self, pause: float) -> None:
        await asyncio.sleep(pause)
        if self._nc is not None and not self._nc.is_closed:
            # What is not acknowledged yet is sent again by whoever sent it.
            await self._nc.close()
        await self._stop_broker()
        self.inbox = self.broker._connection_kwargs.get("inbox_prefix", INBOX)  # noqa: SLF001
        await self.open()
        self._revival = None

    async def _stop_broker(self) -> None:
        try:
            await self.broker.stop()
        except (NatsError, OSError, ExceptionGroup) as error:
            # FastStream drains what is closed already, and then keeps the corpse.
            log.debug("an error while the connection to NATS is closed", error=repr(error))
            self.broker._connection = None  # noqa: SLF001  # else it would never connect again
            self.broker.config.disconnect()


def without_secrets(url: str) -> str:
    """Return the servers of `url` without user and password."""
    return re.sub(r"(?<=//)[^/@]*@|^[^/@]*@", "", url)
