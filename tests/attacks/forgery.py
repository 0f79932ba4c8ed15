"""Patchers of a spoke and a hub on a real bus, each beside a simulated cluster, and a forger of messages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import nats

from services.patcher import app as patcher
from services.patcher.cluster.writer import get_or_none
from services.patcher.machines.seal_key import SECRET_NAME
from services.patcher.settings import PatcherSettings
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.bus.nats.bus import NatsBus
from shared.bus.port import CaughtUp
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import RESOURCE_IN_USE
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.outcomes import DeadLetter
from shared.contracts.messages.spokes import CopyState
from shared.testing.nats_server import nats_server
from shared.testing.waiting import PATIENCE_SECONDS, eventually, first_value
from tests.attacks.ground import BreachError
from tests.clock import now
from tests.integration.buses import make

SPOKE, HUB = "east", "hub"
TENANT = "team-a"
CHANGING = (
    *(kinds.JOB, kinds.PIPELINE_RUN, kinds.WORKLOAD, kinds.SECRET, kinds.TASK_RUN, kinds.POD),
    *(kinds.LOCAL_QUEUE, kinds.CLUSTER_QUEUE, kinds.ADMISSION_CHECK, kinds.MULTIKUEUE_CLUSTER),
)
"""Kinds that a patcher may change."""


KEPT = (kinds.CLUSTER_QUEUE, kinds.RESOURCE_FLAVOR, kinds.ADMISSION_CHECK)


class Cluster:
    """One simulated cluster and its patcher."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kube = LocalKube(Api(now=now, random=Random(name)))
        self._running: list[tuple[NatsBus, asyncio.Task[None]]] = []

    async def furnish(self) -> None:
        await self.make(kinds.NAMESPACE, TENANT)
        for namespace in (TENANT, "kube-system"):
            spec = {"clusterQueue": "main"}
            await self.make(kinds.LOCAL_QUEUE, "main", namespace=namespace, spec=spec)

    async def make(
        self, kind: Kind, name: str, *, namespace: str | None = None, **more: Any
    ) -> Object:
        metadata: Object = {"name": name, **more.pop("metadata", {})}
        if namespace is not None:
            metadata["namespace"] = namespace
        if kind in KEPT:
            metadata["finalizers"] = [RESOURCE_IN_USE]  # The patcher would add it some time.
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **more}
        return await self.kube.create(kind, obj)

    async def contents(self) -> dict[str, Object]:
        """All objects that a patcher may change."""
        found = {}
        for kind in CHANGING:
            for obj in (await self.kube.list(kind)).items:
                metadata = obj["metadata"]
                found[f"{kind.kind} {metadata.get('namespace')}/{metadata['name']}"] = obj
        return found

    async def start(self, bus: NatsBus) -> None:
        settings = PatcherSettings(cluster=self.name, hub=HUB, not_seen_seconds=0.05)
        running = patcher.assemble(settings=settings, bus=bus, kube=self.kube, now=now)
        self.cache = running.cache
        await bus.start()
        self._running.append((bus, asyncio.create_task(running.run())))

    async def observes(self, kind: Kind, namespace: str | None, name: str) -> None:
        """Wait until the patcher has an object in its cache, and with it all that was observed before."""
        await eventually(lambda: self.cache.object(kind, namespace, name))

    async def stop(self) -> None:
        for bus, task in self._running:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await bus.stop()

    @property
    def works(self) -> bool:
        """Whether the patcher has not ended."""
        return all(not task.done() for _, task in self._running)


class Forgery:
    """The stage: a bus that lets everybody write, as for a service in an attacker's hands."""

    def __init__(self, bus: NatsBus, url: str) -> None:
        self.bus = bus
        self.url = url
        self.clusters = {name: Cluster(name) for name in (SPOKE, HUB)}

    @property
    def spoke(self) -> Cluster:
        return self.clusters[SPOKE]

    @property
    def hub(self) -> Cluster:
        return self.clusters[HUB]

    async def why_refused(self, message: Message) -> str:
        """Wait until a patcher refuses the message, as a dead letter or towards the hub; return why."""
        answer = message.subject.replace(".dispatch.", ".copy.", 1)
        earlier = await self.bus.latest("DISPATCHES", answer)
        sequence = await self.bus.publish(message)

        async def refusal() -> str | None:
            report = await self.bus.latest("DISPATCHES", answer)
            before = 0 if earlier is None else earlier.sequence
            if answer != message.subject and report is not None and report.sequence > before:
                return report.read(CopyState).message
            return await self._reason_of_death(message.subject, sequence)

        return await first_value(refusal, lambda: f"{message.subject} was not refused")

    async def until_unreadable_is_refused(self, subject: str) -> None:
        """Wait until a message that nobody can read, published now, is refused: earlier ones are handled."""
        nc = await nats.connect(self.url)
        try:
            header = {"ce-type": "dev.sluicegate.unreadable.v1"}
            ack = await nc.jetstream(timeout=PATIENCE_SECONDS).publish(
                subject, b"{", headers=header
            )
        finally:
            await nc.close()
        await first_value(partial(self._reason_of_death, subject, ack.seq))

    async def _reason_of_death(self, subject: str, sequence: int) -> str | None:
        async with aclosing(self.bus.replay("DEAD")) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    return None
                letter = item.read(DeadLetter)
                if (letter.original_subject, letter.original_sequence) == (subject, sequence):
                    return letter.reason
        return None

    async def contents(self) -> list[dict[str, Object]]:
        """All objects of the two clusters that a patcher may change."""
        return [await cluster.contents() for cluster in self.clusters.values()]

    async def judge(self, before: list[dict[str, Object]]) -> None:
        """Raise `BreachError` if anything changed since, or a patcher has ended."""
        if await self.contents() != before:
            raise BreachError("objects of a cluster changed")
        if not all(cluster.works for cluster in self.clusters.values()):
            raise BreachError("a patcher ended")


@asynccontextmanager
async def forgery() -> AsyncIterator[Forgery]:
    async with nats_server() as server:
        stage = Forgery(make(server, "attacker"), server.url)
        await stage.bus.start()
        for cluster in stage.clusters.values():
            await cluster.furnish()
            synced = Synced(cluster=cluster.name, epoch="1", kinds=[], at=now())
            await stage.bus.publish(synced)
            await cluster.start(make(server, f"patcher-{cluster.name}"))
        for cluster in stage.clusters.values():
            # Each patcher makes its key when it starts.
            await first_value(
                partial(get_or_none, cluster.kube, kinds.SECRET, "default", SECRET_NAME)
            )
        try:
            yield stage
        finally:
            for cluster in stage.clusters.values():
                await cluster.stop()
            await stage.bus.stop()
