"""`python -m services.simulator.bench.spokes`: a burst at the hub, spread over spokes, in virtual time.

All services run in one world without faults, with the latencies of its wires. What is measured is from
the hub's reservation to pods on the spoke, the use of the spokes' joint quota while there is a queue, and
the copies that were created on the spokes; those also with AllAtOnce, for a smaller burst, to compare.
"""

import argparse
import asyncio
import math
import sys
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from services.simulator.cluster.kinds.catalogue import JOBS, PODS
from services.simulator.cluster.storage.stored import Event
from services.simulator.scenarios.load import object_of
from services.simulator.scenarios.spokes.clusters import CHECK, MultiClusterSystem
from services.simulator.scenarios.spokes.judge import PodObserver
from services.simulator.scenarios.system import CLUSTER
from shared.bus.headers import TYPE
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import Body
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.simulation import DURATION
from shared.contracts.subjects import Stream
from shared.integrations import JOB
from shared.testing.world.world import World

NAMESPACE: Final = "team-a"
QUEUE: Final = "main"
JOB_SECONDS: Final = 60
WARM_SECONDS: Final = 60.0
P50, P99 = 0.5, 0.99
COMPARED: Final = 10
"""The burst for AllAtOnce is so many times smaller: it creates several copies of each job."""


@dataclass(slots=True, kw_only=True)
class Result:
    """The figures of one run."""

    workloads: int
    spokes: int
    waits: list[float] = field(default_factory=list)
    """Seconds from the hub's reservation to the first pod on a spoke, sorted."""

    use: float = 0.0
    """Share of the spokes' joint quota that ran pods, between the time when it was full first and the
    time at which the last workload was reserved."""

    most: dict[str, float] = field(default_factory=dict)
    """Largest share of each spoke's quota that ran pods at once."""

    copies: int = 0
    """Number of jobs created on spokes."""

    problems: list[str] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """Return a percentile of the waits, in seconds."""
        return self.waits[math.ceil(share * len(self.waits)) - 1] if self.waits else math.inf

    @property
    def copies_each(self) -> float:
        """Average number of copies of a job."""
        return self.copies / self.workloads

    def lines(self) -> list[str]:
        """Return the lines of the report."""
        return [
            f"{self.workloads} workloads over {self.spokes} spokes",
            f"reservation to running: p50 {self.percentile(P50):.2f} s, p99 {self.percentile(P99):.2f} s",
            f"use of the joint quota while work waits: {self.use:.1%}",
            f"most of a spoke's quota in use: {max(self.most.values(), default=0):.0%}",
            f"copies created per workload: {self.copies_each:.2f}",
            *self.problems,
        ]


def _measure(*, workloads: int, spokes: int, slots: int, dispatcher: str) -> Result:
    """Run one world. `slots` are the CPUs of each spoke; each job takes one."""
    result = Result(workloads=workloads, spokes=spokes)
    own = tuple(f"spoke-{number}" for number in range(1, spokes + 1))
    settings = {"dispatcher": dispatcher, "silent_seconds": 30.0}
    with World(1) as world:
        system = MultiClusterSystem(
            world, own, rules=f"queueName: {QUEUE}\n", dispatcher=settings, beat_seconds=10
        )
        observer = PodObserver(system.apis, world.loop.time)
        gauge = _Gauge(system, slots)
        world.run(lambda: _drive(system, workloads, slots))
        result.problems = [*observer.problems, *world.failures]
        _read(system, gauge, result, slots * spokes)
    return result


class _Gauge:
    """Counts the pods on each spoke at each change."""

    def __init__(self, system: MultiClusterSystem, slots: int) -> None:
        self._system = system
        self._slots = slots
        self._living: dict[str, set[str]] = {spoke: set() for spoke in system.spokes}
        self.most = dict.fromkeys(system.spokes, 0.0)
        self.curve: list[tuple[float, int]] = []
        self.started: dict[str, float] = {}
        self.copies = 0
        for spoke in system.spokes:
            system.apis[spoke].store.subscribe(PODS, partial(self._on_event, spoke))
            system.apis[spoke].store.subscribe(JOBS, self._count)

    def _count(self, event: Event) -> None:
        self.copies += event.type == "ADDED"

    def _on_event(self, spoke: str, event: Event) -> None:
        pod, now = event.stored.obj, self._system.world.loop.time()
        uid, living = pod["metadata"]["uid"], self._living[spoke]
        over = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
        if event.type == "DELETED" or over:
            living.discard(uid)
        else:
            owner = pod["metadata"]["ownerReferences"][0]["name"]
            self.started.setdefault(owner, now)
            living.add(uid)
        self.most[spoke] = max(self.most[spoke], len(living) / self._slots)
        self.curve.append((now, sum(map(len, self._living.values()))))


async def _drive(system: MultiClusterSystem, workloads: int, slots: int) -> None:
    for cluster in (CLUSTER, *system.spokes):
        hub = cluster == CLUSTER
        quota = slots * len(system.spokes) if hub else slots
        resources = [{"name": "cpu", "nominalQuota": str(quota)}]
        flavors = [{"name": "any", "resources": resources}]
        spec: dict[str, Any] = {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        }
        if hub:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
        local = {"clusterQueue": QUEUE}
        for kind, obj in (
            (kinds.NAMESPACE, object_of(kinds.NAMESPACE, NAMESPACE)),
            (kinds.RESOURCE_FLAVOR, object_of(kinds.RESOURCE_FLAVOR, "any", spec={})),
            (kinds.CLUSTER_QUEUE, object_of(kinds.CLUSTER_QUEUE, QUEUE, spec=spec)),
            (
                kinds.LOCAL_QUEUE,
                object_of(kinds.LOCAL_QUEUE, QUEUE, namespace=NAMESPACE, spec=local),
            ),
        ):
            await system.kubes[cluster].create(kind, obj)
    await system.configure()
    system.serve()
    await asyncio.sleep(WARM_SECONDS)
    random = Random(1)
    for number in range(workloads):
        await system.hub.kube.create(kinds.JOB, _job(number, random))
        await asyncio.sleep(0.005)
    while True:
        await asyncio.sleep(5)
        found = (await system.hub.kube.list(kinds.JOB)).items
        if all(JOB.finish(job) is not None for job in found):
            return


def _job(number: int, random: Random) -> Body:
    seconds = random.uniform(JOB_SECONDS / 2, JOB_SECONDS * 3 / 2)
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    annotations = {DURATION: f"{seconds:.0f}s"}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    spec = {"suspend": True, "managedBy": MULTIKUEUE, "template": template}
    job = object_of(kinds.JOB, f"job-{number}", namespace=NAMESPACE, spec=spec)
    job["metadata"]["labels"] = {names.QUEUE: QUEUE}
    return job


def _read(system: MultiClusterSystem, gauge: _Gauge, result: Result, total: int) -> None:
    streams, epoch = (
        system.hub.server.streams,
        system.world.now().timestamp() - system.world.loop.time(),
    )
    reserved: dict[str, float] = {}
    for stored in streams[Stream.ADMISSIONS].messages.values():
        if stored.headers.get(TYPE) != Admission.type:
            continue
        admission = Admission.decode(stored.data)
        if admission.cluster == CLUSTER and admission.state == "reserved":
            reserved.setdefault(admission.name, stored.time.timestamp() - epoch)
    jobs: dict[str, str] = {}
    for stored in streams[Stream.DISPATCHES].messages.values():
        if stored.headers.get(TYPE) == Dispatch.type:
            order = Dispatch.decode(stored.data)
            if order.target is not None:
                jobs[order.name] = order.target.name
    result.waits = sorted(
        gauge.started[jobs[name]] - at
        for name, at in reserved.items()
        if jobs.get(name) in gauge.started
    )
    result.most, result.copies = gauge.most, gauge.copies
    full = next((at for at, count in gauge.curve if count >= 0.95 * total), None)
    last = max(reserved.values(), default=0.0)
    if full is None or last <= full:
        result.problems.append("the joint quota was never full")
        return
    area, before, level = 0.0, full, 0
    for at, count in gauge.curve:
        if at >= full:
            area += level * (min(at, last) - before)
            before, level = min(at, last), count
        else:
            level = count
    result.use = area / (total * (last - full))


def main() -> int:
    """Run the benchmark; print the figures and whether the goals are reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=1000)
    parser.add_argument("--spokes", type=int, default=5)
    parser.add_argument("--slots", type=int, default=40)
    given = parser.parse_args()
    result = _measure(
        workloads=given.workloads,
        spokes=given.spokes,
        slots=given.slots,
        dispatcher="best-fit",
    )
    sys.stdout.write("\n".join(result.lines()) + "\n")
    other = _measure(
        workloads=max(1, given.workloads // COMPARED),
        spokes=given.spokes,
        slots=max(1, given.slots // COMPARED),
        dispatcher="all-at-once",
    )
    sys.stdout.write(f"copies created per workload, AllAtOnce: {other.copies_each:.2f}\n")
    reached = (
        result.percentile(P50) <= 1
        and result.percentile(P99) <= 5
        and max(result.most.values(), default=0) <= 1
        and result.use >= 0.9
        and result.copies_each <= 1.1
        and not result.problems
    )
    sys.stdout.write(f"bench: {'ok' if reached else 'failed'}\n")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
