"""Scheduler, kubelets and autoscaler: pods get a node, run and end."""

from random import Random
from typing import Any, Final

from typing_extensions import override

from services.simulator.behaviour.clock import Clock
from services.simulator.behaviour.conditions import with_condition
from services.simulator.behaviour.controller import Controller, Key
from services.simulator.behaviour.nodes.scheduling import (
    ENDED,
    claims_of,
    feasible,
    has_anti_affinity,
    preferred,
    unschedulable_message,
)
from services.simulator.behaviour.nodes.volumes import Volumes
from services.simulator.behaviour.simulated_behaviour import duration, fails, some_duration
from services.simulator.cluster.api import POD_GRACE_SECONDS, Api
from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds.catalogue import CLAIMS, NODES, PODS
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Event, Stored
from shared.contracts.kube.names import HOSTNAME

NODES_AT_START: Final = 3
NODES_MAX: Final = 200
"""Most nodes that the autoscaler adds. A pod that then fits on no node stays Unschedulable."""

TERMINATION_SECONDS: Final = 1.0
"""How long a pod takes to stop. One that is given more than the usual grace works on in that time."""

REMOVAL_SECONDS: Final = 0.1
"""How long a pod that ended while it was being deleted stays: its owner counts it in that time."""


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
        HOSTNAME: name,
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


def _is_placed(pod: Stored) -> bool:
    phase = (pod.obj.get("status") or {}).get("phase")
    return bool(pod.obj["spec"].get("nodeName")) and phase not in ENDED


class PodController(Controller):
    """Schedules, runs and ends all pods."""

    def __init__(self, api: Api, clock: Clock, random: Random) -> None:
        super().__init__(api, clock, random, PODS)
        self._end_times: dict[str, float] = {}
        self._turn = 0
        self._waiting: dict[Key, None] = {}
        """Pods that fit on no node, or whose volume is attached to another node. Queued again when a node or
        volume changes."""

        self._repelling: dict[str, None] = {}
        """Uids of the existing pods with required anti-affinity."""

        self._volumes = Volumes(api)

    @override
    def start(self) -> None:
        self.api.graceful_pods = True
        for number in range(1, NODES_AT_START + 1):
            self._add_node(f"node-{number}", {}, [])
        for kind in (NODES, CLAIMS):
            self.follow(kind, self._requeue_pending)
        self.follow(PODS, self._pod_changed)
        super().start()

    def _requeue_pending(self, event: Event) -> Key | None:
        """Queue all pending pods again: a node or a volume changed."""
        del event
        for key in self._waiting:
            self.enqueue(key)
        return None

    def _pod_changed(self, event: Event) -> Key | None:
        uid, obj = event.stored.uid, event.stored.obj
        ended = event.type == "DELETED" or (obj.get("status") or {}).get("phase") in ENDED
        if ended:
            self._repelling.pop(uid, None)
            self._waiting.pop((event.stored.namespace, event.stored.name), None)
        elif event.before is None and has_anti_affinity(obj):
            self._repelling[uid] = None
        placed = event.before is not None and not event.before.obj["spec"].get("nodeName")
        if self._waiting and (ended or (placed and obj["spec"].get("nodeName"))):
            self._requeue_pending(event)
        return None

    def _add_node(self, name: str, labels: dict[str, str], taints: list[Obj]) -> None:
        if self.api.store.get(NODES, "", name) is not None:
            return
        node = _node(name, labels, taints, self.api.rules.now())
        status = node.pop("status")
        obj = self.api.rules.prepare_create(NODES, {"apiVersion": "v1", "kind": "Node", **node})
        self.api.store.put(NODES, {**obj, "status": status})

    @override
    def forget(self, uid: str) -> None:
        self._end_times.pop(uid, None)

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
            await self._start(stored)
        else:
            await self._advance_running(stored)

    async def _schedule(self, stored: Stored) -> None:
        if stored.obj["spec"].get("schedulingGates"):
            return
        nodes = self._nodes_for(stored)
        if not nodes:
            nodes = self._nodes_for(stored) if self._scale_up(stored) else []
        if not nodes:
            await self._unschedulable(stored)
            return
        self._turn += 1
        node = nodes[self._turn % len(nodes)]["metadata"]["name"]
        self._waiting.pop((stored.namespace, stored.name), None)
        self._volumes.select_node(stored, node)
        patch = {"metadata": {"uid": stored.uid}, "spec": {"nodeName": node}}
        await self.api.patch(PODS, "v1", stored.namespace, stored.name, patch, "merge")

    def _nodes_for(self, stored: Stored) -> list[Obj]:
        pod = stored.obj
        if self._volumes.unready_reason(stored):
            return []
        nodes = [node.obj for node in self.api.store.objects(NODES)]
        # Other pods matter only if one of them has (anti-)affinity.
        minds = bool(pod["spec"].get("affinity")) or bool(self._repelling)
        placed = [p.obj for p in self.api.store.objects(PODS) if _is_placed(p)] if minds else []
        found = feasible(pod, nodes, placed, self._volumes.node_of)
        return preferred(pod, found, placed)

    def _scale_up(self, stored: Stored) -> bool:
        """Add a node with the labels that the pod asks for, as an autoscaler does, if the pod then fits."""
        spec = stored.obj["spec"]
        number = self.api.store.count(NODES) + 1
        wanted = {str(key): str(value) for key, value in (spec.get("nodeSelector") or {}).items()}
        if (
            number > NODES_MAX
            or not wanted
            or HOSTNAME in wanted
            or self._volumes.unready_reason(stored)
        ):
            return False
        imagined = _node(f"node-{number}", wanted, [], self.api.rules.now())
        placed = [p.obj for p in self.api.store.objects(PODS) if _is_placed(p)]
        if not feasible(stored.obj, [imagined], placed, self._volumes.node_of):
            return False
        try:
            self._add_node(f"node-{number}", wanted, [])
        except ApiError:
            return False  # No node can have these labels.
        return True

    async def _unschedulable(self, stored: Stored) -> None:
        self._waiting[stored.namespace, stored.name] = None
        message = self._volumes.unready_reason(stored) or unschedulable_message(
            self.api.store.count(NODES)
        )
        conditions = with_condition(
            stored.obj, "PodScheduled", "False", "Unschedulable", message, now=self.api.rules.now()
        )
        if conditions != (stored.obj.get("status") or {}).get("conditions"):
            await self.write_status(stored, {"conditions": conditions})

    async def _start(self, stored: Stored) -> None:
        if claims_of(stored.obj) and self._volumes.attached_to_other_node(stored):
            # The volume can be attached to one node only, and another node still uses it.
            self._waiting[stored.namespace, stored.name] = None
            return
        self._waiting.pop((stored.namespace, stored.name), None)
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

    async def _advance_running(self, stored: Stored) -> None:
        end = self._end_times.get(stored.uid)
        now = self.clock.time()
        if end is None:
            wished = duration(stored.obj)
            forever = stored.obj["spec"].get("restartPolicy", "Always") == "Always"
            if wished is None and forever:
                return
            lasts = some_duration(self.random) if wished is None else wished
            self._end_times[stored.uid] = end = now + lasts
        if now < end:
            self.enqueue_after((stored.namespace, stored.name), end - now)
        else:
            await self._finish(stored, "Failed" if fails(stored.obj) else "Succeeded")

    async def _finish(self, stored: Stored, phase: str) -> None:
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
        """End a pod that is being deleted after its grace period. Finalizers may still hold the object.

        One that is given more than the usual grace goes on with its work, and may end it in that time.
        """
        metadata = stored.obj["metadata"]
        if not metadata.get("deletionGracePeriodSeconds"):
            return
        key, ending = (stored.namespace, stored.name), stored.uid + "/ending"
        now = self.clock.time()
        grace = float(metadata["deletionGracePeriodSeconds"])
        if grace <= POD_GRACE_SECONDS:
            grace = min(grace, TERMINATION_SECONDS)
        deadline = self._end_times.setdefault(ending, now) + grace
        end = self._end_times.get(stored.uid, deadline)
        phase = (stored.obj.get("status") or {}).get("phase")
        works = grace > POD_GRACE_SECONDS and phase == "Running"
        if works and end <= now < deadline:
            # Its containers are removed a moment after they have ended.
            self._end_times[ending] = now + REMOVAL_SECONDS - grace
            await self._finish(stored, "Failed" if fails(stored.obj) else "Succeeded")
            return
        if now < deadline:
            self.enqueue_after(key, (min(end, deadline) if works else deadline) - now)
            return
        self._end_times.pop(ending, None)
        held = {**metadata, "deletionGracePeriodSeconds": 0}
        obj = {**stored.obj, "metadata": held}
        if metadata.get("finalizers"):
            self.api.store.put(PODS, obj)
        else:
            self.api.store.remove(stored, obj)
