"""Clients that keep the server waiting: they do not read their answers, or do not send their bodies."""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from shared.testing.waiting import eventually
from tests.unit.runtime.test_connections import Clock, Listener, listener

LARGE = bytes(16 * 1024 * 1024)
"""More than the buffers of the kernel hold."""

TICKS = 6
CLIENT_SECONDS = 600.0


async def _large(request: Request) -> Response:
    request.app.state.under_way += 1
    return Response(LARGE)


async def _stream(request: Request) -> Response:
    request.app.state.under_way += 1

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield LARGE
            await asyncio.sleep(0)  # To be cancelled when the client has gone.

    return StreamingResponse(endless())


async def _ticks(request: Request) -> Response:
    async def slow() -> AsyncIterator[bytes]:
        for _ in range(TICKS):
            yield b"tick"
            await request.app.state.clock.forward(CLIENT_SECONDS / 2)

    return StreamingResponse(slow())


async def _unread(_request: Request) -> Response:
    """Answers without the body, as who refuses a request does."""
    return PlainTextResponse("no")


ROUTES = [
    Route("/large", _large),
    Route("/stream", _stream),
    Route("/ticks", _ticks),
    Route("/unread", _unread, methods=["POST"]),
]


def request(path: str, more: bytes = b"") -> bytes:
    return b"GET " + path.encode() + b" HTTP/1.1\r\nhost: h\r\n" + more + b"\r\n"


@contextlib.contextmanager
def silent(here: Listener, sent: bytes) -> Iterator[socket.socket]:
    """A client that sends and never reads: asyncio's would read ahead."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", here.port))
        client.sendall(sent)
        yield client


async def test_next_request_is_begun_when_the_answer_before_it_is_read() -> None:
    async with listener(routes=ROUTES) as here:
        with silent(here, request("/large") * 3) as client:
            await eventually(lambda: here.app.state.under_way == 1)
            for _ in range(5):
                assert b"200" in await here.get()
            assert here.app.state.under_way == 1
            client.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=client)
            for number in (1, 2, 3):
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(len(LARGE))
                assert here.app.state.under_way in {number, number + 1}
            writer.close()
            await writer.wait_closed()


STALLED = [
    pytest.param(request("/large"), id="does not read an answer"),
    pytest.param(request("/large") * 350, id="nor one of many"),
    pytest.param(request("/large", b"connection: close\r\n"), id="which is its last one"),
    pytest.param(request("/stream"), id="does not read a stream"),
    pytest.param(request("/large") + b"nonsense\r\n\r\n", id="sends nonsense after it"),
    pytest.param(
        b"POST /unread HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n1",
        id="does not send the body of a request that is answered",
    ),
    pytest.param(
        b"POST /endless HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n1",
        id="does not send a body",
    ),
]


@pytest.mark.parametrize("sent", STALLED)
async def test_client_that_is_waited_for_meets_its_deadline(sent: bytes) -> None:
    causes: Counter[str] = Counter()
    async with listener(causes=causes, client_seconds=0.3, routes=ROUTES) as here:
        with silent(here, sent):
            await eventually(lambda: causes["client deadline"] == 1)
            await eventually(lambda: here.server.connections == 0)
            assert b"200" in await here.get()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(request("/large") * 3, id="any of its answers"),
        pytest.param(request("/large", b"connection: close\r\n"), id="its last one"),
    ],
)
async def test_client_over_tls_that_does_not_read_meets_its_deadline(
    tmp_path: Path, sent: bytes
) -> None:
    causes: Counter[str] = Counter()
    async with listener(tmp_path, causes=causes, client_seconds=0.5, routes=ROUTES) as here:
        _, writer = await here.open()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(sent)
        await eventually(lambda: causes["client deadline"] == 1)
        await eventually(lambda: here.server.connections == 0)
        assert here.app.state.under_way < 3


async def test_stream_that_is_read_outlasts_the_deadline_of_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    causes: Counter[str] = Counter()
    async with listener(causes=causes, client_seconds=CLIENT_SECONDS, routes=ROUTES) as here:
        here.app.state.clock = Clock(monkeypatch)
        reader, writer = await here.open()
        writer.write(request("/ticks", b"connection: close\r\n"))
        assert (await reader.read()).count(b"tick") == TICKS
        assert causes == {}


async def test_no_more_is_read_of_a_client_that_does_not_read() -> None:
    """Only the buffers of the kernel take what it sends."""
    flood = bytes(4 * len(LARGE))
    async with listener(routes=ROUTES) as here:
        with silent(here, request("/large")) as client:
            await eventually(lambda: here.app.state.under_way == 1)
            client.setblocking(False)
            sending = asyncio.get_running_loop().sock_sendall(client, flood)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(sending, 0.5)


@pytest.mark.parametrize("path", ["/large", "/stream"])
async def test_client_that_does_not_read_gives_way(path: str) -> None:
    causes: Counter[str] = Counter()
    async with listener(causes=causes, per_address_max=2, routes=ROUTES) as here:
        with silent(here, request(path) * 9), silent(here, request(path) * 9):
            await eventually(lambda: here.app.state.under_way == 2)
            assert b"200" in await here.get()
            assert causes == {"connections": 1}
