"""A quota service on a real server that explains workloads."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from services.console.view import View
from services.quota.app import assemble
from services.quota.queries.replica import ReadReplica
from services.quota.settings import QuotaSettings
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.explain import (
    ExplainAnswer,
    ExplainRequest,
    Explanation,
)
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.workloads import PodSet, WorkloadState
from shared.testing.builders import cluster_queue_spec, observed
from shared.testing.waiting import PATIENCE_SECONDS, first_value
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


SETTLED_SECONDS = PATIENCE_SECONDS


SETTINGS = QuotaSettings(reason_delay_seconds=0)


Json = dict[str, Any]


class Site:
    """A cluster told by its messages, a quota service that decides for it, and somebody who asks."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.bus = MemoryBus(self.server, instance="test")
        self.running: list[tuple[asyncio.Task[None], MemoryBus]] = []
        self.view = View(
            bus=self.bus, now=lambda: datetime.now(UTC), new_replica=lambda: ReadReplica(SETTINGS)
        )
        self.looking: asyncio.Task[None] | None = None
        self._version = 0
        self.behind = timedelta(0)
        """How far the clock of quota is behind: what it decides meanwhile was decided then."""

    async def look(self) -> None:
        """Let somebody look who decides nothing."""
        self.looking = asyncio.create_task(self.view.run())

    async def start_quota(self, name: str = "a") -> None:
        bus = MemoryBus(self.server, instance=f"quota-{name}")
        await bus.start()
        service = assemble(settings=SETTINGS, bus=bus, now=lambda: datetime.now(UTC) - self.behind)
        self.running.append((asyncio.create_task(service.run()), bus))

    async def stop_quota(self) -> None:
        task, bus = self.running.pop(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.stop()

    async def close(self) -> None:
        while self.running:
            await self.stop_quota()
        if self.looking is not None:
            self.looking.cancel()
            await asyncio.gather(self.looking, return_exceptions=True)
        await self.bus.stop()

    async def observe(
        self, kind: Kind, name: str, spec: Json, *, namespace: str | None = None, **more: Any
    ) -> None:
        self._version += 1
        await self.bus.publish(observed(kind, name, spec, namespace, version=self._version, **more))

    async def queue(self, name: str = "cq", *, cpu: int = 4, **spec: Any) -> None:
        flavor = spec.pop("flavor", "default")
        limits = spec.pop("quota", {})
        await self.observe(
            kinds.CLUSTER_QUEUE, name, cluster_queue_spec(cpu, flavor, limits=limits, **spec)
        )

    async def local(self, name: str, to: str = "cq", ns: str = "team", **spec: Any) -> None:
        await self.observe(kinds.LOCAL_QUEUE, name, {"clusterQueue": to, **spec}, namespace=ns)

    async def basics(self) -> None:
        for namespace in ("team", "others"):
            await self.observe(kinds.NAMESPACE, namespace, {})
        await self.observe(kinds.RESOURCE_FLAVOR, "default", {})
        await self.local("main")
        await self.local("main", ns="others")

    async def synced(self) -> None:
        await self.bus.publish(Synced(cluster="hub", epoch="1", kinds=[], at=NOON))

    async def workload(self, name: str, *, cpu: str = "1", age: int = 0, **more: Any) -> None:
        common: Json = {"namespace": "team", "queue": "main", "phase": "waiting"}
        await self.bus.publish(
            WorkloadState.model_validate(
                {
                    **common, "cluster": "hub", "name": name, "uid": f"u-{name}", "version": "1",
                    "created_at": NOON - timedelta(seconds=age),
                    "pod_sets": [PodSet(name="main", count=1, requests={"cpu": cpu})], **more,
                }
            )
        )  # fmt: skip

    async def explain(
        self, name: str, reason: str, *, namespace: str = "team", everyone: bool = False
    ) -> Explanation:
        """The answer once it has settled on this reason; `everyone`: holders of all namespaces."""
        request = ExplainRequest(namespace=namespace, name=name, all_namespaces=everyone)
        question = request.model_dump_json().encode()
        told = "nobody answers"

        async def settled() -> Explanation | None:
            nonlocal told
            data = await self.bus.request(ExplainRequest.subject, question, timeout_seconds=2.0)
            answer = ExplainAnswer.model_validate_json(data)
            seen = self.view.replica.explain(request)
            if not (answer.items and answer.items[0].reason == reason):
                told = str(answer)
            elif seen != answer:
                told = f"{answer}, or as a follower sees it {seen}"
            else:
                return answer.items[0]
            return None

        return await first_value(
            settled,
            lambda: f"{name} does not wait for {reason}, but {told}",
            seconds=SETTLED_SECONDS,
        )
