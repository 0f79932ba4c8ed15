"""What the bus in memory does that no test of the real one can bring about at will."""

import asyncio

from shared.bus.port import Entry
from shared.contracts.messages.spokes import Heartbeat
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from shared.testing.world.world import EPOCH, Faults, ProcessContext, World


def test_work_starts_although_the_first_request_was_lost() -> None:
    taken: list[str] = []
    beat = Heartbeat(spoke="east", instance="a", number=1, at=EPOCH)
    with World(1, faults=Faults(until_seconds=0.1, lost_request=1.0)) as world:
        server = MemoryServer(world=world)

        async def worker(context: ProcessContext) -> None:
            bus = MemoryBus(server, instance=context.instance, random=context.random)

            async def take(entry: Entry) -> None:
                taken.append(entry.read(Heartbeat).spoke)

            bus.work("SPOKES", "listener", take)
            await bus.start()
            await asyncio.Event().wait()

        async def drive() -> None:
            assert server.publish(beat.subject, beat.encode(), {"ce-type": beat.type})
            await asyncio.sleep(0.05)
            world.process("worker", worker)
            await asyncio.sleep(5)

        world.run(drive)
        assert any("connection of worker breaks (request lost)" in line for line in world.log)
    assert taken == ["east"]
