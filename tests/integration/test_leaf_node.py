"""A spoke behind a leaf node, on real servers: cut for longer than the time-out, and healed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random
from typing import Any

from services.classifier import app as classifier
from services.dispatcher import app as dispatcher
from services.dispatcher.settings import DispatcherSettings
from services.patcher import app as patcher
from services.patcher.settings import PatcherSettings
from services.quota import app as quota
from services.quota.settings import QuotaSettings
from services.simulator.behaviour.manager import ControllerManager
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from services.simulator.scenarios.spokes.judge import PodObserver, left_behind
from services.watcher import app as watcher
from services.watcher.settings import WatcherSettings
from shared.bus.nats.bus import NatsBus
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.simulation import DURATION
from shared.integrations import JOB
from shared.testing.waiting import eventually
from tests.clock import now
from tests.integration.spoke_servers import Proxy, servers

NAMESPACE = "team-a"
BEAT_SECONDS = 0.5
SILENT_SECONDS = 2.0
LOST_SECONDS = 4.0
STOP_SECONDS = 5.5
"""The patcher looks every two seconds, and a pod has three to end in."""

CUT_SECONDS = 9.0
JOBS = 6
SPEED = 10.0
END_SECONDS = 600.0


class Cluster:
    """An API server in this process, with its controllers."""

    def __init__(self, seed: int) -> None:
        self.api = Api(now=now, random=Random(seed))
        self.behaviour = ControllerManager(self.api, random=Random(seed), speed=SPEED)
        self.kube = LocalKube(self.api)


class System:
    """The hub's services on the hub's server; the pair of each spoke on the server that it dials."""

    def __init__(self, dispatching: DispatcherSettings) -> None:
        self._dispatching = dispatching
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
        await self._start(
            hub_url, "classifier", lambda bus: classifier.assemble(bus=bus, cluster="hub")
        )
        await self._start(
            hub_url, "quota", lambda bus: quota.assemble(settings=QuotaSettings(), bus=bus, now=now)
        )
        await self._start(
            hub_url,
            "dispatcher",
            lambda bus: dispatcher.assemble(
                settings=self._dispatching, bus=bus, now=now, random=Random(1)
            ),
        )

    async def _start(self, url: str, name: str, build: Any) -> None:
        bus = NatsBus(url=url, instance=name, now=now)
        service = build(bus)
        await bus.start()
        loops = [service.run] if not hasattr(service, "guard") else [service.run, service.guard]
        self._running.append((bus, [asyncio.create_task(loop()) for loop in loops]))

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


def job(number: int, seconds: float) -> Object:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    annotations = {DURATION: f"{seconds * SPEED:.0f}s"}
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


async def ended(system: System) -> set[str]:
    found = (await system.clusters["hub"].kube.list(kinds.JOB)).items
    return {one["metadata"]["name"] for one in found if JOB.finish(one) is not None}


@contextlib.asynccontextmanager
async def at_work(
    settings: DispatcherSettings, *, seconds: float
) -> AsyncIterator[tuple[System, PodObserver, Proxy]]:
    """A hub, `east` behind a leaf node, `west` beside; six jobs, some of which run on `east`."""
    async with servers("east", "west") as found:
        system = System(settings)
        apis = {name: cluster.api for name, cluster in system.clusters.items()}
        observer = PodObserver(apis, asyncio.get_running_loop().time)
        await furnish(system)
        await system.serve(found.hub, {"east": found.leaf, "west": found.direct["west"]})
        try:
            async with asyncio.timeout(END_SECONDS):
                for number in range(JOBS):
                    await system.clusters["hub"].kube.create(kinds.JOB, job(number, seconds))
                await eventually(lambda: bool(ran_on(observer, "east")))
                yield system, observer, found.proxy
                kubes = {name: cluster.kube for name, cluster in system.clusters.items()}

                async def all_ended() -> bool:
                    return len(await ended(system)) == JOBS and not await left_behind(dict(kubes))

                await eventually(all_ended, seconds=END_SECONDS, look_seconds=0.2)
            assert observer.problems == []
            assert len(observer.ran) == JOBS
        finally:
            await system.stop()


def ran_on(observer: PodObserver, cluster: str) -> set[tuple[str, str]]:
    """Namespaces and names of the jobs that had a pod there."""
    return {job for job, places in observer.ran.items() if cluster in places}


async def test_spoke_disconnected_beyond_the_timeout_loses_and_repeats_no_job() -> None:
    settings = DispatcherSettings(
        dispatcher="all-at-once",
        silent_seconds=SILENT_SECONDS,
        worker_lost_timeout_seconds=LOST_SECONDS,
        spokes_seconds=0.5,
    )
    async with at_work(settings, seconds=3.0) as (system, observer, proxy):
        proxy.set_cut(True)
        await asyncio.sleep(CUT_SECONDS)
        on_east = ran_on(observer, "east")
        assert all(observer.ran[job] == ["east"] for job in on_east), "it stays there"
        assert not {name for _, name in on_east} & await ended(system), "nobody heard that it ended"
        proxy.set_cut(False)


async def test_with_leases_job_of_a_disconnected_spoke_stops_there_before_it_runs_elsewhere() -> (
    None
):
    settings = DispatcherSettings(
        dispatcher="all-at-once",
        silent_seconds=SILENT_SECONDS,
        worker_lost_timeout_seconds=LOST_SECONDS + STOP_SECONDS,
        redispatch="afterLease",
        stop_seconds=STOP_SECONDS,
        patcher_down_seconds=1.0,
        spokes_seconds=0.5,
    )
    async with at_work(settings, seconds=8.0) as (_, observer, proxy):
        proxy.set_cut(True)
        on_east = ran_on(observer, "east")
        # The judge sees the pods of both at every moment: the second starts after the first's end.
        await eventually(lambda: bool(on_east & ran_on(observer, "west")))
        proxy.set_cut(False)
