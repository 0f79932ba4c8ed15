"""The Integration objects of a spoke have nothing evaluated at the hub."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from services.classifier.projection.handlers import Projection
from services.classifier.projection.projector import Projector
from shared.bus.headers import TYPE
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.workloads import WorkloadState
from shared.integrations import opted_documents
from shared.testing.builders import observed_object
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from shared.testing.world.world import ProcessContext, World
from tests.unit.classifier.projection.objects import QUEUE, Json, job

GADGET = Kind(group="example.com", version="v1", plural="gadgets", kind="Gadget")
[PODS] = opted_documents(["pod"])


def document(cluster: str, kind: Json, *, name: str = "one", **spec: Any) -> Observed:
    return observed_object(
        kinds.INTEGRATION,
        {
            "apiVersion": kinds.INTEGRATION.api_version,
            "kind": kinds.INTEGRATION.kind,
            "metadata": {"name": name, "uid": f"i-{cluster}", "resourceVersion": "1"},
            "spec": {
                "kind": kind,
                "podSets": [{"template": "spec.template", "count": "1"}],
                **spec,
            },
        },
        cluster=cluster,
    )


GADGETS = {"group": "example.com", "version": "v1", "kind": "Gadget", "plural": "gadgets"}
JOBS = {"group": "batch", "version": "v1", "kind": "Job", "plural": "jobs"}


def gadget(cluster: str = "east") -> Observed:
    obj = job() | {"apiVersion": "example.com/v1", "kind": "Gadget"}
    obj["metadata"] = obj["metadata"] | {"labels": QUEUE}
    return observed_object(GADGET, obj, cluster=cluster)


def states(*seen: Observed) -> list[WorkloadState]:
    projector = Projector("east", hub="hub")
    for each in seen:
        projector.observe(each)
    return [change.state for change in projector.changes()]


@pytest.mark.parametrize(("cluster", "counts"), [("east", False), ("hub", True)])
def test_kind_that_only_a_spoke_describes_is_not_read_at_the_hub(
    cluster: str, counts: bool
) -> None:
    assert bool(states(document(cluster, GADGETS), gadget())) is counts


@pytest.mark.parametrize(("cluster", "runs"), [("east", False), ("hub", True)])
def test_spoke_does_not_say_how_its_jobs_are_read(cluster: str, runs: bool) -> None:
    seen = observed_object(kinds.JOB, job(), cluster="east")
    [state] = states(document(cluster, JOBS, active="true"), seen)
    assert bool(state.pods_active) is runs


def test_spoke_chooses_kinds_whose_document_ships_and_not_what_it_says() -> None:
    projector = Projector("east", hub="hub")
    own = document("east", PODS["spec"]["kind"], name=PODS["metadata"]["name"], active="true")
    projector.observe(own)
    [pods] = projector.integration_kinds()
    assert (pods.group, pods.plural) == ("", "pods")
    [found] = [one for one in projector._integrations.states() if one.in_force is not None]
    assert found.obj["spec"] == PODS["spec"]
    projector.observe(own.ended())
    assert projector.integration_kinds() == ()


@pytest.mark.parametrize("spec", [None, {}, {"kind": 1}, {"kind": {"group": [], "plural": {}}}])
def test_spoke_choice_of_a_malformed_kind_changes_nothing(spec: Any) -> None:
    projector = Projector("east", hub="hub")
    message = document("east", GADGETS)
    assert message.object is not None
    projector.observe(message.with_object({**message.object, "spec": spec}))
    assert projector.integration_kinds() == ()


class Hub:
    """The classifier of the hub, and everybody who writes to its bus."""

    def __init__(self) -> None:
        self.world = World(1)
        self.server = MemoryServer(world=self.world)

    async def _serve(self, context: ProcessContext) -> None:
        bus = MemoryBus(self.server, instance=context.instance)
        await bus.start()
        await Projection(bus=bus, cluster="hub").run()

    def start(self) -> None:
        self.world.process("classifier", self._serve)

    def synced(self, cluster: str) -> Synced:
        return Synced(cluster=cluster, epoch="1", kinds=[], at=self.world.now())

    def said(self) -> list[tuple[str, bool | None]]:
        """Cluster of each workload that was said, and whether its pods are active."""
        logged = self.server.streams["WORKLOADS"].messages.values()
        read = [WorkloadState.decode(one.data, {TYPE: WorkloadState.type}) for one in logged]
        return sorted((one.cluster, one.pods_active) for one in read)

    def play(self, drive: Callable[[MemoryBus], Awaitable[None]]) -> None:
        async def play() -> None:
            bus = MemoryBus(self.server, instance="others")
            await bus.start()
            await drive(bus)

        try:
            self.world.run(play)
            assert not self.world.failures, self.world.failures
        finally:
            self.world.close()


def test_documents_of_the_hub_reach_clusters_that_appear_before_and_after_them() -> None:
    hub = Hub()

    async def drive(bus: MemoryBus) -> None:
        for cluster in ("hub", "east", "west"):
            await bus.publish(hub.synced(cluster))
        await bus.publish(document("west", GADGETS, active="true"))
        await bus.publish(gadget("east"))
        await bus.publish(gadget("west"))
        hub.start()
        await asyncio.sleep(1)
        assert hub.said() == []
        await bus.publish(document("hub", GADGETS))
        await asyncio.sleep(1)
        await bus.publish(hub.synced("north"))
        await bus.publish(gadget("north"))
        await asyncio.sleep(1)

    hub.play(drive)
    assert hub.said() == [("east", False), ("north", False), ("west", False)]


def test_documents_that_were_there_first_are_followed_from_the_start() -> None:
    hub = Hub()

    async def drive(bus: MemoryBus) -> None:
        await bus.publish(document("hub", GADGETS))
        await bus.publish(gadget("hub"))
        await bus.publish(gadget("east"))
        for cluster in ("hub", "east"):
            await bus.publish(hub.synced(cluster))
        hub.start()
        await asyncio.sleep(1)

    hub.play(drive)
    assert hub.said() == [("east", False), ("hub", False)]
