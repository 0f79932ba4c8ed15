"""Harnesses: a provisioner in a simulated world, with a fake cloud and fake hosts that outlive it."""

import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Self, TypeVar

from prometheus_client import CollectorRegistry

from services.provisioner.app import Provisioner, assemble
from services.provisioner.hosts.fake import FakeFleet, FakeHosts
from services.provisioner.metrics import Metrics
from services.provisioner.providers.fake import FakeCloud, FakeProvider
from services.provisioner.providers.port import Order
from services.provisioner.settings import ProvisionerSettings
from shared.bus.port import CaughtUp, Entry
from shared.contracts.kube.kinds import CONFIG_MAP, TASK_RUN, Kind, Object
from shared.contracts.messages.hosts import HostState, PlatformState, SealKey
from shared.contracts.messages.observed import Synced
from shared.contracts.seal import host_context, open_sealed, public_key_of
from shared.testing.builders import observed_object
from shared.testing.waiting import first_value
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


SSH_CONFIG = {
    **HOST_CONFIG,
    "host.power-1.secret": "power-ssh",
    "host.power-1.concurrency": "1",
    "dynamic.linux-arm64.ssh-secret": "cloud-ssh",
}
TWO_HOSTS = {
    **SSH_CONFIG,
    **{k.replace("power-1", "power-2"): v for k, v in SSH_CONFIG.items() if "power" in k},
}

PATCHER_KEY = bytes(range(32))


def task_run(
    name: str,
    platform: Any = "linux/arm64",
    *,
    uid: str | None = None,
    created: int = 0,
    **more: Any,
) -> Object:
    """A TaskRun as Tekton shows it while its pod waits for the secret."""
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


class CrashPointProvider(FakeProvider):
    """A provider whose process may crash before and after each call, unnoticed by the cloud."""

    def __init__(self, cloud: FakeCloud, harness: "ProvisionerHarness") -> None:
        super().__init__(cloud)
        self._world = harness.world
        self._harness = harness

    async def launch(self, order: Order) -> None:
        self._harness.on_launch(order)
        await self._world.point(f"launch {order.name}")
        await super().launch(order)
        await self._world.point(f"launched {order.name}")

    async def terminate(self, name: str) -> None:
        await self._world.point(f"terminate {name}")
        await super().terminate(name)
        await self._world.point(f"terminated {name}")


class ProvisionerHarness:
    """A simulated world with a provisioner and a fake cloud. Use it as a context manager."""

    def __init__(self, *, seed: int = 1, faults: Faults = CALM, mortal: bool = True) -> None:
        self.world = World(seed, faults=faults)
        self.server = MemoryServer(world=self.world)
        self.cloud = FakeCloud(now=self.world.now, seed=seed)
        self.hosts: FakeHosts | None = None
        self.settings: dict[str, Any] = {}
        """Settings that differ from the defaults."""

        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)
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
            settings=ProvisionerSettings(cluster="hub", sweep_seconds=60, **self.settings),
            bus=bus,
            providers={"fake": CrashPointProvider(self.cloud, self)},
            hosts=self.hosts,
            now=context.now,
            random=context.random,
            entropy=context.random.randbytes,
            metrics=self.metrics,
        )
        await bus.start()
        await self.provisioner.run()

    def run(
        self,
        scenario: Callable[[], Coroutine[Any, Any, T]],
        *,
        config: dict[str, str] | None = None,
        listed: bool = True,
        replicas: int = 1,
    ) -> T:
        """Run `scenario` beside a provisioner. `listed`: the watcher has listed the cluster."""

        async def run() -> T:
            self.bus = MemoryBus(self.server, instance="cluster")
            await self.bus.start()
            await self.configure(HOST_CONFIG if config is None else config)
            if listed:
                await self.publish_synced()
            for number in range(replicas):
                name = f"provisioner{number or ''}"
                self.world.process(name, self._serve, mortal=self._mortal)
            return await scenario()

        result = self.world.run(run)
        assert not self.world.failures, self.world.failures
        return result

    # --- input ---

    async def configure(self, data: dict[str, str]) -> None:
        """Write the host configuration."""
        metadata = {"name": "host-config", "namespace": NAMESPACE, "uid": "config"}
        await self.observe(CONFIG_MAP, {"metadata": metadata, "data": data})

    async def observe(self, kind: Kind, obj: Object, *, deleted: bool = False) -> None:
        """Let the watcher observe `obj`."""
        self._version += 1
        await self.bus.publish(observed_object(kind, obj, version=self._version, deleted=deleted))

    async def observe_task_run(self, obj: Object) -> None:
        """Let the watcher observe a new or changed TaskRun."""
        await self.observe(TASK_RUN, obj)

    async def finish_task_run(self, obj: Object) -> None:
        """Let the watcher observe that a TaskRun is done."""
        await self.observe(TASK_RUN, done(obj))

    async def publish_synced(self) -> None:
        """Let the watcher say that it has listed the cluster."""
        await self.bus.publish(Synced(cluster="hub", epoch="1", kinds=[], at=self.world.now()))

    # --- output ---

    async def published_state(self, name: str) -> HostState | None:
        """The last published state of a TaskRun."""
        entry = self.server.latest("HOSTS", f"sluice.host.hub.team-a.{name}")
        return HostState.decode(entry.data) if entry else None

    async def wait_for(
        self, name: str, *states: str, seconds: float = 300, look_seconds: float = 0.1
    ) -> HostState:
        """Wait until one of `states` is published for a TaskRun."""

        async def reached() -> HostState | None:
            state = await self.published_state(name)
            return state if state is not None and state.state in states else None

        return await first_value(
            reached, f"{name} is not {states}", seconds=seconds, look_seconds=look_seconds
        )

    async def platform_record(self, platform: str) -> PlatformState | None:
        """The record of a platform."""
        entry = self.server.latest("HOSTS", self.record_subject(platform))
        return PlatformState.decode(entry.data) if entry else None

    def record_subject(self, platform: str) -> str:
        """The subject of a platform's record."""
        return PlatformState(cluster="hub", platform=platform, at=self.world.now()).subject

    async def is_record_empty(self, platform: str) -> bool:
        """Whether the record of a platform has no slots, machines and attempts."""
        record = await self.platform_record(platform)
        assert record is not None
        return (record.seats, record.machines, record.attempts) == ([], [], {})

    async def history(self) -> list[HostState]:
        """All published states of TaskRuns, oldest first."""
        states: list[HostState] = []
        await self._recall(states.append, self.bus.replay)
        return states

    async def task_runs_in_view(self) -> list[str]:
        """TaskRuns with a state in the view."""
        names: list[str] = []
        await self._recall(lambda state: names.append(state.name), self.bus.watch)
        return sorted(names)

    async def _recall(
        self,
        handle: Callable[[HostState], None],
        read: Callable[[str, str], AsyncGenerator[Entry | CaughtUp, None]],
    ) -> None:
        async with aclosing(read("HOSTS", "sluice.host.>")) as entries:
            async for entry in entries:
                if isinstance(entry, CaughtUp):
                    return
                handle(HostState.decode(entry.data))

    def living_machines(self) -> list[str]:
        """Names of machines that are not terminated."""
        return [vm.name for vm in self.cloud.alive("hub")]

    def metric(self, name: str, **labels: str) -> float | None:
        """The value of a machine metric; None if it is not exposed."""
        return self.registry.get_sample_value(f"multi_platform_controller_{name}", labels)


class HostHarness(ProvisionerHarness):
    """A provisioner that prepares and cleans fake hosts, and a patcher's key to seal for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.fleet = FakeFleet()
        self.hosts = FakeHosts(self.fleet)

    def run_with_patcher(
        self,
        scenario: Callable[[], Coroutine[Any, Any, None]],
        *,
        config: dict[str, str] = SSH_CONFIG,
    ) -> None:
        """Run `scenario` after the patcher has published its key."""

        async def with_patcher() -> None:
            await self.publish_key()
            await scenario()

        self.run(with_patcher, config=config)

    async def publish_key(self) -> None:
        """Publish the patcher's key."""
        key = public_key_of(PATCHER_KEY)
        await self.bus.publish(SealKey(cluster="hub", public_key=key, at=self.world.now()))

    def user_count(self) -> int:
        """Number of build users on all hosts."""
        return sum(len(users) for users in self.fleet.users.values())


def unseal(state: HostState) -> dict[str, str]:
    """The sealed part of a TaskRun's secret."""
    assert state.sealed is not None
    context = host_context(cluster="hub", namespace=state.namespace, name=state.name, uid=state.uid)
    content: dict[str, str] = json.loads(
        open_sealed(state.sealed, private_key=PATCHER_KEY, context=context)
    )
    return content
