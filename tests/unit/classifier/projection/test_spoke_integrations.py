"""The Integration objects of a spoke have nothing evaluated at the hub."""

import asyncio
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
def test_choice_that_names_nothing_changes_nothing(spec: Any) -> None:
    projector = Projector("east", hub="hub")
    message = document("east", GADGETS)
    assert message.object is not None
    projector.observe(message.with_object({**message.object, "spec": spec}))
    assert projector.integration_kinds() == ()


def test_documents_of_the_hub_reach_clusters_that_appear_before_and_after_them() -> None:
    world = World(1)
    server = MemoryServer(world=world)

    async def serve(context: ProcessContext) -> None:
        bus = MemoryBus(server, instance=context.instance)
        await bus.start()
        await Projection(bus=bus, cluster="hub").run()

    async def play() -> None:
        bus = MemoryBus(server, instance="others")
        await bus.start()
        for cluster in ("hub", "east", "west"):
            await bus.publish(Synced(cluster=cluster, epoch="1", kinds=[], at=world.now()))
        await bus.publish(document("west", GADGETS, active="true"))
        await bus.publish(gadget("east"))
        await bus.publish(gadget("west"))
        world.process("classifier", serve)
        await asyncio.sleep(1)
        assert list(server.streams["WORKLOADS"].messages) == []
        await bus.publish(document("hub", GADGETS))
        await asyncio.sleep(1)
        await bus.publish(Synced(cluster="north", epoch="1", kinds=[], at=world.now()))
        await bus.publish(gadget("north"))
        await asyncio.sleep(1)

    try:
        world.run(play)
        assert not world.failures, world.failures
        logged = server.streams["WORKLOADS"].messages.values()
        read = [WorkloadState.decode(one.data, {TYPE: WorkloadState.type}) for one in logged]
        assert sorted((one.cluster, one.pods_active) for one in read) == [
            ("east", False),
            ("north", False),
            ("west", False),
        ]
    finally:
        world.close()
