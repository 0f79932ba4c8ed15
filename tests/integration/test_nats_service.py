"""Services as NATS's own tools find them: asked over a real server, read by its own library."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.micro.service import ServiceInfo, ServicePing, ServiceStats

from shared.bus.nats.answering.nats_service import Endpoint, NatsService
from shared.bus.nats.bus import NatsBus
from shared.bus.port import AnswerError, UnavailableError
from shared.testing.nats_server import nats_server
from shared.testing.waiting import PATIENCE_SECONDS, eventually

SETTLED_SECONDS = PATIENCE_SECONDS
Json = dict[str, Any]


def clock() -> datetime:
    return datetime.now(UTC)


async def shout(data: bytes) -> bytes:
    if data == b"secret":
        raise AnswerError("that is not for you", code=403)
    if data == b"broken":
        raise ValueError("the password is 1234")
    return data.upper()


def service() -> NatsService:
    return NatsService(
        name="sluice-shouter",
        version="1.2.3",
        description="Says it louder.",
        started=clock(),
        endpoints=(
            Endpoint(name="shout", subject="sluice.rpc.shout", answer=shout, about="Louder."),
        ),
    )


class Place:
    """A server on which two instances serve, and a plain client as `nats micro` is one."""

    def __init__(self, url: str, nc: Client, bus: NatsBus) -> None:
        self.url = url
        self.nc = nc
        self.bus = bus

    async def all(self, subject: str, count: int) -> list[Json]:
        """The last answer of each of so many instances: one that is slow answers several questions."""
        inbox = self.nc.new_inbox()
        subscription = await self.nc.subscribe(inbox)
        found: dict[str, Json] = {}

        async def all_answered() -> bool:
            while subscription.pending_msgs:
                message = await subscription.next_msg()
                if not (message.headers or {}).get("Status"):
                    answer: Json = json.loads(message.data)
                    found[answer["id"]] = answer
            if len(found) < count:
                await self.nc.publish(subject, b"", reply=inbox)
            return len(found) >= count

        await eventually(
            all_answered, lambda: str(found), seconds=SETTLED_SECONDS, look_seconds=0.2
        )
        await subscription.unsubscribe()
        return [*found.values()]


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with nats_server() as server:
        buses = [NatsBus(url=server.url, instance=f"shouter-{n}", now=clock) for n in range(2)]
        for bus in buses:
            await bus.start()
        serving = [asyncio.create_task(service().serve(bus)) for bus in buses]
        nc = await nats.connect(server.url)
        yield Place(server.url, nc, buses[0])
        await nc.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        for bus in buses:
            await bus.stop()


async def test_every_instance_answers_discovery(place: Place) -> None:
    for subject in ("$SRV.PING", "$SRV.PING.sluice-shouter"):
        pings = [ServicePing.from_dict(each) for each in await place.all(subject, 2)]
        assert {ping.name for ping in pings} == {"sluice-shouter"}
        assert len({ping.id for ping in pings}) == 2
    [one] = await place.all(f"$SRV.PING.sluice-shouter.{pings[0].id}", 1)
    assert one["id"] == pings[0].id
    assert one["type"] == "io.nats.micro.v1.ping_response"


async def test_discovery_lists_endpoints_and_subjects(place: Place) -> None:
    found = await place.all("$SRV.INFO.sluice-shouter", 2)
    info = ServiceInfo.from_dict(found[0])
    assert (info.version, info.description) == ("1.2.3", "Says it louder.")
    assert [(e.name, e.subject, e.queue_group) for e in info.endpoints] == [
        ("shout", "sluice.rpc.shout", "q")
    ]
    assert found[0]["type"] == "io.nats.micro.v1.info_response"


async def test_request_is_answered_once_and_counted(place: Place) -> None:
    await place.all("$SRV.PING", 2)
    reply = await place.nc.request("sluice.rpc.shout", b"a", timeout=SETTLED_SECONDS)
    assert reply.data == b"A"
    refused = await place.nc.request("sluice.rpc.shout", b"secret", timeout=SETTLED_SECONDS)
    assert refused.headers == {
        "Nats-Service-Error": "that is not for you",
        "Nats-Service-Error-Code": "403",
    }
    with pytest.raises(UnavailableError, match="the log of the service says why"):
        await place.bus.request("sluice.rpc.shout", b"broken", timeout_seconds=SETTLED_SECONDS)

    found = await place.all("$SRV.STATS.sluice-shouter", 2)
    assert found[0]["type"] == "io.nats.micro.v1.stats_response"
    stats = [ServiceStats.from_dict(each).endpoints[0] for each in found]
    assert sum(one.num_requests for one in stats) == 3
    assert sum(one.num_errors for one in stats) == 2
    assert "1234" not in json.dumps(found)
