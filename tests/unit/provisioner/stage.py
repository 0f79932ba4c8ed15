"""A world with one provisioner, a fake cloud that outlives it, and a hand that plays the cluster."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from services.provisioner.app import Provisioner, assemble
from services.provisioner.providers.fake import FakeCloud, FakeProvider
from services.provisioner.providers.port import Order
from services.provisioner.settings import ProvisionerSettings
from shared.bus.port import CaughtUp
from shared.contracts.kube.kinds import CONFIG_MAP, TASK_RUN, Kind, Object
from shared.contracts.messages.effects import HostState, PlatformState
from shared.contracts.messages.observed import Observed, Synced
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from shared.testing.world.world import CALM, Faults, ProcessContext, World

T = TypeVar("T")

NAMESPACE = "multi-platform-controller"

HOST_CONFIG = {
    "local-platforms": "linux/x86_64,local,localhost,",
    "dynamic-platforms": "linux/arm64",
    "instance-tag": "prod",
    "dynamic.linux-arm64.type": "fake",
    "dynamic.linux-arm64.max-instances": "2",
    "dynamic.linux-arm64.check-interval": "1",
    "dynamic.linux-arm64.allocation-timeout": "60",
    "dynamic-pool-platforms": "linux/s390x",
    "dynamic.linux-s390x.type": "fake",
    "dynamic.linux-s390x.max-instances": "2",
    "dynamic.linux-s390x.check-interval": "1",
    "dynamic.linux-s390x.concurrency": "2",
    "dynamic.linux-s390x.max-age": "10",
    "host.power-1.address": "10.0.0.1",
    "host.power-1.platform": "linux/ppc64le",
    "host.power-1.user": "root",
    "host.power-1.concurrency": "2",
}


def task_run(
    name: str,
    platform: Any = "linux/arm64",
    *,
    uid: str | None = None,
    created: int = 0,
    **more: Any,
) -> Object:
    """As Tekton shows it once its pod waits for the secret."""
    return {
        "apiVersion": TASK_RUN.api_version,
        "kind": TASK_RUN.kind,
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": uid or f"uid-{name}",
            "creationTimestamp": f"2026-01-01T00:{created // 60:02}:{created % 60:02}Z",
            **more,
        },
        "spec": {"params": [{"name": "PLATFORM", "value": platform}]},
        "status": {
            "taskSpec": {
                "volumes": [{"name": "ssh", "secret": {"secretName": f"multi-platform-ssh-{name}"}}]
            }
        },
    }


def done(obj: Object) -> Object:
    """The same TaskRun, finished."""
    conditions = [{"type": "Succeeded", "status": "True"}]
    return {**obj, "status": {**obj["status"], "conditions": conditions}}


class PerilousProvider(FakeProvider):
    """The process may die before and after each call; the cloud does not notice."""

    def __init__(self, cloud: FakeCloud, stage: "Stage") -> None:
        super().__init__(cloud)
        self._world = stage.world
        self._stage = stage

    async def launch(self, order: Order) -> None:
        self._stage.on_launch(order)
        await self._world.point(f"launch {order.name}")
        await super().launch(order)
        await self._world.point(f"launched {order.name}")

    async def terminate(self, name: str) -> None:
        await self._world.point(f"terminate {name}")
        await super().terminate(name)
        await self._world.point(f"terminated {name}")


class Stage:
    """Use it as a context manager."""

    def __init__(self, *, seed: int = 1, faults: Faults = CALM, mortal: bool = True) -> None:
        self.world = World(seed, faults=faults)
        self.server = MemoryServer(world=self.world)
        self.cloud = FakeCloud(now=self.world.now, seed=seed)
        self.bus: MemoryBus
        self.provisioner: Provisioner | None = None
        self.on_launch: Callable[[Order], None] = lambda _: None
        """Called before each order."""

        self._version = 0
        self._mortal = mortal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.world.close()

    async def _serve(self, context: ProcessContext) -> None:
        bus = MemoryBus(self.server, instance=context.instance)
        self.provisioner = assemble(
            settings=ProvisionerSettings(cluster="hub", sweep_seconds=60),
            bus=bus,
            providers={"fake": PerilousProvider(self.cloud, self)},
            now=context.now,
            random=context.random,
        )
        await bus.start()
        await self.provisioner.run()

    def play(
        self,
        drive: Callable[[], Coroutine[Any, Any, T]],
        *,
        config: dict[str, str] | None = None,
        listed: bool = True,
        replicas: int = 1,
    ) -> T:
        """Run `drive` beside a provisioner whose cluster has been listed."""

        async def play() -> T:
            self.bus = MemoryBus(self.server, instance="cluster")
            await self.bus.start()
            await self.configure(HOST_CONFIG if config is None else config)
            if listed:
                await self.bus.publish(
                    Synced(cluster="hub", epoch="1", kinds=[], at=self.world.now())
                )
            for number in range(replicas):
                name = f"provisioner{number or ''}"
                self.world.process(name, self._serve, mortal=self._mortal)
            return await drive()

        result = self.world.run(play)
        assert not self.world.failures, self.world.failures
        return result

    async def configure(self, data: dict[str, str]) -> None:
        """Write the ConfigMap."""
        metadata = {"name": "host-config", "namespace": NAMESPACE, "uid": "config"}
        await self.see(CONFIG_MAP, {"metadata": metadata, "data": data})

    async def see(self, kind: Kind, obj: Object, *, deleted: bool = False) -> None:
        """Let the watcher observe `obj`."""
        self._version += 1
        metadata = obj["metadata"]
        await self.bus.publish(
            Observed(
                cluster="hub", group=kind.group, version=kind.version, plural=kind.plural, kind=kind.kind,
                namespace=metadata.get("namespace"), name=metadata["name"], uid=metadata["uid"],
                resource_version=str(self._version), deleted=deleted, object=obj,
            )
        )  # fmt: skip

    async def run_task(self, obj: Object) -> None:
        """A TaskRun appears, or changes."""
        await self.see(TASK_RUN, obj)

    async def finish(self, obj: Object) -> None:
        """A TaskRun ends."""
        await self.see(TASK_RUN, done(obj))

    async def host(self, name: str) -> HostState | None:
        """What was last said about a TaskRun."""
        entry = self.server.latest("HOSTS", f"sluice.host.hub.team-a.{name}")
        return HostState.decode(entry.data) if entry else None

    async def until(
        self, name: str, *states: str, seconds: float = 300, look_seconds: float = 0.1
    ) -> HostState:
        """Wait until a TaskRun was told one of `states`."""
        async with asyncio.timeout(seconds):
            while True:
                state = await self.host(name)
                if state is not None and state.state in states:
                    return state
                await asyncio.sleep(look_seconds)

    async def record(self, platform: str) -> PlatformState | None:
        """The record of a platform."""
        entry = self.server.latest("HOSTS", self.record_subject(platform))
        return PlatformState.decode(entry.data) if entry else None

    def record_subject(self, platform: str) -> str:
        """Where that is published."""
        return PlatformState(cluster="hub", platform=platform, at=self.world.now()).subject

    async def history(self) -> list[HostState]:
        """Everything that was said about TaskRuns, oldest first."""
        states = []
        async for entry in self.bus.replay("HOSTS", "sluice.host.>"):
            if isinstance(entry, CaughtUp):
                break
            states.append(HostState.decode(entry.data))
        return states

    async def view(self) -> list[str]:
        """TaskRuns about which the view says something."""
        names = []
        async for entry in self.bus.watch("HOSTS", "sluice.host.>"):
            if isinstance(entry, CaughtUp):
                break
            names.append(HostState.decode(entry.data).name)
        return sorted(names)

    def alive(self) -> list[str]:
        """Machines that cost something now."""
        return [vm.name for vm in self.cloud.alive("hub")]
