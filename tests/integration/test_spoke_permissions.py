"""A spoke's user on a real server: it can do its work, and nothing of what it tries beyond that."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from shared.bus.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats_bus import NatsBus
from shared.bus.permissions import reads_of, spoke_permissions
from shared.bus.streams import DATA
from shared.contracts.effects import Dispatch
from shared.contracts.observed import Synced
from shared.contracts.spokes import Beat

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def server() -> AsyncIterator[tuple[str, str]]:
    """URLs of the hub and of the spoke `east`."""
    with tempfile.TemporaryDirectory(prefix="nats-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        permissions = spoke_permissions("east").server_configuration()
        users = (
            '{ user: "hub", password: "h" }\n'
            f'{{ user: "east", password: "e", permissions: {{ {permissions} }} }}'
        )
        text = (DATA / "server.conf").read_text()
        config = root / "server.conf"
        config.write_text(f"{text}\nauthorization {{ users: [ {users} ] }}\n")
        running = await EmbeddedServer(root, config=config).start()
        try:
            hub = running.url.replace("//", "//hub:h@")
            await apply_at(hub)
            yield hub, running.url.replace("//", "//east:e@")
        finally:
            await running.kill()


@asynccontextmanager
async def intruder(url: str) -> AsyncIterator[tuple[Client, list[str]]]:
    """A client with the spoke's password, and what the server says to it."""
    said: list[str] = []

    async def on_error(error: Exception) -> None:
        said.append(str(error))

    client = await nats.connect(url, error_cb=on_error)
    try:
        yield client, said
    finally:
        await client.close()


async def test_a_spoke_can_do_its_work() -> None:
    async with server() as (hub_url, east_url):
        hub = NatsBus(url=hub_url, instance="dispatcher", now=now)
        east = NatsBus(url=east_url, instance="patcher-east", now=now, reads=reads_of("patcher"))
        got: asyncio.Queue[str] = asyncio.Queue()

        async def on_dispatch(entry: Any) -> None:
            await got.put(entry.subject)

        east.work(
            "DISPATCHES", "patcher-east-dispatch", on_dispatch, filters=("sluice.dispatch.east.>",)
        )
        await hub.start()
        await east.start()
        order = Dispatch(
            spoke="east", cluster="hub", namespace="a", name="w", uid="u", state="offered", at=NOON
        )
        await hub.publish(order)
        async with asyncio.timeout(30):
            assert await got.get() == "sluice.dispatch.east.a.w"
            latest = await east.latest("DISPATCHES", "sluice.dispatch.east.a.w")
            assert latest is not None, "it asks the log before it starts a copy"
            await east.publish(Beat(spoke="east", instance="patcher-east", number=1, at=NOON))
            await east.publish(Synced(cluster="east", epoch="1", kinds=[], at=NOON))
            lease = await east.lease("watcher-east")
            assert lease.held
            await lease.release()
            async with aclosing(east.watch("OBSERVED", "sluice.observed.east.>")) as entries:
                async for _ in entries:
                    break
        await east.stop()
        await hub.stop()


async def refused(client: Client, said: list[str], subject: str) -> bool:
    """Whether the server says no; what it says comes before its answer to a ping."""
    for _ in range(100):
        await client.flush()
        if any("ermission" in one and f'"{subject.lower()}"' in one.lower() for one in said):
            return True
        await asyncio.sleep(0.01)
    return False


ATTEMPTS = {
    "observe another cluster": "sluice.observed.west._._.synced",
    "observe the hub": "sluice.observed.hub.a.b.jobs_batch",
    "send itself an order": "sluice.dispatch.east.a.w",
    "send an order to another spoke": "sluice.dispatch.west.a.w",
    "say that another spoke's copy is gone": "sluice.copy.west.a.w",
    "live for another spoke": "sluice.beat.west._._",
    "admit something": "sluice.admission.east.a.w",
    "begin a term of quota": "sluice.term.quota",
    "answer a check": "sluice.check.hub.a.w.elsewhere",
    "write a status home": "sluice.home.hub.a.w",
    "say how a spoke stands": "sluice.spoke.hub._.east",
    "project a workload": "sluice.workload.east.a.w",
    "take the decider's lease": "sluice.lease.quota",
    "take another watcher's lease": "sluice.lease.watcher-west",
    "hand out a machine": "sluice.host.east.a.b",
    "delete a stream": "$JS.API.STREAM.DELETE.ADMISSIONS",
    "purge a stream": "$JS.API.STREAM.PURGE.ADMISSIONS",
    "delete one message": "$JS.API.STREAM.MSG.DELETE.ADMISSIONS",
    "change a stream": "$JS.API.STREAM.UPDATE.OBSERVED",
    "make a stream": "$JS.API.STREAM.CREATE.MINE",
    "consume keys that wait to be fetched": "$JS.API.CONSUMER.CREATE.KEYS_NOW.thief",
    "look a key up": "$JS.API.STREAM.MSG.GET.KEYS_NOW",
}


async def test_a_spoke_can_do_nothing_else() -> None:
    async with server() as (hub_url, east_url), intruder(east_url) as (client, said):
        for what, subject in ATTEMPTS.items():
            await client.publish(subject, b"{}", reply="_INBOX.x")
            assert await refused(client, said, subject), what
        hub = NatsBus(url=hub_url, instance="judge", now=now)
        await hub.start()
        for log in ("ADMISSIONS", "DISPATCHES", "CHECKS", "WORKLOADS", "HOSTS", "OBSERVED"):
            assert await hub.last_sequence(log) == 0, log
        await hub.stop()


async def test_a_spoke_cannot_listen_to_what_others_say_on_their_way() -> None:
    async with server() as (_, east_url), intruder(east_url) as (client, said):
        for subject in ("sluice.>", "sluice.admission.>", "$JS.API.>", "sluice.dispatch.west.>"):
            await client.subscribe(subject)
            assert await refused(client, said, subject), subject


@pytest.mark.parametrize("name", ["*", ">", "", "a.*", "East!"])
def test_a_name_that_would_mean_more_than_one_cluster_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a cluster"):
        spoke_permissions(name)
