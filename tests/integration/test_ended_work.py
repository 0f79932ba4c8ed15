"""Quota's leader on a real nats-server: ended work leaves the views, and a nearly full log its oldest."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from typer.testing import CliRunner

from services.ctl.main import app
from services.quota.app import assemble
from services.quota.settings import QuotaSettings
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.nats.jetstream_api import call
from shared.bus.port import Entry, LaterError
from shared.bus.stream_reader import open_stream_reader
from shared.contracts.kube import kinds
from shared.contracts.messages.observed import Synced
from shared.testing.builders import cluster_queue_spec, observed, workload
from shared.testing.waiting import eventually
from tests.clock import now


class Hub:
    """A server with a queue, and a quota service that forgets at once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.busy = ""
        self.bus = NatsBus(url=url, instance="others", service="patcher", now=now)
        self.bus.work("WORKLOADS", "patcher-hub-workload", self._handle)

    async def _handle(self, entry: Entry) -> None:
        if self.busy and entry.subject.endswith(f".{self.busy}"):
            raise LaterError("the API server does not answer", delay_seconds=0.1)

    async def furnish(self) -> None:
        await self.bus.publish(observed(kinds.NAMESPACE, "team"))
        await self.bus.publish(observed(kinds.RESOURCE_FLAVOR, "default"))
        await self.bus.publish(observed(kinds.CLUSTER_QUEUE, "cq", cluster_queue_spec(9)))
        await self.bus.publish(observed(kinds.LOCAL_QUEUE, "main", {"clusterQueue": "cq"}, "team"))
        await self.bus.publish(Synced(cluster="hub", epoch="1", kinds=[], at=now()))

    async def names(self, stream: str) -> set[str]:
        """Names of the workloads in a stream."""
        async with open_stream_reader(self.url) as reader:
            found: set[str] = set()
            async for seen in reader.follow(stream):
                if seen is None:
                    return found
                if seen.subject.count(".") == 4:
                    found.add(seen.subject.rsplit(".", 1)[1])
        raise AssertionError("reading never ends by itself")

    async def decided(self, name: str, state: str) -> None:
        async def yes() -> bool:
            entry = await self.bus.latest("ADMISSIONS", f"sluice.admission.hub.team.{name}")
            return entry is not None and f'"state":"{state}"'.encode() in entry.data

        await eventually(yes)

    async def come_and_go(self, *names: str) -> None:
        for name in names:
            await self.bus.publish(workload(name))
            await self.decided(name, "admitted")
            await self.bus.publish(workload(name).gone())
            await self.decided(name, "released")

    async def left(self, stream: str, *names: str) -> None:
        async def yes() -> bool:
            return not await self.names(stream) & set(names)

        await eventually(yes)


@pytest.fixture
async def hub(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    for name, seconds in (("SWEEP", 0.1), ("AGAIN", 0.1), ("PAUSE", 0.01)):
        monkeypatch.setattr(f"services.quota.ended_work.{name}_SECONDS", seconds)
    monkeypatch.setattr("services.quota.log_room.INTERVAL_SECONDS", 0.1)
    hub = Hub(server.url)
    await hub.bus.start()
    await hub.furnish()
    bus = NatsBus(url=server.url, instance="quota-0", service="quota", now=now)
    await bus.start()
    settings = QuotaSettings(reason_delay_seconds=0, forget_seconds=0)
    running = asyncio.create_task(assemble(settings=settings, bus=bus, now=now).run())
    yield hub
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await bus.stop()
    await hub.bus.stop()


async def test_ended_workload_leaves_the_views_after_the_durable_has_passed_it(hub: Hub) -> None:
    hub.busy = "late"
    await hub.come_and_go("late", "soon")
    await hub.bus.publish(workload("lives"))
    await hub.decided("lives", "admitted")
    await hub.left("ADMISSIONS_NOW", "soon")
    assert "late" in await hub.names("WORKLOADS_NOW")
    hub.busy = ""
    for view in ("WORKLOADS_NOW", "ADMISSIONS_NOW"):
        await hub.left(view, "late", "soon")
    assert await hub.names("ADMISSIONS_NOW") == {"lives"}
    assert await hub.names("WORKLOADS") == {"late", "soon", "lives"}


async def test_nearly_full_log_loses_ended_workloads_and_history_says_so(hub: Hub) -> None:
    await hub.bus.publish(workload("lives"))
    await hub.decided("lives", "admitted")
    ended = [f"ended-{number}" for number in range(20)]
    await hub.come_and_go(*ended)
    await hub.bus.publish(workload("last"))
    await hub.decided("last", "admitted")
    await hub.left("WORKLOADS_NOW", *ended)
    nc = hub.bus.connection.nc
    info = await call(nc, "STREAM.INFO.WORKLOADS")
    limit = int(info["state"]["bytes"] / 0.65)
    await call(nc, "STREAM.UPDATE.WORKLOADS", info["config"] | {"max_bytes": limit})

    async def has_room() -> bool:
        return (await hub.bus.log_end("WORKLOADS")).fullness < 0.55

    await eventually(has_room)
    assert {"lives", "last"} <= await hub.names("WORKLOADS")
    await hub.bus.publish(workload("next"))
    await hub.decided("next", "admitted")

    def told() -> str:
        return CliRunner().invoke(app, ["history", "team/lives", "--nats-url", hub.url]).stdout

    async def says_so() -> bool:
        return "for ended work, to make room" in await asyncio.to_thread(told)

    await eventually(says_so)


async def test_shortened_history_of_what_lives_says_that_it_begins_in_the_middle(hub: Hub) -> None:
    await hub.bus.publish(workload("calm"))
    for number in range(70):
        await hub.bus.publish(workload("noisy", priority=number))
    await hub.decided("noisy", "admitted")
    nc = hub.bus.connection.nc
    info = await call(nc, "STREAM.INFO.WORKLOADS")
    limit = int(info["state"]["bytes"] / 0.65)
    await call(nc, "STREAM.UPDATE.WORKLOADS", info["config"] | {"max_bytes": limit})
    noisy = workload("noisy").subject

    async def is_short() -> bool:
        asked = {"subjects_filter": noisy}
        state = (await call(nc, "STREAM.INFO.WORKLOADS", asked))["state"]
        return bool(state["subjects"][noisy] == 64)

    await eventually(is_short)

    def told(name: str, *options: str) -> list[str]:
        words = ["history", f"team/{name}", "--nats-url", hub.url, *options]
        return CliRunner().invoke(app, words).stdout.splitlines()

    line = "begins in the middle: older messages were deleted from WORKLOADS, to make room"
    assert (await asyncio.to_thread(told, "noisy"))[0] == line
    assert (await asyncio.to_thread(told, "noisy", "--all"))[0] == line
    calm = await asyncio.to_thread(told, "calm")
    assert calm
    assert not any("in the middle" in each for each in calm)
