"""The worst moment for an eviction: a release is on its way to the cluster, and the job is held still.

1. A patcher has written that a workload is admitted, and sends the release of its job. It is on its way.
2. A user deactivates the workload. Another patcher carries the eviction out, and finds the job held.
3. What the eviction frees is given away. The release arrives.

Every second time the stop of the job is on its way, too, once the eviction is written. The release arrives
before it: the job runs, and its quota is not free yet.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from services.simulator.cluster.kinds.registry import Obj
from services.simulator.scenarios.swarm.moments.admissions import (
    follow_admissions,
    follow_evictions,
    may_act,
)
from services.simulator.scenarios.system import CLUSTER, System

ON_ITS_WAY_SECONDS: Final = (0.1, 1.5)
"""How long releases are on their way: while nobody asks whether a decision is the last one."""

STOP_SECONDS: Final = (0.3, 1.0)
"""How long the stop of a job is on its way after its release has arrived."""

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
        self._stops = Random(f"late-stops/{system.world.seed}")
        self._until = 0.0
        """Loop time at which the releases arrive."""

        self._admitted = ""
        """Uid of the Workload whose release is on its way, and whose stop is to be."""

        self._acting: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to follow the Workloads."""
        follow_admissions(
            self._system,
            self._on_admitted,
            is_free=lambda: may_act(self._world, self._until),
        )
        follow_evictions(self._system, self._on_evicted)

    def _on_admitted(self, workload: Obj) -> None:
        if self._random.random() < 1 / 2:
            self._hold(self._world.loop.time())
            is_late = self._stops.random() < 1 / 2
            self._admitted = workload["metadata"]["uid"] if is_late else ""
            task = asyncio.get_running_loop().create_task(
                self._activate(workload["metadata"], active=False)
            )
            self._acting.add(task)
            task.add_done_callback(self._acting.discard)

    def _on_evicted(self, workload: Obj) -> None:
        """Let what the other patchers send to the cluster arrive later still."""
        links, left = self._world.links, self._until - self._world.loop.time()
        if left <= 0 or workload["metadata"]["uid"] != self._admitted:
            return
        seconds = left + self._stops.uniform(*STOP_SECONDS)
        for name in self._patchers:
            if not links.held_seconds(name, CLUSTER, "request"):
                links.hold(name, CLUSTER, ways=("request",), seconds=seconds)

    def _hold(self, now: float) -> None:
        """Let what all patchers but one send to the cluster arrive late."""
        seconds = self._random.uniform(*ON_ITS_WAY_SECONDS)
        self._until = now + seconds
        for name in self._random.sample(self._patchers, len(self._patchers) - 1):
            self._world.links.hold(name, CLUSTER, ways=("request",), seconds=seconds)
