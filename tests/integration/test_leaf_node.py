"""A spoke behind a leaf node, on real servers: cut for longer than the time-out, and healed."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from services.classifier import app as classifier
from services.dispatcher import app as dispatcher
from services.dispatcher.settings import DispatcherSettings
from services.patcher import app as patcher
from services.patcher.settings import PatcherSettings
from services.quota import app as quota
from services.quota.settings import QuotaSettings
from services.simulator.behaviour.running import Behaviour
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from services.simulator.scenarios.spokes_judge import Overseer, left_behind
from services.watcher import app as watcher
from services.watcher.settings import WatcherSettings
from shared.bus.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats_bus import NatsBus
from shared.bus.streams import DATA
from shared.contracts import kinds
from shared.contracts.kinds import Object
from shared.integrations import JOB

NAMESPACE = "team-a"
BEAT_SECONDS = 0.5
SILENT_SECONDS = 2.0
LOST_SECONDS = 4.0
CUT_SECONDS = 9.0
JOBS = 6
SPEED = 10.0
END_SECONDS = 150.0


def now() -> datetime:
    return datetime.now(UTC)


class Proxy:
    """A TCP proxy that can be cut: what it had is dropped, and nobody is told."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.cut = False

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._on_connect, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self._drop()

    def set_cut(self, cut: bool) -> None:
        self.cut = cut
        if cut:
            self._drop()

    def _drop(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            writer.transport.abort()
            return
        try:
            theirs, mine = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, mine}
        await asyncio.gather(self._pump(reader, mine), self._pump(theirs, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
        self._open.discard(writer)


def free_port() -> int:
    import socket  # noqa: PLC0415

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """An API server in this process, with its controllers."""

    def __init__(self, seed: int) -> None:
        self.api = Api(now=now, random=Random(seed))
        self.behaviour = Behaviour(self.api, random=Random(seed), speed=SPEED)
        self.kube = LocalKube(self.api)


class System:
    """The hub's services on the hub's server; the pair of each spoke on the server that it dials."""

    def __init__(self) -> None:
        self.clusters = {
            name: Cluster(number) for number, name in enumerate(("hub", "east", "west"))
        }
        self._running: list[tuple[NatsBus, list[asyncio.Task[Any]]]] = []

    async def serve(self, hub_url: str, urls: dict[str, str]) -> None:
        for cluster in self.clusters.values():
            cluster.behaviour.start()
        for name, url in {"hub": hub_url, **urls}.items():
            await self._start(
                url, f"watcher-{name}", lambda bus, name=name: self._watcher(name, bus)
            )
            await self._start(
                url, f"patcher-{name}", lambda bus, name=name: self._patcher(name, bus)
            )
        settings = DispatcherSettings(
            dispatcher="all-at-once",
            silent_seconds=SILENT_SECONDS,
            worker_lost_timeout_seconds=LOST_SECONDS,
            spokes_seconds=0.5,
        )
        await self._start(hub_url, "classifier", lambda bus: classifier.assemble(bus=bus, now=now))
        await self._start(
            hub_url, "quota", lambda bus: quota.assemble(settings=QuotaSettings(), bus=bus, now=now)
        )
        await self._start(
            hub_url,
            "dispatcher",
            lambda bus: dispatcher.assemble(settings=settings, bus=bus, now=now, random=Random(1)),
        )

    async def _start(self, url: str, name: str, build: Any) -> None:
        bus = NatsBus(url=url, instance=name, now=now)
        service = build(bus)
        await bus.start()
        self._running.append((bus, [asyncio.create_task(service.run())]))

    def _watcher(self, name: str, bus: NatsBus) -> Any:
        return watcher.assemble(
            settings=WatcherSettings(cluster=name), bus=bus, kube=self.clusters[name].kube, now=now,
            random=Random(2),
        )  # fmt: skip

    def _patcher(self, name: str, bus: NatsBus) -> Any:
        settings = PatcherSettings(cluster=name, beat_seconds=BEAT_SECONDS)
        return patcher.assemble(settings=settings, bus=bus, kube=self.clusters[name].kube, now=now)

    async def stop(self) -> None:
        for bus, tasks in reversed(self._running):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await bus.stop()
        for cluster in self.clusters.values():
            await cluster.behaviour.stop()


def made(kind: kinds.Kind, name: str, *, namespace: str | None = None, **more: Any) -> Object:
    metadata: Object = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **more}


async def furnish(system: System) -> None:
    """Queues on every cluster; the hub's quota is that of its spokes together."""
    for name, cluster in system.clusters.items():
        hub = name == "hub"
        resources = [{"name": "cpu", "nominalQuota": "6" if hub else "3"}]
        flavors = [{"name": "any", "resources": resources}]
        spec: Object = {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        }
        if hub:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": "elsewhere"}]}
        local = {"clusterQueue": "main"}
        for kind, obj in (
            (kinds.NAMESPACE, made(kinds.NAMESPACE, NAMESPACE)),
            (kinds.RESOURCE_FLAVOR, made(kinds.RESOURCE_FLAVOR, "any", spec={})),
            (kinds.CLUSTER_QUEUE, made(kinds.CLUSTER_QUEUE, "main", spec=spec)),
            (kinds.LOCAL_QUEUE, made(kinds.LOCAL_QUEUE, "main", namespace=NAMESPACE, spec=local)),
        ):
            await cluster.kube.create(kind, obj)
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
    check = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
    kube = system.clusters["hub"].kube
    for spoke in ("east", "west"):
        await kube.create(kinds.MULTIKUEUE_CLUSTER, made(kinds.MULTIKUEUE_CLUSTER, spoke))
    config = made(kinds.MULTIKUEUE_CONFIG, "all", spec={"clusters": ["east", "west"]})
    await kube.create(kinds.MULTIKUEUE_CONFIG, config)
    await kube.create(kinds.ADMISSION_CHECK, made(kinds.ADMISSION_CHECK, "elsewhere", spec=check))


def job(number: int) -> Object:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    annotations = {"simulator.sluicegate.dev/duration": "30s"}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    obj = made(
        kinds.JOB, f"job-{number}", namespace=NAMESPACE,
        spec={"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue", "template": template},
    )  # fmt: skip
    obj["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "main"}
    return obj


@contextlib.asynccontextmanager
async def servers() -> AsyncIterator[tuple[str, str, Proxy]]:
    """A hub with JetStream, a leaf without, and the proxy through which the leaf dials out."""
    with tempfile.TemporaryDirectory(prefix="leaf-", ignore_cleanup_errors=True) as folder:
        root, leaf_port = Path(folder), free_port()
        text = (
            (DATA / "server.conf").read_text().replace("jetstream {", "jetstream {\n  domain: hub")
        )
        (root / "hub.conf").write_text(
            f'{text}\nleafnodes {{ host: "127.0.0.1", port: {leaf_port} }}\n'
        )
        hub = await EmbeddedServer(root / "hub", config=root / "hub.conf").start()
        proxy = Proxy(leaf_port)
        port = await proxy.start()
        (root / "leaf.conf").write_text(
            "max_payload: 4MB\n"
            # The leaf keeps nothing: what asks for JetStream there asks the hub's.
            'mappings { "$JS.API.>": "$JS.hub.API.>" }\n'
            f'leafnodes {{ reconnect: 1s, remotes: [ {{ url: "nats://127.0.0.1:{port}" }} ] }}\n'
        )
        leaf = await EmbeddedServer(root / "leaf", config=root / "leaf.conf").start()
        try:
            await apply_at(hub.url)
            yield hub.url, leaf.url, proxy
        finally:
            await leaf.kill()
            await proxy.stop()
            await hub.kill()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 # what changes is in clusters that know nothing of us
        await asyncio.sleep(0.1)


async def ended(system: System) -> set[str]:
    found = (await system.clusters["hub"].kube.list(kinds.JOB)).items
    return {one["metadata"]["name"] for one in found if JOB.finish(one) is not None}


@pytest.mark.timeout(300)
async def test_a_spoke_that_is_cut_for_longer_than_the_time_out_runs_nothing_twice_and_loses_nothing() -> (
    None
):
    async with servers() as (hub_url, leaf_url, proxy):
        system = System()
        loop = asyncio.get_running_loop()
        apis = {name: cluster.api for name, cluster in system.clusters.items()}
        overseer = Overseer(apis, loop.time)
        await furnish(system)
        await system.serve(hub_url, {"east": leaf_url, "west": hub_url})
        try:
            async with asyncio.timeout(END_SECONDS):
                for number in range(JOBS):
                    await system.clusters["hub"].kube.create(kinds.JOB, job(number))
                await until(lambda: any("east" in places for places in overseer.ran.values()))
                proxy.set_cut(True)
                await asyncio.sleep(CUT_SECONDS)
                on_east = {job for job, places in overseer.ran.items() if "east" in places}
                assert all(overseer.ran[job] == ["east"] for job in on_east), "it stays there"
                proxy.set_cut(False)
                kubes = {name: cluster.kube for name, cluster in system.clusters.items()}
                while len(await ended(system)) < JOBS or await left_behind(dict(kubes)):  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            assert overseer.problems == []
            assert len(overseer.ran) == JOBS
        finally:
            await system.stop()
