"""A cluster and a bus in memory, with a patcher between them. Tests act as watcher, classifier and quota."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

from services.patcher.app import Patcher, assemble
from services.patcher.settings import PatcherSettings
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.bus.port import CaughtUp
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import workload_name
from shared.contracts.messages.admissions import Admission, AdmissionState, PodSetAssignment
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import JobRef, PodSet, WorkloadState
from shared.kube.port import Kube, NotFoundError, Patch
from shared.settings.configuration import Configuration
from shared.testing.builders import observed_object
from shared.testing.waiting import eventually
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer

Json = dict[str, Any]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class HeldKube(LocalKube):
    """Keeps what `is_held` selects of the patches on its way, until the test lets them arrive."""

    def __init__(self, inner: LocalKube, is_held: Callable[[Kind, Patch], bool]) -> None:
        super().__init__(inner._api)  # The same cluster, as another client has it.
        self._is_held = is_held
        self.on_its_way = asyncio.Event()
        self.arrives = asyncio.Event()

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, patch: Patch, **options: Any
    ) -> Object:
        if self._is_held(kind, patch):
            self.on_its_way.set()
            await self.arrives.wait()
        return await super().patch(kind, namespace, name, patch, **options)


class Setup:
    """A cluster and a bus in memory, with a patcher between them."""

    def __init__(self) -> None:
        self.api = Api(now=lambda: NOON, random=Random(1))
        self.kube = LocalKube(self.api)
        self.patchers_kube: Kube = self.kube
        """The client that the patcher gets for the cluster."""

        self.server = MemoryServer()
        self.bus = MemoryBus(self.server, instance="test")
        self.settings: Json = {}
        self.configuration = Configuration()
        self.patcher: Patcher | None = None
        self._number = 0
        self._running: list[asyncio.Task[None]] = []
        self._buses: list[MemoryBus] = []

    async def start_patcher(self) -> Patcher:
        bus = MemoryBus(self.server, instance=f"patcher-{len(self._buses)}")
        settings = PatcherSettings(cluster="hub", not_seen_seconds=0.01, **self.settings)
        patcher = assemble(
            settings=settings, bus=bus, kube=self.patchers_kube, now=lambda: NOON,
            configuration=self.configuration,
        )  # fmt: skip
        await bus.start()
        self._buses.append(bus)
        self._running.append(asyncio.create_task(patcher.run()))
        self.patcher = patcher
        return patcher

    def cached(self, state: WorkloadState) -> tuple[bool, bool]:
        """Return whether the cache has the state of the workload, and an admission of it."""
        assert self.patcher is not None
        cache = self.patcher.cache
        where = (state.namespace, state.name)
        return cache.workload(*where) is not None, cache.admission(*where) is not None

    async def kill_patcher(self) -> None:
        task = self._running.pop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._buses.pop().stop()

    async def observe(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        await self.bus.publish(observed_object(kind, obj))

    async def submit(
        self, *, labels: Json | None = None, annotations: Json | None = None, **spec: Any
    ) -> WorkloadState:
        """A suspended Job, observed and projected."""
        containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
        template = {"spec": {"restartPolicy": "Never", "containers": containers}}
        job = await self.kube.create(
            kinds.JOB,
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": "train",
                    "namespace": "default",
                    "labels": labels or {},
                    "annotations": annotations or {},
                },
                "spec": {"suspend": True, "template": template, **spec},
            },
        )
        await self.observe(kinds.JOB, job)
        state = projected(job)
        await self.bus.publish(state)
        if self._running:
            # A decision published at the same time would be carried out twice, once for each message.
            await eventually(partial(self._has_seen, state))
        return state

    async def _has_seen(self, state: WorkloadState) -> bool:
        return self.cached(state)[0]

    async def decide(
        self, state: WorkloadState, decided: AdmissionState, *, term: int = 1, **more: Any
    ) -> None:
        self._number += 1
        one = PodSetAssignment(name="main", count=1, flavors={"cpu": "spot"}, usage={"cpu": "1"})
        await self.bus.publish(
            Admission(
                cluster="hub", namespace="default", name=state.name, uid=state.uid, state=decided,
                term=term, number=self._number, cluster_queue="cq",
                **{"pod_sets": [one], "decided_at": NOON, **more},
            )
        )  # fmt: skip

    async def flavor(self, **spec: Any) -> None:
        obj = {
            "apiVersion": kinds.RESOURCE_FLAVOR.api_version,
            "kind": "ResourceFlavor",
            "metadata": {"name": "spot"},
            "spec": spec,
        }
        await self.observe(
            kinds.RESOURCE_FLAVOR, await self.kube.create(kinds.RESOURCE_FLAVOR, obj)
        )

    async def job(self) -> kinds.Object:
        return await self.kube.get(kinds.JOB, "default", "train")

    async def workload(self, state: WorkloadState) -> kinds.Object | None:
        try:
            return await self.kube.get(kinds.WORKLOAD, "default", state.name)
        except NotFoundError:
            return None

    async def events(self) -> list[tuple[str, str, str]]:
        """Kind of the object, reason and message of each event, in the order of their creation."""
        found = (await self.kube.list(kinds.EVENT)).items
        found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(e["involvedObject"]["kind"], e["reason"], e["message"]) for e in found]

    async def conditions(self, state: WorkloadState) -> dict[str, str]:
        obj = await self.workload(state) or {}
        found = (obj.get("status") or {}).get("conditions") or []
        return {c["type"]: c["status"] for c in found}

    async def outcomes(self) -> list[Outcome]:
        found = []
        async with aclosing(self.bus.replay("OUTCOMES")) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    break
                found.append(Outcome.decode(item.data))
        return found


def projected(job: Mapping[str, Any], **more: Any) -> WorkloadState:
    metadata = job["metadata"]
    owner = JobRef(
        api_version="batch/v1", kind="Job", plural="jobs", name="train", uid=metadata["uid"]
    )
    return WorkloadState(
        cluster="hub", namespace="default", uid=metadata["uid"], owner=owner, queue="main",
        name=workload_name(kind="Job", group="batch", name="train", uid=metadata["uid"]),
        created_at=NOON, pod_sets=[PodSet(name="main", count=1, requests={"cpu": "1"})],
        **{"phase": "waiting", "held": job["spec"].get("suspend", False), **more},
    )  # fmt: skip
