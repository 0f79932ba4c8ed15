"""A kind that nobody wrote code for runs on another cluster than the one where it was submitted."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from services.simulator.scenarios.load import object_of
from services.simulator.scenarios.spokes.clusters import CHECK, MultiClusterSystem
from services.simulator.scenarios.spokes.judge import left_behind
from services.simulator.scenarios.system import CLUSTER
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.kube.port import NotFoundError
from shared.testing.waiting import eventually
from shared.testing.world.world import World
from tests.simulation.kinds.test_integrations import (
    CRD,
    DEFINITIONS,
    GADGET,
    condition,
    gadget,
    integration,
)
from tests.simulation.kinds.test_integrations import INTEGRATIONS as DOCUMENTS

SPOKES = ("spoke-1", "spoke-2")


async def furnish(system: MultiClusterSystem, *, knowing: tuple[str, ...]) -> None:
    """Everywhere a queue of four CPUs and the Gadget's definition; its Integration in some places."""
    for cluster in (CLUSTER, *system.spokes):
        kube = system.kubes[cluster]
        resources = [{"name": "cpu", "nominalQuota": "4"}]
        group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}
        spec: Object = {"namespaceSelector": {}, "resourceGroups": [group]}
        if cluster == CLUSTER:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
        await kube.create(DEFINITIONS, CRD)
        if cluster in knowing:
            await kube.create(DOCUMENTS, integration())
        for kind, obj in (
            (kinds.NAMESPACE, object_of(kinds.NAMESPACE, "team-a")),
            (kinds.RESOURCE_FLAVOR, object_of(kinds.RESOURCE_FLAVOR, "f", spec={})),
            (kinds.CLUSTER_QUEUE, object_of(kinds.CLUSTER_QUEUE, "cq", spec=spec)),
            (
                kinds.LOCAL_QUEUE,
                object_of(
                    kinds.LOCAL_QUEUE, "queue", namespace="team-a", spec={"clusterQueue": "cq"}
                ),
            ),
        ):
            await kube.create(kind, obj)
    await system.configure()


until = partial(eventually, seconds=300.0, look_seconds=0.5)
"""In the time of the simulated clusters."""


async def found(system: MultiClusterSystem, cluster: str, name: str) -> Object:
    try:
        return await system.kubes[cluster].get(GADGET, "team-a", name)
    except NotFoundError:
        return {}


async def runs(system: MultiClusterSystem, cluster: str, name: str) -> bool:
    spec = (await found(system, cluster, name)).get("spec") or {}
    return spec.get("suspend") is False


async def ends_at_home(system: MultiClusterSystem, name: str, *, on: str) -> None:
    """Play its controller on the spoke, and see what becomes of it at the hub."""
    await system.kubes[on].patch(
        GADGET, "team-a", name, condition("Complete"), subresource="status"
    )

    async def ended() -> bool:
        at_home = (await found(system, CLUSTER, name)).get("status") or {}
        return any(c["type"] == "Complete" for c in at_home.get("conditions") or [])

    await until(ended)


def played(
    drive: Callable[[MultiClusterSystem], Awaitable[None]],
    *,
    knowing: tuple[str, ...],
    later: bool = False,
) -> None:
    with World(1) as world:
        system = MultiClusterSystem(
            world, SPOKES, rules="queueName: queue\n", dispatcher={}, beat_seconds=5
        )

        async def act() -> None:
            if later:
                system.serve()
            await furnish(system, knowing=knowing)
            if not later:
                system.serve()
            await asyncio.sleep(30)
            await drive(system)

        world.run(act)
        assert world.failures == [], "\n".join(world.failures)


EVERYWHERE = (CLUSTER, *SPOKES)


def test_gadget_runs_on_a_spoke_and_its_end_reaches_the_hub() -> None:
    async def drive(system: MultiClusterSystem) -> None:
        await system.hub.kube.create(GADGET, gadget("one"))

        async def started() -> bool:
            return any([await runs(system, spoke, "one") for spoke in SPOKES])

        await until(started)
        assert not await runs(system, CLUSTER, "one"), "it does not run at home too"
        [on] = [spoke for spoke in SPOKES if await runs(system, spoke, "one")]
        await ends_at_home(system, "one", on=on)
        await asyncio.sleep(60)
        assert await left_behind(dict(system.kubes)) == []
        for spoke in SPOKES:
            assert not await found(system, spoke, "one"), f"a copy is left on {spoke}"

    played(drive, knowing=EVERYWHERE)


def test_integrations_added_at_runtime_take_effect() -> None:
    async def drive(system: MultiClusterSystem) -> None:
        await system.hub.kube.create(GADGET, gadget("one"))

        async def started() -> bool:
            return any([await runs(system, spoke, "one") for spoke in SPOKES])

        await until(started)

    played(drive, knowing=EVERYWHERE, later=True)


def test_spoke_without_the_kind_is_skipped() -> None:
    async def drive(system: MultiClusterSystem) -> None:
        await system.hub.kube.create(GADGET, gadget("one"))

        async def started() -> bool:
            return await runs(system, "spoke-2", "one")

        await until(started)
        assert not await found(system, "spoke-1", "one")
        await ends_at_home(system, "one", on="spoke-2")

    played(drive, knowing=(CLUSTER, "spoke-2"))


def test_copies_of_a_deleted_gadget_are_deleted() -> None:
    async def drive(system: MultiClusterSystem) -> None:
        await system.hub.kube.create(GADGET, gadget("one"))

        async def started() -> bool:
            return any([await runs(system, spoke, "one") for spoke in SPOKES])

        await until(started)
        await system.hub.kube.delete(GADGET, "team-a", "one")

        async def gone() -> bool:
            return not any([await found(system, spoke, "one") for spoke in SPOKES])

        await until(gone)

    played(drive, knowing=EVERYWHERE)
