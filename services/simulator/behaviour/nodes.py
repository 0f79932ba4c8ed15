"""Scheduler, kubelets and an autoscaler in one: pods get a node, run, and end."""

from random import Random
from typing import Any, Final

from typing_extensions import override

from services.simulator.behaviour.clock import Clock
from services.simulator.behaviour.conditions import with_condition
from services.simulator.behaviour.controller import Controller
from services.simulator.behaviour.wishes import duration, fails, some_duration
from services.simulator.cluster.api import Api
from services.simulator.cluster.catalogue import NODES, PODS
from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds import Obj
from services.simulator.cluster.stored import Stored

__all__ = ["NODES_AT_START", "PodController"]

NODES_AT_START: Final = 3
NODES_MAX: Final = 200
"""The autoscaler adds no more. A pod that then fits nowhere stays Unschedulable."""

TERMINATION_SECONDS: Final = 1.0
"""How long a pod takes to end when it is told to."""

ENDED: Final = ("Succeeded", "Failed")


def _node(name: str, labels: dict[str, str], taints: list[Obj], now: str) -> Obj:
    amounts = {"cpu": "1000", "memory": "4Ti", "pods": "100000", "ephemeral-storage": "10Ti"}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastTransitionTime": now,
    }
    standard = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    return {
        "metadata": {"name": name, "labels": {**standard, **labels}},
        "spec": {"taints": taints} if taints else {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [ready],
            "nodeInfo": {"kubeletVersion": "v1.33.0-sluicegate"},
        },
    }


def _tolerated(taint: Obj, tolerations: list[Obj]) -> bool:
    for toleration in tolerations:
        if toleration.get("effect") not in {None, "", taint.get("effect")}:
            continue
        if toleration.get("operator") == "Exists":
            if toleration.get("key") in {None, "", taint["key"]}:
                return True
        elif toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get(
            "value", ""
        ):
            return True
    return False


def _takes(node: Obj, pod_spec: Obj) -> bool:
    """Whether the pod may go there. Room is not counted: quota is somebody else's business here."""
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return False
    labels = node["metadata"].get("labels") or {}
    wanted = pod_spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    tolerations = pod_spec.get("tolerations") or []
    taints = [t for t in spec.get("taints") or () if t.get("effect") != "PreferNoSchedule"]
    return all(_tolerated(taint, tolerations) for taint in taints)


class PodController(Controller):
    """Every pod's life after its creation."""

    def __init__(self, api: Api, clock: Clock, random: Random) -> None:
        super().__init__(api, clock, random, PODS)
        self._ends: dict[str, float] = {}
        self._turn = 0

    @override
    def start(self) -> None:
        self.api.graceful_pods = True
        for number in range(1, NODES_AT_START + 1):
            self._add_node(f"node-{number}", {}, [])
        super().start()

    def _add_node(self, name: str, labels: dict[str, str], taints: list[Obj]) -> None:
        if self.api.store.get(NODES, "", name) is not None:
            return
        node = _node(name, labels, taints, self.api.rules.now())
        status = node.pop("status")
        obj = self.api.rules.prepare_create(NODES, {"apiVersion": "v1", "kind": "Node", **node})
        self.api.store.put(NODES, {**obj, "status": status})

    @override
    def forget(self, uid: str) -> None:
        self._ends.pop(uid, None)

    @override
    async def reconcile(self, stored: Stored) -> None:
        obj = stored.obj
        if "deletionTimestamp" in obj["metadata"]:
            await self._terminate(stored)
        elif (obj.get("status") or {}).get("phase") in ENDED:
            return
        elif not obj["spec"].get("nodeName"):
            await self._schedule(stored)
        elif (obj.get("status") or {}).get("phase") != "Running":
            await self._begin(stored)
        else:
            await self._go_on(stored)

    async def _schedule(self, stored: Stored) -> None:
        spec = stored.obj["spec"]
        if spec.get("schedulingGates"):
            return
        nodes = [n.obj for n in self.api.store.objects(NODES) if _takes(n.obj, spec)]
        if not nodes:
            if not self._scale_up(spec):
                await self._unschedulable(stored)
                return
            nodes = [n.obj for n in self.api.store.objects(NODES) if _takes(n.obj, spec)]
        self._turn += 1
        node = nodes[self._turn % len(nodes)]["metadata"]["name"]
        patch = {"metadata": {"uid": stored.uid}, "spec": {"nodeName": node}}
        await self.api.patch(PODS, "v1", stored.namespace, stored.name, patch, "merge")

    def _scale_up(self, spec: Obj) -> bool:
        """Add a node with the labels that the pod looks for, as an autoscaler would."""
        number = self.api.store.count(NODES) + 1
        wanted = {str(key): str(value) for key, value in (spec.get("nodeSelector") or {}).items()}
        if number > NODES_MAX or not wanted or "kubernetes.io/hostname" in wanted:
            return False
        try:
            self._add_node(f"node-{number}", wanted, [])
        except ApiError:
            return False  # Labels that no node can have.
        return True

    async def _unschedulable(self, stored: Stored) -> None:
        message = "0 nodes are available: none matches the pod's node selector and tolerations."
        conditions = with_condition(
            stored.obj, "PodScheduled", "False", "Unschedulable", message, now=self.api.rules.now()
        )
        await self.write_status(stored, {"conditions": conditions})

    async def _begin(self, stored: Stored) -> None:
        now = self.api.rules.now()
        conditions: list[Obj] = [
            {"type": type_, "status": "True", "lastTransitionTime": now}
            for type_ in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ]
        state = {"running": {"startedAt": now}}
        status = {
            "phase": "Running",
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": self._containers(stored, state, ready=True),
        }
        await self.write_status(stored, status)

    @staticmethod
    def _containers(stored: Stored, state: Obj, *, ready: bool) -> list[Obj]:
        return [
            {
                "name": container.get("name", "main"),
                "image": container.get("image", ""),
                "ready": ready,
                "started": ready,
                "restartCount": 0,
                "state": state,
            }
            for container in stored.obj["spec"].get("containers") or ()
        ]

    async def _go_on(self, stored: Stored) -> None:
        end = self._ends.get(stored.uid)
        now = self.clock.time()
        if end is None:
            wished = duration(stored.obj)
            forever = stored.obj["spec"].get("restartPolicy", "Always") == "Always"
            if wished is None and forever:
                return
            lasts = some_duration(self.random) if wished is None else wished
            self._ends[stored.uid] = end = now + lasts
        if now < end:
            self.enqueue_after((stored.namespace, stored.name), end - now)
        else:
            await self._end(stored, "Failed" if fails(stored.obj) else "Succeeded")

    async def _end(self, stored: Stored, phase: str) -> None:
        now = self.api.rules.now()
        failed = phase == "Failed"
        started = (stored.obj.get("status") or {}).get("startTime", now)
        terminated: dict[str, Any] = {
            "exitCode": 1 if failed else 0,
            "reason": "Error" if failed else "Completed",
            "startedAt": started,
            "finishedAt": now,
        }
        conditions = with_condition(stored.obj, "Ready", "False", "PodCompleted", "", now=now)
        status = {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": self._containers(stored, {"terminated": terminated}, ready=False),
        }
        await self.write_status(stored, status)

    async def _terminate(self, stored: Stored) -> None:
        """End a pod that is being deleted, after its moment of grace; finalizers still hold it."""
        metadata = stored.obj["metadata"]
        if not metadata.get("deletionGracePeriodSeconds"):
            return
        key = (stored.namespace, stored.name)
        now = self.clock.time()
        deadline = self._ends.get(stored.uid + "/end")
        if deadline is None:
            grace = min(float(metadata["deletionGracePeriodSeconds"]), TERMINATION_SECONDS)
            deadline = self._ends[stored.uid + "/end"] = now + grace
        if now < deadline:
            self.enqueue_after(key, deadline - now)
            return
        self._ends.pop(stored.uid + "/end", None)
        held = {**metadata, "deletionGracePeriodSeconds": 0}
        obj = {**stored.obj, "metadata": held}
        if metadata.get("finalizers"):
            self.api.store.put(PODS, obj)
        else:
            self.api.store.remove(stored, obj)
