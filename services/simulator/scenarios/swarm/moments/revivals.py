"""The server is killed after ended work has left the views, and brings back what was before its end.

Whoever leads quota dies with it, as on a machine that loses its power: the next one reads views in which
work that has ended runs again, and has quota (ADR 139).
"""

import asyncio
from random import Random
from typing import Final

from services.simulator.scenarios.system import System

FORGET_SECONDS: Final = 5.0
"""Setting of quota: when ended work leaves the views. Worlds are too short for its ten minutes."""

DOWN_SECONDS: Final = (0.1, 5.0)


class Revivals:
    """Kills the server of a world, and the leader of quota with it."""

    def __init__(self, system: System) -> None:
        self._world = system.world
        self._server = system.server
        self._random = Random(f"revivals/{system.world.seed}")
        for stream in self._server.streams.values():
            stream.keeps_replaced = True

    async def kill_the_server(self) -> None:
        """Kill it once it has something to bring back."""
        streams = self._server.streams
        while not any(one.revivable for one in streams.values()):
            if self._world.calm:
                return
            await asyncio.sleep(1.0)
        holder = self._server.holder("quota")
        back = self._server.kill(down_seconds=self._random.uniform(*DOWN_SECONDS))
        self._world.note(f"the server was killed and brings back {', '.join(back)}")
        if holder is not None:
            down = self._random.uniform(*DOWN_SECONDS)
            self._world.crash(holder.partition(".")[0], down_seconds=down)
