"""Measure the console on this machine: ``python -m services.console.bench``.

Arguments, if not the defaults: workloads, pages, changes a second, seconds. The process follows a NATS
server and serves pages that watch; who changes the workloads and who reads the pages are other
processes, so that the figures are the console's alone.
"""

import asyncio
import logging
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
import structlog

from services.console.access.reviews import AllowAll
from services.console.app import assemble
from services.console.http.handlers import console_app
from services.console.settings import ConsoleSettings
from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.streams import DATA
from shared.contracts.kube.kinds import CLUSTER_QUEUE
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import PodSet, WorkloadState
from shared.runtime.web import WebServer

WORKLOADS: Final = 10_000
PAGES: Final = 50
CHANGES: Final = 50
SECONDS: Final = 30.0
TICK_SECONDS: Final = 0.1
KIB: Final = 1024


ASKED: Final = {"/api/v1/quota": 3.0, "/api/v1/alerts": 10.0}
"""What an open overview asks for beside the events, and how often, in seconds."""

QUEUES: Final = 40
RESOURCES: Final = ("cpu", "memory", "nvidia.com/gpu")


def _now() -> datetime:
    return datetime.now(UTC)


def _bus(url: str, name: str) -> NatsBus:
    return NatsBus(url=url, instance=f"bench-{name}", service=name, now=_now, consumers=False)


def _workload(number: int, version: int) -> WorkloadState:
    return WorkloadState(
        cluster="hub",
        namespace=f"team-{number % 50}",
        name=f"job-{number}",
        uid=f"uid-{number}",
        version=str(version),
        priority=version,
        phase="waiting",
        queue="main",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        pod_sets=[PodSet(name="main", count=1, requests={"cpu": "2", "memory": "4Gi"})],
    )


def _queue(number: int) -> Observed:
    quotas = [{"name": each, "nominalQuota": "100"} for each in RESOURCES]
    group = {
        "coveredResources": list(RESOURCES),
        "flavors": [{"name": "default", "resources": quotas}],
    }
    return Observed(
        cluster="hub",
        group=CLUSTER_QUEUE.group,
        version=CLUSTER_QUEUE.version,
        plural=CLUSTER_QUEUE.plural,
        kind=CLUSTER_QUEUE.kind,
        name=f"cq-{number}",
        uid=f"cq-{number}",
        resource_version="1",
        object={
            "metadata": {"name": f"cq-{number}", "uid": f"cq-{number}"},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [group],
                "cohortName": f"cohort-{number % 5}",
            },
        },
    )


async def publish(url: str, workloads: int, changes: float) -> None:
    """Publish all workloads, say so, and then change one after the other.

    By the clock: whoever waits for each acknowledgement falls behind on a busy machine.
    """
    bus = _bus(url, "classifier")
    await bus.start()
    for number in range(QUEUES):
        bus.publish(_queue(number))
    for number in range(workloads):
        bus.publish(_workload(number, 1))
        if number % 500 == 0:
            await bus.flush()
    await bus.flush()
    print("ready", flush=True)
    number, last, due = 0, time.monotonic(), 0.0
    while True:
        now = time.monotonic()
        # What a busy machine has missed is not made up for: the console would be measured with more changes.
        due = min(due + (now - last) * changes, changes)
        last = now
        while due >= 1:
            number, due = number + 1, due - 1
            bus.publish(_workload(number % workloads, 2 + number // workloads))
        await bus.flush()
        await asyncio.sleep(TICK_SECONDS)


async def watch(url: str, pages: int) -> None:
    """Follow the events as so many overviews do; say so once each has its first one.

    What comes is not looked at: the machine has to be the console's.
    """

    async def ask(session: aiohttp.ClientSession, path: str, seconds: float) -> None:
        while True:
            async with session.get(url + path) as response:
                await response.read()
            await asyncio.sleep(seconds)

    async def page(session: aiohttp.ClientSession, first: asyncio.Semaphore) -> None:
        while True:
            async with session.get(f"{url}/api/v1/events") as response:
                if response.status != HTTPStatus.OK:
                    await asyncio.sleep(1)  # The streams are not read to the end yet.
                    continue
                await response.content.readany()
                first.release()
                while await response.content.readany():
                    pass

    first = asyncio.Semaphore(0)
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=connector, read_bufsize=1 << 20
    ) as session:
        tasks = [asyncio.create_task(page(session, first)) for _ in range(pages)]
        tasks += [
            asyncio.create_task(ask(session, *each)) for _ in range(pages) for each in ASKED.items()
        ]
        for _ in range(pages):
            await first.acquire()
        print("ready", flush=True)
        await asyncio.gather(*tasks)


async def measure(workloads: int, pages: int, changes: int, seconds: float) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(Path(folder), config=DATA / "server.conf")
        await server.start()
        await apply_at(server.url)
        writer = await _child("publish", server.url, str(workloads), str(changes))
        bus = _bus(server.url, "console")
        await bus.start()
        console = assemble(settings=ConsoleSettings(), bus=bus, now=_now, access=AllowAll())
        app = console_app(console.queries, console.pages, streams_max=pages + 1, local_only=True)
        web = WebServer(app, host="127.0.0.1", port=0, now=_now, stop_seconds=1)
        running = asyncio.create_task(console.run())
        port = await web.start()
        began = time.process_time()
        print(f"before: {_rss()} MiB")
        reader = await _child("watch", f"http://127.0.0.1:{port}", str(pages))
        opened = time.process_time() - began
        await asyncio.sleep(5)
        version, cpu, wall = console.queries.view.version, time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        seen = (console.queries.view.version - version) / (time.monotonic() - wall)
        share = (time.process_time() - cpu) / (time.monotonic() - wall)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB
        print(f"{workloads} workloads, {pages} pages, {seen:.0f} changes a second")
        print(f"to open all pages: {opened:.1f} CPU s")
        print(
            f"while they are open: {100 * share:.1f} % of a core; {_rss()} MiB, peak {peak:.0f} MiB"
        )
        for child in (reader, writer):
            child.kill()
            await child.wait()
        await web.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await bus.stop()
        await server.stop()


def _rss() -> int:
    """MiB that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // (KIB * KIB)


async def _child(*arguments: str) -> asyncio.subprocess.Process:
    """Another process of this program, once it says that it is ready."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.console.bench", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    await child.stdout.readline()
    return child


def main() -> None:
    """What the arguments say."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    match sys.argv[1:]:
        case ["publish", url, workloads, changes]:
            asyncio.run(publish(url, int(workloads), float(changes)))
        case ["watch", url, pages]:
            asyncio.run(watch(url, int(pages)))
        case numbers:
            given = [int(number) for number in numbers]
            wanted = (*given, *(WORKLOADS, PAGES, CHANGES, int(SECONDS))[len(given) :])
            asyncio.run(measure(*wanted))


if __name__ == "__main__":
    main()
