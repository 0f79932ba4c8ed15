"""A system in virtual time: a tenant attacks, others fill the quota, a judge counts what runs (T1)."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from services.simulator.cluster.api import DeleteOptions
from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds.catalogue import PIPELINERUNS, PODS
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Event
from services.simulator.scenarios.system import WATCHED, System
from shared.contracts.kube.conditions import SUCCEEDED, has_status
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import QUEUE
from shared.contracts.kube.quantities import parse_quantity
from shared.contracts.simulation import DURATION
from shared.kube.port import KubeError
from shared.settings.configuration import Configuration
from shared.testing.world.world import World
from tests.attacks.ground import BreachError
from tests.conformance.seeds.stage import Stage, job, pipeline_run, pool
from tests.simulation.kinds.pods import PODS as PODS_WAIT
from tests.simulation.kinds.pods import is_gated, opened, pod
from tests.simulation.kinds.test_integrations import job_set

TENANT, OTHERS = "team-a", "team-b"
SERVICES: Final = ("watcher", "classifier", "quota", "patcher")
NOTICE_SECONDS: Final = 30.0
"""So long may run what nobody admitted: it has to be noticed, and to end."""

SETTLE_SECONDS: Final = 60.0
CPU: Final = {"full": 2, "own": 1, "sets": 1, "spare": 1}
"""Quota of the queues. `full` is in use by others, `own` and `sets` by the tenant; `spare` is empty."""

POD_QUEUE: Final = "pods"
"""The tenant uses it up where pods wait, too; it has one CPU."""

SLOTS: Final = 2
"""Quota of PipelineRuns: one runs for the tenant, one for others."""

WHERE_SERVED: Final = (
    "rayclusters.ray.io",
    "rayjobs.ray.io",
    "rayservices.ray.io",
    "sparkapplications.sparkoperator.k8s.io",
    "tfjobs.kubeflow.org",
    "mpijobs.kubeflow.org",
    "workflows.argoproj.io",
    "appwrappers.workload.codeflare.dev",
)
"""Kinds that only some attacks have served."""

_UNIT: Final = 10**9
Act = Callable[["Field"], Awaitable[None]]


class Field:
    """What the tenant has, and may do. A write that is refused changes nothing and raises nothing."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.slots = SLOTS
        """Quota of PipelineRuns in all queues."""

        self.running: dict[str, Object] = {}
        """Kind to what the tenant runs, admitted."""

        self.refused: list[str] = []

    async def waiting(self, kind: str, name: str = "waits", **metadata: Any) -> Object:
        """Create something that waits, because its quota is in use."""
        obj = work(kind, name, "full")
        for field, more in metadata.items():
            before = obj["metadata"].get(field, {})
            obj["metadata"][field] = more
            if isinstance(more, dict):
                both = {**before, **more}
                obj["metadata"][field] = {k: v for k, v in both.items() if v is not None}
        made = await self.create(obj)
        await self.stage.settle(5)
        return made

    async def create(self, obj: Object) -> Object:
        """Create; empty if that was refused."""
        return await self._write(self.stage.kube.create(self.stage.kind(obj), obj))

    async def patch(self, obj: Object, *patches: Any) -> None:
        """Change an object, one write after the other."""
        for patch in patches if obj else ():
            await self._write(self.stage.patch(obj, patch))

    async def delete(
        self, obj: Object, propagation: str = "Background", grace_seconds: int | None = None
    ) -> None:
        """Delete an object in one of Kubernetes' ways."""
        kind, api = self.stage.kind(obj), self.stage.system.api
        served = api.kinds.find(kind.group, kind.version, kind.plural)
        assert served is not None
        options = DeleteOptions(propagation=propagation, grace_seconds=grace_seconds)
        with suppress(ApiError):
            await api.delete(served, TENANT, obj["metadata"]["name"], options)

    async def all(self, kind: Kind) -> list[Object]:
        """Every object of a kind that the tenant has."""
        return (await self.stage.kube.list(kind, namespace=TENANT)).items

    async def workload(self, obj: Object) -> Object:
        """The Workload of a job; empty if there is none."""
        return await self.stage.workload(obj) if obj else {}

    async def _write(self, call: Coroutine[Any, Any, Object]) -> Object:
        try:
            return await call
        except KubeError as error:
            self.refused.append(str(error))
            return {}


class _Judge:
    """Counts CPU of pods and PipelineRuns that run, by what the cluster has; no label is believed."""

    def __init__(self, system: System, field: Field, *, pods_wait: bool) -> None:
        self._field = field
        self._now = system.world.now
        self._cpu = sum(CPU.values()) - CPU["spare"] + pods_wait
        self._pods: dict[str, int] = {}
        self._runs: set[str] = set()
        self._since: dict[str, Any] = {}
        self.breaches: list[str] = []
        system.api.store.subscribe(PODS, self._on_pod)
        system.api.store.subscribe(PIPELINERUNS, self._on_run)

    def _on_pod(self, event: Event) -> None:
        obj = event.stored.obj
        ended = (obj.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
        ending = "deletionTimestamp" in obj["metadata"]
        self._pods.pop(event.stored.uid, None)
        if not (ended or ending or is_gated(obj) or event.type == "DELETED"):
            self._pods[event.stored.uid] = cpu_of(obj)
        self.look()

    def _on_run(self, event: Event) -> None:
        obj = event.stored.obj
        started = bool((obj.get("status") or {}).get("startTime"))
        ended = has_status(obj, SUCCEEDED, "True", "False") or event.type == "DELETED"
        (self._runs.add if started and not ended else self._runs.discard)(event.stored.uid)
        self.look()

    def look(self) -> None:
        """Note what is above the quota for longer than it takes to notice and to end."""
        quota = self._cpu * _UNIT
        for what, running, most in (
            ("billionths of a CPU", sum(self._pods.values()), quota),
            ("PipelineRuns", len(self._runs), self._field.slots),
        ):
            if running <= most:
                self._since.pop(what, None)
                continue
            began = self._since.setdefault(what, self._now())
            if (self._now() - began).total_seconds() > NOTICE_SECONDS:
                self.breaches.append(f"{running} {what} run for {self._now() - began}, of {most}")


def cpu_of(pod: Obj) -> int:
    """What the scheduler sets aside for a pod, in billionths of a CPU."""
    spec = pod["spec"]
    whole = _asked(spec)
    if whole is not None:
        return whole + _quantity((spec.get("overhead") or {}).get("cpu"))
    steady = sum(_asked(one) or 0 for one in spec.get("containers") or [])
    highest = 0
    for one in spec.get("initContainers") or []:
        if one.get("restartPolicy") == "Always":
            steady += _asked(one) or 0
            highest = max(highest, steady)
        else:
            highest = max(highest, steady + (_asked(one) or 0))
    return max(steady, highest) + _quantity((spec.get("overhead") or {}).get("cpu"))


def _asked(part: Obj) -> int | None:
    resources = part.get("resources") or {}
    text = (resources.get("requests") or {}).get("cpu", (resources.get("limits") or {}).get("cpu"))
    return None if text is None else _quantity(text)


def _quantity(text: Any) -> int:
    return 0 if text is None else parse_quantity(str(text))


def work(kind: str, name: str, queue: str, *, namespace: str = TENANT) -> Object:
    """One CPU, or one run, that lasts an hour."""
    match kind:
        case "Job":
            made = job(name, queue, {"cpu": 1}, completions=20)
        case "JobSet":
            made = job_set(name, workers=1)
            template = made["spec"]["replicatedJobs"][0]["template"]["spec"]
            template["parallelism"] = 1
            template["completions"] = 20
            template["template"]["metadata"]["annotations"] = {DURATION: "3600s"}
            made["metadata"]["labels"] = {QUEUE: queue}
        case "Pod":
            made = pod(name, queue, seconds=3600)
        case _:
            made = pipeline_run(name)
    made["metadata"]["namespace"] = namespace
    return made


def raid(act: Act, *, refuses_starts: bool, pods_wait: bool = False) -> str | None:
    """Play one attack in a world of its own; what it got, None if it holds. `pods_wait`: for quota, too."""
    configuration = Configuration.model_validate(PODS_WAIT if pods_wait else {})
    with World(1) as world:
        system = System(
            world,
            configuration=configuration,
            settings={"watcher": {"kinds": (*WATCHED["kinds"], *WHERE_SERVED)}},
            refuses_starts=refuses_starts,
            fixes_requests=True,
        )
        field = Field(Stage(system))
        judge = _Judge(system, field, pods_wait=pods_wait)

        async def drive() -> None:
            for service in SERVICES:
                system.serve(service)
            await _furnish(field, pods_wait=pods_wait)
            await act(field)
            await _settled(judge)
            await _others_are_served(field)

        try:
            world.run(drive)
        except BreachError as breach:
            return str(breach)
        found = [*judge.breaches, *world.failures]
        return found[0] if found else None


async def _furnish(field: Field, *, pods_wait: bool) -> None:
    stage, both = field.stage, (TENANT, OTHERS)
    has = [("Job", "own"), ("JobSet", "sets"), ("PipelineRun", "")]
    if pods_wait:
        await opened(stage)
        await stage.create(*pool(POD_QUEUE, {"cpu": 1}, namespaces=both))
        has.append(("Pod", POD_QUEUE))
    for name, cpu in CPU.items():
        spaces = (OTHERS,) if name == "spare" else both
        await stage.create(*pool(name, {"cpu": cpu}, namespaces=spaces))
    slots = {"tekton.dev/pipelineruns": SLOTS}
    await stage.create(*pool("pipelines-queue", slots, namespaces=both))
    for number in range(CPU["full"]):
        await stage.create(work("Job", f"honest-{number}", "full", namespace=OTHERS))
    honest = await stage.create(work("PipelineRun", "honest", "", namespace=OTHERS))
    for kind, queue in has:
        field.running[kind] = await stage.create(work(kind, "runs", queue))
    await stage.until_admitted(honest, *field.running.values())
    for kind, queue in has:
        # Whoever gives quota back while it runs lets these in.
        await stage.create(work(kind, f"heir-{kind.lower()}", queue, namespace=OTHERS))
    await stage.settle(5)


async def _settled(judge: _Judge) -> None:
    for _ in range(int(SETTLE_SECONDS)):
        await asyncio.sleep(1.0)
        judge.look()


async def _others_are_served(field: Field) -> None:
    """Whatever the tenant did, others get what is free."""
    late = await field.stage.create(work("Job", "late", "spare", namespace=OTHERS))
    for _ in range(60):
        if await field.stage.is_admitted(late):
            return
        await asyncio.sleep(0.5)
    raise BreachError("another tenant waits for what is free")


def restarted(field: Field, *services: str) -> None:
    """Let services forget what they knew."""
    for service in services or ("classifier", "quota"):
        field.stage.system.world.crash(f"{service}-1", down_seconds=3.0)
