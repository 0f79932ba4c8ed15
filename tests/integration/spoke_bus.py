"""Connections of a spoke and of the hub to one server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import nats
from nats.aio.client import Client
from nats.errors import NoRespondersError

from shared.bus.nats.bus import NatsBus
from shared.bus.port import Entry
from shared.bus.streams import load
from shared.contracts.messages.dispatches import Dispatch
from shared.testing.waiting import PATIENCE_SECONDS
from tests.clock import now

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


SECRET: Final = "what west is told"


Json = dict[str, Any]


@asynccontextmanager
async def bus_at(url: str, name: str) -> AsyncIterator[NatsBus]:
    bus = NatsBus(url=url, instance=name, now=now)
    await bus.start()
    try:
        yield bus
    finally:
        await bus.stop()


def order(spoke: str, **more: Any) -> Dispatch:
    return Dispatch(
        spoke=spoke, cluster="hub", namespace="a", name="w", uid="u", state="offered", at=NOON, **more
    )  # fmt: skip


async def sequences(bus: NatsBus) -> dict[str, int]:
    return {log: await bus.last_sequence(log) for log in load().logs}


@asynccontextmanager
async def client_at(url: str) -> AsyncIterator[Client]:
    """A client with the spoke's password, and no library of ours."""
    client = await nats.connect(url)
    try:
        yield client
    finally:
        await client.close()


def watching(subject: str | None, **more: Any) -> Json:
    config = {"name": "reader-x", "ack_policy": "none", "deliver_policy": "all", **more}
    if subject is not None:
        config["filter_subjects"] = [subject]
    return {"config": config, "action": "create"}


EAST: Final = "sluice.dispatch.east.>"


async def asked(client: Client, request: str, body: Json | None) -> Json | None:
    """The answer, or None where nobody is there to give one."""
    payload = b"" if not body else json.dumps(body).encode()
    try:
        reply = await client.request(f"$JS.API.{request}", payload, timeout=PATIENCE_SECONDS)
    except NoRespondersError:
        return None
    if reply.headers and reply.headers.get("Status"):
        return {"error": reply.headers}
    answer: Json = json.loads(reply.data)
    return answer


async def work_of(url: str) -> None:
    """West's patcher was there, and left its consumer."""
    west = NatsBus(url=url, instance="patcher-west", now=now)

    async def put_off(entry: Entry) -> None:
        await asyncio.sleep(3600)

    west.work("DISPATCHES", "patcher-west-dispatch", put_off, filters=("sluice.dispatch.west.>",))
    await west.start()
    client = await nats.connect(url)
    info = await asked(client, "CONSUMER.INFO.DISPATCHES_NOW.patcher-west-dispatch", None)
    assert info is not None
    assert info["config"]["durable_name"] == "patcher-west-dispatch"
    await client.close()
    await west._worker.stop(seconds=0)  # It leaves the order to whoever comes next.
    await west.stop()
