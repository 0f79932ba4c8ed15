"""Who is told to stop stops, also in the moment in which an answer comes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shared.bus.nats.bus import NatsBus
from shared.bus.nats.jetstream_api import call
from shared.testing.nats_server import nats_server
from tests.clock import now

MOMENTS = 50

Ask = Callable[[NatsBus], Coroutine[Any, Any, None]]


async def asks_the_server(bus: NatsBus) -> None:
    await call(bus._connection.nc, "STREAM.INFO.WORKLOADS")


async def asks_a_service(bus: NatsBus) -> None:
    await bus.request("test.echo", b"", timeout_seconds=60)


async def asks_where_nobody_answers(bus: NatsBus) -> None:
    await bus.request("test.nobody", b"", timeout_seconds=60)


@pytest.mark.parametrize("ask", [asks_the_server, asks_a_service, asks_where_nobody_answers])
async def test_cancellation_is_kept_while_an_answer_arrives(ask: Ask) -> None:
    """An answer and a cancellation meet in one turn of the loop: the later one counts."""

    async def echo(data: bytes) -> bytes:
        return data

    async with nats_server() as server:
        bus = NatsBus(url=server.url, instance="test", now=now)
        await bus.start()
        await bus.respond("test.echo", echo)
        heard = bus._connection.nc._resp_map
        met = 0
        for _ in range(MOMENTS):
            task = asyncio.create_task(ask(bus))
            while not heard and not task.done():  # noqa: ASYNC110  # turns are what counts
                await asyncio.sleep(0)
            waiting = list(heard.values())
            # The very turn in which the future of the reply is set, and the task does not know yet.
            while waiting and not (waiting[0].done() or task.done()):  # noqa: ASYNC110
                await asyncio.sleep(0)
            if task.cancel():
                met += 1
                with pytest.raises(asyncio.CancelledError):
                    await task
        assert met
        await bus.stop()
