"""Who nominates: the dispatcher, which says so at the hub, or a program of somebody else's."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from services.simulator.scenarios.spokes.clusters import MultiClusterSystem
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.integrations import PIPELINE_RUN
from shared.testing.world.world import World
from tests.conformance.seeds.test_spokes_multikueue import QUEUE, SPOKES, furnish, run

RULES = f"queueName: {QUEUE}\nmultiKueueOverride: true\n"
WARM_SECONDS = 60
NOBODYS_SECONDS = 30
END_SECONDS = 120


async def workload(system: MultiClusterSystem) -> Object:
    [found] = (await system.hub.kube.list(kinds.WORKLOAD)).items
    return found


async def nominate(system: MultiClusterSystem, *names: str) -> None:
    """What another program does."""
    metadata = (await workload(system))["metadata"]
    await system.hub.kube.patch(
        kinds.WORKLOAD,
        metadata["namespace"],
        metadata["name"],
        {"status": {"nominatedClusterNames": list(names)}},
        subresource="status",
    )


async def copies(system: MultiClusterSystem) -> list[str]:
    """The spokes that have one."""
    return [s for s in SPOKES if (await system.kubes[s].list(kinds.PIPELINE_RUN)).items]


def play(dispatcher: str, drive: Callable[[MultiClusterSystem], Coroutine[Any, Any, None]]) -> None:
    with World(1) as world:
        settings = {"dispatcher": dispatcher}
        system = MultiClusterSystem(world, SPOKES, rules=RULES, dispatcher=settings, beat_seconds=5)

        async def play() -> None:
            await furnish(system)
            system.serve()
            await asyncio.sleep(WARM_SECONDS)
            await system.hub.kube.create(kinds.PIPELINE_RUN, run(1))
            await drive(system)
            [ended] = (await system.hub.kube.list(kinds.PIPELINE_RUN)).items
            finish = PIPELINE_RUN.finish(ended)
            assert finish is not None
            assert finish.success

        world.run(play)
        assert world.failures == []


def test_only_the_configured_external_dispatcher_nominates() -> None:
    async def drive(system: MultiClusterSystem) -> None:
        await asyncio.sleep(NOBODYS_SECONDS)
        assert await copies(system) == []
        status = (await workload(system))["status"]
        [check] = status["admissionChecks"]
        assert (check["state"], check["message"]) == (
            "Pending",
            "The workload waits for a nomination",
        )

        await nominate(system, "nowhere", SPOKES[1])
        await asyncio.sleep(5)
        assert await copies(system) == [SPOKES[1]]
        status = (await workload(system))["status"]
        assert status["clusterName"] == SPOKES[1]
        assert "nominatedClusterNames" not in status
        await asyncio.sleep(END_SECONDS)

    play("example.com/mine", drive)


def test_nominated_clusters_are_in_the_hub_status_until_one_is_chosen() -> None:
    async def drive(system: MultiClusterSystem) -> None:
        said: list[Object] = []
        for _ in range(200):
            found = (await system.hub.kube.list(kinds.WORKLOAD)).items
            said += [one.get("status") or {} for one in found]
            await asyncio.sleep(0.01)
        assert [*SPOKES] in [status.get("nominatedClusterNames") for status in said]
        assert said[-1]["clusterName"] in SPOKES
        assert "nominatedClusterNames" not in said[-1]
        await asyncio.sleep(END_SECONDS)

    play("kueue.x-k8s.io/multikueue-dispatcher-all-at-once", drive)
