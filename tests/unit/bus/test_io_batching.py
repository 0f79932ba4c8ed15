"""When a connection writes and reads: several messages by one system call, under load.

How often it does is counted in virtual time, with a client that has the queue and the transport of
nats-py's. That nothing is lost or reordered is tried with nats-py itself and a real server.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.io_batching import (
    BURST,
    WORTH_MESSAGES,
    gather_reads,
    gather_writes,
    round_trip,
)
from shared.testing.waiting import PATIENCE_SECONDS, eventually
from shared.testing.world.loop import run_virtual

MESSAGE_BYTES = 64
LOOK_SECONDS = 0.001
READ_BYTES = 32 * 1024
"""nats-py asks its transport for so many at a time."""


class VirtualClient:
    """What batching uses of nats-py's client, with its flusher and its reader.

    A message is `MESSAGE_BYTES` long, in both directions.
    """

    def __init__(self) -> None:
        self.stats = {"in_msgs": 0, "out_msgs": 0}
        self.writes: list[int] = []
        """How many messages each write had."""
        self.reads = 0
        self.answers = False
        """The server answers each message that it gets."""
        self._flush_queue: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue(1024)
        self._transport = self
        self._unwritten = 0
        self._unread_bytes = 0
        self._arrived = asyncio.Event()
        self._handled_bytes = 0
        self._tasks = [asyncio.create_task(self._flusher()), asyncio.create_task(self._reader())]

    async def publish(self) -> None:
        self.stats["out_msgs"] += 1
        self._unwritten += 1
        if self._flush_queue.empty():
            await self._flush_queue.put(asyncio.get_running_loop().create_future())

    def arrive(self, messages: int = 1) -> None:
        self._unread_bytes += messages * MESSAGE_BYTES
        self._arrived.set()

    def wrote(self, times: int) -> bool:
        return len(self.writes) >= times

    def handled(self, messages: int) -> bool:
        return self.stats["in_msgs"] >= messages

    async def read(self, size: int) -> bytes:
        await self._arrived.wait()
        got = min(size, self._unread_bytes)
        self._unread_bytes -= got
        if not self._unread_bytes:
            self._arrived.clear()
        return bytes(got)

    async def _flusher(self) -> None:
        while True:
            written = await self._flush_queue.get()
            if self._unwritten:
                self.writes.append(self._unwritten)
                if self.answers:
                    self.arrive(self._unwritten)
                self._unwritten = 0
            if not written.done():
                written.set_result(None)

    async def _reader(self) -> None:
        while True:
            data = await self._transport.read(READ_BYTES)
            self.reads += 1
            self._handled_bytes += len(data)
            self.stats["in_msgs"] = self._handled_bytes // MESSAGE_BYTES


def virtual_client(
    *, writes: dict[str, float] | None = None, reads: dict[str, float] | None = None
) -> VirtualClient:
    """A client with the given arguments of `gather_writes` and `gather_reads`."""
    client = VirtualClient()
    nats_client: Any = client
    if writes is not None:
        gather_writes(nats_client, **writes)
    if reads is not None:
        gather_reads(nats_client, **reads)
    return client


def now() -> float:
    return asyncio.get_running_loop().time()


async def write_one_by_one(client: VirtualClient, count: int, *, each: int) -> float:
    """Publish `each` messages `count` times, always after the last were written; return seconds."""
    began, before = now(), len(client.writes)
    for number in range(before, before + count):
        for _ in range(each):
            await client.publish()
        await eventually(partial(client.wrote, number + 1), look_seconds=LOOK_SECONDS)
    return now() - began


def test_messages_within_a_moment_are_written_together() -> None:
    async def story() -> list[int]:
        client = virtual_client(writes={"seconds": 0.1})
        await client.publish()
        for _ in range(20):
            await asyncio.sleep(0.001)
            await client.publish()
        await eventually(lambda: sum(client.writes) == 21)
        return client.writes

    assert run_virtual(story()) == [1, 20]


def test_few_writes_in_a_row_are_not_delayed() -> None:
    async def story() -> float:
        client = virtual_client(writes={"seconds": 0.0, "brisk": 30.0, "steady": 30.0})
        return await write_one_by_one(client, BURST, each=WORTH_MESSAGES)

    assert run_virtual(story()) < 1.0


def test_writes_without_end_keep_the_steady_interval() -> None:
    async def story() -> float:
        client = virtual_client(writes={"seconds": 0.0, "brisk": 0.05, "steady": 0.05})
        return await write_one_by_one(client, BURST + 20, each=WORTH_MESSAGES)

    assert 0.05 * 18 < run_virtual(story()) < 0.05 * 22


@pytest.mark.parametrize(
    ("late", "load", "least", "most"),
    [
        pytest.param(0.0, 0.5, 0.009, 0.02, id="sleepers wake up on time"),
        pytest.param(0.5, 0.5, 0.5, 1.6, id="sleepers wake up late"),
        pytest.param(0.0, 5.0, 0.9, 1.1, id="there is more to run than cores"),
    ],
)
def test_writes_without_end_wait_longer_where_the_machine_has_no_time_left(
    late: float, load: float, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In virtual time, so that nothing else is late."""
    sleep = asyncio.sleep
    monkeypatch.setattr(
        asyncio, "sleep", lambda wanted: sleep(wanted + late * (wanted > LOOK_SECONDS))
    )
    monkeypatch.setattr("os.getloadavg", lambda: (load * (os.cpu_count() or 1), 0.0, 0.0))

    async def story() -> float:
        client = virtual_client(writes={"seconds": 0.0, "brisk": 0.01, "steady": 1.0})
        await write_one_by_one(client, 3 * BURST, each=WORTH_MESSAGES)
        return await write_one_by_one(client, 20, each=WORTH_MESSAGES)

    assert least <= run_virtual(story()) / 20 <= most


def test_request_and_reply_are_not_slowed_down() -> None:
    """A delayed write or read that gathers one message only is not repeated soon."""

    async def story() -> float:
        often = {"brisk": 0.2, "steady": 0.2}
        client = virtual_client(writes={"seconds": 0.0, **often}, reads=often)
        client.answers = True
        began = now()
        for number in range(5 * BURST):
            await client.publish()
            await eventually(partial(client.handled, number + 1), look_seconds=0.0001)
        return now() - began

    assert run_virtual(story()) < 0.2 * 5 * BURST / 4


def test_messages_without_end_are_read_at_the_steady_interval() -> None:
    async def story() -> int:
        client = virtual_client(reads={"brisk": 0.05, "steady": 0.05})
        for _ in range(400):
            client.arrive()
            await asyncio.sleep(0.0025)
        await eventually(lambda: client.stats["in_msgs"] == 400)
        return client.reads

    assert BURST < run_virtual(story()) <= BURST + 21, "one second has twenty intervals"


def test_one_delayed_read_takes_all_available_bytes() -> None:
    """nats-py asks for 32 KiB at a time: one call an interval would read a log for minutes."""

    async def story() -> float:
        client = virtual_client(reads={"brisk": 0.2, "steady": 0.2})
        for _ in range(2 * BURST):
            client.arrive(WORTH_MESSAGES)
            await asyncio.sleep(0.01)
        began, messages = now(), 16 * 1024 * 1024 // MESSAGE_BYTES
        client.arrive(messages)
        await eventually(lambda: client.stats["in_msgs"] >= messages)
        return now() - began

    assert run_virtual(story()) < 1.0


@pytest.fixture
async def client(tmp_path: Any) -> AsyncIterator[Client]:
    server = await EmbeddedServer(tmp_path).start()
    nc = await nats.connect(server.url)
    yield nc
    await nc.close()
    await server.stop()


async def connect_beside(client: Client) -> Client:
    assert client.connected_url is not None
    return await nats.connect(client.connected_url.geturl())


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


async def test_first_message_after_a_silence_is_written_at_once(client: Client) -> None:
    gather_writes(client, seconds=3600.0)
    writes = Writes(client)
    await client.publish("a", b"1")
    await eventually(lambda: writes.count == 1)


async def test_messages_that_are_read_together_keep_their_order(client: Client) -> None:
    gather_reads(client, brisk=0.05, steady=0.05)
    other = await connect_beside(client)
    heard = await client.subscribe("a")
    await round_trip(client)
    for number in range(400):
        await other.publish("a", str(number).encode())
        await other.flush()
    bodies = [(await heard.next_msg(timeout=PATIENCE_SECONDS)).data for _ in range(400)]
    assert bodies == [str(number).encode() for number in range(400)]
    await other.close()


async def test_messages_that_are_written_together_keep_their_order(client: Client) -> None:
    gather_writes(client, seconds=0.1)
    heard = await client.subscribe("a")
    await round_trip(client)
    for number in range(20):
        await client.publish("a", str(number).encode())
        await asyncio.sleep(0)
    bodies = [(await heard.next_msg(timeout=PATIENCE_SECONDS)).data for _ in range(20)]
    assert bodies == [str(number).encode() for number in range(20)]


async def test_messages_after_a_silence_are_read_at_once(client: Client) -> None:
    gather_reads(client, brisk=3600.0, steady=3600.0)
    heard = await client.subscribe("a")
    for number in range(5):
        await client.publish("a", str(number).encode())
        message = await heard.next_msg(timeout=PATIENCE_SECONDS)
        assert message.data == str(number).encode()


async def test_large_messages_arrive_whole(client: Client) -> None:
    gather_reads(client, brisk=0.2, steady=0.2)
    other = await connect_beside(client)
    heard = await client.subscribe("a", pending_bytes_limit=-1)
    await round_trip(client)
    for _ in range(8):
        for _ in range(500):
            await other.publish("a", bytes(4096))
        await other.flush()
    for _ in range(4000):
        assert len((await heard.next_msg(timeout=PATIENCE_SECONDS)).data) == 4096
    await other.close()


async def test_last_messages_are_written_before_the_connection_closes(client: Client) -> None:
    heard = await client.subscribe("a")
    await round_trip(client)
    gather_writes(client, seconds=3600.0)
    gather_writes(client, seconds=3600.0)
    other = await connect_beside(client)
    gather_writes(other, seconds=3600.0)
    await other.publish("a", b"1")
    await asyncio.sleep(0.05)
    await other.publish("a", b"2")
    await asyncio.sleep(0.05)
    await other.close()
    bodies = [(await heard.next_msg(timeout=PATIENCE_SECONDS)).data for _ in range(2)]
    assert bodies == [b"1", b"2"]


async def test_round_trip_waits_for_messages_that_are_not_written_yet(client: Client) -> None:
    """nats-py's own PING overtakes what waits to be written."""
    gather_writes(client, seconds=0.2)
    other = await connect_beside(client)
    heard = await client.subscribe("a")
    await round_trip(client)
    for _ in range(2):
        again = await client.subscribe("a")
        await round_trip(client)
        await other.publish("a", b"1")
        await other.flush()
        assert (await again.next_msg(timeout=PATIENCE_SECONDS)).data == b"1"
    await eventually(lambda: heard.pending_msgs == 2)
    await other.close()
