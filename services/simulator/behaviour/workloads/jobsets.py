"""The JobSet controller: creates Jobs for each replicated job, and sets the JobSet's conditions.

Follows https://jobset.sigs.k8s.io without restarts: one failed Job fails the JobSet.
"""

from random import Random
from typing import Any, Final

from typing_extensions import override

from services.simulator.behaviour.clock import Clock
from services.simulator.behaviour.conditions import with_condition
from services.simulator.behaviour.controller import Controller, owner_key
from services.simulator.cluster.api import Api, DeleteOptions
from services.simulator.cluster.kinds.catalogue import JOB_SETS, JOBS
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Stored
from shared.contracts.kube.conditions import is_true

MANAGED_BY_JOBSET: Final = "jobset.sigs.k8s.io/jobset-controller"
REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_SET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"


class JobSetController(Controller):
    """Runs JobSets with the observable behaviour of JobSet."""

    def __init__(self, api: Api, clock: Clock, random: Random) -> None:
        super().__init__(api, clock, random, JOB_SETS)

    @override
    def start(self) -> None:
        self.follow(JOBS, lambda event: owner_key(event.stored, "JobSet"))
        super().start()

    @override
    def forget(self, uid: str) -> None:
        """The controller keeps no state."""

    @override
    async def reconcile(self, stored: Stored) -> None:
        obj = stored.obj
        managed_by = obj["spec"].get("managedBy") or MANAGED_BY_JOBSET
        if managed_by != MANAGED_BY_JOBSET or "deletionTimestamp" in obj["metadata"]:
            return
        jobs = {job.name: job for job in self.controlled(stored, JOBS)}
        if is_true(obj, "Completed", "Failed"):
            for dependent in jobs.values():
                await self._delete_active(dependent)
            return
        suspended = bool(obj["spec"].get("suspend"))
        if suspended:  # Whatever names it as its controller, also what it has not made.
            for dependent in jobs.values():
                await self._follow_suspension(dependent, {}, suspended=True)
        for replicated in obj["spec"].get("replicatedJobs") or []:
            for index in range(int(replicated.get("replicas", 1))):
                name = f"{stored.name}-{replicated['name']}-{index}"
                if name not in jobs:
                    jobs[name] = await self._create(stored, replicated, index, name)
                else:
                    await self._follow_suspension(jobs[name], replicated, suspended=suspended)
        await self._report(stored, list(jobs.values()), suspended=suspended)

    async def _create(self, stored: Stored, replicated: Obj, index: int, name: str) -> Stored:
        template = replicated["template"]
        metadata = template.get("metadata") or {}
        own = {
            JOB_SET_NAME: stored.name,
            REPLICATED_JOB: replicated["name"],
            JOB_INDEX: str(index),
        }
        body = {
            "metadata": {
                "name": name,
                "namespace": stored.namespace,
                "labels": {**(metadata.get("labels") or {}), **own},
                "annotations": metadata.get("annotations") or {},
                "ownerReferences": [self.owner_reference(stored)],
            },
            "spec": {
                **(template.get("spec") or {}),
                "suspend": bool(stored.obj["spec"].get("suspend")),
            },
        }
        return await self.api.create(JOBS, "v1", stored.namespace, body)

    async def _delete_active(self, job: Stored) -> None:
        """Delete a Job that has not ended: what comes below a JobSet that has ended goes, too."""
        if "deletionTimestamp" not in job.obj["metadata"] and not is_true(
            job.obj, "Complete", "Failed"
        ):
            options = DeleteOptions(uid=job.uid, propagation="Foreground")
            await self.api.delete(JOBS, job.namespace, job.name, options)

    async def _follow_suspension(self, job: Stored, replicated: Obj, *, suspended: bool) -> None:
        """Suspend or resume the Jobs; a resumed Job gets the current pod template."""
        if bool(job.obj["spec"].get("suspend")) == suspended or is_true(
            job.obj, "Complete", "Failed"
        ):
            return
        spec: dict[str, Any] = {"suspend": suspended}
        if not suspended and not (job.obj.get("status") or {}).get("startTime"):
            pod = ((replicated["template"].get("spec") or {}).get("template") or {}).get("spec")
            given = {key: (pod or {}).get(key) for key in ("nodeSelector", "tolerations")}
            spec["template"] = {"spec": given}
        patch = {"metadata": {"uid": job.uid}, "spec": spec}
        await self.api.patch(JOBS, "v1", job.namespace, job.name, patch, "merge")

    async def _report(self, stored: Stored, jobs: list[Stored], *, suspended: bool) -> None:
        now = self.api.rules.now()
        statuses = []
        for replicated in stored.obj["spec"].get("replicatedJobs") or []:
            own = [
                job.obj
                for job in jobs
                if job.obj["metadata"].get("labels", {}).get(REPLICATED_JOB) == replicated["name"]
            ]
            statuses.append(_status_of(replicated, own))
        status: dict[str, Any] = {"replicatedJobsStatus": statuses}
        wanted = sum(int(r.get("replicas", 1)) for r in stored.obj["spec"]["replicatedJobs"])
        reason, message = "ResumeJobs", "jobset is resumed"
        type_, value = "Suspended", "False"
        if sum(one["failed"] for one in statuses):
            type_, value = "Failed", "True"
            reason, message = "FailedJobs", "jobset failed due to one or more job failures"
        elif sum(one["succeeded"] for one in statuses) == wanted:
            type_, value = "Completed", "True"
            reason, message = "AllJobsCompleted", "jobset completed successfully"
        elif suspended:
            value, reason, message = "True", "SuspendedJobs", "jobset is suspended"
        status["conditions"] = with_condition(stored.obj, type_, value, reason, message, now=now)
        await self.write_status(stored, status)


def _status_of(replicated: Obj, jobs: list[Obj]) -> Obj:
    """Return the status of a replicated job; it counts Jobs, not pods."""
    counts = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
    for job in jobs:
        spec, status = job["spec"], job.get("status") or {}
        pods = int(spec.get("parallelism", 1))
        pods = min(pods, int(spec.get("completions") or pods))
        if is_true(job, "Complete"):
            counts["succeeded"] += 1
        elif is_true(job, "Failed"):
            counts["failed"] += 1
        else:
            ready = int(status.get("ready") or 0) + int(status.get("succeeded") or 0)
            counts["ready"] += ready >= pods
            counts["active"] += bool(status.get("active"))
            counts["suspended"] += bool(spec.get("suspend"))
    return {"name": replicated["name"], **counts}
