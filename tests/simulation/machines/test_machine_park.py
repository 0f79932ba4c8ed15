"""Many builds on few machines, from the TaskRun to its end: everybody is served, and in turn."""

import asyncio
from collections import Counter
from random import Random
from typing import Any

from services.simulator.scenarios.system import CLUSTER, System
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.hosts import HostState
from shared.contracts.simulation import DURATION
from shared.testing.world.world import World
from tests.simulation.machines.machine_park import Park, dynamic, static

HOSTS = {"power-1": 2, "power-2": 3, "power-3": 1}
MACHINES = 10
CONFIG = {
    "dynamic-platforms": "linux/arm64",
    "instance-tag": "park",
    **dynamic("linux/arm64", MACHINES, **{"ssh-secret": "ssh"}),
}
for name, concurrency in HOSTS.items():
    CONFIG |= static(name, "linux/ppc64le", concurrency)


def task_run(number: int, platform: str, seconds: int) -> Object:
    return {
        "apiVersion": kinds.TASK_RUN.api_version,
        "kind": kinds.TASK_RUN.kind,
        "metadata": {
            "name": f"build-{number:03}",
            "namespace": "team-a",
            "annotations": {DURATION: f"{seconds}s"},
        },
        "spec": {
            "params": [{"name": "PLATFORM", "value": platform}],
            "taskSpec": {"steps": [{"name": "build", "image": "builder"}]},
        },
    }


def succeeded(obj: Object) -> bool:
    conditions: list[Any] = (obj.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Succeeded" and c["status"] == "True" for c in conditions)


def told(system: System) -> list[HostState]:
    stored = system.server.streams["HOSTS"].messages.values()
    return [HostState.decode(one.data) for one in stored if one.subject.startswith("sluice.host.")]


def test_two_hundred_builds_on_three_hosts_and_ten_machines_are_served_in_order() -> None:
    with World(3) as world:
        system = System(world)
        park = Park(system)
        most: Counter[str] = Counter()

        async def watch() -> None:
            while True:
                park.alive()
                users = {host: len(park.fleet.on(host)) for host in HOSTS}
                for host, count in users.items():
                    most[host] = max(most[host], count)
                await asyncio.sleep(0.5)

        async def drive() -> list[Object]:
            for service in ("watcher", "patcher"):
                system.serve(service)
            await system.kube.create(
                kinds.NAMESPACE,
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
            )
            await park.open(CONFIG)
            watching = asyncio.create_task(watch())
            dice = Random("builds")
            for number in range(200):
                platform = ("linux/ppc64le", "linux/arm64")[number % 2]
                await system.kube.create(
                    kinds.TASK_RUN, task_run(number, platform, dice.randint(10, 60))
                )
                # Kubernetes' times are whole seconds: so much lies between two, for their order to be told.
                await asyncio.sleep(1.0)
            async with asyncio.timeout(4 * 3600):
                while True:
                    builds = (await system.kube.list(kinds.TASK_RUN, namespace="team-a")).items
                    if all(map(succeeded, builds)) and not any(
                        o["metadata"].get("finalizers") for o in builds
                    ):
                        break
                    await asyncio.sleep(5)
            watching.cancel()
            return list(builds)

        builds = world.run(drive)
        assert world.failures == []

    assert len(builds) == 200
    assert dict(most) == HOSTS, "every place was used, and none twice"
    assert park.most["linux/arm64"] == MACHINES
    assert park.cloud.alive(CLUSTER) == []
    assert not any(park.fleet.on(host) for host in HOSTS)
    assert len(park.cloud.machines) == 100, "a machine for each build"
    assert served(system, "linux/ppc64le") == sorted(served(system, "linux/ppc64le"))
    assert len(served(system, "linux/ppc64le")) == 100


def served(system: System, platform: str) -> list[str]:
    """Builds in the order in which they were given their place."""
    found: dict[str, None] = {}
    for state in told(system):
        if state.platform == platform and state.address:
            found[state.name] = None
    return list(found)


def test_fifty_builds_that_wait_for_one_slot_are_served_by_age() -> None:
    with World(4) as world:
        system = System(world)
        park = Park(system)

        async def drive() -> None:
            for service in ("watcher", "patcher"):
                system.serve(service)
            await system.kube.create(
                kinds.NAMESPACE,
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
            )
            await park.open(static("power-1", "linux/ppc64le", 1))
            for number in range(50):
                await system.kube.create(kinds.TASK_RUN, task_run(number, "linux/ppc64le", 60))
                await asyncio.sleep(1.0)
            async with asyncio.timeout(4 * 3600):
                while len(served(system, "linux/ppc64le")) < 50:  # noqa: ASYNC110 - virtual time
                    await asyncio.sleep(10)

        world.run(drive)
        assert world.failures == []
    assert served(system, "linux/ppc64le") == [f"build-{number:03}" for number in range(50)]
    waits = [state for state in told(system) if state.state == "waiting"]
    assert len({state.name for state in waits}) == 49
    assert {state.message for state in waits} == {"all hosts of linux/ppc64le are busy"}
