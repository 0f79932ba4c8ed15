"""Limits what connections may cost before an application sees them: their number, and their slowness.

uvicorn has no deadline for a TLS handshake or for headers, and its limit on concurrency refuses whoever comes
last. Here each accepted socket has a slot, and where slots are short, the address that holds most of them
loses one on which the server waits for its client.
"""

import asyncio
import contextlib
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from typing import Any, Final, cast

import h11
import structlog
import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from shared.contracts.reasons import RefusalRule
from shared.runtime.sleeping import SleepingServer

log = structlog.get_logger(__name__)

BACKLOG: Final = 1024
PAUSE_SECONDS: Final = 0.1

CLIENT_NAME: Final = "client_name"
"""In the state of a request: the common name of the client's certificate, where one is asked for."""

UNREAD_BYTES_MAX: Final = 16 * 1024
"""Bytes of answers that may lie here until a client reads. With more, it is waited for: it gets no other
answer, and its next request is not begun. It bounds what clients that never read hold, to one answer each;
to two over TLS, where what lies in the socket below does not count."""

PARTS_MAX: Final = 1_000
PART_BYTES_MIN: Final = 1024
"""A body may come in this many parts of any size, and in more only if they are larger on average. One
megabyte in chunks of a byte costs ten seconds of CPU."""


_LATER: Final = "Open fewer connections, or send faster. The setting is the operator's."


class ConnectionRule(RefusalRule):
    """A connection, which is closed without an answer."""

    TOO_MANY = (
        "connections",
        "too many connections from this address, or from all together",
        _LATER,
    )
    HANDSHAKE = ("handshake deadline", "the TLS handshake took too long", _LATER)
    HEADERS = ("header deadline", "the headers of a request took too long", _LATER)
    REQUEST = ("request deadline", "a request and its answer took too long", _LATER)
    CLIENT = (
        "client deadline",
        "the client took too long to send a body, or to read an answer",
        _LATER,
    )


def _ignore(_rule: ConnectionRule) -> None:
    pass


def _common_name(certificate: dict[str, Any]) -> str:
    names = (pair for part in certificate.get("subject") or () for pair in part)
    return next((value for key, value in names if key == "commonName"), "")


def bound(host: str, port: int) -> socket.socket:
    """A socket of this address; uvicorn itself would end the process where a port is taken.

    Raises `OSError`, which names the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Said to be TCP, or asyncio leaves Nagle's algorithm on for what it accepts: 40 ms each.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from error
    return listening


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of one listener."""

    connections_max: int = 1_000
    per_address_max: int | None = None
    """None: an address may have all of them, as a proxy in front of the service has."""

    header_seconds: float = 5.0
    """For the TLS handshake, and then for the headers of each request."""

    request_seconds: float | None = None
    """From the headers to the last byte of the answer. None: answers are streams without an end."""

    client_seconds: float = 60.0
    """How long the server waits for its client: for the rest of a body, or until an answer is read. It holds
    for streams, too."""

    on_refused: Callable[[ConnectionRule], None] = _ignore
    """Called with the rule for each connection that is closed by these limits."""


class _Slot:
    """One open connection."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.busy = False
        """A request is under way, is here whole, and its client reads. Only other slots are taken away."""

        self.close: Callable[[], object] = lambda: None


class _Slots:
    """The open connections of a listener, the oldest first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._open: dict[_Slot, None] = {}
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, address: str) -> _Slot | None:
        """Return a slot for a new connection; None if there is none, even after others lost theirs."""
        most = self._limits.per_address_max
        has_room = True
        if most is not None and self._of[address] >= most:
            has_room = self._evict(self._idle(address))
        elif len(self._open) >= self._limits.connections_max:
            has_room = self._evict(self._idle_of_heavier(address) or self._idle(address))
        if not has_room:
            return None
        slot = _Slot(address)
        self._open[slot] = None
        self._of[address] += 1
        return slot

    def leave(self, slot: _Slot) -> None:
        """Give a slot back. May be repeated."""
        if slot in self._open:
            del self._open[slot]
            self._of[slot.address] -= 1
            if not self._of[slot.address]:
                del self._of[slot.address]

    def _idle(self, address: str) -> _Slot | None:
        """The oldest connection of `address` of which the server waits for its client."""
        own = (slot for slot in self._open if slot.address == address and not slot.busy)
        return next(own, None)

    def _idle_of_heavier(self, address: str) -> _Slot | None:
        """The same of the address that has most of them, if it has more than `address`."""
        idle = (slot for slot in self._open if not slot.busy)
        found = max(idle, key=lambda slot: self._of[slot.address], default=None)
        return found if found and self._of[found.address] > self._of[address] else None

    def _evict(self, slot: _Slot | None) -> bool:
        if slot is None:
            return False
        self.leave(slot)
        self._limits.on_refused(ConnectionRule.TOO_MANY)
        slot.close()
        return True


class _Connection(h11.Connection):
    """Refuses bodies in very small parts: each costs as much as a large one."""

    def __init__(self, incomplete_max: int) -> None:
        super().__init__(h11.SERVER, incomplete_max)
        self._parts = 0
        self._bytes = 0

    @override
    def next_event(self) -> Any:
        """Return the next event. Raises `h11.RemoteProtocolError` where a body has too many parts."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._parts = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._parts += 1
            self._bytes += len(event.data)
            if self._parts > PARTS_MAX + self._bytes // PART_BYTES_MIN:
                raise h11.RemoteProtocolError("the body comes in too small parts")
        return event


class LimitedProtocol(H11Protocol):
    """One connection with deadlines."""

    limits: ConnectionLimits = ConnectionLimits()
    slot: _Slot | None = None
    slots: _Slots | None = None
    before_data: Callable[[], None] = staticmethod(lambda: None)
    _timer: asyncio.TimerHandle | None = None
    _client_timer: asyncio.TimerHandle | None = None
    _under_way = False
    _held = False
    """The last answer is not read yet, and therefore the next request not begun."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Headers and a chunk's head may be this long.
        self.conn = _Connection(16 * 1024)

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline for the first headers."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(UNREAD_BYTES_MAX, 0)
        if shown := transport.get_extra_info("peercert"):
            self.app_state = {**self.app_state, CLIENT_NAME: _common_name(shown)}
        if self.slot is not None:
            self.slot.close = transport.abort
        self._arm(self.limits.header_seconds, ConnectionRule.HEADERS)

    @override
    def data_received(self, data: bytes) -> None:
        """Parse, then choose the deadline that holds now."""
        self.before_data()
        super().data_received(data)
        self._look()

    @override
    def handle_events(self) -> None:
        """Begin with what has come, unless an answer waits to be read."""
        if not self._held:
            super().handle_events()

    @override
    def on_response_complete(self) -> None:
        """Be idle until the next request begins: not before the answer is read."""
        self._disarm()
        self._under_way = False
        if self.flow.write_paused and not self.transport.is_closing():
            self._held = True
            self.flow.pause_reading()
        else:
            super().on_response_complete()
        self._look()

    @override
    def pause_writing(self) -> None:
        """Wait for the client, who does not read."""
        super().pause_writing()
        self._look()

    @override
    def resume_writing(self) -> None:
        """Go on with a client who has read all."""
        super().resume_writing()
        if self._held:
            self._held = False
            super().on_response_complete()
        self._look()

    @override
    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that nobody uses, also if its client does not read the last answer."""
        super().timeout_keep_alive_handler()
        self._look()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Give the slot back."""
        self._disarm()
        if self.slots is not None and self.slot is not None:
            self.slots.leave(self.slot)
        super().connection_lost(exc)
        if self._client_timer is not None:
            self._client_timer.cancel()

    def _look(self) -> None:
        """Choose the deadlines for what the connection does now."""
        cycle: Any = self.cycle  # None until the first request.
        began = not self._under_way
        self._under_way = cycle is not None and not cycle.response_complete
        if self.slot is not None:
            sending = self.conn.their_state is h11.SEND_BODY
            self.slot.busy = self._under_way and not (sending or self.flow.write_paused)
        self._look_at_client()
        if self.transport.is_closing():
            return
        if self._under_way:
            if began:
                self._disarm()
                if self.limits.request_seconds is not None:
                    self._arm(self.limits.request_seconds, ConnectionRule.REQUEST)
        elif self._timer is None and not self._held and self.conn.trailing_data[0]:
            self._arm(self.limits.header_seconds, ConnectionRule.HEADERS)

    def _look_at_client(self) -> None:
        """Have a deadline while the client is waited for. What it sends or reads in part moves none."""
        awaited = (
            self.flow.write_paused
            or self.transport.is_closing()
            or self.conn.their_state is h11.SEND_BODY
        )
        if awaited and self._client_timer is None:
            seconds = self.limits.client_seconds
            self._client_timer = self.loop.call_later(seconds, self._abandon, ConnectionRule.CLIENT)
        elif not awaited and self._client_timer is not None:
            self._client_timer.cancel()
            self._client_timer = None

    def _arm(self, seconds: float, rule: ConnectionRule) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self._too_slow, rule)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self, rule: ConnectionRule) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self._abandon(rule)

    def _abandon(self, rule: ConnectionRule) -> None:
        self.limits.on_refused(rule)
        self.transport.abort()


class LimitedServer(SleepingServer):
    """A uvicorn server that accepts connections itself, so that it can refuse them."""

    def __init__(self, config: uvicorn.Config, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._limits = limits
        self._slots = _Slots(limits)
        self._listening: set[socket.socket] = set()
        self._handshakes: set[asyncio.Task[bool]] = set()
        self._dated = -1

    @property
    def connections(self) -> int:
        """The number of open connections, those in a handshake included."""
        return len(self._slots)

    def renew_date(self) -> None:
        """Let answers have the date of now. Called for what clients send, not by a clock."""
        second = int(time.time())
        if second != self._dated:
            self._dated = second
            date = (b"date", formatdate(second, usegmt=True).encode())
            self.server_state.default_headers = [date, *self.config.encoded_headers]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept on the given sockets, which are bound."""
        await self.lifespan.startup()
        self.servers = []
        for each in sockets or []:
            each.setblocking(False)
            each.listen(BACKLOG)
            self._listening.add(each)
            self._listen(each)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, then do what uvicorn does."""
        loop = asyncio.get_running_loop()
        while self._listening:
            loop.remove_reader(self._listening.pop())
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)
        await super().shutdown(sockets)

    def _listen(self, listening: socket.socket) -> None:
        if listening in self._listening:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accept one connection: `sock_accept` loses what came just before it is cancelled."""
        try:
            accepted, peer = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # Who knocked has gone.
        except OSError as error:  # Out of file descriptors: the backlog waits.
            log.warning("cannot accept a connection", error=str(error))
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            loop.call_later(PAUSE_SECONDS, self._listen, listening)
            return
        accepted.setblocking(False)
        slot = self._slots.enter(str(peer[0]))
        if slot is None:
            self._limits.on_refused(ConnectionRule.TOO_MANY)
            accepted.close()
            return
        with contextlib.suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.create_task(self._open(slot, accepted))
        slot.close = task.cancel
        self._handshakes.add(task)
        task.add_done_callback(partial(self._end_handshake, slot, accepted))

    def _end_handshake(
        self, slot: _Slot, accepted: socket.socket, task: asyncio.Task[bool]
    ) -> None:
        """Close what was not opened: a task that is cancelled at once has not even begun."""
        self._handshakes.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("cannot open a connection", exc_info=error)
        if task.cancelled() or error is not None or not task.result():
            self._slots.leave(slot)
            accepted.close()

    async def _open(self, slot: _Slot, accepted: socket.socket) -> bool:
        """Let the client shake hands, and return whether it did. Nobody else waits for a slow one."""

        def protocol() -> LimitedProtocol:
            made = cast(
                LimitedProtocol,
                self.config.http_protocol_class(  # type: ignore[call-arg]
                    config=self.config,
                    server_state=self.server_state,
                    app_state=self.lifespan.state,
                ),
            )
            made.limits, made.slot, made.slots = self._limits, slot, self._slots
            made.before_data = self.renew_date
            return made

        tls = self.config.ssl
        seconds = None if tls is None else self._limits.header_seconds
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                protocol, accepted, ssl=tls, ssl_handshake_timeout=seconds
            )
        except ConnectionAbortedError:
            self._limits.on_refused(ConnectionRule.HANDSHAKE)
        except (OSError, ssl.SSLError):
            pass  # A port scan, a probe without TLS, or a client that trusts another certificate.
        else:
            return True
        return False
