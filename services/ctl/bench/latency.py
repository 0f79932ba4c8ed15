"""`make bench-latency`: how long a Job waits although its quota is free.

Jobs are created at a steady rate, whether or not the earlier ones have been answered. The whole system
works, as `sluice dev` starts it: webhook, watcher, classifier, quota, patcher. The last lines are
``released: p50 <ms>, p99 <ms>``, from the request that creates a Job until this process sees it released,
and ``latency: p50 <ms>, p99 <ms>``, from the answer to that request until the decision is stored.
"""

import asyncio
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from services.ctl.connect.bus import connected
from services.ctl.dev.app import DevOptions, Running, running
from services.simulator.bench.report import percentile
from shared.bus.port import CaughtUp
from shared.contracts.kube import kinds
from shared.contracts.kube.names import QUEUE
from shared.contracts.messages.admissions import Admission
from shared.contracts.simulation import DURATION
from shared.contracts.subjects import subject_filter
from shared.kube.port import AlreadyExistsError, Kube
from shared.kube.reflector import Changed, Listed, Reflector
from shared.runtime.command import CommandError, Exit
from shared.runtime.loop import run

NAME: Final = "bench-latency"
"""Of the namespace, the flavor and the queues."""

CPU: Final = 1_000_000
"""Quota that is never used up."""

END_SECONDS: Final = 120.0
"""How long the last Jobs may take beyond the load's time."""


@dataclass(slots=True)
class Times:
    """What happened to each Job, by its uid, in seconds since the epoch."""

    requested: dict[str, float] = field(default_factory=dict)
    created: dict[str, float] = field(default_factory=dict)
    released: dict[str, float] = field(default_factory=dict)
    decided: dict[str, float] = field(default_factory=dict)


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
        await _make_queue(kube)
        async with asyncio.timeout(60 * minutes + END_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(_watch(kube, times, count=count))
            await _create(kube, times, rate=rate, count=count)
    finally:
        await kube.close()
    async with (
        connected(system.nats_url, access=system.access) as bus,
        aclosing(bus.replay(Admission.stream, subject_filter("admission"))) as items,
    ):
        async for item in items:
            if isinstance(item, CaughtUp):
                break
            decision = item.read(Admission)
            if decision.state == "admitted":
                times.decided.setdefault(decision.uid, item.time.timestamp())
    return times


async def _make_queue(kube: Kube) -> None:
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
    for title, begun, ended in (
        ("created", times.requested, times.created),
        ("released", times.requested, times.released),
        ("latency", times.created, times.decided),
    ):
        # A decision may be stored before the answer to the request has arrived.
        taken = [max(0.0, ended[uid] - at) for uid, at in begun.items()]
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
