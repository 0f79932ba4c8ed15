"""Both halves of the gateway: requests, and what spokes write."""

import asyncio

from shared.bus.nats.bus import NatsBus
from shared.bus.spoke_gateway.requests import SpokeRequests
from shared.bus.spoke_gateway.writes import SpokeWrites


class SpokeGateway:
    """Answers the requests of spokes, and writes for them."""

    def __init__(self, bus: NatsBus) -> None:
        self._requests = SpokeRequests(bus)
        self._writes = SpokeWrites(bus)

    async def run(self) -> None:
        """Do both until cancelled. For a hub with one gateway."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.answer())
            group.create_task(self.write())

    async def answer(self) -> None:
        """Answer requests until cancelled; any number of replicas may."""
        await self._requests.run()

    async def write(self) -> None:
        """Write what spokes write until cancelled. One replica at a time: messages keep their order."""
        await self._writes.run()
