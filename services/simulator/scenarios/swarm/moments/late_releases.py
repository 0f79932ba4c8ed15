"""The worst moment for an eviction: a release is on its way to the cluster, and the job is held still.

1. A patcher has written that a workload is admitted, and sends the release of its job. It is on its way.
2. A user deactivates the workload. Another patcher carries the eviction out, and finds the job held.
3. What the eviction frees is given away. The release arrives.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from services.simulator.cluster.storage.stored import Event
from services.simulator.scenarios.system import CLUSTER, System
from shared.contracts.kube import kinds
from shared.contracts.kube.conditions import ADMITTED, is_true

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
        self._seen: set[str] = set()
        self._until = 0.0
        self._acting: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to follow the Workloads."""
        api = self._system.api
        found = api.kinds.find(kinds.WORKLOAD.group, kinds.WORKLOAD.version, kinds.WORKLOAD.plural)
        assert found is not None
        api.store.subscribe(found, self._on_workload)

    def _on_workload(self, event: Event) -> None:
        obj = event.stored.obj
        uid, now = obj["metadata"]["uid"], self._world.loop.time()
        if self._world.calm or self._world.closing or now < self._until:
            return
        if not is_true(obj, ADMITTED):
            self._seen.discard(uid)
        elif uid not in self._seen:
            self._seen.add(uid)
            if self._random.random() < 1 / 2:
                self._hold(now)
                task = asyncio.get_running_loop().create_task(
                    self._activate(obj["metadata"], active=False)
                )
                self._acting.add(task)
                task.add_done_callback(self._acting.discard)

    def _hold(self, now: float) -> None:
        """Let what all patchers but one send to the cluster arrive late."""
        seconds = self._random.uniform(*ON_ITS_WAY_SECONDS)
        self._until = now + seconds
        for name in self._random.sample(self._patchers, len(self._patchers) - 1):
            self._world.links.hold(name, CLUSTER, ways=("request",), seconds=seconds)
