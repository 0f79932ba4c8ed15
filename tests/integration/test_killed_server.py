"""nats-server is killed after ended work has left the views, and brings back what was before."""

import asyncio
from datetime import UTC, datetime

import pytest

from services.quota.app import assemble
from services.quota.settings import QuotaSettings
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import Finish
from shared.testing.builders import workload
from shared.testing.waiting import eventually
from tests.integration.buses import make
from tests.integration.test_empty_disk import cluster

SETTINGS = QuotaSettings(reason_delay_seconds=0, forget_seconds=0.5)


async def last(bus: NatsBus, name: str) -> Admission | None:
    entry = await bus.latest("ADMISSIONS", f"sluice.admission.hub.team.{name}")
    return None if entry is None else entry.read(Admission)


async def becomes(bus: NatsBus, name: str, state: str) -> None:
    async def is_so() -> bool:
        found = await last(bus, name)
        return found is not None and found.state == state

    await eventually(is_so)


async def viewed(bus: NatsBus, log: str, what: str) -> set[str]:
    """Names of the workloads in a view."""
    subjects = bus.stored_sizes(log, f"sluice.{what}.hub.team.*")
    return {subject.rpartition(".")[2] async for subject, _ in subjects}


async def runs(bus: NatsBus, name: str) -> None:
    """A job is started, as classifier and patcher tell it."""
    await becomes(bus, name, "admitted")
    decided = await last(bus, name)
    assert decided is not None
    await bus.publish(
        Outcome(
            cluster="hub", namespace="team", name=name, uid=decided.uid, action="release",
            result="applied", term=decided.term, number=decided.number, at=datetime.now(UTC),
        )
    )  # fmt: skip
    await bus.publish(workload(name, queue="q", phase="running", version="2"))


async def ends(bus: NatsBus, name: str) -> None:
    """A job that runs ends, and is deleted."""
    finish = Finish(success=True)
    await bus.publish(workload(name, queue="q", version="3", phase="finished", finish=finish))
    await becomes(bus, name, "released")
    await bus.publish(workload(name, queue="q", version="4", phase="gone"))


async def test_quota_of_ended_work_that_a_killed_server_brings_back_is_free(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.quota.ended_work.SWEEP_SECONDS", 0.2)
    world, first, second = (make(server, name) for name in ("world", "quota-a", "quota-b"))
    await world.start()
    await first.start()
    leading = asyncio.create_task(assemble(settings=SETTINGS, bus=first, now=_now).run())
    await cluster(world, "a")
    await runs(world, "a")
    await ends(world, "a")
    await world.publish(workload("b", queue="q"))
    await runs(world, "b")  # Of it is the last message of each view, which always stays.

    async def is_swept() -> bool:
        return "a" not in await viewed(world, "WORKLOADS", "workload")

    await eventually(is_swept)
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    await first.stop()

    await server.kill()
    await server.start()
    await eventually(lambda: world.connected)
    if "a" not in await viewed(world, "ADMISSIONS", "admission"):
        pytest.skip("this nats-server brings nothing back")

    await second.start()
    leading = asyncio.create_task(assemble(settings=SETTINGS, bus=second, now=_now).run())
    await world.publish(workload("c", queue="q"))
    await becomes(world, "c", "admitted")
    await eventually(is_swept)
    decided = await last(world, "a")
    assert decided is not None
    assert decided.state == "released"
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    for bus in (world, second):
        await bus.stop()


def _now() -> datetime:
    return datetime.now(UTC)
