"""Clocks that are ten minutes apart: of the hub's services, of the spokes' pairs, each by itself."""

import asyncio

import pytest

from services.simulator.scenarios.spokes.clusters import MultiClusterSystem
from services.simulator.scenarios.spokes.judge import PodObserver, left_behind
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.simulation import DURATION
from shared.integrations import PIPELINE_RUN
from shared.testing.world.world import Faults, World
from tests.conformance.seeds.test_spokes_multikueue import QUEUE, SPOKES, furnish, run

RULES = f"queueName: {QUEUE}\nmultiKueueOverride: true\n"
APART = Faults(skew_seconds=600)
RUNS = 6
LEASES = {
    "redispatch": "afterLease",
    "silent_seconds": 15.0,
    "worker_lost_timeout_seconds": 70.0,
    "stop_seconds": 20.0,
    "patcher_down_seconds": 20.0,
}


def long_run(number: int) -> Object:
    """It still runs when the lease is over: what ended meanwhile would begin anew too, and rightly."""
    obj = run(number)
    obj["metadata"]["annotations"][DURATION] = "150s"
    return obj


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("cut", [False, True], ids=["nothing is cut", "a spoke is cut for long"])
def test_jobs_run_once_and_report_to_the_hub_with_skewed_clocks(seed: int, cut: bool) -> None:
    with World(seed, faults=APART) as world:
        system = MultiClusterSystem(world, SPOKES, rules=RULES, dispatcher=LEASES, beat_seconds=5)
        observer = PodObserver(system.apis, world.loop.time)

        async def drive() -> list[Object]:
            await furnish(system)
            system.serve()
            await asyncio.sleep(60)
            for number in range(RUNS):
                await system.hub.kube.create(kinds.PIPELINE_RUN, long_run(number))
            if cut:
                await asyncio.sleep(10)
                for process in system.pair(SPOKES[0]):
                    world.partition(process, "bus", seconds=200)
            await asyncio.sleep(600)
            assert await left_behind(dict(system.kubes)) == []
            return (await system.hub.kube.list(kinds.PIPELINE_RUN)).items

        runs = world.run(drive)
        assert world.failures == []
    assert observer.problems == [], "no run has two running copies"
    finishes = [PIPELINE_RUN.finish(one) for one in runs]
    assert [f is not None and f.success for f in finishes] == [True] * RUNS
    twice = [places for places in observer.ran.values() if len(places) > 1]
    assert bool(twice) is cut, "what was cut off began anew elsewhere, and nothing else did"
