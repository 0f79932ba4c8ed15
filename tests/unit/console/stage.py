"""A view that follows a bus in virtual time, and the messages of those whom it follows."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

from typing_extensions import override

from services.console.view import View
from shared.bus.port import CaughtUp, Entry
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.messages.workloads import Finish, JobRef, PodSet, WorkloadState
from shared.testing.builders import cluster_queue_spec, observed
from shared.testing.world.loop import VirtualLoop
from shared.testing.world.memory_bus import MemoryBus, MemoryServer

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
MOMENT_SECONDS = 1.0
"""In which what was published has arrived."""

Json = dict[str, Any]


def now() -> datetime:
    return START + timedelta(seconds=asyncio.get_running_loop().time())


class ReadBus(MemoryBus):
    """Knows which streams are being read."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server, instance="console-1")
        self.reading: Counter[str] = Counter()

    @override
    async def watch(self, stream: str, *filters: str) -> AsyncGenerator[Entry | CaughtUp, None]:
        self.reading[stream] += 1
        try:
            async with aclosing(super().watch(stream, *filters)) as items:
                async for item in items:
                    yield item
        finally:
            self.reading[stream] -= 1


class Stage:
    """Make it inside the loop. Nobody decides here but the test."""

    def __init__(self, *, idle_seconds: float = 0.0) -> None:
        self.server = MemoryServer()
        self.bus = ReadBus(self.server)
        self.others = MemoryBus(self.server, instance="others")
        self.view = View(bus=self.bus, now=now, idle_seconds=idle_seconds)
        self._versions = 0
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Let the view run."""
        await self.bus.start()
        self._running = asyncio.create_task(self.view.run())

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    @property
    def reading(self) -> bool:
        """Whether any stream is being read."""
        return self.bus.reading.total() > 0

    async def say(self, *messages: Any) -> None:
        """Somebody publishes, and it arrives."""
        for message in messages:
            await self.others.publish(message)
        await asyncio.sleep(MOMENT_SECONDS)

    def observed(
        self, kind: Kind, name: str, spec: Json, *, namespace: str | None = None, **more: Any
    ) -> Observed:
        self._versions += 1
        return observed(kind, name, spec, namespace, version=self._versions, **more)

    def cluster_queue(self, cpu: int = 4, name: str = "cq", **more: Any) -> Observed:
        return self.observed(kinds.CLUSTER_QUEUE, name, cluster_queue_spec(cpu), **more)

    def local_queue(self, namespace: str = "team", name: str = "main", **more: Any) -> Observed:
        spec = {"clusterQueue": "cq"}
        return self.observed(kinds.LOCAL_QUEUE, name, spec, namespace=namespace, **more)

    async def basics(self) -> None:
        """Two namespaces with a LocalQueue each, to one ClusterQueue."""
        await self.say(
            *(self.observed(kinds.NAMESPACE, name, {}) for name in ("team", "others")),
            self.observed(kinds.RESOURCE_FLAVOR, "default", {}),
            self.cluster_queue(),
            self.local_queue("team"),
            self.local_queue("others"),
            Synced(cluster="hub", epoch="1", kinds=[], at=START),
        )


def workload(name: str, *, namespace: str = "team", cpu: str = "1", **more: Any) -> WorkloadState:
    """One that waits, created before everything here began."""
    fields: Json = {
        "phase": "waiting",
        "uid": f"u-{namespace}-{name}",
        "created_at": START - timedelta(minutes=5),
        "pod_sets": [PodSet(name="main", count=1, requests={"cpu": cpu})],
        "owner": owner("Job", name),
    }
    return WorkloadState.model_validate(
        {"cluster": "hub", "namespace": namespace, "name": f"job-{name}", "queue": "main"}
        | {"version": "1"}
        | fields
        | more
    )


def owner(kind: str, name: str) -> JobRef:
    return JobRef(
        api_version="batch/v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        name=name,
        uid=f"{kind}-{name}",
    )


def ended(name: str, *, after: float, success: bool = True, **more: Any) -> WorkloadState:
    """One that ran for so many seconds."""
    return workload(
        name,
        phase="finished",
        admitted_at=START - timedelta(seconds=after),
        finish=Finish(success=success, at=START, message="Job finished"),
        **more,
    )


def decision(about: WorkloadState, state: str, number: int, **more: Any) -> Admission:
    """What quota decides about it."""
    fields: Json = {
        "cluster": about.cluster,
        "namespace": about.namespace,
        "name": about.name,
        "uid": about.uid,
        "state": state,
        "term": 1,
        "number": number,
        "decided_at": START,
        "queue": about.queue,
        "cluster_queue": "cq",
        "generation": about.generation,
    }
    return Admission.model_validate(fields | more)


def status(name: str = "cq", namespace: str | None = None, **counts: Any) -> QueueStatus:
    """How quota says that a queue stands."""
    fields: Json = {
        "cluster": "hub",
        "kind": "LocalQueue" if namespace else "ClusterQueue",
        "namespace": namespace,
        "name": name,
        "pending": 0,
        "reserving": 0,
        "admitted": 0,
        "active": True,
        "reason": "Ready",
        "message": "Can admit new workloads",
        "at": START,
    }
    return QueueStatus.model_validate(fields | counts)


def play(scene: Callable[[Stage], Awaitable[None]], **options: Any) -> None:
    """Run `scene` in virtual time; nothing of it is left behind."""
    loop = VirtualLoop()

    async def run() -> None:
        stage = Stage(**options)
        await stage.others.start()
        try:
            await scene(stage)
        finally:
            await stage.stop()

    try:
        loop.run_until_complete(run())
    finally:
        loop.dispose()
