"""Outages that last longer than what the server remembers, and than a message is sent again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
import pytest
from nats.aio.client import Client

from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.nats.jetstream_api import call
from shared.bus.port import CaughtUp, Entry, FencedError, UnavailableError
from shared.testing.waiting import eventually
from tests.clock import now
from tests.contract.bus.stage import Reading, step_of, workload
from tests.contract.bus.test_order import decided, decision, term
from tests.faults.proxy import Proxy
from tests.integration.buses import make

WINDOW_SECONDS = 1
"""Instead of the 120 s in which a log finds duplicates."""


@asynccontextmanager
async def behind_a_proxy(server: EmbeddedServer) -> AsyncIterator[tuple[Proxy, NatsBus]]:
    proxy = Proxy("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    url = f"nats://127.0.0.1:{await proxy.start()}"
    bus = NatsBus(url=url, instance="writer", now=now)
    await bus.start()
    yield proxy, bus
    await bus.stop()
    await proxy.stop()


async def remember_for_a_second(nc: Client, log: str) -> None:
    """Update a log, so that it forgets message ids after `WINDOW_SECONDS`."""
    config = (await call(nc, f"STREAM.INFO.{log}"))["config"]
    await call(nc, f"STREAM.UPDATE.{log}", config | {"duplicate_window": WINDOW_SECONDS * 10**9})


async def stored(nc: Client, log: str) -> int:
    return int((await call(nc, f"STREAM.INFO.{log}"))["state"]["last_seq"])


async def test_fenced_message_sent_again_after_the_window_of_duplicates_is_stored_once(
    server: EmbeddedServer,
) -> None:
    nc = await nats.connect(server.url)
    logs = {"ADMISSIONS": 6, "WORKLOADS": 6}
    for log in logs:
        await remember_for_a_second(nc, log)
    async with behind_a_proxy(server) as (proxy, bus):
        await bus.publish(term(1), expect_last=0)
        first = await bus.publish(workload("a", step=1), expect_subject=0)
        proxy.cut("answers")
        decisions = [bus.publish(decision(f"j{i}", 1, i), expect_last=1 + i) for i in range(5)]
        states = [bus.publish(workload("a", step=2), expect_subject=first)]
        states += [bus.publish(workload(f"b{i}", step=2), expect_subject=0) for i in range(4)]

        async def all_stored() -> bool:
            return all([await stored(nc, log) == last for log, last in logs.items()])

        await eventually(all_stored)
        raw = await nc.jetstream().get_msg("WORKLOADS", logs["WORKLOADS"])
        identity = {"Nats-Msg-Id": (raw.headers or {})["Nats-Msg-Id"]}

        async def is_forgotten() -> bool:
            """Whether the log takes the same message id for a new message."""
            ack = await nc.jetstream().publish(
                "sluice.workload.hub.x.copy", b"{}", headers=identity
            )
            return not ack.duplicate

        await eventually(is_forgotten, look_seconds=WINDOW_SECONDS / 2)
        assert not any(each.done() for each in (*decisions, *states)), "nobody was told yet"
        proxy.heal()

        assert await asyncio.gather(*decisions) == [2, 3, 4, 5, 6]
        # Who fences a subject is told that somebody wrote, and reads what is there.
        errors = await asyncio.gather(*states, return_exceptions=True)
        assert {type(each) for each in errors} == {FencedError}
        entries, _ = await Reading(bus.replay("ADMISSIONS", "sluice.admission.>")).until_caught_up()
        assert decided(entries) == [(f"j{i}", 1) for i in range(5)]
        assert await stored(nc, "WORKLOADS") == 7, "and the copy"
    await nc.close()


async def test_outage_longer_than_every_try_loses_nothing_that_was_acknowledged(
    server: EmbeddedServer,
) -> None:
    """Who publishes is told that it failed, and says it again; readers and workers go on by themselves."""
    bus, other = make(server, retry_seconds=1.0), make(server, "other")
    handled: list[tuple[str, int]] = []

    async def handle(entry: Entry) -> None:
        handled.append(step_of(entry))

    other.work("WORKLOADS", "worker", handle)
    await bus.start()
    await other.start()
    await bus.publish(workload("before", step=1))
    watch = Reading(other.watch("WORKLOADS"))
    assert isinstance((await watch.until_caught_up())[1], CaughtUp)
    await eventually(lambda: handled == [("before", 1)])

    await server.kill()
    given_up = bus.publish(workload("meanwhile", step=1))
    with pytest.raises(UnavailableError):
        await given_up
    with pytest.raises(UnavailableError):
        await bus.latest("WORKLOADS", workload("before").subject)
    await server.start()
    await eventually(lambda: bus.connected and other.connected)

    assert await bus.publish(workload("meanwhile", step=2)) == 2
    assert [step_of(each) for each in await watch.entries(1)] == [("meanwhile", 2)]
    await eventually(lambda: handled == [("before", 1), ("meanwhile", 2)])
    await bus.stop()
    await other.stop()
