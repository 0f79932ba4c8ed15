"""Delivers private keys over HTTPS: `POST /otp` with the password as body, the key as response.

It is an HTTP server of its own because a key is deleted only after its delivery, and usual servers do not
report that. Here a delivery is confirmed when the client closes the connection in good order after the
whole response. If the connection breaks earlier, the key stays available. Bodies are never logged.

The build script of konflux-ci/multi-platform-controller@c28c4a01 sends one request and uses any response
as its key. So a request waits while the bus is unavailable, and while the same key is being delivered.

Every pod of the cluster can connect. So each phase of a connection has a deadline, the TLS handshake
included, and connections are counted from the moment they are accepted, in all and for each address. If
all places are taken, a connection gives way that has no key, of the address with most of them.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

import structlog

from services.provisioner.keys.one_time import (
    CLAIM_SECONDS,
    Claim,
    ClaimedError,
    OneTimeKeyStore,
    UnknownPasswordError,
)
from shared.bus.port import BusError

log = structlog.get_logger(__name__)

Refusal = Literal["address", "total", "handshake", "slow", "request"]
"""Why a connection got no key: too many of its address, too many in all, no TLS in order, no request in
time, or a request that is refused."""

HEAD_BYTES_MAX: Final = 8_192
BODY_BYTES_MAX: Final = 256
HANDSHAKE_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 10.0
REFUSED_SECONDS: Final = 5.0
"""How long a refused client may take to read its refusal and close."""

CONFIRM_SECONDS: Final = CLAIM_SECONDS / 2
"""A delivery that the client does not close within this time has failed."""

PATIENCE_SECONDS: Final = 60.0
"""Longest wait for a key that is not available yet. curl has no time-out of its own."""

RETRY_SECONDS: Final = 0.5
CONNECTIONS_MAX: Final = 1024
"""A place in all of them costs memory of a TLS connection, some 50 kB."""

IPV6_PREFIX: Final = 64
"""Addresses that agree in so many bits count as one: a single machine has all of them."""

ACCEPT_RETRY_SECONDS: Final = 0.1
BACKLOG: Final = 256

_TOO_SLOW: Final = 408
_REASONS: Final = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 411: "Length Required", 413: "Content Too Large",
    503: "Service Unavailable",
}  # fmt: skip


class _RefusedError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class _HttpRequest:
    path: str
    body: str


class OneTimeKeyServer:
    """One HTTPS listener. Call `start`, then `stop`."""

    def __init__(
        self,
        keys: OneTimeKeyStore,
        *,
        host: str,
        port: int,
        tls: Callable[[], ssl.SSLContext],
        per_address: int = 64,
        on_refused: Callable[[Refusal], None] = lambda _: None,
    ) -> None:
        """`tls`: called once, at start. The context may load new certificates by itself.

        `per_address`: most connections of one address at a time. `on_refused`: called for each connection
        that gets no key.
        """
        self._keys = keys
        self._host = host
        self._port = port
        self._tls = tls
        self._per_address = per_address
        self._on_refused = on_refused
        self._listeners: list[asyncio.Task[None]] = []
        self._connections: dict[asyncio.Task[None], str] = {}
        """Every open connection and its address."""

        self._without_key: dict[asyncio.Task[None], str] = {}
        """Those that have no key, and are not about to get one, in the order in which that began."""

        self._by_address: Counter[str] = Counter()
        self._over: set[str] = set()
        """Addresses of which a connection was refused, while they have others."""

        self._full = False

    async def start(self) -> int:
        """Start listening. Returns the port."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, *_, address = found[0]
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
        listener.setblocking(False)
        self._listeners.append(loop.create_task(self._accept(listener, self._tls())))
        return int(listener.getsockname()[1])

    async def stop(self) -> None:
        """Stop listening. Deliveries that are under way end by themselves."""
        for task in self._listeners:
            task.cancel()
        await asyncio.gather(*self._listeners, return_exceptions=True)
        self._listeners.clear()

    async def _accept(self, listener: socket.socket, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                try:
                    connection, peer = await loop.sock_accept(listener)
                except OSError as error:  # No file descriptor is left, or the client is gone.
                    log.warning("cannot accept a connection for a key", error=str(error))
                    await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                    continue
                address = count_key(str(peer[0]))
                if self._is_over(address) or not self._has_place():
                    connection.close()
                    continue
                self._by_address[address] += 1
                task = loop.create_task(self._serve(connection, tls))
                self._connections[task] = self._without_key[task] = address
                task.add_done_callback(self._closed)

    def _is_over(self, address: str) -> bool:
        if self._by_address[address] < self._per_address:
            return False
        self._on_refused("address")
        if address not in self._over:
            self._over.add(address)
            log.warning(
                "too many connections of one address", address=address, most=self._per_address
            )
        return True

    def _has_place(self) -> bool:
        """Whether a connection may be added. One that has no key gives way to it."""
        if len(self._connections) < CONNECTIONS_MAX:
            self._full = False
            return True
        self._on_refused("total")
        if not self._full:
            self._full = True
            log.warning("too many connections", most=CONNECTIONS_MAX)
        if not self._without_key:
            return False
        # Of the address that has most of them: who connects often harms only itself.
        victim = max(self._without_key, key=lambda task: self._by_address[self._without_key[task]])
        del self._without_key[victim]
        victim.cancel()
        return True

    def _closed(self, task: asyncio.Task[None]) -> None:
        address = self._connections.pop(task)
        self._without_key.pop(task, None)
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
            self._over.discard(address)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection failed", error=repr(error))

    async def _serve(self, connection: socket.socket, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
        except (OSError, ssl.SSLError) as error:
            self._on_refused("handshake")
            log.info("a client for a key does not speak TLS", error=type(error).__name__)
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            await self._answer(reader, writer)
        except (OSError, ssl.SSLError) as error:
            log.info("the connection of a client for a key is lost", error=type(error).__name__)
        finally:
            transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await self._request(reader, writer)
            claim = await self._claim(request)
        except _RefusedError as error:
            self._on_refused("slow" if error.status == _TOO_SLOW else "request")
            async with asyncio.timeout(REFUSED_SECONDS):
                await _send(writer, error.status, f"{error.text}\n".encode())
                await _closes(reader)
        else:
            await self._deliver(claim, reader, writer)

    async def _request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> _HttpRequest:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await _read(reader, writer)
        except TimeoutError as error:
            raise _RefusedError(_TOO_SLOW, "too slow") from error

    async def _claim(self, request: _HttpRequest) -> Claim:
        if request.path != "/otp":
            raise _RefusedError(404, "there is /otp")
        time = asyncio.get_running_loop().time
        deadline = time() + PATIENCE_SECONDS
        while True:
            try:
                with self._about_to_get_a_key():
                    return await self._keys.claim(request.body)
            except UnknownPasswordError as error:
                raise _RefusedError(400, "no key for this password") from error
            except (ClaimedError, BusError) as error:
                if time() >= deadline:
                    delivering = isinstance(error, ClaimedError)
                    text = (
                        "the key is being delivered" if delivering else "no connection to the keys"
                    )
                    raise _RefusedError(503, text) from error
            await asyncio.sleep(RETRY_SECONDS)

    @contextmanager
    def _about_to_get_a_key(self) -> Iterator[None]:
        """Give way to nobody while a key is claimed, nor with the key."""
        task = asyncio.current_task()
        assert task is not None
        self._without_key.pop(task, None)
        try:
            yield
        except BaseException:
            self._without_key[task] = self._connections[task]
            raise

    async def _deliver(
        self, claim: Claim, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        arrived = False
        try:
            async with asyncio.timeout(CONFIRM_SECONDS):
                await _send(writer, 200, claim.private_key)
                arrived = await _closes(reader)
        except (OSError, TimeoutError) as error:
            log.warning("a key was not taken", id=claim.state.id, error=type(error).__name__)
        try:
            if arrived:
                await self._keys.confirm(claim)
                log.info("a key was delivered", id=claim.state.id)
            else:
                await self._keys.release(claim)
        except BusError as error:
            # The claim expires, and the key can be fetched again.
            log.warning("a delivery was not recorded", id=claim.state.id, error=str(error))


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _HttpRequest:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.LimitOverrunError, asyncio.IncompleteReadError) as error:
        raise _RefusedError(400, "this is no request") from error
    first, *lines = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _RefusedError(400, "this is no request")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    if words[0] != "POST":
        raise _RefusedError(405, "POST the password")
    length = headers.get("content-length", "")
    if not length.isascii() or not length.isdigit():
        raise _RefusedError(411, "say how long the password is")
    if len(length) > 9 or int(length) > BODY_BYTES_MAX:
        raise _RefusedError(413, "no password is so long")
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        body = await reader.readexactly(int(length))
    except asyncio.IncompleteReadError as error:
        raise _RefusedError(400, "the password is cut off") from error
    return _HttpRequest(path=words[1].partition("?")[0], body=body.decode("latin-1").strip())


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    retry = "Retry-After: 2\r\n" if status == 503 else ""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain\r\n{retry}"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()


async def _closes(reader: asyncio.StreamReader) -> bool:
    """True once the client closes in good order. Its further data is dropped. Raises OSError otherwise."""
    while await reader.read(HEAD_BYTES_MAX):
        pass
    return True


def count_key(text: str) -> str:
    """What the connections of the address `text` are counted by."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
