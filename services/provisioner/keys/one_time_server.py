"""Delivers private keys over HTTPS: `POST /otp` with the password as body, the key as response.

It is an HTTP server of its own because a key is deleted only after its delivery, and usual servers do not
report that. Here a delivery is confirmed when the client closes the connection in good order after the
whole response. If the connection breaks earlier, the key stays available. Bodies are never logged.

The build script of konflux-ci/multi-platform-controller@c28c4a01 sends one request and uses any response
as its key. So a request waits while the bus is unavailable, and while the same key is being delivered.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from services.provisioner.keys.one_time import (
    CLAIM_SECONDS,
    Claim,
    ClaimedError,
    OneTimeKeyStore,
    UnknownPasswordError,
)
from shared.bus.port import BusError

__all__ = ["OneTimeKeyServer"]

log = structlog.get_logger(__name__)

HEAD_BYTES_MAX: Final = 8_192
BODY_BYTES_MAX: Final = 256
REQUEST_SECONDS: Final = 10.0
CONFIRM_SECONDS: Final = CLAIM_SECONDS / 2
"""A delivery that the client does not close within this time has failed."""

PATIENCE_SECONDS: Final = 60.0
"""Longest wait for a key that is not available yet. curl has no time-out of its own."""

RETRY_SECONDS: Final = 0.5
CONNECTIONS_MAX: Final = 1024
"""Any further connection is closed at once."""

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
        self, keys: OneTimeKeyStore, *, host: str, port: int, tls: Callable[[], ssl.SSLContext]
    ) -> None:
        """`tls`: called once, at start. The context may load new certificates by itself."""
        self._keys = keys
        self._host = host
        self._port = port
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self) -> int:
        """Start listening. Returns the port."""
        self._server = await asyncio.start_server(
            self._serve, self._host, self._port, ssl=self._tls(), limit=HEAD_BYTES_MAX
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening. Deliveries that are under way end by themselves."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                await self._answer(reader, writer)
        except (OSError, ssl.SSLError) as error:
            log.info("connection lost", error=type(error).__name__)
        finally:
            self._open -= 1
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await _read(reader, writer)
            claim = await self._claim(request)
        except TimeoutError:
            await _send(writer, 408, b"too slow\n")
        except _RefusedError as error:
            await _send(writer, error.status, f"{error.text}\n".encode())
            await _closes(reader)
        else:
            await self._deliver(claim, reader, writer)

    async def _claim(self, request: _HttpRequest) -> Claim:
        if request.path != "/otp":
            raise _RefusedError(404, "there is /otp")
        time = asyncio.get_running_loop().time
        deadline = time() + PATIENCE_SECONDS
        while True:
            try:
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
