"""Who reaches the port without a token: connections, and what is answered to anybody."""

import asyncio
import socket
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest

from services.console.app import connection_limits
from services.console.http.handlers import console_app
from services.console.http.openapi import openapi_text
from services.console.pages.service import PageService
from services.console.query_service import QueryService
from services.console.settings import ConsoleSettings
from shared.runtime.web import WebServer
from shared.testing.waiting import eventually
from tests.unit.console.people import People
from tests.unit.console.stage import Stage

ASKS = b"GET /openapi.json HTTP/1.1\r\nhost: h\r\n\r\n"


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({}, 300),
        ({"console_streams": 500}, 600),
        ({"console_connections_per_address": 40}, 40),
    ],
)
def test_address_may_have_a_part_of_the_connections(given: dict[str, int], most: int) -> None:
    limits = connection_limits(ConsoleSettings.model_validate(given))
    assert limits.per_address_max == most
    assert most < limits.connections_max


async def test_crowd_of_one_address_that_never_reads_leaves_room_for_another() -> None:
    """Each of a crowd asks for hundreds of documents, and reads none."""
    stage = Stage()
    queries = QueryService(view=stage.view, access=People())
    pages = PageService(queries=queries, bus=stage.bus)
    app = console_app(queries, pages, streams_max=9, local_only=False)
    document = openapi_text()
    limits = connection_limits(ConsoleSettings(console_connections_per_address=10))
    server = WebServer(
        app,
        host="127.0.0.1",
        port=0,
        now=lambda: datetime.now(UTC),
        limits=limits,
        stop_seconds=1,
    )
    port = await server.start()
    with ExitStack() as crowd:
        for _ in range(20):
            client = crowd.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.bind(("127.0.0.2", 0))
            client.connect(("127.0.0.1", port))
            client.sendall(ASKS * 20)
        await eventually(lambda: server.connections == 10)
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(ASKS)
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(document)) == document
            writer.close()
            await writer.wait_closed()
        assert openapi_text() is document, "it is made anew for each who asks"
    await server.stop()
