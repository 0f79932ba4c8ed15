"""`make bench-latency`: how long a Job waits although its quota is free.

Jobs are created at a steady rate, whether or not the earlier ones have been answered. The whole system
works, as `sluice dev` starts it: webhook, watcher, classifier, quota, patcher.

The first lines tell what each process took for a Job; then follows a line for each stage on a Job's way,
from the stage before it. The last lines are ``released: p50 <ms>, p99 <ms>``, from the request that creates
a Job until this process sees it released, and ``latency: p50 <ms>, p99 <ms>``, from the answer to that
request until the decision is stored.
"""

import asyncio
import os
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from services.ctl.bench.processes import tree, usage
from services.ctl.connect.bus import connected
from services.ctl.dev.app import DevOptions, Running, running
from services.simulator.bench.report import percentile
from shared.bus.follow import stored_entries
from shared.bus.port import Bus
from shared.contracts.kube import kinds
from shared.contracts.kube.names import QUEUE
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.simulation import DURATION
from shared.contracts.subjects import observed_filter, subject_filter
from shared.kube.port import AlreadyExistsError, Kube
from shared.kube.reflector import Changed, Listed, Reflector
from shared.runtime.command import CommandError, Exit
from shared.runtime.loop import run

NAME: Final = "bench-latency"
"""Of the namespace, the flavor and the queues."""

CPU: Final = 1_000_000
"""Quota that is never used up."""

SETTLE_SECONDS: Final = 3.0
"""Between the creation of the queues and that of the first Job."""

END_SECONDS: Final = 120.0
"""How long the last Jobs may take beyond the load's time."""

CPU_SHOWN_SECONDS: Final = 0.00005
"""A process that took less of a Job is not listed."""


@dataclass(slots=True)
class Times:
    """What happened to each Job, by its uid, in seconds since the epoch."""

    requested: dict[str, float] = field(default_factory=dict)
    created: dict[str, float] = field(default_factory=dict)
    released: dict[str, float] = field(default_factory=dict)
    observed: dict[str, float] = field(default_factory=dict)
    classified: dict[str, float] = field(default_factory=dict)
    decided: dict[str, float] = field(default_factory=dict)

    cpu: dict[str, float] = field(default_factory=dict)
    """Process to its CPU seconds during the load."""


async def _bench(arguments: Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        options = DevOptions(
            directory=Path(folder),
            kubeconfig=arguments.kubeconfig,
            processes=arguments.processes,
        )
        async with running(
            options, lambda text: print(f"bench: {text}", file=sys.stderr)
        ) as system:
            times = await _measured(system, rate=arguments.rate, minutes=arguments.minutes)
    _report(times)
    return Exit.OK


async def _measured(system: Running, *, rate: float, minutes: float) -> Times:
    kube, times, count = system.kube(), Times(), round(60 * minutes * rate)
    try:
        await make_queue(kube)
        await asyncio.sleep(SETTLE_SECONDS)
        before = _cpu()
        async with asyncio.timeout(60 * minutes + END_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(_watch(kube, times, count=count))
            await _create(kube, times, rate=rate, count=count)
        times.cpu = {name: used - before.get(name, 0.0) for name, used in _cpu().items()}
    finally:
        await kube.close()
    async with connected(system.nats_url, access=system.access) as bus:
        await _read_logs(bus, times)
    return times


def _cpu() -> dict[str, float]:
    """What each process below this one has used, and this one."""
    used: dict[str, float] = {}
    for pid, name in tree(os.getpid()).items():
        used[name] = used.get(name, 0.0) + usage(pid).cpu_seconds
    return used


async def _read_logs(bus: Bus, times: Times) -> None:
    """Note when each stage of a Job was first stored."""
    async for item in stored_entries(bus, Observed.stream, observed_filter(kinds.JOB)):
        body = item.read(Observed).object
        if body is not None:
            times.observed.setdefault(body["metadata"]["uid"], item.time.timestamp())
    async for item in stored_entries(bus, WorkloadState.stream, subject_filter("workload")):
        times.classified.setdefault(item.read(WorkloadState).uid, item.time.timestamp())
    async for item in stored_entries(bus, Admission.stream, subject_filter("admission")):
        decision = item.read(Admission)
        if decision.state == "admitted":
            times.decided.setdefault(decision.uid, item.time.timestamp())


async def make_queue(kube: Kube) -> None:
    """Make the namespace and the queue called `NAME`, which has more than anybody asks for."""
    quota = {"name": NAME, "resources": [{"name": "cpu", "nominalQuota": CPU}]}
    named = {"metadata": {"name": NAME}}
    objects = (
        (kinds.NAMESPACE, named),
        (kinds.RESOURCE_FLAVOR, {**named, "spec": {}}),
        (
            kinds.CLUSTER_QUEUE,
            {
                **named,
                "spec": {
                    "namespaceSelector": {},
                    "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
                },
            },
        ),
        (
            kinds.LOCAL_QUEUE,
            {"metadata": {"name": NAME, "namespace": NAME}, "spec": {"clusterQueue": NAME}},
        ),
    )
    for kind, body in objects:
        try:
            await kube.create(kind, body)
        except AlreadyExistsError:
            continue


async def _create(kube: Kube, times: Times, *, rate: float, count: int) -> None:
    """Create Jobs at their moments. An error of the API server ends the run."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            group.create_task(_create_one(kube, times, number))


async def _create_one(kube: Kube, times: Times, number: int) -> None:
    at = time.time()
    job = await kube.create(kinds.JOB, _job(number))
    uid = job["metadata"]["uid"]
    times.requested[uid], times.created[uid] = at, time.time()


def _job(number: int) -> dict[str, Any]:
    requests = {"cpu": "1m"}
    container = {"name": "c", "image": "none", "resources": {"requests": requests}}
    return {
        "metadata": {
            "name": f"{NAME}-{number}",
            "namespace": NAME,
            "labels": {QUEUE: NAME},
            "annotations": {DURATION: "60s"},
        },
        "spec": {
            "suspend": True,
            "ttlSecondsAfterFinished": 60,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


async def _watch(kube: Kube, times: Times, *, count: int) -> None:
    """Return once `count` Jobs have been seen released."""
    reflector = Reflector(kube=kube, kind=kinds.JOB, random=Random(0), namespace=NAME)
    async with aclosing(reflector.run()) as reflections:
        async for reflection in reflections:
            match reflection:
                case Listed():
                    seen = reflection.items
                case Changed():
                    seen = [reflection.object]
                case _:
                    continue
            now = time.time()
            for job in seen:
                if not job["spec"].get("suspend"):
                    times.released.setdefault(job["metadata"]["uid"], now)
            if len(times.released) == count:
                return


def _report(times: Times) -> None:
    count = len(times.requested)
    for name, seconds in sorted(times.cpu.items(), key=lambda each: -each[1]):
        if seconds / count >= CPU_SHOWN_SECONDS:
            print(f"cpu: {name}: {1000 * seconds / count:.2f} ms a Job")
    for title, begun, ended in (
        ("created", times.requested, times.created),
        ("observed", times.created, times.observed),
        ("classified", times.observed, times.classified),
        ("decided", times.classified, times.decided),
        ("written", times.decided, times.released),
        ("released", times.requested, times.released),
        ("latency", times.created, times.decided),
    ):
        # A stage may be stored before the answer to the request has arrived.
        taken = [max(0.0, ended[uid] - begun[uid]) for uid in times.requested]
        figures = (f"p{part} {1000 * percentile(taken, part / 100):.0f} ms" for part in (50, 99))
        print(f"{title}: {', '.join(figures)} of {len(taken)}")


def main() -> int:
    """Run the load; print figures."""
    parser = ArgumentParser(prog="python -m services.ctl.bench.latency", description=__doc__)
    parser.add_argument("--rate", type=float, default=100.0, help="Jobs a second")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long")
    parser.add_argument("--kubeconfig", type=Path, help="a cluster; default: the simulator")
    parser.add_argument(
        "--processes", action="store_true", help="one process for each service, as in production"
    )
    try:
        return run(_bench(parser.parse_args()))
    except CommandError as error:
        print(f"bench: {error}", file=sys.stderr)
        return error.status


if __name__ == "__main__":
    sys.exit(main())
