"""A spoke whose agent is in an attacker's hands: it publishes what its user may, and none of it is so."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

from services.simulator.scenarios.spokes.clusters import MultiClusterSystem
from services.simulator.scenarios.system import CLUSTER
from services.watcher.observe import observed, tombstone
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.spokes import Beat, CopyState
from shared.contracts.refs import WorkloadRef
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.world import ProcessContext

FLOOD: Final = 40
"""Messages of one flood."""

EVERY_SECONDS: Final = 1.5
SUCCESS: Final[dict[str, Any]] = {
    "succeeded": 1,
    "conditions": [
        {"type": "Complete", "status": "True", "reason": "CompletionsReached"},
        {"type": "Succeeded", "status": "True", "reason": "Succeeded"},
    ],
}


class LyingSpoke:
    """Lies about the work of all spokes, under its own name: other subjects its user may not write."""

    def __init__(self, system: MultiClusterSystem, spoke: str, *, until_seconds: float) -> None:
        self.spoke = spoke
        self._system = system
        self._until_seconds = until_seconds
        self._random = Random(f"liar/{system.world.seed}")
        self._lies: tuple[Callable[[MemoryBus, Dispatch], Awaitable[None]], ...] = (
            self._report_copy,
            self._show_job,
            self._show_workload,
            self._report_outcome,
            self._beat,
            self._flood,
        )

    def start(self) -> None:
        """Begin to lie, beside the spoke's own services."""
        self._system.world.process(f"liar-{self.spoke}", self._run, mortal=False)

    def orders(self) -> list[Dispatch]:
        """Return all orders on the log."""
        stored = self._system.hub.server.streams[Dispatch.stream].messages.values()
        return [
            Dispatch.decode(one.data, one.headers)
            for one in stored
            if one.headers["ce-type"] == Dispatch.type
        ]

    def own_work(self) -> set[WorkloadRef]:
        """Return the workloads that were ordered from this spoke: about these it may lie."""
        return {order.ref for order in self.orders() if order.spoke == self.spoke}

    async def _run(self, context: ProcessContext) -> None:
        bus = MemoryBus(self._system.hub.server, instance=context.instance, random=self._random)
        await bus.start()
        loop = asyncio.get_running_loop()
        while loop.time() < self._until_seconds:
            await asyncio.sleep(self._random.expovariate(1 / EVERY_SECONDS))
            orders = self.orders()
            if orders:
                await self._random.choice(self._lies)(bus, self._random.choice(orders))
        await asyncio.Event().wait()

    async def _report_copy(self, bus: MemoryBus, order: Dispatch) -> None:
        lie = CopyState(
            spoke=self.spoke,
            cluster=order.cluster,
            namespace=order.namespace,
            name=order.name,
            uid=order.uid,
            number=order.number + self._random.choice((0, 0, 1, 99)),
            state=self._random.choice(("gone", "taken", "refused")),
            ended=self._random.choice((None, SUCCESS)),
            message="so it is",
            at=self._system.world.now(),
        )
        await bus.publish(lie)

    async def _show_job(self, bus: MemoryBus, order: Dispatch) -> None:
        """Show a copy that has succeeded, or one that is gone."""
        if order.job is None or order.target is None:
            return
        copied = order.job["metadata"]
        metadata = {
            "name": order.target.name,
            "labels": copied.get("labels") or {},
            "annotations": copied.get("annotations") or {},
        }
        await self._show(bus, order.target.as_kind(), order.namespace, metadata, status=SUCCESS)

    async def _show_workload(self, bus: MemoryBus, order: Dispatch) -> None:
        conditions = [
            {"type": type_, "status": "True", "reason": "Lie", "message": ""}
            for type_ in ("QuotaReserved", "Admitted", self._random.choice(("Finished", "Evicted")))
        ]
        status = {"conditions": conditions}
        await self._show(bus, kinds.WORKLOAD, order.namespace, {"name": order.name}, status=status)

    async def _show(
        self, bus: MemoryBus, kind: Kind, namespace: str, metadata: Object, *, status: Object
    ) -> None:
        number = self._random.getrandbits(30)
        stamped = {
            **metadata,
            "namespace": namespace,
            "uid": f"lie-{number}",
            "resourceVersion": str(number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        body = as_body(
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": stamped,
                "spec": {},
                "status": status,
            }
        )
        is_gone = self._random.random() < 1 / 4
        await bus.publish((tombstone if is_gone else observed)(self.spoke, kind, body))

    async def _report_outcome(self, bus: MemoryBus, order: Dispatch) -> None:
        lie = Outcome(
            cluster=self.spoke,
            namespace=order.namespace,
            name=order.name,
            uid=order.uid,
            result=self._random.choice(("applied", "refused", "gone")),
            action=self._random.choice(("release", "suspend", "hold")),
            term=self._random.choice((0, 1)),
            number=order.attempt,
            at=self._system.world.now(),
        )
        await bus.publish(lie)

    async def _beat(self, bus: MemoryBus, _order: Dispatch) -> None:
        """Claim to be another cluster, or to have a Kueue."""
        space = await self._system.kubes[self._random.choice((CLUSTER, *self._system.spokes))].get(
            kinds.NAMESPACE, None, "kube-system"
        )
        lie = Beat(
            spoke=self.spoke,
            instance=self._random.choice(("liar", f"patcher-{self.spoke}.1")),
            number=self._random.choice((1, 10**6)),
            quota=self._random.choice(("hub", "kueue")),
            api=self._random.random() < 1 / 2,
            identity=space["metadata"]["uid"],
            at=self._system.world.now(),
        )
        await bus.publish(lie)

    async def _flood(self, bus: MemoryBus, order: Dispatch) -> None:
        for number in range(FLOOD):
            name = {"name": f"flood-{number}"}
            await self._show(bus, kinds.JOB, order.namespace, name, status=SUCCESS)
