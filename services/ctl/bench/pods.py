"""`make bench-pods`: a group of pods, from its creation until all of it is let go.

The whole system works, as `sluice dev` starts it, with the webhook for pods. With `--kubeconfig` the cluster
is a real one. The quota is free: what passes is the time of the webhook, the decision and the patches.

The last line is ``pods: <pods>, created in <s> s, decided <s> s and all let go <s> s after the last one``;
before it stands the load of the machine, at the beginning and at the end.
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

from services.ctl.bench.latency import NAME, SETTLE_SECONDS, make_queue
from services.ctl.connect.bus import connected
from services.ctl.dev.app import DevOptions, Running, running
from shared.bus.follow import stored_entries
from shared.contracts.kube import kinds
from shared.contracts.kube.names import QUEUE
from shared.contracts.messages.admissions import Admission
from shared.contracts.subjects import subject_filter
from shared.integrations import Integration, Integrations, opted_documents
from shared.kube.port import Kube
from shared.kube.reflector import Changed, Listed, Reflector
from shared.runtime.command import CommandError, Exit
from shared.runtime.loop import run

CONFIGURATION: Final = """apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [pod]}
"""
AT_ONCE: Final = 16
"""Requests that create pods at the same time."""

END_SECONDS: Final = 300.0


@dataclass(slots=True, kw_only=True)
class GroupTimes:
    """What happened when, in seconds since the epoch."""

    began: float = 0.0
    created: float = 0.0
    """When the last request that creates a pod was answered."""

    decided: float = 0.0
    released: dict[str, float] = field(default_factory=dict)
    """Pod's uid to when this process saw it without a gate."""

    loads: list[float] = field(default_factory=list)
    """Processes that ran or waited for a processor, over a minute."""


async def _bench(arguments: Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        configuration = Path(folder) / "configuration.yaml"
        configuration.write_text(CONFIGURATION)
        os.environ["SLUICE_CONFIGURATION"] = str(configuration)  # Our children read it.
        options = DevOptions(
            directory=Path(folder) / "dev",
            kubeconfig=arguments.kubeconfig,
            processes=arguments.processes,
            webhook=True,
        )
        async with running(
            options, lambda text: print(f"bench: {text}", file=sys.stderr)
        ) as system:
            times = await _measured(system, count=arguments.pods)
    _report(times, arguments.pods)
    return Exit.OK


async def _measured(system: Running, *, count: int) -> GroupTimes:
    kube, times = system.kube(), GroupTimes(loads=[os.getloadavg()[0]])
    pods = _pods()
    group = f"{NAME}-{int(time.time())}"
    try:
        await make_queue(kube)
        async with asyncio.timeout(END_SECONDS):
            while not await _in_force(kube):  # noqa: ASYNC110 - another process works
                await asyncio.sleep(SETTLE_SECONDS)
        await asyncio.sleep(SETTLE_SECONDS)
        async with asyncio.timeout(END_SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(_watch(kube, times, pods, group, count=count))
            await _create(kube, times, pods, group, count=count)
    finally:
        await kube.close()
    times.loads.append(os.getloadavg()[0])
    async with connected(system.nats_url, access=system.access) as bus:
        async for item in stored_entries(bus, Admission.stream, subject_filter("admission")):
            decision = item.read(Admission)
            if decision.name == group and decision.state == "admitted" and not times.decided:
                times.decided = item.time.timestamp()
    return times


async def _in_force(kube: Kube) -> bool:
    """Whether pods are a kind that can wait."""
    found = (await kube.list(kinds.INTEGRATION)).items
    return any((one.get("status") or {}).get("accepted") for one in found)


def _pods() -> Integration:
    """The kind, as the configuration above opts for it."""
    integrations = Integrations()
    for document in opted_documents(("pod",)):
        integrations.apply(document)
    found = integrations.find(group=kinds.POD.group, kind=kinds.POD.kind)
    assert found is not None
    return found


async def _create(
    kube: Kube, times: GroupTimes, pods: Integration, group: str, *, count: int
) -> None:
    """Create the pods of a group, some at the same time. Raises `CommandError` if the first is not held."""
    times.began = time.time()
    first = await kube.create(kinds.POD, _pod(pods, group, 0, count))
    if not pods.held(first):
        raise CommandError("webhook", "a pod that names a queue was created without its gate")
    slots = asyncio.Semaphore(AT_ONCE)

    async def create(number: int) -> None:
        async with slots:
            await kube.create(kinds.POD, _pod(pods, group, number, count))

    async with asyncio.TaskGroup() as tasks:
        for number in range(1, count):
            tasks.create_task(create(number))
    times.created = time.time()


def _pod(pods: Integration, group: str, number: int, count: int) -> dict[str, Any]:
    assert pods.group is not None
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1m"}}}
    return {
        "metadata": {
            "name": f"{group}-{number}",
            "namespace": NAME,
            "labels": {QUEUE: NAME, pods.group.label: group},
            "annotations": {pods.group.total: str(count)},
        },
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


async def _watch(
    kube: Kube, times: GroupTimes, pods: Integration, group: str, *, count: int
) -> None:
    """Return once all pods of the group have been seen without their gate."""
    assert pods.group is not None
    reflector = Reflector(kube=kube, kind=kinds.POD, random=Random(0), namespace=NAME)
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
            for pod in seen:
                metadata = pod["metadata"]
                is_ours = (metadata.get("labels") or {}).get(pods.group.label) == group
                if is_ours and not pods.held(pod):
                    times.released.setdefault(metadata["uid"], now)
            if len(times.released) == count:
                return


def _report(times: GroupTimes, count: int) -> None:
    loads = " to ".join(f"{load:.1f}" for load in times.loads)
    print(f"load of {os.cpu_count()} processors: {loads}")
    made, last = times.created - times.began, max(times.released.values())
    print(
        f"pods: {count}, created in {made:.2f} s, decided {times.decided - times.created:.2f} s "
        f"and all let go {last - times.created:.2f} s after the last one"
    )


def main() -> int:
    """Create a group; print figures."""
    parser = ArgumentParser(prog="python -m services.ctl.bench.pods", description=__doc__)
    parser.add_argument("--pods", type=int, default=500, help="how many the group has")
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
