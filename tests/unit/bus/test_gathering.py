"""How often a connection writes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.io_batching import (
    BURST,
    WORTH_MESSAGES,
    gather_reads,
    gather_writes,
    round_trip,
)


@pytest.fixture
async def client(tmp_path: Any) -> AsyncIterator[Client]:
    server = await EmbeddedServer(tmp_path).start()
    nc = await nats.connect(server.url)
    yield nc
    await nc.close()
    await server.stop()


class Writes:
    """Counts the calls of a client's transport."""

    def __init__(self, nc: Client) -> None:
        self.count = 0
        transport: Any = nc._transport
        self._write = transport.writelines
        transport.writelines = self

    def __call__(self, payload: Any) -> Any:
        self.count += 1
        return self._write(payload)


class Reads:
    """Counts the pieces in which a client reads."""

    def __init__(self, nc: Client) -> None:
        self.count = 0
        parser: Any = nc._ps
        self._parse = parser.parse
        parser.parse = self

    async def __call__(self, data: bytes) -> None:
        self.count += 1
        await self._parse(data)


async def test_what_is_said_within_a_moment_is_written_at_once(client: Client) -> None:
    gather_writes(client, seconds=0.1)
    heard = await client.subscribe("a")
    await client.flush()
    await asyncio.sleep(0.15)
    writes = Writes(client)
    for number in range(20):
        await client.publish("a", str(number).encode())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    said = [(await heard.next_msg(timeout=5)).data for _ in range(20)]
    assert said == [str(number).encode() for number in range(20)]
    assert writes.count <= 3


async def test_after_a_silence_nobody_waits(client: Client) -> None:
    gather_writes(client, seconds=30.0)
    writes = Writes(client)
    await client.publish("a", b"1")
    await asyncio.sleep(0.05)
    assert writes.count == 1


async def write_one_by_one(client: Client, count: int, *, each: int) -> float:
    """Say `each` things `count` times, each time when those before were written; return the seconds."""
    writes = Writes(client)
    began = asyncio.get_running_loop().time()
    for number in range(count):
        for _ in range(each):
            await client.publish("a", b"")
        while writes.count <= number:  # noqa: ASYNC110  # the client tells nobody
            await asyncio.sleep(0.001)
    return asyncio.get_running_loop().time() - began


async def test_a_few_in_a_row_go_at_once(client: Client) -> None:
    gather_writes(client, seconds=0.0, steady=30.0)
    assert await write_one_by_one(client, BURST, each=WORTH_MESSAGES) < 25.0


async def test_who_never_stops_is_written_at_a_steady_pace(client: Client) -> None:
    gather_writes(client, seconds=0.0, steady=0.05)
    assert await write_one_by_one(client, BURST + 20, each=WORTH_MESSAGES) > 0.05 * 18


async def test_who_asks_and_waits_for_the_answer_is_not_slowed_down(client: Client) -> None:
    """It was waited for others to say something, too, and nobody did: that is not tried again soon."""
    gather_writes(client, seconds=0.0, steady=0.2)
    gather_reads(client, steady=0.2)

    async def answer(message: Msg) -> None:
        await message.respond(b"")

    await client.subscribe("question", cb=answer)
    began = asyncio.get_running_loop().time()
    for _ in range(5 * BURST):
        await client.request("question", b"", timeout=5)
    assert asyncio.get_running_loop().time() - began < 0.2 * 5 * BURST / 4


async def test_what_comes_without_end_is_read_at_a_steady_pace(client: Client) -> None:
    gather_reads(client, steady=0.05)
    reads = Reads(client)
    other = await nats.connect(client.connected_url.geturl())  # type: ignore[union-attr]
    heard = await client.subscribe("a")
    await client.flush()
    for number in range(400):
        await other.publish("a", str(number).encode())
        await other.flush()
        await asyncio.sleep(0.0025)
    said = [(await heard.next_msg(timeout=5)).data for _ in range(400)]
    assert said == [str(number).encode() for number in range(400)]
    assert reads.count < BURST + 60
    await other.close()


async def test_a_gulp_is_as_large_as_what_is_there(client: Client) -> None:
    """nats-py asks for 32 KiB at a time: at a steady pace a log would be read for minutes."""
    gather_reads(client, steady=0.2)
    other = await nats.connect(client.connected_url.geturl())  # type: ignore[union-attr]
    heard = await client.subscribe("a", pending_bytes_limit=-1)
    await client.flush()
    began = asyncio.get_running_loop().time()
    for _ in range(8):
        for _ in range(500):
            await other.publish("a", bytes(4096))
        await other.flush()
    for _ in range(4000):
        await heard.next_msg(timeout=20)
    assert asyncio.get_running_loop().time() - began < 20
    await other.close()


async def test_what_comes_after_a_silence_is_read_at_once(client: Client) -> None:
    gather_reads(client, steady=30.0)
    heard = await client.subscribe("a")
    for number in range(5):
        await client.publish("a", str(number).encode())
        assert (await heard.next_msg(timeout=5)).data == str(number).encode()


async def test_what_was_said_last_is_written_before_the_end(client: Client) -> None:
    heard = await client.subscribe("a")
    await client.flush()
    gather_writes(client, seconds=30.0)
    gather_writes(client, seconds=30.0)
    other = await nats.connect(client.connected_url.geturl())  # type: ignore[union-attr]
    gather_writes(other, seconds=30.0)
    await other.publish("a", b"1")
    await asyncio.sleep(0.05)
    await other.publish("a", b"2")
    await asyncio.sleep(0.05)
    await other.close()
    assert [(await heard.next_msg(timeout=5)).data for _ in range(2)] == [b"1", b"2"]


async def test_after_a_round_trip_the_server_knows_all_that_was_said(client: Client) -> None:
    """Though the writer was busy; nats-py's own PING overtakes what waits to be written."""
    gather_writes(client, seconds=0.2)
    other = await nats.connect(client.connected_url.geturl())  # type: ignore[union-attr]
    heard = await client.subscribe("a")
    await round_trip(client)
    for _ in range(2):
        again = await client.subscribe("a")
        await round_trip(client)
        await other.publish("a", b"1")
        await other.flush()
        assert (await again.next_msg(timeout=5)).data == b"1"
    assert heard.pending_msgs == 2
    await other.close()
