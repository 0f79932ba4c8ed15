"""A simulated cluster in virtual time, coscheduled runs, and a patcher that can crash at any write."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from services.patcher.app import assemble
from services.patcher.settings import PatcherSettings
from services.simulator.cluster.admission import AdmissionRequest
from services.simulator.cluster.kinds.catalogue import (
    CLAIMS,
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PIPELINERUNS,
    PODS,
    STATEFUL_SETS,
)
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.local import LocalKube
from shared.contracts import coscheduling
from shared.contracts.coscheduling import NODE_SLOTS, Mode
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import workload_name
from shared.contracts.messages.admissions import Admission, AdmissionState, PodSetAssignment
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import Finish, JobRef, PodSet, WorkloadState
from shared.contracts.simulation import RUN_IN_PODS
from shared.kube.port import NotFoundError, Patch
from shared.testing.builders import observed_object
from shared.testing.waiting import eventually
from shared.testing.world.loop import run_virtual
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer
from tests.unit.simulator.builders import START, Cluster, pipeline_run

Json = dict[str, Any]
PATIENCE_SECONDS = 900.0
PENDING = "PipelineRunPending"


class CrashError(BaseException):
    """The process crashed during a write. No code may catch it."""


class CrashingKube(LocalKube):
    """Counts writes, and crashes the process at one of them, before or after it is done."""

    def __init__(self, inner: LocalKube, *, crashes_at: int | None, done: bool) -> None:
        super().__init__(inner._api)
        self.writes: list[str] = []
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}
        """Called before the next write of this name."""

        self.crashes_at = crashes_at
        self.done = done
        self.crashed = asyncio.Event()

    async def _write(self, what: str, do: Callable[[], Awaitable[Any]]) -> Any:
        self.writes.append(what)
        if (first := self.before.pop(what, None)) is not None:
            await first()
        if self.crashes_at != len(self.writes):
            return await do()
        if self.done:
            await do()
        self.crashed.set()
        await asyncio.Event().wait()  # Nothing that comes after is ever done.
        raise CrashError

    async def create(self, kind: Kind, obj: Object) -> Object:
        made: Object = await self._write(
            f"create {kind.kind}", lambda: LocalKube.create(self, kind, obj)
        )
        return made

    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Patch,
        *,
        subresource: str | None = None,
    ) -> Object:
        made: Object = await self._write(
            f"patch {kind.kind}{f'/{subresource}' if subresource else ''}",
            lambda: LocalKube.patch(self, kind, namespace, name, patch, subresource=subresource),
        )
        return made

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        dependants_first: bool = False,
    ) -> None:
        del dependants_first
        await self._write(
            f"delete {kind.kind}", lambda: LocalKube.delete(self, kind, namespace, name, uid=uid)
        )


class TaskRunWebhook:
    """The webhook: annotates TaskRuns with the placeholder of their claim."""

    name = "sluicegate"

    async def mutate(self, request: AdmissionRequest) -> Obj | None:
        from services.classifier.webhook.coscheduling import task_run_affinity_patch  # noqa: PLC0415

        obj = request.obj
        if request.operation != "CREATE" or obj is None or request.subresource:
            return obj
        for step in task_run_affinity_patch(obj):
            key = step["path"].removeprefix("/metadata/annotations/").replace("~1", "/")
            obj["metadata"]["annotations"][key] = step["value"]
        return obj

    async def validate(self, request: AdmissionRequest) -> None:
        del request


class CoschedulingStage:
    """A simulated cluster with a patcher. The test acts as watcher, classifier and quota."""

    def __init__(self, *, crashes_at: int | None = None, done: bool = False) -> None:
        self.cluster = Cluster()
        self.cluster.api.admission.plugins.append(TaskRunWebhook())
        self.cluster.behaviour.start()
        self.kube = LocalKube(self.cluster.api)
        self.patchers_kube = CrashingKube(self.kube, crashes_at=crashes_at, done=done)
        self.server = MemoryServer()
        self.bus = MemoryBus(self.server, instance="test")
        self._number = 0
        self._patcher: list[tuple[asyncio.Task[None], MemoryBus]] = []
        self._restarter: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.bus.start()
        await self.start_patcher()
        self._restarter = asyncio.create_task(self._restart_after_crash())

    async def start_patcher(self) -> None:
        bus = MemoryBus(self.server, instance=f"patcher-{self._number}")
        self._number += 1
        patcher = assemble(
            settings=PatcherSettings(cluster="hub", not_seen_seconds=0.01, events_per_second=0),
            bus=bus,
            kube=self.patchers_kube,
            now=lambda: START,
        )
        await bus.start()
        self._patcher.append((asyncio.create_task(patcher.run()), bus))

    async def kill_patcher(self) -> None:
        task, bus = self._patcher.pop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.stop()

    async def _restart_after_crash(self) -> None:
        await self.patchers_kube.crashed.wait()
        await self.kill_patcher()
        await self.start_patcher()

    async def stop(self) -> None:
        if self._restarter is not None:
            self._restarter.cancel()
            await asyncio.gather(self._restarter, return_exceptions=True)
        if self._patcher:
            await self.kill_patcher()
        await self.bus.stop()
        await self.cluster.behaviour.stop()

    # --- what tests do ---------------------------------------------------------------------------

    async def tekton(self, mode: str) -> None:
        api = self.cluster.api
        namespace = {"metadata": {"name": "tekton-pipelines"}}
        await api.create(NAMESPACES, "v1", "", namespace)
        body = {"metadata": {"name": "feature-flags"}, "data": {"coschedule": mode}}
        await api.create(CONFIG_MAPS, "v1", "tekton-pipelines", body)

    async def submit(self, mode: str | None, name: str = "p", **spec: Any) -> WorkloadState:
        body = pipeline_run(name, **{"status": PENDING, **(spec or tasks("a", "b"))})
        body["metadata"]["annotations"][RUN_IN_PODS] = "true"
        if mode is not None:
            body["metadata"]["annotations"][names.COSCHEDULE] = mode
        run = (await self.cluster.create(PIPELINERUNS, body)).obj
        state = projected(run)
        await self.bus.publish(state)
        return state

    async def decide(
        self, state: WorkloadState, decided: AdmissionState = "admitted", *, slots: bool = True
    ) -> None:
        self._number += 1
        usage = {"tekton.dev/pipelineruns": "1", **({NODE_SLOTS: "1"} if slots else {})}
        pod_set = PodSetAssignment(name="pod-set-1", count=1, flavors={}, usage=usage)
        await self.bus.publish(
            Admission(
                cluster="hub", namespace="default", name=state.name, uid=state.uid, state=decided,
                term=1, number=self._number, decided_at=START, cluster_queue="cq",
                pod_sets=[pod_set], reason="Preempted" if decided == "evicted" else "",
            )
        )  # fmt: skip

    async def finish(self, state: WorkloadState) -> None:
        """Publish that the run has ended, as the classifier does."""
        finish = Finish(success=True, message="", at=START)
        await self.bus.publish(
            state.model_copy(update={"phase": "finished", "finish": finish, "held": False})
        )

    async def observe(self, state: WorkloadState) -> None:
        """Publish the Workload object as it is now, as a watcher does."""
        obj = await self.workload(state)
        assert obj is not None
        await self.bus.publish(observed_object(kinds.WORKLOAD, obj))

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        await eventually(
            condition,
            lambda: f"{what}; {self.patchers_kube.writes}",
            seconds=PATIENCE_SECONDS,
            look_seconds=0.5,
        )

    async def cordon(self, node: str, *, off: bool = False) -> None:
        patch = {"spec": {"unschedulable": None if off else True}}
        await self.cluster.api.patch(NODES, "v1", "", node, patch, "merge")

    # --- what there is ---------------------------------------------------------------------------

    def run(self, name: str = "p") -> Obj:
        return self.cluster.run(name)

    def is_held(self, name: str = "p") -> bool:
        return bool(self.run(name)["spec"].get("status") == PENDING)

    def succeeded(self, name: str = "p") -> bool:
        conditions = (self.run(name).get("status") or {}).get("conditions") or []
        return any(c["type"] == "Succeeded" and c["status"] == "True" for c in conditions)

    def where(self, run: str = "p") -> dict[str, str]:
        """Return pipeline task to the node of its pod."""
        return {
            labels["tekton.dev/pipelineTask"]: pod.obj["spec"].get("nodeName", "")
            for pod in self.cluster.api.store.objects(PODS)
            if "tekton.dev/pipelineTask" in (labels := pod.obj["metadata"].get("labels") or {})
            and labels["tekton.dev/pipelineRun"] == run
        }

    def placeholders(self) -> list[Obj]:
        return [s.obj for s in self.cluster.api.store.objects(STATEFUL_SETS)]

    def placeholder_pods(self) -> dict[str, str]:
        """Return placeholder pod to its node."""
        return {
            pod.name: pod.obj["spec"].get("nodeName", "")
            for pod in self.cluster.api.store.objects(PODS)
            if coscheduling.COSCHEDULED_RUN_LABEL in (pod.obj["metadata"].get("labels") or {})
        }

    def claims(self) -> list[str]:
        return [claim.name for claim in self.cluster.api.store.objects(CLAIMS)]

    async def workload(self, state: WorkloadState) -> kinds.Object | None:
        try:
            return await self.kube.get(kinds.WORKLOAD, "default", state.name)
        except NotFoundError:
            return None

    def let_go(self, state: WorkloadState) -> bool:
        """Return whether the finalizer of a finished Workload is removed."""
        served = self.cluster.api.kinds.by_resource("kueue.x-k8s.io", "workloads")
        stored = self.cluster.api.store.get(served, "default", state.name)
        return stored is not None and not stored.obj["metadata"].get("finalizers")

    def outcomes(self) -> list[Outcome]:
        stored = self.server.streams["OUTCOMES"].messages.values()
        return [Outcome.decode(one.entry().data) for one in stored]


def projected(run: Obj) -> WorkloadState:
    metadata = run["metadata"]
    owner = JobRef(
        api_version="tekton.dev/v1", kind="PipelineRun", plural="pipelineruns",
        name=metadata["name"], uid=metadata["uid"],
    )  # fmt: skip
    return WorkloadState(
        cluster="hub", namespace="default", uid=metadata["uid"], owner=owner, queue="main",
        name=workload_name(
            kind="PipelineRun", group="tekton.dev", name=metadata["name"], uid=metadata["uid"]
        ),
        created_at=START, phase="waiting", held=True,
        pod_sets=[PodSet(name="pod-set-1", count=1, requests={"tekton.dev/pipelineruns": "1"})],
    )  # fmt: skip


def tasks(*in_order: str, **claims: list[str]) -> Json:
    """The spec of a run of sequential tasks; `claims` names the workspaces of each task."""
    listed = [
        {
            "name": task,
            "workspaces": [{"name": one} for one in claims.get(task, ())],
            **({"runAfter": [in_order[index - 1]]} if index else {}),
        }
        for index, task in enumerate(in_order)
    ]
    used = sorted({one for ones in claims.values() for one in ones})
    template = {"spec": {"accessModes": ["ReadWriteOnce"]}}
    workspaces = [{"name": one, "volumeClaimTemplate": template} for one in used]
    return {"status": PENDING, "pipelineSpec": {"tasks": listed}, "workspaces": workspaces}


def on_stage(
    story: Callable[[CoschedulingStage], Awaitable[None]],
    *,
    tekton: Mode | None = "disabled",
    crashes_at: int | None = None,
    done: bool = False,
) -> CoschedulingStage:
    """Run a story to its end in virtual time, and return the stage."""

    async def told() -> CoschedulingStage:
        stage = CoschedulingStage(crashes_at=crashes_at, done=done)
        if tekton is not None:
            await stage.tekton(tekton)
        await stage.start()
        try:
            await story(stage)
        finally:
            await stage.stop()
        return stage

    return run_virtual(told())
