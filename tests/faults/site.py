"""A running system to break: one or three nats-servers, an API server, every service as a process."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import nats
import yaml

from services.ctl.dev.app import EXAMPLE, DevOptions, Running, running
from services.ctl.programs import SERVICES, Program
from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.streams import DATA
from shared.contracts.kube import kinds
from shared.contracts.kube.names import QUEUE
from shared.contracts.simulation import DURATION
from shared.kube.port import AlreadyExistsError, KubeError
from shared.settings.ports import reserve_port
from tests.conformance.seeds.stage import pipeline_run, pool
from tests.faults.books import BILLION, Books, Journal
from tests.faults.clocks import Clock, library
from tests.faults.proxy import Proxy

NAMESPACE: Final = "team-a"
BUSY, PROBE, RUNS = "busy", "probe", "runs"
QUOTAS: Final = {BUSY: 2, PROBE: 50, RUNS: 2}
"""LocalQueue to CPUs, or to PipelineRuns: in one there is never anybody who waits, in the others always."""

SPEED: Final = 100.0
DISK_MIB: Final = 192
"""Room of a server whose disk can be filled."""

PROCESSES: Final = (*(one.value for one in SERVICES), Program.PAIRS.value)
API_SERVER: Final = Program.SIMULATOR.value
CLOCKED: Final = (Program.QUOTA.value, Program.PATCHER.value, Program.CLASSIFIER.value)
"""Services whose clocks can be moved, in a system that is started for it."""


class Site:
    """What a fault can reach, and the jobs that go on meanwhile."""

    def __init__(
        self,
        system: Running,
        servers: list[EmbeddedServer],
        folders: list[Path],
        proxies: list[Proxy],
        clocks: Mapping[str, Clock],
    ) -> None:
        self.system = system
        self.servers = servers
        self.folders = folders
        """The folder of each server."""

        self.proxies = proxies
        """What stands between the services and each server."""

        self.clocks = clocks
        """The clocks that can be moved, by the name of their process."""

        self.books = Books({name: cpus * BILLION for name, cpus in QUOTAS.items()})
        self._journal = Journal(system.kubeconfig.parent / "simulator.jsonl")
        self._number = 0

    @property
    def replicas(self) -> int:
        """How many servers keep each stream."""
        return len(self.servers)

    def read(self) -> None:
        """Enter what the API server wrote since the last time."""
        self.books.enter(self._journal.changes())

    async def create(self, queue: str = BUSY, *, seconds: int = 1) -> str:
        """Create a job that runs so long; ask again until the API server takes it. Returns its name."""
        self._number += 1
        name = f"{queue}-{self._number}"
        kind, obj = _object(name, queue, seconds)
        kube = self.system.kube()
        try:
            while True:
                with suppress(KubeError):
                    try:
                        await kube.create(kind, obj)
                    except AlreadyExistsError:
                        return name
                    return name
                await asyncio.sleep(0.2)
        finally:
            await kube.close()

    def signal(self, name: str, number: signal.Signals) -> bool:
        """Send a signal to a process; False if it does not run at the moment."""
        pid = self.system.supervisor.pid(name)
        if pid is not None:
            os.kill(pid, number)
        return pid is not None

    async def restart(self, server: EmbeddedServer) -> None:
        """Start a server that was killed."""
        if not server.running:
            await server.start()

    async def declare(self) -> None:
        """What an operator does after a disk was lost: `sluice bus apply`."""
        for _ in range(50):
            with suppress(Exception):  # The server is on its way up.
                if (await apply_at(self.servers[0].url, replicas=self.replicas)).ok:
                    return
            await asyncio.sleep(0.2)

    async def leader_of(self, stream: str) -> int:
        """Index of the server that leads a stream; 0 if nobody says."""
        info = await self.call(f"STREAM.INFO.{stream}")
        name = str((info.get("cluster") or {}).get("leader") or "s0")
        return int(name[1:]) if name[1:].isdigit() else 0

    async def call(self, what: str, body: bytes = b"") -> dict[str, Any]:
        """Ask JetStream, past the proxies; an empty answer if it does not answer."""
        with suppress(Exception):
            nc = await nats.connect(
                [one.url for one in self.servers if one.running], allow_reconnect=False
            )
            try:
                answer = await nc.request(f"$JS.API.{what}", body, timeout=5)
            finally:
                await nc.close()
            found: dict[str, Any] = json.loads(answer.data)
            return found
        return {}

    def close(self) -> None:
        """Read the journal no more."""
        self._journal.close()


def _object(name: str, queue: str, seconds: int) -> tuple[kinds.Kind, dict[str, Any]]:
    """A PipelineRun for the queue of these, otherwise a Job."""
    if queue != RUNS:
        return kinds.JOB, _job(name, queue, seconds)
    run = pipeline_run(name, namespace=NAMESPACE, seconds=seconds * SPEED, labels={QUEUE: queue})
    return kinds.PIPELINE_RUN, run


def _job(name: str, queue: str, seconds: int) -> dict[str, Any]:
    containers = [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {QUEUE: queue},
            "annotations": {DURATION: f"{seconds * SPEED:.0f}s"},
        },
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": containers}},
        },
    }


@asynccontextmanager
async def site(servers: int, *, clocked: bool = False) -> AsyncIterator[Site]:
    """Start a system with so many servers; stop all of it at the end.

    `clocked`: the clocks of some services can be moved, if this machine has what it takes.
    """
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        folders = [place / f"s{number}" for number in range(servers)]
        mounted = [one for one in folders if _small_disk(one)]
        started = _servers(folders)
        proxies: list[Proxy] = []
        try:
            await asyncio.gather(*(one.start() for one in started))
            proxies += [Proxy("127.0.0.1", int(one.url.rpartition(":")[2])) for one in started]
            url = ",".join([f"nats://127.0.0.1:{await one.start()}" for one in proxies])
            await _declare(started[0].url, servers)
            libfaketime = library() if clocked else None
            clocks = {} if libfaketime is None else {name: Clock(place / name) for name in CLOCKED}
            options = DevOptions(
                directory=place / "dev",
                nats_url=url,
                manifests=(_manifests(place), EXAMPLE),
                speed=SPEED,
                seed=11,
                environment=lambda program: (
                    clocks[program].environment(libfaketime)
                    if libfaketime and program in clocks
                    else {}
                ),
            )
            async with running(options, lambda _: None) as system:
                subject = Site(system, started, folders, proxies, clocks)
                yield subject
                subject.close()
        finally:
            for proxy in proxies:
                await proxy.stop()
            for one in started:
                await one.kill()
            for disk in mounted:
                _unmount(disk)


def _manifests(place: Path) -> Path:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    resources = {RUNS: "tekton.dev/pipelineruns"}
    objects = [
        one
        for name, quota in QUOTAS.items()
        for one in pool(name, {resources.get(name, "cpu"): quota})
    ]
    path = place / "queues.yaml"
    path.write_text(yaml.safe_dump_all([namespace, *objects]))
    return path


def _small_disk(folder: Path) -> bool:
    """Give a server a disk of its own that can be filled, where we may mount one."""
    folder.mkdir(parents=True)
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    size = f"size={DISK_MIB}m"
    command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _servers(folders: list[Path]) -> list[EmbeddedServer]:
    """Make the servers; of several none names the others to its clients, who would go past the proxies."""
    if len(folders) == 1:
        return [EmbeddedServer(folders[0])]
    ports = [reserve_port() for _ in folders]
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)
    made = []
    for number, (folder, port) in enumerate(zip(folders, ports, strict=True)):
        config = folder.parent / f"s{number}.conf"
        config.write_text(
            (DATA / "server.conf").read_text()
            + f'\nserver_name: "s{number}"\ncluster {{ name: faults, listen: "127.0.0.1:{port}", '
            f"no_advertise: true, routes: [{routes}] }}\n"
        )
        made.append(EmbeddedServer(folder, config=config))
    return made


async def _declare(url: str, replicas: int) -> None:
    """Make the streams, as soon as three servers have elected whoever makes them."""
    async with asyncio.timeout(60):
        while True:
            with suppress(Exception):
                if (await apply_at(url, replicas=replicas)).ok:
                    return
            await asyncio.sleep(0.3)
