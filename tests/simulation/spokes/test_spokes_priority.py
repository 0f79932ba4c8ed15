"""A job whose priority class is changed at the hub goes first where its copy waits."""

import asyncio

from services.simulator.scenarios.load import object_of
from services.simulator.scenarios.spokes.clusters import CHECK, MultiClusterSystem
from services.simulator.scenarios.system import CLUSTER
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.integrations import JOB
from shared.kube.port import Kube
from shared.testing.world.world import World
from tests.simulation.spokes.stock_kueue import NAMESPACE, StockSpoke
from tests.simulation.spokes.test_spokes_stock import (
    MANAGED,
    RULES,
    a_job,
    ended_at_home,
    queues,
    until,
    with_stock_spoke,
)

LABEL = "kueue.x-k8s.io/priority-class"
VALUES = {"low": 10, "high": 100}
SPOKE = "east"


async def classes(kube: Kube) -> None:
    for name, value in VALUES.items():
        obj = object_of(kinds.WORKLOAD_PRIORITY_CLASS, name) | {"value": value}
        await kube.create(kinds.WORKLOAD_PRIORITY_CLASS, obj)


def low(name: str, *, seconds: int = 60) -> Object:
    job = a_job(name, seconds=seconds, managedBy=MANAGED)
    job["metadata"]["labels"][LABEL] = "low"
    return job


async def raise_to(system: MultiClusterSystem, name: str, class_: str) -> None:
    """What its user does, at the hub."""
    change = {"metadata": {"labels": {LABEL: class_}}}
    await system.hub.kube.patch(kinds.JOB, NAMESPACE, name, change)


async def priorities(kube: Kube) -> dict[str, tuple[int, str]]:
    """Of the cluster's Workloads, by the end of their jobs' names."""
    found = (await kube.list(kinds.WORKLOAD, namespace=NAMESPACE)).items
    return {
        one["metadata"]["name"].split("-")[1]: (
            one["spec"]["priority"],
            one["spec"]["priorityClassRef"]["name"],
        )
        for one in found
    }


def test_raised_priority_overtakes_earlier_workloads_on_a_sluicegate_spoke() -> None:
    async def drive(system: MultiClusterSystem) -> None:
        east = system.kubes[SPOKE]

        async def copies() -> dict[str, Object]:
            found = (await east.list(kinds.JOB, namespace=NAMESPACE)).items
            return {one["metadata"]["name"]: one for one in found}

        async def runs(name: str) -> bool:
            copy = (await copies()).get(name)
            return copy is not None and JOB.active(copy)

        for name in ("first", "second", "third"):
            await system.hub.kube.create(kinds.JOB, low(name, seconds=100))
            await asyncio.sleep(5)
        await until(lambda: runs("first"))
        assert set(await copies()) == {"first", "second", "third"}, "two wait"
        await raise_to(system, "third", "high")
        await asyncio.sleep(5)
        expected = {"first": (10, "low"), "second": (10, "low"), "third": (100, "high")}
        assert await priorities(east) == await priorities(system.hub.kube) == expected
        await until(lambda: runs("third"))
        assert not await ended_at_home(system, "second")
        assert not await runs("second")
        await raise_to(system, "third", "low")
        await asyncio.sleep(5)
        assert (await priorities(east))["third"] == (10, "low"), "also while it runs"
        await until(lambda: ended_at_home(system, "first", "second", "third"))

    with World(1) as world:
        system = MultiClusterSystem(world, (SPOKE,), rules=RULES, dispatcher={}, beat_seconds=5)

        async def act() -> None:
            await queues(system.hub.kube, cpu="8", check=CHECK)
            await queues(system.kubes[SPOKE], cpu="1")
            for kube in system.kubes.values():
                await classes(kube)
            await system.configure()
            system.serve()
            await asyncio.sleep(30)
            await drive(system)

        world.run(act)
        assert world.failures == [], "\n".join(world.failures)


def test_kueue_spoke_gets_the_priority_class_and_its_value_at_the_hub() -> None:
    async def drive(system: MultiClusterSystem, kueue: StockSpoke) -> None:
        await classes(system.kubes[CLUSTER])
        await system.hub.kube.create(kinds.JOB, low("one"))

        async def there() -> dict[str, tuple[int, str]]:
            return await priorities(kueue.kube)

        await until(there)
        assert await there() == {"one": (10, "low")}
        await raise_to(system, "one", "high")
        await asyncio.sleep(5)
        assert await there() == {"one": (100, "high")}
        worth = {"value": 101}
        await system.hub.kube.patch(kinds.WORKLOAD_PRIORITY_CLASS, None, "high", worth)
        await asyncio.sleep(5)
        assert await there() == {"one": (101, "high")}
        kueue.slots = 1

        async def started() -> bool:
            return await kueue.get(kinds.JOB, "one") is not None

        await until(started)
        job = await kueue.get(kinds.JOB, "one")
        assert job is not None
        assert job["metadata"]["labels"][LABEL] == "high"
        await until(lambda: ended_at_home(system, "one"))

    with_stock_spoke(drive, slots=0)
