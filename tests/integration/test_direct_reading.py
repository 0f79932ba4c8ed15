"""Reading without a consumer keeps what list-and-watch promises; the suite of the bus says all of it."""

from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from shared.bus import direct_look
from shared.bus.nats.bus import NatsBus
from shared.bus.port import CaughtUp, Entry
from shared.bus.stream_reader import open_stream_reader
from shared.testing.builders import workload
from shared.testing.nats_server import nats_server

OWN = "sluice.workload.hub.team"


def now() -> datetime:
    return datetime.now(UTC)


async def test_direct_reading_lists_follows_and_survives_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(direct_look, "BATCH", 2)  # Several batches for each filter.
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
