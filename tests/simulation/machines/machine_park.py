"""Machines for a simulated cluster: a cloud in memory, and a provisioner that orders from it."""

from collections import Counter
from typing import Any, Final

from services.provisioner import app as provisioner
from services.provisioner.hosts.fake import FakeFleet, FakeHosts
from services.provisioner.providers.fake import FakeCloud, FakeProvider
from services.provisioner.settings import ProvisionerSettings
from services.simulator.scenarios.system import CLUSTER, System
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.world import ProcessContext

__all__ = ["SERVICES", "Park", "dynamic", "static"]

SERVICES: Final = ("watcher", "classifier", "quota", "patcher")
"""Those beside which a park is opened: the provisioner is its own."""

NAMESPACE: Final = "multi-platform-controller"


def dynamic(platform: str, maximum: int, **more: Any) -> dict[str, str]:
    """Keys of a platform whose machines are ordered one by one. The list of platforms is not among them."""
    given = {"type": "fake", "check-interval": "1", "max-instances": str(maximum), **more}
    prefix = f"dynamic.{platform.replace('/', '-')}."
    return {prefix + key: str(value) for key, value in given.items()}


def static(name: str, platform: str, concurrency: int) -> dict[str, str]:
    """Keys of a host that is always there."""
    host = {"address": f"10.0.0.{name.rpartition('-')[2]}", "platform": platform, "user": "root"}
    keys = {**host, "concurrency": str(concurrency), "secret": "ssh"}
    return {f"host.{name}.{key}": value for key, value in keys.items()}


class Park:
    """All machines of one cluster."""

    def __init__(self, system: System, **settings: Any) -> None:
        self.system = system
        self.cloud = FakeCloud(now=system.world.now, seed=system.world.seed)
        self.most: Counter[str] = Counter()
        """Platform to the most machines of it that there were at any look."""

        self.fleet = FakeFleet()
        """Hosts, and the users on them."""

        self._settings = settings

    async def open(self, config: dict[str, str]) -> None:
        """Write the host configuration and start the provisioner."""
        for kind, body in (
            (kinds.NAMESPACE, {"kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            (kinds.CONFIG_MAP, _config_map(config)),
        ):
            await self.system.kube.create(kind, {"apiVersion": "v1", **body})
        self.system.world.process("provisioner-1", self._serve)

    async def configure(self, config: dict[str, str]) -> None:
        """Write it anew."""
        patch = [{"op": "replace", "path": "/data", "value": config}]
        await self.system.kube.patch(kinds.CONFIG_MAP, NAMESPACE, "host-config", patch)

    def alive(self) -> list[str]:
        """Platforms of the machines that cost something now."""
        found = [vm.name for vm in self.cloud.alive(CLUSTER)]
        platforms = sorted(self.cloud.machines[name].order.platform for name in found)
        self.most |= Counter(platforms)
        return platforms

    async def _serve(self, context: ProcessContext) -> None:
        bus = MemoryBus(self.system.server, instance=context.instance, random=context.random)
        running = provisioner.assemble(
            settings=ProvisionerSettings(instance=context.instance, **self._settings),
            bus=bus,
            providers={"fake": FakeProvider(self.cloud)},
            hosts=FakeHosts(self.fleet),
            now=context.now,
            random=context.random,
            entropy=context.random.randbytes,
        )
        await bus.start()
        await running.run()


def _config_map(config: dict[str, str]) -> Object:
    labels = {"build.appstudio.redhat.com/multi-platform-config": "hosts"}
    metadata = {"name": "host-config", "namespace": NAMESPACE, "labels": labels}
    return {"kind": "ConfigMap", "metadata": metadata, "data": config}
