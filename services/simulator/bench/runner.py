"""Creates workloads, waits until each is admitted, and finishes it: the reference's runner, as a client.

Nothing but the API server is spoken to. Who admits is not known here; `blind` lets the runner admit
everything itself, which shows what API server and runner alone allow.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from services.quota.bench import Load
from services.simulator.bench.generator import (
    CLASS,
    NAMESPACE_NAME,
    RUNS,
    Arrival,
    arrivals,
    surroundings,
)
from services.simulator.bench.report import Timeline
from shared.contracts.kinds import WORKLOAD, Object
from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    Kube,
    NotFoundError,
    UnavailableError,
)
from shared.kube.reflector import Changed, Deleted, Listed, Reflector, Unserved

__all__ = ["Runner"]

RETRY_SECONDS: Final = 0.2
"""After a server that did not answer."""

CREATORS: Final = 8
"""Creations under way at a time."""


class Runner:
    """One run against one cluster."""

    def __init__(
        self,
        *,
        kube: Kube,
        load: Load,
        scale: float,
        now: Callable[[], datetime],
        blind: bool = False,
    ) -> None:
        self._kube = kube
        self._load = load
        self._now = now
        self._blind = blind
        self._arrivals = arrivals(load, scale=scale)
        self._group: asyncio.TaskGroup | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        """Workloads that are admitted, with what will finish them."""

        self._answered: set[str] = set()
        """Admitted by us, or on its way to be."""

        self._done = asyncio.Event()
        self.timeline = Timeline(nominal=load.nominal * load.cohorts * load.per_cohort)
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """Ours: verb, resource, subresource."""

    async def prepare(self) -> None:
        """Create flavor and queues. May be repeated."""
        for kind, obj in surroundings(self._load):
            try:
                await self._kube.create(kind, obj)
            except AlreadyExistsError:
                continue
            self.requests["POST", kind.plural, ""] += 1

    async def run(self) -> None:
        """Return when every workload has finished. A failure of ours or of the server's ends it."""
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

    async def _create_one(self, arrival: Arrival) -> None:
        while True:
            try:
                await self._kube.create(WORKLOAD, arrival.object)
            except UnavailableError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except AlreadyExistsError:
                break  # It was done, and the answer was lost.
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

    def _seen(self, workload: Object) -> None:
        name = workload["metadata"]["name"]
        if RUNS not in (workload["metadata"].get("labels") or {}) or _is_true(workload, "Finished"):
            return  # Somebody else's, or done.
        if _is_true(workload, "Evicted") and _is_true(workload, "QuotaReserved"):
            self._drop(name)
            self.timeline.evicted(name, self._loop_time())
            self._do(self._give_back(workload))
        elif _is_true(workload, "Admitted"):
            if name not in self._running:
                self.timeline.admitted(name, self._loop_time())
                self._running[name] = self._do(self._finish(workload))
        elif self._blind and name not in self._answered:
            self._answered.add(name)
            self._do(self._admit(workload))

    def _drop(self, name: str) -> None:
        if (task := self._running.pop(name, None)) is not None:
            task.cancel()

    def _do(self, work: Any) -> "asyncio.Task[None]":
        assert self._group is not None
        return self._group.create_task(work)

    async def _finish(self, workload: Object) -> None:
        name = workload["metadata"]["name"]
        await asyncio.sleep(int(workload["metadata"]["labels"][RUNS]) / 1000)
        await self._conditions(workload, Finished=("True", "ByTest", "By test runner"))
        self.timeline.finished(name, self._loop_time())
        if self.timeline.unfinished == 0 and self.timeline.known == len(self._arrivals):
            self._done.set()

    async def _give_back(self, workload: Object) -> None:
        told = ("False", "Pending", "By test runner")
        await self._conditions(workload, QuotaReserved=told, Admitted=told, admission=None)

    async def _admit(self, workload: Object) -> None:
        labels = workload["metadata"]["labels"]
        assert labels[CLASS]
        told = ("True", "Admitted", "By test runner")
        queue = workload["spec"]["queueName"]
        cpu = workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]
        assignment = {
            "name": "main",
            "count": 1,
            "flavors": {"cpu": "rf"},
            "resourceUsage": {"cpu": cpu["requests"]["cpu"]},
        }
        admission = {"clusterQueue": queue, "podSetAssignments": [assignment]}
        await self._conditions(workload, QuotaReserved=told, Admitted=told, admission=admission)

    async def _conditions(self, workload: Object, **changes: Any) -> None:
        """Write conditions (status, reason, message), and `admission` where it is named."""
        metadata = workload["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        while True:
            try:
                await self._kube.patch(
                    WORKLOAD,
                    namespace,
                    name,
                    self._status_patch(workload, changes),
                    subresource="status",
                )
            except NotFoundError:
                return
            except ConflictError:
                self.requests["PATCH", WORKLOAD.plural, "status answered 409"] += 1
                workload = await self._fresh(workload)
                continue
            except UnavailableError:
                await asyncio.sleep(RETRY_SECONDS)
                workload = await self._fresh(workload)
                continue
            self.requests["PATCH", WORKLOAD.plural, "status"] += 1
            return

    async def _fresh(self, workload: Object) -> Object:
        metadata = workload["metadata"]
        while True:
            self.requests["GET", WORKLOAD.plural, ""] += 1
            try:
                return await self._kube.get(WORKLOAD, metadata["namespace"], metadata["name"])
            except UnavailableError:
                await asyncio.sleep(RETRY_SECONDS)

    def _status_patch(self, workload: Object, changes: dict[str, Any]) -> Object:
        metadata = workload["metadata"]
        at = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        told = dict(changes)
        status: Object = {}
        if "admission" in told:
            status["admission"] = told.pop("admission")
        conditions = (workload.get("status") or {}).get("conditions") or []
        by_type = {condition["type"]: condition for condition in conditions}
        for type_, (value, reason, message) in told.items():
            by_type[type_] = {
                "type": type_,
                "status": value,
                "reason": reason,
                "message": message,
                "lastTransitionTime": at,
            }
        status["conditions"] = list(by_type.values())
        version = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        return {"metadata": version, "status": status}

    @staticmethod
    def _loop_time() -> float:
        return asyncio.get_running_loop().time()


def _is_true(obj: Object, type_: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(c.get("type") == type_ and c.get("status") == "True" for c in conditions)
