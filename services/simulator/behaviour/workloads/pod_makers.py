"""Controllers that make pods of templates: those of Deployments, PyTorchJobs and Argo's Workflows.

Deployments have no ReplicaSets here. The other two follow their operators as far as a queue can tell:
what suspends an object, what its status says of its pods, and when it has ended.
"""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, ClassVar, Final

from typing_extensions import override

from services.simulator.behaviour.clock import Clock
from services.simulator.behaviour.conditions import condition, with_condition
from services.simulator.behaviour.controller import Controller, owner_key
from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.catalogue import DEPLOYMENTS, PODS
from services.simulator.cluster.kinds.registry import Kind, Obj
from services.simulator.cluster.storage.stored import Stored
from shared.contracts.kube.conditions import is_true

TRAININGS: Final = Kind(
    group="kubeflow.org", versions=("v1",), kind="PyTorchJob", plural="pytorchjobs", custom=True
)
WORKFLOWS: Final = Kind(
    group="argoproj.io",
    versions=("v1alpha1",),
    kind="Workflow",
    plural="workflows",
    has_status=False,
    custom=True,
)
_COMPLETED: Final = "workflows.argoproj.io/completed"
_ENDED: Final = ("Succeeded", "Failed")


class PodMaker(Controller):
    """Makes and deletes the pods of an object."""

    of: ClassVar[Kind]
    """Its kind, which the cluster serves from then on."""

    def __init__(self, api: Api, clock: Clock, random: Random) -> None:
        api.kinds.add(self.of)
        super().__init__(api, clock, random, self.of)

    @override
    def start(self) -> None:
        self.follow(PODS, lambda event: owner_key(event.stored, self.kind.kind))
        super().start()

    @override
    def forget(self, uid: str) -> None:
        """The controller keeps no state."""

    def pods(self, stored: Stored) -> dict[str, Stored]:
        """Return its pods by name, also those that end."""
        return {pod.name: pod for pod in self.controlled(stored, PODS)}

    async def create(self, stored: Stored, name: str, template: Obj) -> Stored:
        """Create a pod of a template."""
        metadata = template.get("metadata") or {}
        body: Obj = {
            "metadata": {
                "name": name,
                "namespace": stored.namespace,
                "labels": metadata.get("labels") or {},
                "annotations": metadata.get("annotations") or {},
                "ownerReferences": [self.owner_reference(stored)],
            },
            "spec": template["spec"],
        }
        return await self.api.create(PODS, "v1", stored.namespace, body)

    def end(self, pods: Iterable[Stored]) -> None:
        """Delete those of the pods that run."""
        for pod in pods:
            if _is_active(pod):
                self.api.delete_now(pod)

    async def report(self, stored: Stored, status: Obj) -> None:
        """Write the status if it says something new."""
        before = stored.obj.get("status") or {}
        if any(before.get(key) != value for key, value in status.items()):
            await self.write_status(stored, status)


class DeploymentController(PodMaker):
    """Keeps as many pods as there are replicas; each new one has a name of its own."""

    of = DEPLOYMENTS

    @override
    async def reconcile(self, stored: Stored) -> None:
        if _is_deleted(stored):
            return
        spec = stored.obj["spec"]
        wanted = int(spec.get("replicas", 1))
        active = [pod for pod in self.pods(stored).values() if _is_active(pod)]
        self.end(active[wanted:])
        for _ in range(wanted - len(active)):
            name = f"{stored.name}-{self.random.getrandbits(40):x}"
            active.append(await self.create(stored, name, spec["template"]))
        await self.report(stored, {"replicas": wanted})


class TrainingController(PodMaker):
    """Runs PyTorchJobs as Kubeflow's operator does, without restarts: one failed pod fails the job."""

    of = TRAININGS

    @override
    async def reconcile(self, stored: Stored) -> None:
        obj = stored.obj
        if _is_deleted(stored) or is_true(obj, "Succeeded", "Failed"):
            return
        pods = self.pods(stored)
        if (obj["spec"].get("runPolicy") or {}).get("suspend"):
            self.end(pods.values())
            suspended = {"replicaStatuses": _of_roles(obj, {}), "startTime": None}
            await self._report(stored, "Suspended", suspended)
            return
        for role, number, template in _replicas(obj):
            name = f"{stored.name}-{role.lower()}-{number}"
            if name not in pods:
                pods[name] = await self.create(stored, name, template)
        status: Obj = {"replicaStatuses": _of_roles(obj, pods)}
        if not (obj.get("status") or {}).get("startTime"):
            status["startTime"] = self.api.rules.now()
        phases = [_phase(pod) for pod in pods.values()]
        if "Failed" in phases:
            self.end(pods.values())
            await self._report(stored, "Failed", status)
        elif all(phase == "Succeeded" for phase in phases):
            await self._report(stored, "Succeeded", status)
        else:
            await self._report(stored, "Running", status)

    async def _report(self, stored: Stored, state: str, status: Obj) -> None:
        obj, now = stored.obj, self.api.rules.now()
        for type_ in ("Running", "Suspended", "Succeeded", "Failed"):
            if type_ == state or condition(obj, type_) is not None:
                value = "True" if type_ == state else "False"
                conditions = with_condition(obj, type_, value, f"PyTorchJob{state}", "", now=now)
                obj = {**obj, "status": {**(obj.get("status") or {}), "conditions": conditions}}
        await self.report(stored, {**status, "conditions": obj["status"]["conditions"]})


def _replicas(obj: Obj) -> Iterator[tuple[str, int, Obj]]:
    """Yield role, number and template of each pod of a PyTorchJob."""
    for role, spec in obj["spec"]["pytorchReplicaSpecs"].items():
        for number in range(int(spec.get("replicas", 1))):
            yield role, number, spec["template"]


def _of_roles(obj: Obj, pods: dict[str, Stored]) -> dict[str, Any]:
    """Return how many pods of each role run; of a role without pods too, as a patch keeps what it omits."""
    active = {role: 0 for role, _, _ in _replicas(obj)}
    for role, number, _ in _replicas(obj):
        pod = pods.get(f"{obj['metadata']['name']}-{role.lower()}-{number}")
        active[role] += pod is not None and _is_active(pod)
    return {role: {"active": number} for role, number in active.items()}


class WorkflowController(PodMaker):
    """Runs Argo's Workflows whose templates have a container each: a pod for each template."""

    of = WORKFLOWS

    @override
    async def reconcile(self, stored: Stored) -> None:
        obj = stored.obj
        if _is_deleted(stored) or (obj["metadata"].get("labels") or {}).get(_COMPLETED) == "true":
            return
        pods = self.pods(stored)
        if obj["spec"].get("shutdown"):
            self.end(pods.values())
            await self._finish(stored, "Failed", "Stopped with strategy 'Terminate'")
            return
        if not obj["spec"].get("suspend"):
            for template in obj["spec"]["templates"]:
                name = f"{stored.name}-{template['name']}"
                if name not in pods:
                    container = {"name": "main", **template["container"]}
                    spec = {"restartPolicy": "Never", "containers": [container]}
                    made = {"metadata": template.get("metadata"), "spec": spec}
                    pods[name] = await self.create(stored, name, made)
        phases = [_phase(pod) for pod in pods.values()]
        if "Failed" in phases and not any(map(_is_active, pods.values())):
            await self._finish(stored, "Failed", "a step failed")
        elif phases and all(phase == "Succeeded" for phase in phases):
            await self._finish(stored, "Succeeded", "")
        else:
            nodes = {name: {"phase": _phase(pod)} for name, pod in pods.items()}
            # It says so of one that is suspended, too.
            await self.report(stored, {"phase": "Running", **({"nodes": nodes} if nodes else {})})

    async def _finish(self, stored: Stored, phase: str, message: str) -> None:
        ended = {"phase": phase, "message": message, "finishedAt": self.api.rules.now()}
        await self.api.patch(
            stored.kind,
            stored.kind.storage_version,
            stored.namespace,
            stored.name,
            {
                "metadata": {"uid": stored.uid, "labels": {_COMPLETED: "true"}},
                "status": ended,
            },
            "merge",
        )


def _phase(pod: Stored) -> str:
    return str((pod.obj.get("status") or {}).get("phase", "Pending"))


def _is_deleted(stored: Stored) -> bool:
    return "deletionTimestamp" in stored.obj["metadata"]


def _is_active(pod: Stored) -> bool:
    return _phase(pod) not in _ENDED and not _is_deleted(pod)
