"""The worst moment to lose the lease for a provisioner: the record of a platform is on its way.

1. The network holds what the leader sends, a record among it, until the leader's lease is over.
2. Another replica leads, reads the records and gives slots away.
3. The first record arrives.
"""

import asyncio
from random import Random
from typing import Final

from services.simulator.scenarios.system import CLUSTER, System

LEASE: Final = f"provisioner-{CLUSTER}"
EVERY_SECONDS: Final = 8.0
"""Mean time between two such moments."""

ON_ITS_WAY_SECONDS: Final = (5.2, 8.0)
"""How long requests are on their way: longer than a lease."""


async def delay_records(system: System) -> None:
    """Hold what the leading provisioner sends now and then, until the world is calm."""
    world, random = system.world, Random(f"records/{system.world.seed}")
    while not world.calm:
        await asyncio.sleep(random.expovariate(1 / EVERY_SECONDS))
        holder = system.server.holder(LEASE)
        if holder is None or world.calm:
            continue
        seconds = random.uniform(*ON_ITS_WAY_SECONDS)
        world.links.hold(holder.partition(".")[0], "bus", ways=("request",), seconds=seconds)
        await asyncio.sleep(seconds)
