"""Reading without a consumer keeps what list-and-watch promises; the suite of the bus says all of it."""

import asyncio
from contextlib import aclosing

import nats
import pytest

from shared.bus import direct_read
from shared.bus.admin.apply import apply
from shared.bus.nats.bus import NatsBus
from shared.bus.nats.direct import hints
from shared.bus.port import CaughtUp, Entry, LogChangedError
from shared.bus.stream_reader import open_stream_reader
from shared.testing.builders import workload
from shared.testing.nats_server import nats_server
from shared.testing.waiting import PATIENCE_SECONDS, eventually
from tests.clock import now

OWN = "sluice.workload.hub.team"


async def test_direct_reading_lists_follows_and_survives_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(direct_read, "BATCH", 2)  # Several batches for each filter.
    async with nats_server() as server:
        writer, bus = (
            NatsBus(url=server.url, instance=name, consumers=name == "writer", now=now)
            for name in ("writer", "reader")
        )
        await writer.start()
        await bus.start()
        for name in "abcdeab":
            await writer.publish(workload(name, created_at=now()))
        filters = (f"{OWN}.e", f"{OWN}.a", f"{OWN}.*")
        async with aclosing(bus.watch("WORKLOADS", *filters)) as items:

            async def following() -> tuple[str, int] | CaughtUp:
                item = await anext(items)
                if isinstance(item, Entry):
                    return item.subject.removeprefix(f"{OWN}."), item.sequence
                return item

            listed = [await following() for _ in range(6)]
            last = ("c", 3), ("d", 4), ("e", 5), ("a", 6), ("b", 7)
            assert listed == [*last, CaughtUp(sequence=7)]
            await writer.publish(workload("new", created_at=now()))
            assert await following() == ("new", 8)
            await server.kill()
            await server.start()
            await writer.publish(workload("newer", created_at=now()))
            assert await following() == ("newer", 9)
        async with open_stream_reader(server.url) as look:
            seen = await look.replay("WORKLOADS", f"{OWN}.b", f"{OWN}.a")
            assert [one.sequence for one in seen] == [1, 2, 6, 7]
            since = seen[2].time
            assert [s.sequence for s in await look.replay("WORKLOADS", since=since)] == [6, 7, 8, 9]
            assert (await look.call("CONSUMER.LIST.WORKLOADS_NOW", {"offset": 0}))["total"] == 0
        await bus.stop()
        await writer.stop()


async def test_log_made_anew_on_a_living_connection_is_noticed_by_its_first_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hints, "FIRST_PAUSE_SECONDS", 1_000.0)  # Only a hint makes it look.
    async with nats_server() as server:
        nc = await nats.connect(server.url)
        bus = NatsBus(url=server.url, instance="reader", consumers=False, now=now)
        await bus.start()
        for _ in range(5):
            await nc.jetstream(timeout=PATIENCE_SECONDS).publish(
                f"{OWN}.a", workload("a", created_at=now()).encode()
            )
        items = bus.watch("WORKLOADS", f"{OWN}.a")
        while not isinstance(await anext(items), CaughtUp):
            pass
        following = asyncio.create_task(anext(items))
        for stream in ("WORKLOADS_NOW", "WORKLOADS"):
            await nc.jetstream(timeout=PATIENCE_SECONDS).delete_stream(stream)
        await apply(nc)
        while not following.done():
            await nc.jetstream(timeout=PATIENCE_SECONDS).publish(
                f"{OWN}.a", workload("a", created_at=now()).encode()
            )
        with pytest.raises(LogChangedError):
            await following
        await bus.stop()
        await nc.close()


async def test_reader_that_loses_its_connection_leaves_no_subscription_behind() -> None:
    async with nats_server() as server:
        buses = [
            NatsBus(url=server.url, instance="reader", consumers=consumers, now=now)
            for consumers in (True, False)
        ]
        read = []
        for bus in buses:
            await bus.start()
            items = bus.watch("WORKLOADS", f"{OWN}.a")
            while not isinstance(await anext(items), CaughtUp):
                pass
            nc = bus._connection.nc
            read.append((nc, asyncio.create_task(anext(items)), len(nc._subs)))
        for _ in range(2):
            await server.kill()
            await eventually(lambda: not any(bus.connected for bus in buses))
            await server.start()
            await eventually(lambda: all(bus.connected for bus in buses))
        await eventually(lambda: all(len(nc._subs) <= before for nc, _, before in read))
        await nc.jetstream(timeout=PATIENCE_SECONDS).publish(
            f"{OWN}.a", workload("a", created_at=now()).encode()
        )
        for _, following, _ in read:
            await following
        for bus in buses:
            await bus.stop()
