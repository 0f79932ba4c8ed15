"""The one FastStream broker factory, and the connection that it holds.

FastStream's own defaults lose events: a handler's exception terminates the message, streams are
overwritten at start, and after 60 attempts a lost connection becomes a busy loop. Every subscriber
of ours is made here; `tests/architecture` fails where one is not.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from ssl import SSLContext
from typing import Any, Final

import structlog
from faststream import AckPolicy
from faststream.nats import NatsBroker
from faststream.nats.security import NatsCredentials, NatsNKey, NatsSecurity
from nats.aio.client import Client
from nats.errors import Error as NatsError

from shared.bus.headers import parse_block
from shared.bus.nats.io_batching import gather_reads, gather_writes
from shared.settings.access import INBOX, OPEN, Access

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

Hook = Callable[[], Awaitable[None]]


def make_broker(
    url: str = "nats://127.0.0.1:4222",
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

    def __init__(self, *, url: str, name: str, access: Access = OPEN) -> None:
        self._access = access
        options = access.options()
        self._tls: SSLContext | None = options.get("tls")
        self.inbox: str = options.get("inbox_prefix", INBOX)
        """Below it is all that is sent to us alone."""

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

        self._nc: Client | None = None
        self._ready = asyncio.Event()
        self._closing = False
        self._complained_at: float | None = None
        self._revival: asyncio.Task[None] | None = None

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

    async def open(self) -> None:
        """Connect, retrying and logging without end."""
        pause = RECONNECT_SECONDS
        while True:
            try:
                self._nc = await self.broker.connect()
                break
            except (NatsError, OSError, TimeoutError) as error:
                # Not what nats-py tries again by itself: a name that means nothing, a bad file.
                self._complain(error)
                await asyncio.sleep(pause)
        log.info("connected to NATS", url=self.url)
        self._arrived()

    async def close(self) -> None:
        """Flush pending writes and disconnect for good."""
        self._closing = True
        self._ready.clear()
        if self._revival is not None:
            self._revival.cancel()
        if self._nc is not None and not self._nc.is_closed and not self._nc.is_connected:
            # Draining would wait for a server that is not there.
            try:
                await self._nc.close()
            except (NatsError, OSError) as error:
                log.debug("while closing", error=repr(error))
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
        if "permissions violation" in str(error).lower():
            self.refused = str(error)
            log.error("NATS denies permission", error=str(error), user=self.name)
        else:
            self._show_again()
            self._complain(error)
        if self._nc is None and isinstance(error, NatsError):
            # FastStream compares the words: it takes some errors of the first connection for
            # final, and leaves the socket open. A wrong password is mended more often than not.
            error.args = (f"{error}; trying again",)

    def _complain(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if self._complained_at is not None and now - self._complained_at < COMPLAIN_SECONDS:
            return
        self._complained_at = now
        log.warning("cannot reach NATS; trying again", url=self.url, error=repr(error))

    async def _on_disconnected(self) -> None:
        self._left()
        self._show_again()
        if self._nc is not None and not self._closing:
            # What nats-py has not sent yet would be sent first after the reconnection, before
            # what was lost on the way: an older state would overtake a newer one. Publisher,
            # readers and workers all ask or send again in their own order.
            self._nc._pending.clear()  # noqa: SLF001  # there is no public way
            self._nc._pending_data_size = 0  # noqa: SLF001
            log.warning("connection to NATS lost; trying again", url=self.url)

    def _show_again(self) -> None:
        """A certificate is renewed in its file; the context had read the former one."""
        if self._tls is None:
            return
        try:
            self._access.show(self._tls)
        except ValueError as error:
            log.warning("the certificate for NATS cannot be read again", error=str(error))

    async def _on_reconnected(self) -> None:
        log.info("connected to NATS again", url=self.url)
        self._arrived()

    async def _on_closed(self) -> None:
        self._left()
        if not self._closing and self._nc is not None and self._revival is None:
            # nats-py gives up for good after some errors ("maximum control line exceeded"): it
            # would stay silent for ever.
            log.error("NATS closed the connection for good; opening another", url=self.url)
            self._revival = asyncio.create_task(self._revive())

    async def _revive(self) -> None:
        await asyncio.sleep(RECONNECT_SECONDS)
        await self._stop_broker()
        await self.open()
        self._revival = None

    async def _stop_broker(self) -> None:
        try:
            await self.broker.stop()
        except (NatsError, OSError, ExceptionGroup) as error:
            # FastStream drains what is closed already, and then keeps the corpse.
            log.debug("while closing", error=repr(error))
            self.broker._connection = None  # noqa: SLF001  # else it would never connect again
            self.broker.config.disconnect()


def without_secrets(url: str) -> str:
    """Return the servers of `url` without user and password."""
    return re.sub(r"(?<=//)[^/@]*@|^[^/@]*@", "", url)
