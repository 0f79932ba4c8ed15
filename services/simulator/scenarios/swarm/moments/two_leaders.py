"""The worst moment for a term of quota: two leaders begin at once.

1. A replica gets the lease, and reads the views.
2. NATS forgets that it has the lease: another one gets it, and reads the views as well.
3. Both begin a term in the same second, and the view is behind the log: neither has read that of the other.
"""

import asyncio
from random import Random
from typing import Final

from services.simulator.scenarios.system import System
from shared.contracts.messages.admissions import Term

LEASE: Final = "quota"
TIMES: Final = 4
"""How often in a row the lease is forgotten. Replicas look for a free one twice a second."""

BETWEEN_SECONDS: Final = (0.1, 0.7)
BEHIND_SECONDS: Final = 3.0
"""How late the view of the decisions is at most."""


class TwoLeaders:
    """Lets NATS forget who leads quota, while the view of the decisions is late."""

    def __init__(self, system: System) -> None:
        self._world = system.world
        self._server = system.server
        self._random = Random(f"leaders/{system.world.seed}")

    async def forget_the_lease(self) -> None:
        """Let several replicas get the lease one after the other."""
        self._world.note(f"the lease of {LEASE} is forgotten, and the view is late")
        self._server.lags[Term.stream] = BEHIND_SECONDS
        for _ in range(TIMES):
            holder = self._server.holder(LEASE)
            if holder is not None:
                self._server.release(LEASE, holder)
            await asyncio.sleep(self._random.uniform(*BETWEEN_SECONDS))
        await asyncio.sleep(BEHIND_SECONDS)
        self._server.lags.pop(Term.stream, None)
