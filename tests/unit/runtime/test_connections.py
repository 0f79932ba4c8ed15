"""Connections that cost without asking: handshakes, headers and idleness, on a real listener."""

import asyncio
import contextlib
import gc
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from shared.runtime.certificates import CertificateFolder
from shared.runtime.command import environment_error
from shared.runtime.connections import ConnectionLimits, ConnectionRule, bound
from shared.runtime.web import WebServer
from shared.testing.waiting import eventually

GET = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"

HEADER_SECONDS = 60.0
"""So long that a slow machine does not meet it; less than a connection is kept without a request."""


class Listener:
    """A server, what it refused, and a client that can be rude."""

    def __init__(
        self, app: Starlette, server: WebServer, port: int, tls: ssl.SSLContext | None
    ) -> None:
        self.app = app
        self.server = server
        self.port = port
        self.tls = tls
        self.writers: list[asyncio.StreamWriter] = []

    async def open(
        self, *, source: str = "127.0.0.1", plain: bool = False
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=None if plain else self.tls, local_addr=(source, 0)
        )
        self.writers.append(writer)
        return reader, writer

    async def get(self, source: str = "127.0.0.1") -> bytes:
        reader, writer = await self.open(source=source)
        writer.write(GET)
        line = await reader.readline()
        writer.close()
        return line


async def _ok(_request: Request) -> Response:
    return PlainTextResponse("ok")


async def _endless(request: Request) -> Response:
    request.app.state.under_way += 1
    await asyncio.sleep(3600)
    return PlainTextResponse("ok")


async def _read(request: Request) -> Response:
    request.app.state.under_way += 1
    return PlainTextResponse(await request.body())


async def test_a_server_without_requests_sets_no_timer_and_dates_its_answers() -> None:
    loop = asyncio.get_running_loop()
    async with listener() as here:
        timers: list[object] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "call_at", lambda *arguments, **_: timers.append(arguments))
            await asyncio.to_thread(time.sleep, 0.25)  # uvicorn's own would look twice.
        assert not timers
        for second, date in ((0, b"00:00:00"), (0, b"00:00:00"), (7, b"00:00:07")):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(time, "time", lambda second=second: second)
                reader, writer = await here.open()
                writer.write(GET)
                head = await reader.readuntil(b"\r\n\r\n")
                writer.close()
            assert b"date: Thu, 01 Jan 1970 " + date + b" GMT" in head


@asynccontextmanager
async def listener(
    path: Path | None = None,
    *,
    causes: Counter[str] | None = None,
    connections_max: int = 1_000,
    per_address_max: int | None = None,
    header_seconds: float = HEADER_SECONDS,
    request_seconds: float | None = None,
    client_seconds: float = 60.0,
    routes: Sequence[Route] = (),
) -> AsyncIterator[Listener]:
    counted: Counter[str] = Counter() if causes is None else causes

    def on_refused(rule: ConnectionRule) -> None:
        counted[rule.label] += 1

    folder = None if path is None else CertificateFolder(path, ["127.0.0.1"])
    app = Starlette(routes=[Route("/", _ok), Route("/endless", _endless), *routes])
    app.state.under_way = 0
    server = WebServer(
        app,
        host="127.0.0.1",
        port=0,
        certificates=folder,
        limits=ConnectionLimits(
            connections_max=connections_max,
            per_address_max=per_address_max,
            header_seconds=header_seconds,
            request_seconds=request_seconds,
            client_seconds=client_seconds,
            on_refused=on_refused,
        ),
        now=lambda: datetime.now(UTC),
        stop_seconds=1,
    )
    port = await server.start()
    tls = None
    if folder is not None:
        tls = ssl.create_default_context(cadata=folder.ca_bundle().decode())
    made = Listener(app, server, port, tls)
    try:
        yield made
    finally:
        for writer in made.writers:
            writer.close()
        for writer in made.writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await server.stop()


async def closed(reader: asyncio.StreamReader) -> bool:
    """Wait until the server closed the connection."""
    with contextlib.suppress(ConnectionError):
        return await reader.read() == b""
    return True


async def test_handshake_that_never_ends_loses_its_place(tmp_path: Path) -> None:
    causes: Counter[str] = Counter()
    async with listener(tmp_path, causes=causes, header_seconds=0.3) as server:
        connections = [await server.open(plain=True) for _ in range(20)]
        connections[0][1].write(b"\x16\x03\x01")  # a record's head, then nothing
        await eventually(lambda: causes["handshake deadline"] == 20)
        await eventually(lambda: server.server.connections == 0)

        async def is_let_in() -> bool:
            """On a slow machine a handshake that ends may meet the deadline, too."""
            with contextlib.suppress(OSError):
                return b"200" in await server.get()
            return False

        await eventually(is_let_in)


class Clock:
    """The clock of the running loop, which a test moves forward. Sockets stay real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._time = loop.time
        self._ahead = 0.0
        monkeypatch.setattr(loop, "time", lambda: self._time() + self._ahead)

    async def forward(self, seconds: float) -> None:
        """Move the clock once the server has what was sent, and let the timers fire that are due.

        What was sent lies in the server's socket: a few turns of the loop read it, however slow they are.
        """
        for ahead in (0.0, seconds):
            self._ahead += ahead
            for _ in range(10):
                await asyncio.sleep(0)


async def test_headers_that_never_end_meet_a_deadline_that_bytes_do_not_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    causes: Counter[str] = Counter()
    async with listener(tmp_path, causes=causes, header_seconds=300) as server:
        reader, writer = await server.open()
        clock = Clock(monkeypatch)
        writer.write(b"GET / HTTP/1.1\r\n")
        for _ in range(2):
            await clock.forward(100)
            assert causes == {}
            writer.write(b"x: y\r\n")
        await clock.forward(100)
        assert causes == {"header deadline": 1}
        assert await closed(reader)


async def test_second_request_on_a_connection_has_a_header_deadline_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    causes: Counter[str] = Counter()
    async with listener(causes=causes) as server:
        reader, writer = await server.open()
        writer.write(GET)
        await reader.readuntil(b"ok")
        writer.write(b"GET / HTTP")
        await Clock(monkeypatch).forward(HEADER_SECONDS)
        assert causes == {"header deadline": 1}
        assert await closed(reader)


async def test_kept_connection_without_a_request_is_not_cut_off_by_header_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    causes: Counter[str] = Counter()
    async with listener(causes=causes) as server:
        clock = Clock(monkeypatch)
        reader, writer = await server.open()
        for _ in range(3):
            writer.write(GET)
            await reader.readuntil(b"ok")
            await clock.forward(HEADER_SECONDS + 1)
        assert causes == {}
        writer.close()


async def test_endless_request_meets_its_deadline() -> None:
    causes: Counter[str] = Counter()
    async with listener(causes=causes, request_seconds=0.3) as server:
        reader, writer = await server.open()
        writer.write(b"GET /endless HTTP/1.1\r\nhost: h\r\n\r\n")
        assert await closed(reader)
        assert causes == {"request deadline": 1}


async def test_crowd_of_one_address_leaves_room_for_another() -> None:
    causes: Counter[str] = Counter()
    async with listener(causes=causes, connections_max=10) as server:
        crowd = [await server.open(source="127.0.0.2") for _ in range(10)]
        await eventually(lambda: server.server.connections == 10)
        assert b"200" in await server.get("127.0.0.1")
        assert causes["connections"] == 1
        assert await closed(crowd[0][0])


async def test_address_beyond_its_limit_loses_its_own_oldest_idle_connection() -> None:
    causes: Counter[str] = Counter()
    async with listener(causes=causes, per_address_max=3) as server:
        crowd = [await server.open(source="127.0.0.2") for _ in range(5)]
        await eventually(lambda: causes["connections"] == 2)
        assert await closed(crowd[0][0])
        assert await closed(crowd[1][0])
        assert server.server.connections == 3
        assert b"200" in await server.get("127.0.0.1")


async def test_crowd_of_addresses_that_send_no_bodies_leaves_room_for_another() -> None:
    routes = [Route("/read", _read, methods=["POST"])]
    async with listener(connections_max=6, per_address_max=3, routes=routes) as here:
        for source in ("127.0.0.2", "127.0.0.3"):
            for _ in range(3):
                _, writer = await here.open(source=source)
                writer.write(b"POST /read HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n")
        await eventually(lambda: here.app.state.under_way == 6)
        assert await here.get() == b"HTTP/1.1 200 OK\r\n"
        assert here.server.connections <= 6


async def test_next_address_gives_way_where_all_requests_of_the_first_are_under_way() -> None:
    async with listener(connections_max=5) as here:
        for _ in range(3):
            _, writer = await here.open(source="127.0.0.2")
            writer.write(b"GET /endless HTTP/1.1\r\nhost: h\r\n\r\n")
        idle = [await here.open(source="127.0.0.3") for _ in range(2)]
        await eventually(lambda: here.app.state.under_way == 3)
        assert await here.get() == b"HTTP/1.1 200 OK\r\n"
        assert await closed(idle[0][0])


async def test_connection_with_a_request_under_way_is_not_taken_away() -> None:
    causes: Counter[str] = Counter()
    async with listener(causes=causes, per_address_max=2) as server:
        busy = []
        for _ in range(2):
            reader, writer = await server.open()
            writer.write(b"GET /endless HTTP/1.1\r\nhost: h\r\n\r\n")
            busy.append(reader)
        await eventually(lambda: server.app.state.under_way == 2)
        third, _ = await server.open()
        assert await closed(third)
        assert server.server.connections == 2
        assert not any(reader.at_eof() for reader in busy)


async def test_places_are_given_back_when_connections_end(tmp_path: Path) -> None:
    async with listener(tmp_path) as server:
        for _ in range(20):
            assert b"200" in await server.get()
        await eventually(lambda: server.server.connections == 0)


@pytest.mark.parametrize("ticks", range(8))
async def test_connection_that_comes_while_the_server_stops_is_closed(ticks: int) -> None:
    """A socket that is only dropped says so with a warning, which fails the test."""
    async with listener() as here:
        with socket.create_connection(("127.0.0.1", here.port)):
            for _ in range(ticks):
                await asyncio.sleep(0)
            await here.server.stop()
    gc.collect()


async def test_connection_that_loses_its_place_at_once_is_closed() -> None:
    causes: Counter[str] = Counter()
    async with listener(causes=causes, per_address_max=1) as here:
        clients = [socket.create_connection(("127.0.0.1", here.port)) for _ in range(5)]
        await eventually(lambda: causes["connections"] == 4)
        for client in clients:
            client.close()
    gc.collect()


def test_port_that_is_taken_is_named_with_what_to_do() -> None:
    with bound("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}") as caught:
            bound("127.0.0.1", port)
    told = environment_error(caught.value)
    assert told is not None
    assert str(told) == f"127.0.0.1:{port}: address already in use"
    assert told.hint == "stop what listens there, or set another port"
    assert environment_error(OSError("a mistake of ours")) is None
