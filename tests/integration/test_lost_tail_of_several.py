"""A power cut of a log that several services write, each its own subjects, on a real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from services.provisioner.app import assemble
from services.provisioner.providers.fake import FakeCloud, FakeProvider
from services.provisioner.settings import ProvisionerSettings
from shared.bus.admin.permissions import writes_of
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.nats.tails import refill
from shared.bus.port import Bus
from shared.contracts.kube.kinds import CONFIG_MAP, TASK_RUN, Kind, Object
from shared.contracts.messages.hosts import HostState, SealKey
from shared.contracts.messages.observed import Synced
from shared.contracts.seal import public_key_of
from shared.testing.builders import observed_object
from shared.testing.waiting import eventually
from tests.clock import now
from tests.contract.bus.stage import step_of, workload
from tests.integration.buses import make
from tests.integration.test_lost_tail import eventually_taken, listed, power_cut, publish
from tests.unit.provisioner.harness import HOST_CONFIG, NAMESPACE, PATCHER_KEY, task_run

OF_TEAM, OF_OTHERS = "sluice.workload.hub.team-a.>", "sluice.workload.hub.team-b.>"


async def last_of(bus: Bus, name: str, namespace: str) -> tuple[int, int] | None:
    """Step and sequence of the last message about a workload in the log."""
    entry = await bus.latest("WORKLOADS", workload(name, namespace=namespace).subject)
    return None if entry is None else (step_of(entry)[1], entry.sequence)


async def lose_tail(server: EmbeddedServer) -> None:
    """The log ends at 1; the view has two messages of `other` behind that, and one of `mine`."""
    first = make(server, "first")
    await first.start()
    await publish(first, "mine", step=1)
    async with power_cut(server, "WORKLOADS"):
        await eventually(lambda: first.connected)
        for step in (2, 3):
            await first.publish(workload("other", step=step, namespace="team-b"))
        await first.publish(workload("mine", step=2))
        await eventually_taken(first, 4)
        await first.stop()


async def test_each_writer_gives_back_what_was_lost_of_its_own(server: EmbeddedServer) -> None:
    await lose_tail(server)
    mine, others = (make(server, one, writes=(one,)) for one in (OF_TEAM, OF_OTHERS))
    beginning = asyncio.create_task(mine.start())  # The first lost message is not of it.
    await asyncio.sleep(0.5)
    assert (await others_log_end(server)) < 3
    await others.start()
    await beginning
    assert await last_of(mine, "mine", "team-a") == (2, 4)
    assert await last_of(mine, "other", "team-b") == (3, 3)
    assert {entry.sequence for entry in await listed(mine)} == {3, 4}, "as the view has them"
    await others.publish(workload("other", step=5, namespace="team-b"), expect_subject=3)
    for bus in (mine, others):
        await bus.stop()


async def others_log_end(server: EmbeddedServer) -> int:
    """Where the log ends, as somebody sees who fills nothing up."""
    reader = make(server, "reader", writes=())
    await reader.start()
    end = await reader.log_end("WORKLOADS")
    await reader.stop()
    return end.last


async def test_writer_goes_on_without_one_that_does_not_come(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refill, "OWNER_SECONDS", 0.5)
    await lose_tail(server)
    mine = make(server, "mine", writes=(OF_TEAM,))
    await mine.start()
    assert await mine.publish(workload("mine", step=3)) == 5
    assert {step_of(entry) for entry in await listed(mine)} == {("mine", 3), ("other", 3)}
    await mine.stop()


# A provisioner whose record was lost, and stood in for by the patcher -------------------------------------


class Machines:
    """A cluster with TaskRuns, and provisioners one after another."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._cloud = FakeCloud(now=now, seed=1)
        self._version = 0

    async def begin(self, bus: Bus) -> None:
        key = public_key_of(PATCHER_KEY)
        await bus.publish(SealKey(cluster="hub", public_key=key, at=now()))
        metadata = {"name": "host-config", "namespace": NAMESPACE, "uid": "config"}
        await self.observe(bus, CONFIG_MAP, {"metadata": metadata, "data": HOST_CONFIG})
        await bus.publish(Synced(cluster="hub", epoch="1", kinds=[], at=now()))

    async def observe(self, bus: Bus, kind: Kind, obj: Object, *, deleted: bool = False) -> None:
        self._version += 1
        await bus.publish(observed_object(kind, obj, version=self._version, deleted=deleted))

    @asynccontextmanager
    async def provisioner(self, instance: str) -> AsyncIterator[NatsBus]:
        """A provisioner with the rights of one."""
        writes = writes_of("provisioner", "hub")
        bus = make(self._server, instance, service="provisioner", writes=writes)
        await bus.start()
        running = asyncio.create_task(
            assemble(
                settings=ProvisionerSettings(cluster="hub"), bus=bus, hosts=None, now=now,
                providers={"fake": FakeProvider(self._cloud)}, random=Random(1),
                entropy=Random(2).randbytes,
            ).run()
        )  # fmt: skip
        try:
            yield bus
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await bus.stop()


async def is_ready(bus: Bus, name: str) -> bool:
    entry = await bus.latest("HOSTS", f"sluice.host.hub.team-a.{name}")
    return entry is not None and entry.read(HostState).state == "ready"


async def test_provisioner_goes_on_from_a_record_that_only_the_view_has(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refill, "OWNER_SECONDS", 0.5)
    machines, bus = Machines(server), make(server, "cluster")
    await bus.start()
    await machines.begin(bus)
    async with machines.provisioner("first") as own:
        await machines.observe(bus, TASK_RUN, task_run("one"))
        await eventually(lambda: is_ready(bus, "one"))
        async with power_cut(server, "HOSTS"):
            await eventually(lambda: bus.connected and own.connected)
            await machines.observe(bus, TASK_RUN, task_run("two"))
            await eventually(lambda: is_ready(bus, "two"))
            await bus.stop()
            await own.stop()
    patcher = make(server, "patcher", writes=writes_of("patcher", "hub"))
    await patcher.start()
    bus = make(server, "cluster", writes=("sluice.observed.hub.>",))
    await bus.start()
    async with machines.provisioner("second"):
        await machines.observe(bus, TASK_RUN, task_run("one"), deleted=True)
        await machines.observe(bus, TASK_RUN, task_run("three"))
        await eventually(lambda: is_ready(bus, "three"))
    for one in (bus, patcher):
        await one.stop()
