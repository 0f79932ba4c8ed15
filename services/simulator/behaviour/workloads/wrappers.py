"""The AppWrapper controller: deploys what an AppWrapper wraps, and says how far that is.

Follows the operator of https://project-codeflare.github.io/appwrapper without retries: one failed object
fails the AppWrapper. What it wraps are Jobs, JobSets, and objects without pods.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from typing_extensions import override

from services.simulator.behaviour.clock import Clock
from services.simulator.behaviour.conditions import condition, with_condition
from services.simulator.behaviour.controller import Controller, owner_key
from services.simulator.cluster.api import Api, DeleteOptions
from services.simulator.cluster.kinds.catalogue import JOB_SETS, JOBS
from services.simulator.cluster.kinds.registry import Kind, Obj
from services.simulator.cluster.storage.stored import Stored

WRAPPERS: Final = Kind(
    group="workload.codeflare.dev",
    versions=("v1beta2",),
    kind="AppWrapper",
    plural="appwrappers",
    custom=True,
)
_LABEL: Final = "workload.codeflare.dev/appwrapper"


class WrapperController(Controller):
    """Runs AppWrappers with the observable behaviour of their operator."""

    def __init__(self, api: Api, clock: Clock, random: Random) -> None:
        api.kinds.add(WRAPPERS)
        super().__init__(api, clock, random, WRAPPERS)

    @override
    def start(self) -> None:
        for kind in (JOBS, JOB_SETS):
            self.follow(kind, lambda event: owner_key(event.stored, WRAPPERS.kind))
        super().start()

    @override
    def forget(self, uid: str) -> None:
        """The controller keeps no state."""

    @override
    async def reconcile(self, stored: Stored) -> None:
        obj = stored.obj
        phase = (obj.get("status") or {}).get("phase")
        if "deletionTimestamp" in obj["metadata"] or phase == "Succeeded":
            return
        inside = self._inside(stored)
        if obj["spec"].get("suspend") or phase == "Failed":
            for one in inside:
                await self._delete(one)
            inside = self._inside(stored)
            phase = phase if phase == "Failed" else "Suspending" if inside else "Suspended"
            await self._report(stored, phase, deployed=bool(inside))
            return
        names = {(one.kind.kind, one.name) for one in inside}
        for component in obj["spec"]["components"]:
            wrapped = component["template"]
            if (wrapped["kind"], wrapped["metadata"]["name"]) not in names:
                inside.append(await self._deploy(stored, component))
        states = [_state(one.obj) for one in inside if one.kind in {JOBS, JOB_SETS}]
        if "failed" in states:
            await self._report(stored, "Failed", deployed=True)
        elif all(state == "succeeded" for state in states):
            await self._report(stored, "Succeeded", deployed=True)
        else:
            is_ready = all(state != "starting" for state in states)
            await self._report(stored, "Running", deployed=True, is_ready=is_ready)

    async def _deploy(self, stored: Stored, component: Obj) -> Stored:
        """Create a wrapped object, with what was chosen for its pods."""
        wrapped = component["template"]
        kind = self.api.kinds.by_kind(wrapped["apiVersion"], wrapped["kind"])
        assert kind is not None, f"the cluster serves no {wrapped['kind']}"
        spec = dict(wrapped.get("spec") or {})
        chosen = iter(component.get("podSetInfos") or [])
        if kind == JOBS:
            spec["template"] = _placed(spec["template"], next(chosen))
        if kind == JOB_SETS:
            spec["replicatedJobs"] = [
                _with_template(one, _placed(one["template"]["spec"]["template"], next(chosen)))
                for one in spec["replicatedJobs"]
            ]
        metadata = wrapped["metadata"]
        body = {
            **{key: value for key, value in wrapped.items() if key != "spec"},
            "metadata": {
                **metadata,
                "namespace": stored.namespace,
                "labels": {**(metadata.get("labels") or {}), _LABEL: stored.name},
                "ownerReferences": [self.owner_reference(stored)],
            },
            **({"spec": spec} if spec else {}),
        }
        return await self.api.create(kind, kind.storage_version, stored.namespace, body)

    def _inside(self, stored: Stored) -> list[Stored]:
        """Return what it has deployed; its Workload has it as owner, too."""
        found = self.api.collector.dependents(stored.uid)
        return [one for one in found if _LABEL in (one.obj["metadata"].get("labels") or {})]

    async def _delete(self, one: Stored) -> None:
        if "deletionTimestamp" not in one.obj["metadata"]:
            options = DeleteOptions(uid=one.uid, propagation="Foreground")
            await self.api.delete(one.kind, one.namespace, one.name, options)

    async def _report(
        self, stored: Stored, phase: str, *, deployed: bool, is_ready: bool = False
    ) -> None:
        obj, now = stored.obj, self.api.rules.now()
        # What succeeded stays deployed, without quota.
        reserved = deployed and phase != "Succeeded"
        truths = {"QuotaReserved": reserved, "ResourcesDeployed": deployed, "PodsReady": is_ready}
        for type_, value in truths.items():
            conditions = with_condition(obj, type_, str(value), phase, "", now=now)
            obj = {**obj, "status": {**(obj.get("status") or {}), "conditions": conditions}}
        status: dict[str, Any] = {"phase": phase, "conditions": obj["status"]["conditions"]}
        before = stored.obj.get("status") or {}
        if any(before.get(key) != value for key, value in status.items()):
            await self.write_status(stored, status)


def _with_template(replicated: Obj, template: Obj) -> Obj:
    job = replicated["template"]
    return {**replicated, "template": {**job, "spec": {**job["spec"], "template": template}}}


def _placed(template: Obj, chosen: Obj) -> Obj:
    """Return a pod template with what was chosen for its pods."""
    metadata, spec = dict(template.get("metadata") or {}), dict(template["spec"])
    for key in ("labels", "annotations"):
        metadata[key] = {**(metadata.get(key) or {}), **(chosen.get(key) or {})}
    spec["nodeSelector"] = {
        **(spec.get("nodeSelector") or {}),
        **(chosen.get("nodeSelector") or {}),
    }
    spec["tolerations"] = [*(spec.get("tolerations") or []), *(chosen.get("tolerations") or [])]
    return {"metadata": metadata, "spec": spec}


def _state(obj: Obj) -> str:
    """How far a Job or JobSet is: starting, running, succeeded or failed."""
    for type_, state in (
        ("Failed", "failed"),
        ("Complete", "succeeded"),
        ("Completed", "succeeded"),
    ):
        found = condition(obj, type_)
        if found is not None and found["status"] == "True":
            return state
    return "running" if all(_is_ready(one) for one in _jobs_of(obj)) else "starting"


def _jobs_of(obj: Obj) -> Iterator[tuple[Obj, int]]:
    """Yield status and wanted number of what has to be ready."""
    status, spec = obj.get("status") or {}, obj["spec"]
    if "replicatedJobs" not in spec:
        yield status, int(spec.get("parallelism", 1))
        return
    by_name = {one["name"]: one for one in status.get("replicatedJobsStatus") or []}
    for one in spec["replicatedJobs"]:
        yield by_name.get(one["name"], {}), int(one.get("replicas", 1))


def _is_ready(job: tuple[Obj, int]) -> bool:
    status, wanted = job
    return int(status.get("ready") or 0) + int(status.get("succeeded") or 0) >= wanted
