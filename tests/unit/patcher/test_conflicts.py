"""A write whose object another replica has changed: it is made again only for a reason that still holds."""

from random import Random

import pytest

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.pacing import WriteLoad
from services.patcher.cluster.writer import Writer
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.bus.port import LaterError
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.kube.port import Patch
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer
from tests.unit.patcher.stage import NOON

TEAM, NAME = "team", "queue"


class Shared(LocalKube):
    """A cluster in which another replica writes a newer decision while ours reads the object afresh."""

    is_decided = False

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        self.is_decided = True
        await self.patch(kind, namespace, name, {"metadata": {"labels": {"decision": "newer"}}})
        return await super().get(kind, namespace, name)

    async def check_is_last(self) -> None:
        """As the patcher asks the log for the last decision."""
        if self.is_decided:
            raise LaterError("there is a newer decision")


def older(current: Object) -> Patch:
    version = current["metadata"]["resourceVersion"]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/metadata/labels/decision", "value": "older"},
    ]


async def test_newer_decision_written_during_the_fresh_read_is_not_taken_back() -> None:
    kube = Shared(Api(now=lambda: NOON, random=Random(1)))
    writer = Writer(
        kube=kube,
        cache=ObjectCache(bus=MemoryBus(MemoryServer(), instance="test"), cluster="hub"),
        load=WriteLoad(),
    )
    await kube.create(kinds.NAMESPACE, {"metadata": {"name": TEAM}})
    metadata = {"name": NAME, "namespace": TEAM, "labels": {"decision": "none"}}
    queue = {"metadata": metadata, "spec": {"clusterQueue": "cq"}}
    seen = await kube.create(kinds.LOCAL_QUEUE, queue)
    await kube.patch(kinds.LOCAL_QUEUE, TEAM, NAME, {"metadata": {"labels": {"by": "another"}}})
    with pytest.raises(LaterError, match="a newer decision"):
        await writer.patch(kinds.LOCAL_QUEUE, seen, older, on_conflict=kube.check_is_last)
    stored = await super(Shared, kube).get(kinds.LOCAL_QUEUE, TEAM, NAME)
    assert stored["metadata"]["labels"]["decision"] == "newer"
