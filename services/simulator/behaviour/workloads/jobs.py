"""The Job controller: creates pods for Jobs that are not suspended, and sets their conditions."""

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from typing_extensions import override

from services.simulator.behaviour.clock import Clock
from services.simulator.behaviour.conditions import condition, with_condition
from services.simulator.behaviour.controller import Controller, owner_key
from services.simulator.behaviour.simulated_behaviour import simulation_annotations
from services.simulator.cluster.api import Api, DeleteOptions
from services.simulator.cluster.kinds.catalogue import JOBS, PODS
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Stored

MANAGED_BY_KUBERNETES: Final = "kubernetes.io/job-controller"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
BACKOFF_SECONDS_FIRST: Final = 10.0
BACKOFF_SECONDS_MAX: Final = 600.0
PODS_PER_STEP_MAX: Final = 500
"""Most pods that one reconcile creates."""


def _ended(obj: Obj) -> bool:
    for type_ in ("Complete", "Failed"):
        found = condition(obj, type_)
        if found is not None and found["status"] == "True":
            return True
    return False


def _waits_for_ending(obj: Obj) -> bool:
    """Whether a pod is made anew when the one before it is gone, not when that is told to end."""
    spec = obj["spec"]
    return spec.get("podReplacementPolicy") == "Failed" or spec.get("podFailurePolicy") is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pods:
    """The pods of one Job by state."""

    active: list[Stored]
    terminating: list[Stored]
    succeeded: list[Stored]
    failed: list[Stored]
    counted: set[str]
    """Uids of all that have ever succeeded: the Job controller counts them once."""

    completed: set[int]
    """Indexes that have ever succeeded, of those that the Job still wants. What its user takes off the end is
    forgotten, and runs anew when it is wanted again."""

    @property
    def ready(self) -> int:
        return sum((pod.obj.get("status") or {}).get("phase") == "Running" for pod in self.active)

    @staticmethod
    def indexes(pods: list[Stored]) -> set[int]:
        found = (pod.obj["metadata"].get("annotations", {}).get(INDEX) for pod in pods)
        return {int(index) for index in found if index is not None}


class JobController(Controller):
    """Runs Jobs with the observable behaviour of Kubernetes 1.33."""

    def __init__(self, api: Api, clock: Clock, random: Random) -> None:
        super().__init__(api, clock, random, JOBS)
        self._not_before: dict[str, float] = {}
        """Time from which a Job may create pods again after failures, by uid."""

        self._deadlines: dict[str, float] = {}
        self._counted: dict[str, set[str]] = {}
        self._completed: dict[str, set[int]] = {}

    @override
    def start(self) -> None:
        self.follow(PODS, lambda event: owner_key(event.stored, "Job"))
        super().start()

    @override
    def forget(self, uid: str) -> None:
        self._not_before.pop(uid, None)
        self._deadlines.pop(uid, None)

    @override
    async def reconcile(self, stored: Stored) -> None:
        obj = stored.obj
        spec = obj["spec"]
        if (spec.get("managedBy") or MANAGED_BY_KUBERNETES) != MANAGED_BY_KUBERNETES:
            return
        deleted = "deletionTimestamp" in obj["metadata"]
        if _ended(obj):
            if not deleted:
                await self._expire(stored)
            return
        pods = self._pods(stored)
        if deleted:
            # It gets no more pods, but what its pods still do counts (kubernetes/kubernetes
            # pkg/controller/job/job_controller.go, syncJob).
            if pods.succeeded or pods.failed:
                await self._conclude(stored, pods)
        elif spec.get("suspend"):
            await self._suspend(stored, pods)
        elif not (obj.get("status") or {}).get("startTime"):
            await self._start(stored)
        elif not await self._conclude(stored, pods):
            await self._scale(stored, pods)

    def _pods(self, stored: Stored) -> _Pods:
        counted = self._counted.setdefault(stored.uid, set())
        completed = self._completed.setdefault(stored.uid, set())
        pods = _Pods(
            active=[], terminating=[], succeeded=[], failed=[], counted=counted, completed=completed
        )
        for pod in self.controlled(stored, PODS):
            phase = (pod.obj.get("status") or {}).get("phase")
            if phase == "Succeeded":
                pods.succeeded.append(pod)
                if pod.uid not in counted:
                    completed |= pods.indexes([pod])
                counted.add(pod.uid)
            elif phase == "Failed":
                pods.failed.append(pod)
            elif "deletionTimestamp" in pod.obj["metadata"]:
                pods.terminating.append(pod)
            else:
                pods.active.append(pod)
        wanted = stored.obj["spec"].get("completions")
        if wanted is not None:
            completed.intersection_update([index for index in completed if index < int(wanted)])
        return pods

    # --- states --------------------------------------------------------------------------------

    async def _start(self, stored: Stored) -> None:
        now = self.api.rules.now()
        status: dict[str, Any] = {"startTime": now}
        suspended = condition(stored.obj, "Suspended")
        if suspended is not None:
            status["conditions"] = with_condition(
                stored.obj, "Suspended", "False", "JobResumed", "Job resumed", now=now
            )
        deadline = stored.obj["spec"].get("activeDeadlineSeconds")
        if deadline is not None:
            self._deadlines[stored.uid] = self.clock.time() + float(deadline)
            self.enqueue_after((stored.namespace, stored.name), float(deadline))
        await self.write_status(stored, status)

    async def _suspend(self, stored: Stored, pods: _Pods) -> None:
        self.forget(stored.uid)
        if pods.active:
            await self._delete(pods.active)
            pods = self._pods(stored)
        now = self.api.rules.now()
        conditions = with_condition(
            stored.obj, "Suspended", "True", "JobSuspended", "Job suspended", now=now
        )
        # A suspended Job loses its start time; it gets a new one when it is resumed.
        await self._report(stored, pods, {"startTime": None, "conditions": conditions})

    async def _conclude(self, stored: Stored, pods: _Pods) -> bool:
        """Set the final condition if the Job has ended, and none of its pods is there any more."""
        spec, uid = stored.obj["spec"], stored.uid
        deadline = self._deadlines.get(uid)
        if deadline is not None and self.clock.time() >= deadline:
            message = "Job was active longer than specified deadline"
            return await self._fail(stored, pods, "DeadlineExceeded", message)
        limit = spec.get("backoffLimit", 6)
        if len(pods.failed) > limit:
            message = "Job has reached the specified backoff limit"
            return await self._fail(stored, pods, "BackoffLimitExceeded", message)
        completions = spec.get("completions")
        if completions is None:
            done = self._succeeded(stored, pods) > 0 and not pods.active and not pods.terminating
        else:
            done = self._succeeded(stored, pods) >= completions
        if not done:
            return False
        if pods.active:
            await self._delete(pods.active)
            pods = self._pods(stored)
        now = self.api.rules.now()
        reason, message = "CompletionsReached", "Reached expected number of succeeded pods"
        conditions = with_condition(
            stored.obj, "SuccessCriteriaMet", "True", reason, message, now=now
        )
        status: dict[str, Any] = {"conditions": conditions}
        if not pods.active and not pods.terminating:
            complete = {**conditions[-1], "type": "Complete", "lastTransitionTime": now}
            status = {"conditions": [*conditions, complete], "completionTime": now}
        await self._report(stored, pods, status)
        return True

    async def _fail(self, stored: Stored, pods: _Pods, reason: str, message: str) -> bool:
        """Delete the active pods; the Job fails once they are gone."""
        await self._delete(pods.active)
        pods = self._pods(stored)
        now = self.api.rules.now()
        conditions = with_condition(stored.obj, "FailureTarget", "True", reason, message, now=now)
        if not pods.active and not pods.terminating:
            conditions = [*conditions, {**conditions[-1], "type": "Failed"}]
        await self._report(stored, pods, {"conditions": conditions})
        return True

    async def _expire(self, stored: Stored) -> None:
        ttl = stored.obj["spec"].get("ttlSecondsAfterFinished")
        if ttl is None:
            return
        deadline = self._deadlines.setdefault(f"{stored.uid}/ttl", self.clock.time() + float(ttl))
        left = deadline - self.clock.time()
        if left > 0:
            self.enqueue_after((stored.namespace, stored.name), left)
        else:
            del self._deadlines[f"{stored.uid}/ttl"]
            self.api.delete_now(stored, DeleteOptions(propagation="Background"))

    # --- pods ----------------------------------------------------------------------------------

    @staticmethod
    def _succeeded(stored: Stored, pods: _Pods) -> int:
        """Return how many have succeeded, those that are gone by now among them."""
        if stored.obj["spec"].get("completionMode") == "Indexed":
            return len(pods.completed)
        return len(pods.counted)

    def _wanted(self, stored: Stored, pods: _Pods) -> int:
        """The number of pods that should be active now."""
        spec = stored.obj["spec"]
        parallelism, completions = int(spec.get("parallelism", 1)), spec.get("completions")
        if completions is None:
            # A work queue: after the first success no more pods are created; the others run to their end.
            return len(pods.active) if self._succeeded(stored, pods) else parallelism
        return min(parallelism, int(completions) - self._succeeded(stored, pods))

    async def _scale(self, stored: Stored, pods: _Pods) -> None:
        if self._backs_off(stored, pods):
            await self._report(stored, pods, {})
            return
        ending = len(pods.terminating) if _waits_for_ending(stored.obj) else 0
        missing = self._wanted(stored, pods) - len(pods.active)
        if missing < 0:
            await self._delete(pods.active[missing:])
        for _ in range(min(max(missing - ending, 0), PODS_PER_STEP_MAX)):
            await self._create_pod(stored)
        await self._report(stored, self._pods(stored), {})

    def _backs_off(self, stored: Stored, pods: _Pods) -> bool:
        """True while the Job waits after a failure; each failure doubles the wait."""
        failures = len(pods.failed)
        if not failures or len(pods.active) >= self._wanted(stored, pods):
            return False
        now = self.clock.time()
        known = int((stored.obj.get("status") or {}).get("failed", 0))
        if failures > known:
            wait = min(BACKOFF_SECONDS_FIRST * 2 ** (failures - 1), BACKOFF_SECONDS_MAX)
            self._not_before[stored.uid] = now + wait
        left = self._not_before.get(stored.uid, now) - now
        if left <= 0:
            return False
        self.enqueue_after((stored.namespace, stored.name), left)
        return True

    async def _create_pod(self, stored: Stored) -> None:
        template = stored.obj["spec"].get("template") or {}
        metadata = template.get("metadata") or {}
        annotations = {**simulation_annotations(stored.obj), **(metadata.get("annotations") or {})}
        name: dict[str, Any] = {"generateName": f"{stored.name}-"}
        if stored.obj["spec"].get("completionMode") == "Indexed":
            pods = self._pods(stored)
            taken = pods.indexes(pods.active) | pods.completed
            if _waits_for_ending(stored.obj):
                taken |= pods.indexes(pods.terminating)
            index = next(i for i in range(len(taken) + 1) if i not in taken)
            annotations[INDEX] = str(index)
            name = {"generateName": f"{stored.name}-{index}-"}
        body = {
            "metadata": {
                **name,
                "namespace": stored.namespace,
                "labels": metadata.get("labels") or {},
                "annotations": annotations,
                "ownerReferences": [self.owner_reference(stored)],
            },
            "spec": template.get("spec") or {},
        }
        await self.api.create(PODS, "v1", stored.namespace, body)

    async def _delete(self, pods: list[Stored]) -> None:
        for pod in pods:
            self.api.delete_now(pod)

    async def _report(self, stored: Stored, pods: _Pods, more: Obj) -> None:
        status: dict[str, Any] = {
            "active": len(pods.active) or None,
            "ready": pods.ready,
            "terminating": len(pods.terminating),
            "succeeded": self._succeeded(stored, pods) or None,
            "failed": len(pods.failed) or None,
        }
        if stored.obj["spec"].get("completionMode") == "Indexed":
            status["completedIndexes"] = ",".join(map(str, sorted(pods.completed))) or None
        await self.write_status(stored, {**status, **more})
