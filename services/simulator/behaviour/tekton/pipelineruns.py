"""Tekton's PipelineRun controller: pending, running, stopping, done."""

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from typing_extensions import override

from services.simulator.behaviour.clock import Clock
from services.simulator.behaviour.conditions import condition, with_condition
from services.simulator.behaviour.controller import Controller, owner_key
from services.simulator.behaviour.simulated_behaviour import annotations, duration, fails
from services.simulator.behaviour.tekton.admission import is_done, pipeline_seconds
from services.simulator.behaviour.tekton.coscheduling import Coscheduling
from services.simulator.behaviour.tekton.plan import PlannedTask, depth, plan
from services.simulator.behaviour.tekton.taskruns import timed_out
from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.catalogue import PIPELINERUNS, STATEFUL_SETS, TASKRUNS
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Stored
from shared.contracts.coscheduling import AFFINITY_ANNOTATION, PENDING, RUN_LABEL, RUN_UID_LABEL
from shared.contracts.kube.names import LAST_APPLIED, MANAGED_BY_TEKTON
from shared.contracts.simulation import DURATION, OUTCOME, PREFIX, RUN_IN_PODS
from shared.contracts.tekton import MEMBER_LABEL, TASK_LABEL

NOT_INHERITED: Final = (LAST_APPLIED,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    """The TaskRuns of one PipelineRun and their states."""

    planned: list[PlannedTask]
    taskruns: dict[str, Obj]
    """Existing TaskRuns by name."""

    def _all(self, *, finally_: bool) -> list[PlannedTask]:
        return [task for task in self.planned if task.finally_ is finally_]

    def reason(self, task: PlannedTask) -> str | None:
        """The reason with which the task ended, or None while it runs."""
        obj = self.taskruns.get(task.name)
        if obj is None or not is_done(obj):
            return None
        found = condition(obj, "Succeeded")
        assert found is not None, "done without a condition"
        return "Succeeded" if found["status"] == "True" else str(found["reason"])

    def count(self, *reasons: str) -> int:
        return sum(self.reason(task) in reasons for task in self.planned)

    @property
    def failed(self) -> int:
        return sum(
            self.reason(task) not in {None, "Succeeded", "TaskRunCancelled"}
            for task in self.planned
        )

    @property
    def done(self) -> int:
        return sum(self.reason(task) is not None for task in self.planned)

    @property
    def running(self) -> list[PlannedTask]:
        return [t for t in self.planned if t.name in self.taskruns and self.reason(t) is None]

    def startable(self, *, finally_: bool) -> list[PlannedTask]:
        """The tasks that may start now and have no TaskRun yet."""
        missing = [t for t in self._all(finally_=finally_) if t.name not in self.taskruns]
        if finally_:
            return missing
        unfinished = {t.task for t in self.planned if self.reason(t) != "Succeeded"}
        return [t for t in missing if not any(name in unfinished for name in t.after)]

    def unstarted(self, *, finally_: bool) -> int:
        return sum(t.name not in self.taskruns for t in self._all(finally_=finally_))

    def finished(self, *, finally_: bool) -> bool:
        """True if all of these tasks have ended."""
        return all(self.reason(t) is not None for t in self._all(finally_=finally_))


class PipelineRunController(Controller):
    """Starts PipelineRuns that are not pending, creates their TaskRuns, and sets their conditions."""

    def __init__(self, api: Api, clock: Clock, random: Random) -> None:
        super().__init__(api, clock, random, PIPELINERUNS)
        self._deadlines: dict[str, float] = {}
        self._plans: dict[str, list[PlannedTask]] = {}
        """Plan by uid of the run; it stays valid because the spec cannot change."""

        self._coscheduling = Coscheduling(api)

    @override
    def start(self) -> None:
        self.follow(TASKRUNS, lambda event: owner_key(event.stored, "PipelineRun"))
        self.follow(STATEFUL_SETS, lambda event: owner_key(event.stored, "PipelineRun"))
        super().start()

    @override
    def forget(self, uid: str) -> None:
        self._deadlines.pop(uid, None)
        self._plans.pop(uid, None)

    @override
    async def reconcile(self, stored: Stored) -> None:
        obj = stored.obj
        if (obj["spec"].get("managedBy") or MANAGED_BY_TEKTON) != MANAGED_BY_TEKTON:
            return
        if is_done(obj) or "deletionTimestamp" in obj["metadata"]:
            return
        started = bool((obj.get("status") or {}).get("startTime"))
        if obj["spec"].get("status") == PENDING and not started:
            message = f'PipelineRun "{stored.name}" is pending'
            await self._say(stored, "Unknown", PENDING, message)
            return
        if not started and obj["spec"].get("status") == "Cancelled":
            # Tekton starts and ends it in one reconcile, with one write.
            message = f'PipelineRun "{stored.name}" was cancelled'
            await self._finish(stored, "False", "Cancelled", message)
            return
        if not started:
            await self._start(stored)
            return
        await self._drive(stored)

    # --- one step ------------------------------------------------------------------------------

    async def _start(self, stored: Stored) -> None:
        now = self.api.rules.now()
        conditions = with_condition(stored.obj, "Succeeded", "Unknown", "Started", "", now=now)
        await self.write_status(stored, {"startTime": now, "conditions": conditions})
        if limit := pipeline_seconds(stored.obj):
            self._deadlines[stored.uid] = self.clock.time() + limit
            self.enqueue_after((stored.namespace, stored.name), limit)

    def _progress(self, stored: Stored) -> _Progress:
        planned = self._plans.get(stored.uid)
        if planned is None:
            planned = self._plans[stored.uid] = plan(stored.obj, self._pipeline(stored))
        taskruns: dict[str, Obj] = {}
        for task in planned:
            child = self.api.store.get(TASKRUNS, stored.namespace, task.name)
            if child is not None and owner_key(child, "PipelineRun") == (
                stored.namespace,
                stored.name,
            ):
                taskruns[task.name] = child.obj
        return _Progress(planned=planned, taskruns=taskruns)

    def _pipeline(self, stored: Stored) -> Obj | None:
        name = (stored.obj["spec"].get("pipelineRef") or {}).get("name")
        kind = self.api.kinds.by_resource("tekton.dev", "pipelines")
        found = self.api.store.get(kind, stored.namespace, name) if name else None
        return None if found is None else found.obj.get("spec")

    async def _drive(self, stored: Stored) -> None:
        await self._coscheduling.prepare(stored, self.owner_reference(stored))
        progress = self._progress(stored)
        asked = stored.obj["spec"].get("status") or ""
        deadline = self._deadlines.get(stored.uid)
        if deadline is not None and self.clock.time() >= deadline:
            await self._cancel_tasks(stored, progress, "PipelineRun has timed out")
            message = f'PipelineRun "{stored.name}" {timed_out(pipeline_seconds(stored.obj))}'
            await self._finish(stored, "False", "PipelineRunTimeout", message)
        elif asked == "Cancelled":
            await self._cancel_tasks(stored, progress, "PipelineRun was cancelled")
            message = f'PipelineRun "{stored.name}" was cancelled'
            await self._finish(stored, "False", "Cancelled", message)
        else:
            if asked == "CancelledRunFinally":
                tasks = [task for task in progress.running if not task.finally_]
                await self._cancel_tasks(stored, progress, "PipelineRun was cancelled", tasks)
                progress = self._progress(stored)
            await self._advance(stored, progress, asked)

    async def _advance(self, stored: Stored, progress: _Progress, asked: str) -> None:
        stopping = bool(asked) or progress.failed > 0
        if not stopping:
            for task in progress.startable(finally_=False):
                await self._launch(stored, task, progress.planned)
            progress = self._progress(stored)
        waiting = [task for task in progress.running if not task.finally_]
        tasks_over = progress.finished(finally_=False) or (stopping and not waiting)
        if tasks_over:
            for task in progress.startable(finally_=True):
                await self._launch(stored, task, progress.planned)
            progress = self._progress(stored)
            if progress.finished(finally_=True):
                await self._conclude(stored, progress, asked)
                return
        reason = "Running"
        if asked in {"CancelledRunFinally", "StoppedRunFinally"}:
            reason = asked.replace("Run", "Running")
        elif stopping:
            reason = "PipelineRunStopping"
        left = len(progress.planned) - progress.done
        message = f"{self._counts(progress)}, Incomplete: {left}, Skipped: 0"
        await self._say(stored, "Unknown", reason, message, progress)

    @staticmethod
    def _counts(progress: _Progress) -> str:
        cancelled = progress.count("TaskRunCancelled")
        return (
            f"Tasks Completed: {progress.done} (Failed: {progress.failed}, Cancelled {cancelled})"
        )

    async def _conclude(self, stored: Stored, progress: _Progress, asked: str) -> None:
        skipped = progress.unstarted(finally_=False)
        message = f"{self._counts(progress)}, Skipped: {skipped}"
        if progress.failed:
            await self._finish(stored, "False", "Failed", message, progress)
        elif asked and (skipped or progress.count("TaskRunCancelled")):
            message = f'PipelineRun "{stored.name}" was cancelled'
            await self._finish(stored, "False", "Cancelled", message, progress)
        elif progress.count("TaskRunCancelled"):
            await self._finish(stored, "False", "Cancelled", message, progress)
        else:
            reason = "Completed" if skipped or asked else "Succeeded"
            await self._finish(stored, "True", reason, message, progress)

    # --- writing -------------------------------------------------------------------------------

    async def _launch(self, stored: Stored, task: PlannedTask, planned: list[PlannedTask]) -> None:
        run = stored.obj
        metadata = run["metadata"]
        inherited = {
            key: value
            for key, value in annotations(run).items()
            if not key.startswith(PREFIX) and key not in NOT_INHERITED
        }
        wished = duration(run)
        if wished is not None:
            inherited[DURATION] = f"{wished / depth(planned):.3f}s"
        # A run with the outcome `fail` fails in its last ordinary task, so that it holds its quota as
        # long as one that succeeds.
        ordinary = [other for other in planned if not other.finally_]
        if fails(run) and task == ordinary[-1]:
            inherited[OUTCOME] = "fail"
        if RUN_IN_PODS in annotations(run):
            inherited[RUN_IN_PODS] = annotations(run)[RUN_IN_PODS]
        bound, assistant = self._coscheduling.bind(stored, task.workspaces)
        if assistant:
            inherited[AFFINITY_ANNOTATION] = assistant
        spec: dict[str, Any] = {"params": list(task.params)}
        template = run["spec"].get("taskRunTemplate") or {}
        if bound:
            spec["workspaces"] = bound
        if template.get("podTemplate"):
            spec["podTemplate"] = template["podTemplate"]
        spec["serviceAccountName"] = template.get("serviceAccountName", "default")
        if task.ref is not None:
            spec["taskRef"] = task.ref
        else:
            spec["taskSpec"] = task.spec or {"steps": [{"name": "run", "image": "simulated"}]}
        labels = {
            **(metadata.get("labels") or {}),
            RUN_LABEL: stored.name,
            RUN_UID_LABEL: stored.uid,
            TASK_LABEL: task.task,
            MEMBER_LABEL: "finally" if task.finally_ else "tasks",
        }
        body = {
            "metadata": {
                "name": task.name,
                "namespace": stored.namespace,
                "labels": labels,
                "annotations": inherited,
                "ownerReferences": [self.owner_reference(stored)],
            },
            "spec": spec,
        }
        await self.api.create(TASKRUNS, TASKRUNS.storage_version, stored.namespace, body)

    async def _cancel_tasks(
        self,
        stored: Stored,
        progress: _Progress,
        why: str,
        tasks: list[PlannedTask] | None = None,
    ) -> None:
        for task in progress.running if tasks is None else tasks:
            patch = {"spec": {"status": "TaskRunCancelled", "statusMessage": why}}
            await self.api.patch(
                TASKRUNS,
                TASKRUNS.storage_version,
                stored.namespace,
                task.name,
                patch,
                "merge",
            )

    async def _say(
        self,
        stored: Stored,
        status: str,
        reason: str,
        message: str,
        progress: _Progress | None = None,
        **more: str,
    ) -> None:
        now = self.api.rules.now()
        conditions = with_condition(stored.obj, "Succeeded", status, reason, message, now=now)
        changed: dict[str, Any] = {"conditions": conditions, **more}
        if progress is not None and progress.taskruns:
            changed["childReferences"] = [
                {
                    "apiVersion": TASKRUNS.api_version(),
                    "kind": "TaskRun",
                    "name": task.name,
                    "pipelineTaskName": task.task,
                }
                for task in progress.planned
                if task.name in progress.taskruns
            ]
        await self.write_status(stored, changed)

    async def _finish(
        self,
        stored: Stored,
        status: str,
        reason: str,
        message: str,
        progress: _Progress | None = None,
    ) -> None:
        progress = progress or self._progress(stored)
        now = self.api.rules.now()
        begun = (stored.obj.get("status") or {}).get("startTime") or now
        await self._say(
            stored, status, reason, message, progress, startTime=begun, completionTime=now
        )
        self._coscheduling.clean(stored)
        self.forget(stored.uid)
