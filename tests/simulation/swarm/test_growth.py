"""What a live service keeps depends on what lives: many short workloads come and go, and nothing is left.

`GROWTH=5000` plays as many as a busy day has; by default it is enough to see what only grows.
"""

import asyncio
import gc
import os
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from services.simulator.scenarios import load
from services.simulator.scenarios.port import Verdict, run_world
from services.simulator.scenarios.system import System
from shared.contracts.kube import kinds
from shared.integrations import integration_for
from shared.testing.waiting import eventually
from shared.testing.world.world import World

SERVICES: Final = ("watcher", "classifier", "quota", "patcher", "dispatcher", "provisioner")
WORKLOADS: Final = int(os.environ.get("GROWTH", "120"))
"""Of each of two rounds, whose remains are compared."""

EVER_SECONDS: Final = 600.0
"""Of virtual time."""

AT_ONCE: Final = 20
FORGOTTEN_SECONDS: Final = 120.0
SETTINGS: Final = {"quota": {"forget_seconds": 10}, "dispatcher": {"forget_seconds": 10}}

MARGIN: Final = WORKLOADS // 4
"""Growth that is none: what is kept of a quarter of the workloads is kept of all of them."""

BOUNDED: Final = {
    "DigestCache._entries": "the least recent are dropped, by number and by size",
    "EventRecorder._written": "the least recent are dropped",
    "PodSet.": "held by DigestCache",
    "Shard.ended": "the oldest are dropped",
    "View.": "held by Remembered, by number and by size",
    "Worker._applied": "the least recent are dropped",
    "_ResolvedPodSets.": "held by DigestCache",
}
"""What may grow, up to a bound that this test does not reach: beginnings of names."""


def test_services_keep_nothing_of_workloads_that_are_gone() -> None:
    kept: list[Counter[str]] = []
    verdict = Verdict(seed=1)
    with World(1) as world:
        system = System(world, settings=SETTINGS)
        run_world(world, lambda: play(system, kept), verdict)
    assert verdict.problems == []
    first, second = kept
    grown = {
        name: (first[name], size)
        for name, size in second.items()
        if size > first[name] + MARGIN and not name.startswith(tuple(BOUNDED))
    }
    assert grown == {}


async def play(system: System, kept: list[Counter[str]]) -> None:
    random = Random("growth")
    for kind, obj in load.queues(random):
        await system.kube.create(kind, obj)
    for service in SERVICES:
        system.serve(service)
    await asyncio.sleep(5)
    for number in range(2):
        for begin in range(0, WORKLOADS, AT_ONCE):
            await come_and_go(system, random, number * WORKLOADS + begin)
        await asyncio.sleep(FORGOTTEN_SECONDS)
        kept.append(sizes())
        for log in ("ADMISSIONS", "OUTCOMES", "WORKLOADS"):
            kept[-1][f"view of {log}"] = len(system.server.view(log).messages)


async def come_and_go(system: System, random: Random, begin: int) -> None:
    """Submit some jobs, wait until they have ended, and delete them."""
    half = AT_ONCE // 2
    submitted = []
    for one in load.arrivals(random, runs=half, jobs=half, seconds=1):
        one.job["metadata"]["name"] += f"-{begin}"
        created = await system.kube.create(one.kind, one.job)
        submitted.append((one.kind, created["metadata"]))
    for kind, metadata in submitted:
        integration = integration_for(group=kind.group, kind=kind.kind)
        assert integration is not None
        where = (kind, metadata["namespace"], metadata["name"])

        async def finished(where: Any = where, integration: Any = integration) -> bool:
            return integration.finish(await system.kube.get(*where)) is not None

        await eventually(finished, seconds=EVER_SECONDS, look_seconds=1)
    for kind, metadata in submitted:
        await system.kube.delete(kind, metadata["namespace"], metadata["name"])

    async def gone() -> bool:
        return not (await system.kube.list(kinds.WORKLOAD)).items

    await eventually(gone, seconds=EVER_SECONDS, look_seconds=1)


def sizes() -> Counter[str]:
    """How many things the objects of our services keep, by class and attribute."""
    gc.unfreeze()  # Else what modules keep would not be among the objects.
    gc.collect()
    found: Counter[str] = Counter()
    for thing in gc.get_objects():
        module = str(type(thing).__module__)
        if module.startswith(("services.", "shared.")) and not module.startswith(
            ("services.simulator", "shared.testing")
        ):
            for name, value in attributes(thing):
                if isinstance(value, dict | set | list | deque | OrderedDict):
                    found[f"{type(thing).__name__}.{name}"] += weight(value)
    return found


def attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(thing, "__dict__", {}).items()
    for base in type(thing).__mro__:
        for name in getattr(base, "__slots__", ()):
            if hasattr(thing, name):
                yield name, getattr(thing, name)


def weight(value: Any) -> int:
    """Its items, and those of containers in it."""
    inside = value.values() if isinstance(value, dict) else value
    return len(value) + sum(len(one) for one in list(inside) if isinstance(one, dict | set | list))
