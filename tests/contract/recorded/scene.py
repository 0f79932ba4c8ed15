"""A hub with two spokes and build hosts, in which a bit of everything happens; worlds on its logs."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from services.provisioner import app as provisioner
from services.provisioner.hosts.fake import FakeFleet, FakeHosts
from services.provisioner.settings import ProvisionerSettings
from services.simulator.scenarios.load import object_of
from services.simulator.scenarios.spokes.clusters import CHECK, MultiClusterSystem
from services.simulator.scenarios.system import CLUSTER
from shared.contracts.controllers import MACHINES, MULTIKUEUE
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.multi_platform import CONFIG_LABEL, HOST_CONFIG, PLATFORM_PARAMETER
from shared.contracts.simulation import DURATION
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_streams import PLAIN, Dialect
from shared.testing.world.world import ProcessContext, World
from tests.contract.recorded.logs import Recording, load, restore

SPOKES: Final = ("east", "west")
TEAM: Final = "team-a"
LONG: Final = 36_000
"""Seconds that what holds quota at the end of the recording goes on for."""

SERVICES: Final = ("watcher", "classifier", "quota", "patcher", "dispatcher")
RULES: Final = "queueName: builds\n"
BEAT_SECONDS: Final = 3.0
RECORD_SECONDS: Final = 60.0
SLOT: Final = "linux-ppc64le"
PLATFORM: Final = "linux/ppc64le"
PRIORITIES: Final = {"high": 100, "low": 1}
HOSTS: Final = {
    "host.power-1.address": "10.0.0.1",
    "host.power-1.user": "root",
    "host.power-1.platform": PLATFORM,
    "host.power-1.secret": "ssh",
    "host.power-1.concurrency": "1",
}
Namer = Callable[[str], Dialect]


def plain(process: str) -> Dialect:
    """Every process is of the present release."""
    del process
    return PLAIN


class Scene:
    """The processes of all services, on clusters that may be filled by hand or from recorded logs."""

    def __init__(self, world: World) -> None:
        self.world = world
        settings = {"dispatcher": "best-fit", "silent_seconds": 3 * BEAT_SECONDS}
        self.system = MultiClusterSystem(
            world, SPOKES, rules=RULES, dispatcher=settings, beat_seconds=BEAT_SECONDS
        )
        self.server = self.system.hub.server
        self._fleet = FakeFleet()

    def serve(self) -> None:
        """Start one replica of each service, and the agents of the spokes."""
        self.system.serve()
        self.serve_hosts(plain)

    def serve_hosts(self, dialect_of: Namer) -> str:
        """Start the provisioner; return the name of its process."""

        async def start(context: ProcessContext) -> None:
            bus = MemoryBus(
                self.server,
                instance=context.instance,
                random=context.random,
                dialect=dialect_of(context.name),
            )
            running = provisioner.assemble(
                settings=ProvisionerSettings(instance=context.instance),
                bus=bus,
                providers={},
                hosts=FakeHosts(self._fleet),
                now=context.now,
                random=context.random,
                entropy=context.random.randbytes,
            )
            await bus.start()
            await running.run()

        return self.world.process("provisioner-1", start).name

    def begin_on(self, recording: Recording) -> None:
        """Put recorded logs and clusters in, before anything is served."""
        load(self.server, recording)
        for cluster, objects in recording.clusters.items():
            restore(self.system.apis[cluster], objects)

    async def play(self) -> None:
        """Let a bit of everything happen: after `RECORD_SECONDS` nothing moves any more."""
        for cluster in (CLUSTER, *SPOKES):
            for kind, obj in _queues(cluster):
                await self.system.kubes[cluster].create(kind, obj)
        await self.system.configure()
        self.serve()
        loop = asyncio.get_running_loop()
        for at, kind, obj in _arrivals():
            await asyncio.sleep(max(0.0, at - loop.time()))
            await self.system.hub.kube.create(kind, obj)
        await asyncio.sleep(max(0.0, 30.0 - loop.time()))
        await self.system.hub.kube.delete(kinds.JOB, TEAM, "deleted")
        await asyncio.sleep(max(0.0, RECORD_SECONDS - loop.time()))


def _queues(cluster: str) -> list[tuple[Kind, Object]]:
    objects = [
        (kinds.NAMESPACE, object_of(kinds.NAMESPACE, TEAM)),
        (kinds.RESOURCE_FLAVOR, object_of(kinds.RESOURCE_FLAVOR, "any", spec={})),
    ]
    priority = kinds.WORKLOAD_PRIORITY_CLASS
    objects += [(priority, object_of(priority, n) | {"value": v}) for n, v in PRIORITIES.items()]
    if cluster != CLUSTER:
        return objects + _queue("far", {"cpu": "4"})
    preemption = {"withinClusterQueue": "LowerPriority"}
    config = object_of(
        kinds.CONFIG_MAP, HOST_CONFIG, namespace=names.OPERATOR_NAMESPACE, data=HOSTS
    )
    config["metadata"]["labels"] = {CONFIG_LABEL: "hosts"}
    machines = object_of(kinds.ADMISSION_CHECK, "machines", spec={"controllerName": MACHINES})
    objects += [
        (kinds.NAMESPACE, object_of(kinds.NAMESPACE, names.OPERATOR_NAMESPACE)),
        (kinds.CONFIG_MAP, config),
        (kinds.ADMISSION_CHECK, machines),
    ]
    slots = {"tekton.dev/pipelineruns": "10", SLOT: "2"}
    return [
        *objects,
        *_queue("near", {"cpu": "3"}, preemption=preemption),
        *_queue("far", {"cpu": "2"}, checks=[CHECK]),
        *_queue("builds", slots, checks=["machines"]),
    ]


def _queue(
    name: str, quota: dict[str, str], checks: list[str] | None = None, **spec: Any
) -> list[tuple[Kind, Object]]:
    resources = [{"name": one, "nominalQuota": amount} for one, amount in quota.items()]
    group = {"coveredResources": list(quota), "flavors": [{"name": "any", "resources": resources}]}
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": one} for one in checks]}
    spec |= {"namespaceSelector": {}, "resourceGroups": [group]}
    local = object_of(kinds.LOCAL_QUEUE, name, namespace=TEAM, spec={"clusterQueue": name})
    return [
        (kinds.CLUSTER_QUEUE, object_of(kinds.CLUSTER_QUEUE, name, spec=spec)),
        (kinds.LOCAL_QUEUE, local),
    ]


def _arrivals() -> list[tuple[float, Kind, Object]]:
    """What comes when: it ends, goes on, waits, is evicted, is deleted, here and on spokes."""
    jobs = [
        (2.0, _job("ended", "near", 3)),
        (3.0, _job("older", "near", LONG)),
        (4.0, _job("deleted", "near", LONG)),
        (12.0, _job("stopping", "near", LONG, stop_seconds=LONG)),
        (16.0, _job("urgent", "near", LONG, priority="high")),
        (18.0, _job("too-large", "near", LONG, cpu="2")),
        (6.0, _job("far-ended", "far", 5)),
        (7.0, _job("far-first", "far", LONG)),
        (20.0, _job("far-second", "far", LONG)),
        (22.0, _job("far-waiting", "far", LONG)),
        (35.0, _job("far-deferred", "far", LONG)),
    ]
    runs = [
        (8.0, _run("plain", 4)),
        (9.0, _run("build", LONG, slot=True)),
        (24.0, _run("without-host", LONG, slot=True)),
        (26.0, _run("without-slot", LONG, slot=True)),
    ]
    coming = [(at, kinds.JOB, job) for at, job in jobs]
    coming += [(at, kinds.PIPELINE_RUN, run) for at, run in runs]
    return sorted(coming, key=lambda one: one[0])


def _job(
    name: str,
    queue: str,
    seconds: int,
    *,
    priority: str = "low",
    cpu: str = "1",
    stop_seconds: int = 1,
) -> Object:
    """Return a Job. `stop_seconds`: for how long its pod works on when it is to stop."""
    container = {"name": "work", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    template = {
        "metadata": {"annotations": {DURATION: f"{seconds}s"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": stop_seconds,
            "containers": [container],
        },
    }
    spec: dict[str, Any] = {"template": template, "suspend": True}
    if queue == "far":
        spec["managedBy"] = MULTIKUEUE
    job = object_of(kinds.JOB, name, namespace=TEAM, spec=spec)
    job["metadata"]["labels"] = {names.QUEUE: queue, names.PRIORITY_CLASS_LABEL: priority}
    return job


def _run(name: str, seconds: int, *, slot: bool = False) -> Object:
    """Return a PipelineRun of one task. `slot`: the task needs a build host."""
    task: dict[str, Any] = {
        "name": "build",
        "taskSpec": {"steps": [{"name": "work", "image": "none"}]},
    }
    if slot:
        task["params"] = [{"name": PLATFORM_PARAMETER, "value": PLATFORM}]
    run = object_of(
        kinds.PIPELINE_RUN, name, namespace=TEAM, spec={"pipelineSpec": {"tasks": [task]}}
    )
    run["metadata"]["annotations"] = {DURATION: f"{seconds}s"}
    if slot:
        run["metadata"]["annotations"][f"{names.REQUESTS_PREFIX}{SLOT}"] = "1"
    return run
