"""The connections to one API server, made with one reading of the credentials."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from shared.kube.config import Access
from shared.kube.port import UnavailableError

READ_BYTES: Final = 1 << 18
"""Read-ahead of a connection in bytes."""

_PIECES_FROM: Final = 1 << 20
"""Larger bodies are sent in pieces: aiohttp warns about large bodies in one piece."""

_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""A dead peer is noticed within a minute, also by a watch to which nothing happens. Names differ
between systems; what a system lacks it goes without."""


Answered = Callable[[str, str, float], None]
"""Is told of each answer: method, status code (``none``: there was none), seconds."""


class Connections:
    """A pool for calls, and for each watch a connection beside it. Must be made in a running loop."""

    def __init__(
        self, access: Access, *, connections: int, on_answer: Answered | None = None
    ) -> None:
        self.since = asyncio.get_running_loop().time()
        self._access = access
        self._on_answer = on_answer
        self._proxy = access.proxy or _usual_proxy(access.server)
        self._calls = self._session(connections)
        self._watches = self._session(0)

    async def headers(self) -> dict[str, str]:
        """Return the headers for authentication; an expiring token is renewed."""
        value = await self._access.authorization()
        return {} if value is None else {"Authorization": value}

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        data: bytes | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, for each phase
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Send one request; return status, body and headers. `UnavailableError` without an answer."""
        loop = asyncio.get_running_loop()
        began, code = loop.time(), "none"
        try:
            async with self._calls.request(
                method,
                self._url(path, query),
                headers={**headers, **await self.headers()},
                data=_body(data),
                timeout=timeout,
                **self._how(),
            ) as got:
                code = str(got.status)
                return got.status, await got.read(), got.headers
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            text = f"{method} {path}: {type(error).__name__}: {error}"
            raise UnavailableError(text) from error
        finally:
            if self._on_answer is not None:
                self._on_answer(method, code, loop.time() - began)

    @asynccontextmanager
    async def watch(
        self,
        path: str,
        query: Mapping[str, str],
        accept: str,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, for each phase
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Begin an answer that goes on, for as long as the context lasts. Raises aiohttp's errors."""
        async with self._watches.get(
            self._url(path, query),
            headers={"Accept": accept, **headers},
            timeout=timeout,
            **self._how(),
        ) as got:
            try:
                yield got
            finally:
                # The caller has stopped reading. A clean shutdown of TLS would wait for the server, which may
                # be gone, on a timer that can outlive the event loop.
                if got.connection is not None and got.connection.transport is not None:
                    got.connection.transport.abort()

    async def close(self) -> None:
        """Close all connections; running requests fail."""
        for session in (self._calls, self._watches):
            if session.connector is not None:
                await session.connector.close(abort_ssl=True)
            await session.close()

    def _how(self) -> dict[str, Any]:
        how: dict[str, Any] = {"allow_redirects": False}
        if self._proxy is not None:
            how["proxy"] = self._proxy
        if self._access.tls_server_name is not None:
            how["server_hostname"] = self._access.tls_server_name
        return how

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return f"{self._access.server}{path}" + (f"?{urlencode(query)}" if query else "")

    def _session(self, connections: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=connections,
            ssl=self._access.tls if self._access.tls is not None else True,
            socket_factory=_kept_alive,
        )
        return aiohttp.ClientSession(
            connector=connector,
            read_bufsize=READ_BYTES,
            cookie_jar=aiohttp.DummyCookieJar(),
        )


def _body(data: bytes | None) -> bytes | BytesIO | None:
    return BytesIO(data) if data is not None and len(data) > _PIECES_FROM else data


def _usual_proxy(server: str) -> str | None:
    """What HTTPS_PROXY, NO_PROXY and their like say. aiohttp would ask anew for each request."""
    parts = urlsplit(server)
    if proxy_bypass(parts.netloc):
        return None
    return getproxies().get(parts.scheme)


def _kept_alive(address: Any) -> socket.socket:
    family, kind, protocol = address[0], address[1], address[2]
    made = socket.socket(family=family, type=kind, proto=protocol)
    with suppress(OSError):  # Only later notice, never no connection.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            if (option := getattr(socket, name, None)) is not None:
                made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
