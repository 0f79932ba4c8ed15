"""Creates workloads, waits until each is admitted, and finishes it, as Kueue's scalability runner does.

It talks only to the API server and does not know which controller admits.
"""

import asyncio
from contextlib import aclosing
from random import Random
from typing import Any, Final

from services.quota.bench import Load
from services.simulator.bench.generator import (
    NAMESPACE_NAME,
    WorkloadArrival,
    arrivals,
    cluster_objects,
)
from services.simulator.bench.report import Timeline
from services.simulator.bench.writer import RETRY_SECONDS, Writer, is_true
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import WORKLOAD
from shared.contracts.simulation import BENCH_RUNS
from shared.kube.port import AlreadyExistsError, Kube, UnavailableError
from shared.kube.reflector import Changed, Deleted, Listed, Reflector, Unserved

CREATORS: Final = 8
"""Concurrent creations."""


class Runner:
    """One run against one cluster."""

    def __init__(
        self,
        *,
        kube: Kube,
        load: Load,
        scale: float,
        writer: Writer,
    ) -> None:
        self._kube = kube
        self._load = load
        self._writer = writer
        self._arrivals = arrivals(load, scale=scale)
        self._group: asyncio.TaskGroup | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        """Admitted workloads with the timers that finish them."""

        self._done = asyncio.Event()
        self.timeline = Timeline(nominal=load.nominal * load.cohorts * load.per_cohort)
        self.requests = writer.requests
        """Requests of the runner: verb, resource, subresource."""

    async def prepare(self) -> None:
        """Create the flavor and the queues. May be called twice."""
        for kind, obj in cluster_objects(self._load):
            try:
                await self._kube.create(kind, obj)
            except AlreadyExistsError:
                continue
            self.requests["POST", kind.plural, ""] += 1

    async def run(self) -> None:
        """Return when every workload has finished. Raises the first error of a task or the server."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            watching = group.create_task(self._watch())
            creating = group.create_task(self._create())
            await self._done.wait()
            await creating
            watching.cancel()

    async def _create(self) -> None:
        began = self._loop_time()
        self.timeline.begin(began)
        queue = iter(self._arrivals)

        async def creator() -> None:
            for arrival in queue:
                await asyncio.sleep(max(0.0, began + arrival.at - self._loop_time()))
                await self._create_one(arrival)

        await asyncio.gather(*(creator() for _ in range(CREATORS)))

    async def _create_one(self, arrival: WorkloadArrival) -> None:
        while True:
            try:
                await self._kube.create(WORKLOAD, arrival.object)
            except UnavailableError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except AlreadyExistsError:
                break  # The request was executed and only its response was lost.
            break
        name = arrival.object["metadata"]["name"]
        self.timeline.created(name, arrival.kind.name, arrival.kind.cpu, self._loop_time())
        self.requests["POST", WORKLOAD.plural, ""] += 1

    async def _watch(self) -> None:
        reflector = Reflector(
            kube=self._kube, kind=WORKLOAD, random=Random(0), namespace=NAMESPACE_NAME
        )
        async with aclosing(reflector.run()) as reflections:
            async for reflection in reflections:
                match reflection:
                    case Listed():
                        for item in reflection.items:
                            self._seen(item)
                    case Changed():
                        self._seen(reflection.object)
                    case Deleted():
                        self._drop(reflection.object["metadata"]["name"])
                    case Unserved():
                        raise RuntimeError("this cluster has no Workload objects")

    def _seen(self, workload: Body) -> None:
        name = workload["metadata"]["name"]
        if BENCH_RUNS not in (workload["metadata"].get("labels") or {}) or is_true(
            workload, "Finished"
        ):
            return  # Not a workload of this run, or finished.
        if is_true(workload, "Evicted") and is_true(workload, "QuotaReserved"):
            self._drop(name)
            self.timeline.evicted(name, self._loop_time())
            self._do(self._writer.give_back(workload))
        elif is_true(workload, "Admitted") and name not in self._running:
            self.timeline.admitted(name, self._loop_time())
            self._running[name] = self._do(self._finish(workload))

    def _drop(self, name: str) -> None:
        if (task := self._running.pop(name, None)) is not None:
            task.cancel()

    def _do(self, work: Any) -> "asyncio.Task[None]":
        assert self._group is not None
        return self._group.create_task(work)

    async def _finish(self, workload: Body) -> None:
        name = workload["metadata"]["name"]
        await asyncio.sleep(int(workload["metadata"]["labels"][BENCH_RUNS]) / 1000)
        await self._writer.finish(workload)
        self.timeline.finished(name, self._loop_time())
        if self.timeline.unfinished == 0 and self.timeline.known == len(self._arrivals):
            self._done.set()

    @staticmethod
    def _loop_time() -> float:
        return asyncio.get_running_loop().time()
