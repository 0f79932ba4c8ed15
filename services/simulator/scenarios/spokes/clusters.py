"""A hub and its spokes: each is a cluster with a watcher and a patcher; they share one bus."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any, Final

from services.patcher import app as patcher
from services.patcher.settings import PatcherSettings
from services.simulator.behaviour.manager import ControllerManager
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from services.simulator.scenarios.load import object_of
from services.simulator.scenarios.system import CLUSTER, WATCHED, System, set_up
from services.watcher import app as watcher
from services.watcher.settings import WatcherSettings
from shared.bus.headers import TYPE
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube import kinds
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.spokes import SpokeState
from shared.contracts.subjects import Stream
from shared.testing.world.kube import WorldKube
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.world import ProcessContext, World

CHECK: Final = "elsewhere"
CONFIG: Final = "spokes"


class MultiClusterSystem:
    """The hub is a `System`; every spoke is an API server with a watcher and a patcher."""

    def __init__(
        self,
        world: World,
        spokes: tuple[str, ...],
        *,
        rules: str,
        dispatcher: Mapping[str, Any],
        beat_seconds: float,
        kueues: Collection[str] = (),
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`kueues` are spokes with their own Kueue, which the caller simulates.

        `settings`: of the hub's other services, by name.
        """
        self.world = world
        self.spokes = spokes
        self._kueues = kueues
        self._beat_seconds = beat_seconds
        self.hub = System(
            world,
            rules=rules,
            settings={
                **(settings or {}),
                "dispatcher": dispatcher,
                "patcher": {"beat_seconds": beat_seconds},
            },
        )
        self.apis: dict[str, Api] = {CLUSTER: self.hub.api}
        self.kubes: dict[str, LocalKube] = {CLUSTER: self.hub.kube}
        for spoke in spokes:
            random = Random(f"{spoke}/{world.seed}")
            api = Api(now=world.now, random=random)
            self.apis[spoke] = api
            self.kubes[spoke] = LocalKube(api)
            world.process(spoke, _living(ControllerManager(api, random=random)), mortal=False)

    def serve(self) -> None:
        """Start all services."""
        for service in ("watcher", "classifier", "quota", "patcher", "dispatcher"):
            self.hub.serve(service)
        self.serve_spokes()

    def serve_spokes(self) -> None:
        """Start the watcher and the patcher of each spoke."""
        for spoke in self.spokes:
            self.world.process(f"watcher-{spoke}", self._watcher(spoke))
            self.world.process(f"patcher-{spoke}", self._patcher(spoke))

    def reports_lost(self, job: tuple[str, str], spoke: str) -> bool:
        """True if the hub published that the copy of `job` on `spoke` is lost."""
        stored = self.hub.server.streams[Stream.CHECKS].messages.values()
        checks = (
            CheckState.decode(one.data) for one in stored if one.headers[TYPE] == CheckState.type
        )
        return any(
            check.namespace == job[0]
            and f"-{job[1]}-" in check.name
            and check.message == f'Admitting remote lost: "{spoke}"'
            for check in checks
        )

    def reports_silent(self, spoke: str) -> bool:
        """True if the hub published last that it has not heard of a spoke for too long."""
        stored = self.hub.server.streams[Stream.SPOKES].messages.values()
        states = [
            SpokeState.decode(one.data) for one in stored if one.headers[TYPE] == SpokeState.type
        ]
        last = next((one for one in reversed(states) if one.spoke == spoke), None)
        return last is not None and not last.active

    def pair(self, spoke: str) -> tuple[str, str]:
        """Start the watcher and the patcher of a spoke."""
        return f"watcher-{spoke}", f"patcher-{spoke}"

    def _watcher(self, spoke: str) -> Callable[[ProcessContext], Any]:
        async def start(context: ProcessContext) -> None:
            bus = MemoryBus(self.hub.server, instance=context.instance, random=context.random)
            running = watcher.assemble(
                settings=set_up(WatcherSettings, context, cluster=spoke, **WATCHED),
                bus=bus,
                kube=self._cluster_for(spoke, context),
                now=context.now,
                random=context.random,
            )
            await bus.start()
            await running.run()

        return start

    def _patcher(self, spoke: str) -> Callable[[ProcessContext], Any]:
        quota = "kueue" if spoke in self._kueues else "hub"

        async def start(context: ProcessContext) -> None:
            bus = MemoryBus(self.hub.server, instance=context.instance, random=context.random)
            running = patcher.assemble(
                settings=set_up(
                    PatcherSettings,
                    context,
                    cluster=spoke,
                    beat_seconds=self._beat_seconds,
                    spoke_quota=quota,
                ),
                bus=bus,
                kube=self._cluster_for(spoke, context),
                now=context.now,
                entropy=context.random.randbytes,
            )
            async with asyncio.TaskGroup() as group:
                group.create_task(running.guard())
                await bus.start()
                group.create_task(running.run())

        return start

    def _cluster_for(self, spoke: str, context: ProcessContext) -> WorldKube:
        return WorldKube(LocalKube(self.apis[spoke]), context.world, cluster=spoke)

    async def configure(self) -> None:
        """Create the hub's objects that configure the spokes."""
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": CONFIG}
        check = {"controllerName": MULTIKUEUE, "parameters": parameters}
        create = self.hub.kube.create
        for spoke in self.spokes:
            await create(kinds.MULTIKUEUE_CLUSTER, object_of(kinds.MULTIKUEUE_CLUSTER, spoke))
        config = object_of(kinds.MULTIKUEUE_CONFIG, CONFIG, spec={"clusters": list(self.spokes)})
        await create(kinds.MULTIKUEUE_CONFIG, config)
        await create(kinds.ADMISSION_CHECK, object_of(kinds.ADMISSION_CHECK, CHECK, spec=check))


def _living(behaviour: ControllerManager) -> Callable[[ProcessContext], Any]:
    async def start(context: ProcessContext) -> None:
        del context
        behaviour.start()
        await asyncio.Event().wait()

    return start
