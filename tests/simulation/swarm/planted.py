"""A small service with and without a mistake, in a world that finds it.

It carries orders out: for each WorkloadState that waits it creates a ConfigMap. The careless one
acknowledges before it acts, which nobody notices until it dies in between.
"""

import asyncio
from datetime import UTC, datetime
from random import Random

from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from services.simulator.scenarios.port import Verdict
from shared.bus.port import Entry
from shared.contracts.kube import kinds
from shared.contracts.messages.workloads import WorkloadState
from shared.kube.port import AlreadyExistsError
from shared.testing.world.kube import WorldKube
from shared.testing.world.memory_bus import MemoryBus, MemoryServer
from shared.testing.world.world import Faults, ProcessContext, World

ORDERS = 20
AT = datetime(2026, 1, 1, tzinfo=UTC)
FAULTS = Faults(
    until_seconds=30,
    crash=0.01,
    delay=0.05,
    lost_request=0.01,
    lost_answer=0.02,
    duplicate=0.2,
    unavailable=0.1,
    kill_every_seconds=6,
    partition_every_seconds=15,
    bus_restart_every_seconds=20,
)


def order(number: int) -> WorkloadState:
    return WorkloadState(
        cluster="hub",
        namespace="default",
        name=f"order-{number}",
        uid=f"uid-{number}",
        phase="waiting",
        created_at=AT,
    )


class Executor:
    """Creates a ConfigMap for each order."""

    def __init__(self, kube: WorldKube, *, careless: bool) -> None:
        self._kube = kube
        self._careless = careless
        self._later: list[asyncio.Task[None]] = []

    async def on_order(self, entry: Entry) -> None:
        state = WorkloadState.decode(entry.data)
        if self._careless:
            self._later.append(asyncio.create_task(self._create(state.name)))
        else:
            await self._create(state.name)

    async def _create(self, name: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": name},
        }
        try:
            await self._kube.create(kinds.CONFIG_MAP, body)
        except AlreadyExistsError:
            return  # Created before, though nobody was told.


def play(seed: int, *, careless: bool) -> Verdict:
    verdict = Verdict(seed=seed)
    with World(seed, faults=FAULTS) as world:
        server = MemoryServer(world=world)
        api = Api(now=world.now, random=Random(seed))

        async def execute(context: ProcessContext) -> None:
            bus = MemoryBus(server, instance=context.instance, random=context.random)
            kube = WorldKube(LocalKube(api), world, cluster="hub")
            executor = Executor(kube, careless=careless)
            bus.work("WORKLOADS", "executor", executor.on_order)
            await bus.start()
            await asyncio.Event().wait()

        async def order_all(context: ProcessContext) -> None:
            bus = MemoryBus(server, instance=context.instance)
            await bus.start()
            for number in range(ORDERS):
                await bus.publish(order(number))
                await asyncio.sleep(1)
            await asyncio.Event().wait()

        async def drive() -> None:
            await asyncio.sleep(200)
            created = await LocalKube(api).list(kinds.CONFIG_MAP, namespace="default")
            names = {item["metadata"]["name"] for item in created.items}
            verdict.problems = [
                f"order-{number} was acknowledged and never carried out"
                for number in range(ORDERS)
                if f"order-{number}" not in names
            ]

        world.process("executor", execute)
        world.process("customer", order_all, mortal=False)
        world.start_faults(
            parties=("bus", "hub"), bus_restart=lambda: server.restart(down_seconds=1.0)
        )
        world.run(drive)
        verdict.log = world.log
    return verdict
