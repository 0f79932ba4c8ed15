"""Tekton's TaskRun controller: a TaskRun waits for its machine, runs and ends."""

from random import Random
from typing import Any, Final

from typing_extensions import override

from services.simulator.behaviour.clock import Clock, format_duration, parse_duration
from services.simulator.behaviour.conditions import with_condition
from services.simulator.behaviour.controller import Controller, Key, owner_key
from services.simulator.behaviour.simulated_behaviour import duration, fails, some_duration
from services.simulator.behaviour.tekton.admission import is_done
from services.simulator.behaviour.tekton.coscheduling import flag
from services.simulator.behaviour.tekton.task_pods import claims, pod_name, pod_of, wants_pod
from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.catalogue import PODS, SECRETS, TASKRUNS
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Event, Stored
from shared.contracts.kube.names import MANAGED_BY_TEKTON
from shared.contracts.multi_platform import PLATFORM_PARAMETER, SECRET_PREFIX

__all__ = ["SECRET_PREFIX", "TaskRunController", "timed_out"]


TASKRUN_SECONDS_DEFAULT: Final = 3600.0


def _machine_volume(taskrun: str) -> Obj:
    """Return the volume that makes a task's pod wait for its machine."""
    return {"name": "ssh", "secret": {"secretName": SECRET_PREFIX + taskrun, "optional": False}}


def _volumes(task_spec: Any) -> list[Any]:
    return list(task_spec.get("volumes") or ()) if isinstance(task_spec, dict) else []


def _wants_machine(obj: Obj) -> bool:
    """True if the TaskRun has the parameter PLATFORM: its task then mounts the machine's Secret."""
    return any(param.get("name") == PLATFORM_PARAMETER for param in obj["spec"].get("params") or ())


class TaskRunController(Controller):
    """Runs TaskRuns, in pods only where the node matters: a queue sees only the TaskRun."""

    def __init__(self, api: Api, clock: Clock, random: Random) -> None:
        super().__init__(api, clock, random, TASKRUNS)
        self._ends: dict[str, float] = {}
        """End time of each running TaskRun, by uid, in simulated time."""

    @override
    def start(self) -> None:
        self.follow(SECRETS, self._secret_key)
        self.follow(PODS, lambda event: owner_key(event.stored, "TaskRun"))
        super().start()

    @override
    def forget(self, uid: str) -> None:
        self._ends.pop(uid, None)

    @staticmethod
    def _secret_key(event: Event) -> Key | None:
        name = event.stored.name
        if not name.startswith(SECRET_PREFIX):
            return None
        return event.stored.namespace, name.removeprefix(SECRET_PREFIX)

    @override
    async def reconcile(self, stored: Stored) -> None:
        obj = stored.obj
        spec = obj["spec"]
        if spec.get("managedBy", MANAGED_BY_TEKTON) != MANAGED_BY_TEKTON:
            return
        if is_done(obj) or "deletionTimestamp" in obj["metadata"]:
            return
        if spec.get("status") == "TaskRunCancelled":
            text = spec.get("statusMessage") or ""
            message = f'TaskRun "{stored.name}" was cancelled. {text}'.rstrip()
            self._delete_pod(stored)
            await self._finish(stored, "False", "TaskRunCancelled", message)
        elif not (obj.get("status") or {}).get("startTime"):
            await self._start(stored)
        else:
            await self._advance_running(stored)

    async def _start(self, stored: Stored) -> None:
        """Resolve the task: its volumes appear in the status, and its timeout starts."""
        now = self.api.rules.now()
        if flag(self.api) == "workspaces" and len(claims(stored.obj)) > 1:
            message = "more than one PersistentVolumeClaim is bound"
            await self._finish(stored, "False", "TaskRunValidationFailed", message)
            return
        task_spec: Obj = dict(stored.obj["spec"].get("taskSpec") or {"steps": []})
        if _wants_machine(stored.obj) and not self._secret_name(task_spec):
            machine = _machine_volume(stored.name)
            task_spec["volumes"] = [*_volumes(task_spec), machine]
        self._ends[stored.uid] = -1.0
        message = "Not all Steps in the Task have finished executing"
        conditions = with_condition(stored.obj, "Succeeded", "Unknown", "Running", message, now=now)
        status = {"startTime": now, "taskSpec": task_spec, "conditions": conditions}
        await self.write_status(stored, {**status, "podName": pod_name(stored.name)})

    @staticmethod
    def _secret_name(task_spec: Any) -> str | None:
        for volume in _volumes(task_spec):
            name = (volume.get("secret") or {}).get("secretName", "")
            if name.startswith(SECRET_PREFIX):
                return str(name)
        return None

    async def _advance_running(self, stored: Stored) -> None:
        key = (stored.namespace, stored.name)
        task_spec = (stored.obj.get("status") or {}).get("taskSpec")
        if self._secret_name(task_spec) is not None:
            secret = self.api.store.get(SECRETS, stored.namespace, SECRET_PREFIX + stored.name)
            if secret is None:
                return  # The creation of the Secret enqueues this TaskRun again.
            if "error" in (secret.obj.get("data") or {}):
                message = (
                    '"step-build" exited with code 1: the machine could not be prepared, see key '
                    f"error of Secret {secret.name}"
                )
                await self._finish(stored, "False", "Failed", message)
                return
        if wants_pod(stored.obj):
            await self._follow_pod(stored)
            return
        end = self._ends.get(stored.uid, -1.0)
        now = self.clock.time()
        if end < 0:
            wished = duration(stored.obj)
            lasts = some_duration(self.random) if wished is None else wished
            limit = _limit(stored.obj)
            lasts = min(lasts, limit) if limit else lasts
            self._ends[stored.uid] = end = now + lasts
        if now < end:
            self.enqueue_after(key, end - now)
        elif fails(stored.obj):
            message = (
                '"step-run" exited with code 1 (image: "simulated"); the simulation was asked to'
            )
            await self._finish(stored, "False", "Failed", message)
        else:
            await self._finish(stored, "True", "Succeeded", "All Steps have completed executing")

    async def _follow_pod(self, stored: Stored) -> None:
        """Take over the outcome of the pod; a deleted pod is created again."""
        pod = self.api.store.get(PODS, stored.namespace, pod_name(stored.name))
        now = self.clock.time()
        if self._ends.get(stored.uid, -1.0) < 0:
            self._ends[stored.uid] = now + (_limit(stored.obj) or float("inf"))
        left = self._ends[stored.uid] - now
        phase = None if pod is None else (pod.obj.get("status") or {}).get("phase")
        if phase == "Succeeded":
            await self._finish(stored, "True", "Succeeded", "All Steps have completed executing")
        elif phase == "Failed":
            message = '"step-run" exited with code 1 (image: "simulated")'
            await self._finish(stored, "False", "Failed", message)
        elif left <= 0:
            self._delete_pod(stored)
            message = f'TaskRun "{stored.name}" {timed_out(_limit(stored.obj))}'
            await self._finish(stored, "False", "TaskRunTimeout", message)
        else:
            if left < float("inf"):
                self.enqueue_after((stored.namespace, stored.name), left)
            if pod is None:
                body = pod_of(stored, self.owner_reference(stored))
                await self.api.create(PODS, "v1", stored.namespace, body)

    def _delete_pod(self, stored: Stored) -> None:
        pod = self.api.store.get(PODS, stored.namespace, pod_name(stored.name))
        if pod is not None and wants_pod(stored.obj):
            self.api.delete_now(pod)

    async def _finish(self, stored: Stored, status: str, reason: str, message: str) -> None:
        now = self.api.rules.now()
        conditions = with_condition(stored.obj, "Succeeded", status, reason, message, now=now)
        self._ends.pop(stored.uid, None)
        begun = (stored.obj.get("status") or {}).get("startTime") or now
        changed = {"startTime": begun, "completionTime": now, "conditions": conditions}
        await self.write_status(stored, changed)


def _limit(obj: Obj) -> float:
    """Timeout of the TaskRun in seconds; 0 means no limit."""
    limit = parse_duration(str(obj["spec"].get("timeout", "")))
    return TASKRUN_SECONDS_DEFAULT if limit is None else limit


def timed_out(seconds: float) -> str:
    """Return the message for a timeout."""
    return f'failed to finish within "{format_duration(seconds)}"'
