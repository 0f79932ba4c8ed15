"""NATS comes back with an empty disk while quota and a patcher run, on a real server."""

import asyncio
import shutil
from datetime import UTC, datetime
from typing import Any

from services.patcher.cluster.cache import ObjectCache
from services.quota.app import assemble
from services.quota.settings import QuotaSettings
from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.port import Bus, Entry, LogChangedError
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.observed import Synced
from shared.testing.builders import observed, workload
from shared.testing.waiting import PATIENCE_SECONDS, eventually
from tests.integration.buses import make

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SETTINGS = QuotaSettings(reason_delay_seconds=0)


class Patcher:
    """A cache and durable work, and what the work was told to carry out."""

    def __init__(self, bus: NatsBus) -> None:
        self.bus = bus
        self.carried_out: list[tuple[str, str, int]] = []
        self._cache = ObjectCache(bus=bus, cluster="hub")
        bus.work(
            "ADMISSIONS", "patcher-hub-admission", self._handle, filters=("sluice.admission.hub.>",)
        )

    async def _handle(self, entry: Entry) -> None:
        # As the patcher does: what the cache knows is newer than the entry, or the entry itself.
        admission = self._cache.apply_admission(entry)
        self.carried_out.append((admission.name, admission.state, admission.epoch))

    async def run(self) -> None:
        await self._cache.run_admissions()


async def cluster(bus: Bus, *names: str) -> None:
    """What a watcher and the projection write."""
    flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    objects: tuple[tuple[Kind, str, dict[str, Any], str | None], ...] = (
        (kinds.NAMESPACE, "team", {}, None),
        (kinds.RESOURCE_FLAVOR, "f", {}, None),
        (kinds.CLUSTER_QUEUE, "cq", {"namespaceSelector": {}, "resourceGroups": [group]}, None),
        (kinds.LOCAL_QUEUE, "q", {"clusterQueue": "cq"}, "team"),
    )
    for version, (kind, name, spec, namespace) in enumerate(objects, start=1):
        await bus.publish(observed(kind, name, spec, namespace, version=version))
    for name in names:
        await bus.publish(workload(name, queue="q"))
    await bus.publish(Synced(cluster="hub", epoch="1", kinds=[], at=NOON))


async def test_decisions_after_an_empty_disk_are_carried_out(server: EmbeddedServer) -> None:
    world, leader, patcher = (
        make(server, "world"),
        make(server, "quota-a"),
        Patcher(make(server, "p")),
    )
    for bus in (world, leader, patcher.bus):
        await bus.start()
    quota = assemble(settings=SETTINGS, bus=leader, now=lambda: datetime.now(UTC))
    leading = asyncio.create_task(quota.run())
    patching = asyncio.create_task(patcher.run())
    await cluster(world, "b", "c", "a")
    await eventually(lambda: {"a", "b", "c"} <= {name for name, *_ in patcher.carried_out})
    epoch = patcher.carried_out[-1][2]

    await server.kill()
    shutil.rmtree(server._directory / "jetstream")
    await server.start()
    await apply_at(server.url)
    await eventually(lambda: world.connected)
    # The same workload, at a lower sequence than the one that the patcher remembers.
    await cluster(world, "a")

    await eventually(lambda: patcher.carried_out[-1][2] > epoch)
    assert patcher.carried_out[-1][:2] == ("a", "admitted")
    done, _ = await asyncio.wait({patching}, timeout=PATIENCE_SECONDS)
    assert done, "the patcher's process ends, and the next one begins with an empty cache"
    assert isinstance(patching.exception(), LogChangedError)
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    for bus in (world, leader, patcher.bus):
        await bus.stop()
