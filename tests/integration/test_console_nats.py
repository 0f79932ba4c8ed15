"""The console on a server with users and TLS: who finds its service, who may ask, and who hears questions."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as SilenceError
from nats.micro.service import ServiceInfo, ServicePing, ServiceStats

from services.console.access.reviews import User
from services.console.app import assemble
from services.console.pages.service import PageService
from services.console.settings import ConsoleSettings
from services.ctl.dev.secure import Secured
from shared.bus import direct_read
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.port import CaughtUp
from shared.contracts.kube import kinds
from shared.contracts.messages.hosts import HostState
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.testing.builders import job_owner, observed, workload
from shared.testing.deployed import bus_of
from shared.testing.waiting import PATIENCE_SECONDS, eventually, first_value
from tests.clock import now
from tests.integration.test_permissions import intruder, server
from tests.unit.console.people import People

SETTLED_SECONDS = PATIENCE_SECONDS
SILENCE_SECONDS = 0.3
Json = dict[str, Any]
SUBJECT = "sluice.rpc.console.queues"


def bus(user: str, running: EmbeddedServer, secured: Secured) -> NatsBus:
    return bus_of(user, running.url, secured.access(user))


@dataclass(kw_only=True)
class Place:
    running: EmbeddedServer
    secured: Secured
    pages: PageService


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A console by its own user, and a queue that a watcher has seen."""
    people = People(
        dana=("list workloads in team",),
        olga=("list workloads", "list multikueueclusters", "list clusterqueues"),
    )
    async with server(tmp_path) as (running, secured):
        watcher, console = bus("watcher", running, secured), bus("console", running, secured)
        for one in (watcher, console):
            await one.start()
        await watcher.publish(observed(kinds.LOCAL_QUEUE, "main", {"clusterQueue": "cq"}, "team"))
        service = assemble(settings=ConsoleSettings(), bus=console, now=now, access=people)
        serving = asyncio.create_task(service.run())
        yield Place(running=running, secured=secured, pages=service.pages)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        for one in (watcher, console):
            await one.stop()


async def ask(client: Client, subject: str, **question: Any) -> Any:
    """The reply once somebody serves."""
    data = json.dumps(question).encode()

    async def served() -> Any:
        with suppress(NoRespondersError):
            return await client.request(subject, data, timeout=SETTLED_SECONDS)
        return None

    return await first_value(served, f"nobody serves {subject}", seconds=SETTLED_SECONDS)


async def test_viewer_finds_the_service_and_gets_answers(place: Place) -> None:
    access = place.secured.access("viewer")
    async with intruder(place.running.url, access) as (client, said):
        reply = await ask(client, SUBJECT, token="dana")
        assert [row["name"] for row in json.loads(reply.data)["items"]] == ["main"]
        refused = await ask(client, SUBJECT, token="dana", namespace="others")
        assert refused.headers["Nats-Service-Error-Code"] == "403"
        assert "cannot list resource" in refused.headers["Nats-Service-Error"]
        nobody = await ask(client, SUBJECT)
        assert nobody.headers["Nats-Service-Error-Code"] == "401"

        async def told(verb: str) -> Json:
            answer: Json = json.loads((await ask(client, f"$SRV.{verb}.sluice-console")).data)
            return answer

        assert ServicePing.from_dict(await told("PING")).name == "sluice-console"
        info = ServiceInfo.from_dict(await told("INFO"))
        assert [each.subject for each in info.endpoints] == [
            f"sluice.rpc.console.{name}" for name in ("pending", "explain", "queues", "simulate")
        ]
        stats = {each.name: each for each in ServiceStats.from_dict(await told("STATS")).endpoints}
        assert (stats["queues"].num_requests, stats["queues"].num_errors) == (3, 2)
        assert said == []
        assert "Violation" not in place.running.log


async def test_deployed_console_reads_what_its_pages_need(place: Place) -> None:
    classifier = bus("classifier", place.running, place.secured)
    await classifier.start()
    await classifier.publish(workload("job-a", owner=job_owner("a", kind="PipelineRun")))
    await classifier.stop()
    provisioner = bus("provisioner", place.running, place.secured)
    await provisioner.start()
    host = HostState(
        cluster="hub", namespace="team", name="build", uid="u", platform="linux/arm64",
        state="ready", host="arm-1", workload="job-a", at=now(),
    )  # fmt: skip
    await provisioner.publish(host)
    await provisioner.stop()
    olga = User(name="olga")
    found = await place.pages.timeline(olga, WorkloadRef("hub", "team", "job-a"))
    assert [line.what for line in found.items] == ["workload", "workload", "host"]
    assert (await place.pages.spokes(olga)).items == []
    assert (await place.pages.machines(olga)).items == []

    async def is_read() -> bool:
        return (await place.pages.trend(olga, "1h")).complete

    await eventually(is_read, "the logs are not read to the end")
    assert "Violation" not in place.running.log


async def test_long_log_is_read_in_parts_up_to_its_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_read, "BATCH", 2)
    classifier = bus("classifier", place.running, place.secured)
    console = bus("console", place.running, place.secured)
    for one in (classifier, console):
        await one.start()
    for number in range(7):
        await classifier.publish(workload(f"job-{number}"))
    found = []
    async with aclosing(console.replay("WORKLOADS", "sluice.workload.>")) as items:
        async for item in items:
            if isinstance(item, CaughtUp):
                break
            found.append(item.read(WorkloadState).name)
    assert found == [f"job-{number}" for number in range(7)]
    for one in (classifier, console):
        await one.stop()


@pytest.mark.parametrize("user", ["watcher", "quota", "patcher"])
async def test_other_users_may_not_ask_the_console(place: Place, user: str) -> None:
    async with intruder(place.running.url, place.secured.access(user)) as (client, said):
        with pytest.raises(SilenceError):
            await client.request(SUBJECT, b'{"token": "dana"}', timeout=SILENCE_SECONDS)
        await eventually(lambda: any("permissions violation" in each for each in said))


@pytest.mark.parametrize("user", ["viewer", "quota", "watcher"])
async def test_other_users_cannot_read_requests_with_tokens(place: Place, user: str) -> None:
    access = place.secured.access("viewer")
    async with (
        intruder(place.running.url, place.secured.access(user)) as (thief, said),
        intruder(place.running.url, access) as (client, _),
    ):
        heard: list[bytes] = []

        async def hear(message: Any) -> None:
            heard.append(message.data)

        for subject in (SUBJECT, "sluice.rpc.console.*", "sluice.>", ">"):
            await thief.subscribe(subject, cb=hear)
        await thief.flush()
        await ask(client, SUBJECT, token="dana")
        assert heard == []
        assert said
