"""Stops jobs that are objects by themselves: a group is stopped by `groups`. Every step can be repeated."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from services.patcher.cluster.errors import is_transient_refusal
from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.writer import Writer
from services.patcher.jobs.gated import mark_target
from services.patcher.jobs.outcomes import Outcomes
from services.patcher.jobs.recreation import Recreation
from services.patcher.jobs.repeated_changes import RepeatedChanges
from services.patcher.jobs.stop_marks import Check, mark_patch, mark_tests, marking
from shared.bus.port import LaterError
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.conditions import EVICTED, find_condition, message_of
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import DEACTIVATED, NOT_ADMITTED, NOT_ADMITTED_HELD
from shared.integrations import Integration
from shared.kube.port import NotFoundError, Patch, RefusedError

STOP_REFUSED: Final = "StopRefused"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopController:
    """Suspends what can wait again, and deletes or ends everything else."""

    writer: Writer
    events: EventRecorder
    outcomes: Outcomes
    recreation: Recreation
    holds: RepeatedChanges
    now: Callable[[], datetime]

    async def stop(
        self,
        state: WorkloadState,
        admission: Admission,
        job: Body,
        integration: Integration,
        workload: Body | None,
        check: Check,
    ) -> None:
        """Stop the job in the way of its kind, and report that. `workload`: None if there is none."""
        is_held = integration.held(job)
        runs_elsewhere = integration.runs_elsewhere(job)
        suspendable = integration.stop(job) is not None or runs_elsewhere
        if not is_held and (integration.deletes or not suspendable):
            await self._end(state, admission, job, integration, workload)
            return
        if not is_held:
            self.holds.check(state)
        try:
            after, is_stopped = await self._suspend(integration, job, admission, check)
        except NotFoundError:
            return
        if not integration.held(after) and integration.stop(after) is None and not runs_elsewhere:
            raise LaterError(f"{integration.kind.kind} {state.name} started meanwhile")
        if is_stopped:
            self.holds.record(state)
            self.events.record(integration.kind, after, "Stopped", _why(admission, workload))
        await self.outcomes.report(state, admission, "applied", "suspend", after=after)

    async def _suspend(
        self, integration: Integration, job: Body, admission: Admission, check: Check
    ) -> tuple[Body, bool]:
        """Stop the job, and mark it. Returns it as written, and whether there was something to stop.

        The mark has to be the one that was read: else another replica has carried out this decision, and a
        later one may have let the job go since.
        """
        is_stopped = False

        def patch(current: Body, *, marked: bool) -> Patch | None:
            nonlocal is_stopped
            is_stopped = False
            if integration.held(current):
                return mark_patch(current, admission) if marked else None
            operations = None if integration.runs_elsewhere(job) else integration.stop(current)
            if operations is None:
                return None
            is_stopped = True
            added = marking(current, admission) if marked else mark_tests(current)
            return [*operations, *added]

        write = partial(self.writer.patch, integration.kind, job, on_conflict=check)
        try:
            after = await write(partial(patch, marked=True))
        except RefusedError as error:
            if is_transient_refusal(error):
                raise
            # Where a tenant has filled up the annotations no mark fits. That must not keep the job running.
            after = await write(partial(patch, marked=False))
        return after, is_stopped

    async def _end(
        self,
        state: WorkloadState,
        admission: Admission,
        job: Body,
        integration: Integration,
        workload: Body | None,
    ) -> None:
        """End a job that cannot wait again: delete it, or end it and create a waiting copy if that is wanted.

        A job that ran without admission is cancelled. One that is deactivated, or whose queue wants a
        copy, is ended. Any other runs on and keeps its quota.
        """
        if integration.finish(job) is not None:
            return  # The state that says so is on its way.
        if integration.deletes:
            await self._delete(integration, job, admission, _why(admission, workload))
            await self.outcomes.report(state, admission, "applied", "suspend", after=job)
            return
        cancelled = admission.reason in {NOT_ADMITTED, NOT_ADMITTED_HELD}
        without_copy = admission.reason == NOT_ADMITTED or admission.reason.startswith(DEACTIVATED)
        if not (cancelled or without_copy) and state.on_eviction != "recreate":
            text = f"a started {integration.kind.kind} cannot be stopped and resumed"
            await self.outcomes.report(
                state, admission, "refused", "suspend", message=text, after=job
            )
            return
        try:
            after = await self.recreation.end(
                job,
                integration,
                reason=admission.message,
                recreate=not without_copy,
                cancel=cancelled,
                workload=workload,
            )
        except RefusedError as error:
            self.events.record(integration.kind, job, STOP_REFUSED, str(error), type_="Warning")
            if is_transient_refusal(error):
                raise
            await self.outcomes.report(
                state, admission, "refused", "suspend", message=str(error), after=job
            )
            return
        if after is not None:
            await self.outcomes.report(state, admission, "applied", "suspend", after=after)

    async def _delete(
        self, integration: Integration, job: Body, admission: Admission, text: str
    ) -> None:
        """Delete a job, unless it is being deleted. Its quota is free once it is gone."""
        if "deletionTimestamp" in job["metadata"]:
            return
        await mark_target(self.writer, integration, job, admission.reason, text, self.now())
        await self.writer.delete(integration.kind, job)
        self.events.record(integration.kind, job, "Stopped", text)


def _why(admission: Admission, workload: Body | None) -> str:
    """Why the job is stopped, in words."""
    return message_of(find_condition(workload, EVICTED)) or admission.message
