"""The worst moment for an eviction: a release is on its way to the cluster, and the job is held still.

1. A patcher has written that a workload is admitted, and sends the release of its job. It is on its way.
2. A user deactivates the workload. Another patcher carries the eviction out, and finds the job held.
3. What the eviction frees is given away. The release arrives.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from services.simulator.cluster.kinds.registry import Obj
from services.simulator.scenarios.swarm.moments.admissions import follow_admissions
from services.simulator.scenarios.system import CLUSTER, System

ON_ITS_WAY_SECONDS: Final = (0.1, 1.5)
"""How long releases are on their way: while nobody asks whether a decision is the last one."""

Activate = Callable[..., Coroutine[Any, Any, None]]


class LateReleases:
    """Follows the Workloads of a world, and acts at such moments."""

    def __init__(self, system: System, patchers: int, activate: Activate) -> None:
        """`activate`: what users call to deactivate a workload."""
        self._system = system
        self._world = system.world
        self._patchers = [f"patcher-{number + 1}" for number in range(patchers)]
        self._activate = activate
        self._random = Random(f"late/{system.world.seed}")
        self._until = 0.0
        self._acting: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to follow the Workloads."""
        follow_admissions(self._system, self._on_admitted, is_free=self._is_free)

    def _is_free(self) -> bool:
        world = self._world
        return not world.calm and not world.closing and world.loop.time() >= self._until

    def _on_admitted(self, workload: Obj) -> None:
        if self._random.random() < 1 / 2:
            self._hold(self._world.loop.time())
            task = asyncio.get_running_loop().create_task(
                self._activate(workload["metadata"], active=False)
            )
            self._acting.add(task)
            task.add_done_callback(self._acting.discard)

    def _hold(self, now: float) -> None:
        """Let what all patchers but one send to the cluster arrive late."""
        seconds = self._random.uniform(*ON_ITS_WAY_SECONDS)
        self._until = now + seconds
        for name in self._random.sample(self._patchers, len(self._patchers) - 1):
            self._world.links.hold(name, CLUSTER, ways=("request",), seconds=seconds)
