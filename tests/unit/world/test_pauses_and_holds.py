"""Processes that stop for a while, and packets that arrive late."""

import asyncio

from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.contracts.kube import kinds
from shared.kube.port import NotFoundError, UnavailableError
from shared.testing.world.kube import WorldKube
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from shared.testing.world.world import Faults, ProcessContext, World
from tests.contract.bus.stage import workload

CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"namespace": "default", "name": "a"},
}


def test_paused_process_runs_nothing_and_then_all_that_was_due() -> None:
    ticks: list[float] = []

    async def ticking(context: ProcessContext) -> None:
        while True:
            ticks.append(context.world.loop.time())
            await asyncio.sleep(1)

    async def drive() -> None:
        world.process("service", ticking)
        await asyncio.sleep(2.5)
        world.pause("service", seconds=10)
        await asyncio.sleep(20)

    with World(1) as world:
        world.run(drive)
    assert [round(at, 3) for at in ticks[:6]] == [0, 1, 2, 12.5, 13.5, 14.5]


def test_process_that_is_killed_while_it_is_paused_stays_dead() -> None:
    lives: list[int] = []

    async def idle(context: ProcessContext) -> None:
        lives.append(context.start_number)
        await asyncio.sleep(5)
        lives.append(-context.start_number)
        await asyncio.Event().wait()

    async def drive() -> None:
        world.process("service", idle)
        await asyncio.sleep(1)
        world.pause("service", seconds=10)
        world.crash("service", down_seconds=1)
        await asyncio.sleep(30)

    with World(1) as world:
        world.run(drive)
    assert lives == [1, 2, -2]


def test_held_message_arrives_late_on_the_same_connection_and_in_order() -> None:
    stored: list[tuple[str, float]] = []

    async def publish(context: ProcessContext) -> None:
        bus = MemoryBus(server, instance=context.instance)
        await bus.start()
        await asyncio.sleep(1)
        context.world.links.hold("service", "bus", ways=("request",), seconds=3)
        await asyncio.gather(*(bus.publish(workload(name)) for name in "ab"))
        await asyncio.Event().wait()

    async def drive() -> None:
        world.process("service", publish)
        await asyncio.sleep(20)
        messages = server.streams["WORKLOADS"].messages.values()
        stored.extend((one.subject.rpartition(".")[2], one.at) for one in messages)

    with World(1) as world:
        server = MemoryServer(world=world)
        world.run(drive)
    assert [name for name, _ in stored] == ["a", "b"]
    assert all(at > 4 for _, at in stored)


def test_write_that_its_client_gave_up_is_executed_once_the_network_delivers_it() -> None:
    seen: list[str] = []

    async def write(context: ProcessContext) -> None:
        kube = WorldKube(LocalKube(api), context.world, cluster="hub")
        context.world.links.hold("service", "hub", ways=("request",), seconds=30)
        try:
            await kube.create(kinds.CONFIG_MAP, CONFIG_MAP)
        except UnavailableError:
            seen.append("given up")
        try:
            await LocalKube(api).get(kinds.CONFIG_MAP, "default", "a")
        except NotFoundError:
            seen.append("not there")
        await asyncio.Event().wait()

    async def drive() -> None:
        world.process("service", write)
        await asyncio.sleep(60)
        await LocalKube(api).get(kinds.CONFIG_MAP, "default", "a")
        seen.append("there")

    with World(1) as world:
        api = Api(now=world.now, random=world.random)
        world.run(drive)
    assert seen == ["given up", "not there", "there"]


def test_clock_that_jumps_is_wrong_for_its_process_only() -> None:
    offsets: set[float] = set()

    async def idle(context: ProcessContext) -> None:
        while True:
            offsets.add(round((context.now() - context.world.now()).total_seconds(), 1))
            await asyncio.sleep(1)

    faults = Faults(until_seconds=60, clock_jump_every_seconds=5)
    with World(1, faults=faults) as world:
        world.process("service", idle)
        world.start_faults()
        world.run(lambda: asyncio.sleep(60))
    assert len(offsets) > 3
    assert all(abs(offset) <= faults.clock_jump_seconds for offset in offsets)
