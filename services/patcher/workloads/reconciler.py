"""Brings one workload in line with its admission. Every step can be repeated.

The status of the Workload is written before its job is released: whoever finds a running job also
finds the admission that let it run.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, NoReturn

import structlog

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.errors import is_transient_refusal, retry_later
from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.patches import status_patch
from services.patcher.cluster.writer import Writer
from services.patcher.jobs.controller import JobController
from services.patcher.workloads import manifest
from services.patcher.workloads.check_states import CheckStates
from services.patcher.workloads.creation import WorkloadCreation
from services.patcher.workloads.decision_check import DecisionCheck
from services.patcher.workloads.owner_notices import OwnerNotices
from services.patcher.workloads.status import (
    finished_status,
    holds_quota,
    is_being_deactivated,
    is_kept,
    orphaned_status,
    status_for,
    takes_back,
)
from services.patcher.workloads.status_events import events_of_change
from services.patcher.workloads.waiting_reasons import WaitingReasons
from shared.bus.port import LaterError, NeverError
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import WORKLOAD
from shared.contracts.messages.admissions import GRANTED, HOLDING, Admission
from shared.contracts.messages.workloads import Finish, JobRef, WorkloadState
from shared.contracts.reasons import ENDED
from shared.integrations import Integration
from shared.kube.port import NotFoundError, Patch, RefusedError
from shared.telemetry import probes

log = structlog.get_logger(__name__)

EARLIER_WORKLOAD_SECONDS: Final = 0.5
"""Delay in which the garbage collector may remove the Workload of an earlier job of the same name."""

HELD_WORKLOAD_SECONDS: Final = 10.0
"""Delay while a finalizer of somebody else keeps such a Workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadReconciler:
    """The workloads of one cluster: reads the cache, writes the cluster, reports outcomes."""

    cache: ObjectCache
    writer: Writer
    jobs: JobController
    events: EventRecorder
    reasons: WaitingReasons
    checks: CheckStates
    decisions: DecisionCheck
    creation: WorkloadCreation
    owner_notices: OwnerNotices
    now: Callable[[], datetime]
    foreign_events: bool
    not_seen_seconds: float

    async def reconcile(self, namespace: str, name: str, *, decided: bool = False) -> None:
        """Do what is left to do for one workload. `decided`: because of a decision or an order.

        Raises `LaterError` to be called again, and `NeverError` for what the API server refuses for
        good; its quota is given back then.
        """
        state, _ = self._latest(namespace, name)
        with retry_later():
            try:
                await self._reconcile(namespace, name, decided=decided)
            except NotFoundError as error:
                raise LaterError(str(error)) from error
            except RefusedError as error:
                if is_transient_refusal(error):
                    raise LaterError(str(error)) from error
                await self._report_refused(*self._latest(namespace, name), error)
                raise NeverError(str(error)) from error
            finally:
                if state is not None:
                    self.jobs.groups.enqueue_cleanup(state)

    async def write_reason(self, namespace: str, name: str) -> None:
        """Write why a workload waits, if it still does. Raises `KubeError`."""
        state, admission = self._latest(namespace, name)
        obj = self.cache.object(WORKLOAD, namespace, name)
        if state is None or admission is None or obj is None or state.finish is not None:
            return
        if admission.state == "waiting" and manifest.belongs_to(obj, state):
            with suppress(NotFoundError, LaterError):  # It was deleted meanwhile, or decided.
                await self._write_status(obj, state, admission)

    async def write_check_states(self, namespace: str, name: str) -> bool:
        """Write the answers of the checks; False if the reservation is not written yet."""
        if self.cache.not_synced() is not None:
            return False
        state, admission = self._latest(namespace, name)
        if state is None or admission is None or state.finish is not None:
            return True
        if admission.state not in GRANTED:
            return True  # The next decision writes them, or nobody needs them any more.
        obj = self.cache.object(WORKLOAD, namespace, name)
        if obj is None or not manifest.belongs_to(obj, state) or not holds_quota(obj):
            return False
        try:
            await self._write_status(obj, state, admission, is_decision=False)
        except LaterError:
            return False  # There is a newer decision.
        except NotFoundError:
            return True  # It was deleted meanwhile.
        return True

    def _latest(self, namespace: str, name: str) -> tuple[WorkloadState | None, Admission | None]:
        state = self.cache.workload(namespace, name)
        admission = self.cache.admission(namespace, name)
        if state is not None and admission is not None and admission.uid != state.uid:
            admission = None  # Of an earlier workload of that name.
        return state, admission

    async def _reconcile(self, namespace: str, name: str, *, decided: bool) -> None:
        # Checked before the look-ups: the cache may become synced while this waits for the API server.
        unsynced = self.cache.not_synced()
        state, admission = self._latest(namespace, name)
        if state is None:
            if unsynced is None and admission is not None and await self.jobs.is_over(admission):
                self.cache.forget(namespace, name)
                return
            # This replica may read the state last of all: another one handled it before the decision.
            raise self._not_seen(f"workload {namespace}/{name}")
        if state.phase == "gone":
            if unsynced is not None:
                raise self._not_seen(f"the Workload of {namespace}/{name}")
            await self._remove_workload(state)
            return
        if state.finish is not None:
            await self._finish(state, state.finish)
            return
        if admission is not None and admission.state == "released" and admission.reason in ENDED:
            return  # `_finish` runs when the state says so.
        if state.owner is None:
            if admission is not None:
                await self._carry_out_foreign(state, admission)
            return
        is_evicted = admission is not None and admission.state == "evicted"
        if admission is not None and admission.generation > state.generation and not is_evicted:
            # What is known is older than what was decided about: a group may not have been complete.
            raise self._not_seen(f"workload {namespace}/{name} as it was decided about")
        obj = await self._workload_object(state, admission)
        if obj is None:
            if admission is not None and is_evicted:
                # Its Workload may be refused for what its user wrote: that must not keep it running.
                await self.jobs.stop(state, admission, None)
            return
        if admission is None:
            if unsynced is not None:
                # The job may run because of an admission that is not read yet: do not suspend it.
                raise self._not_seen(f"a decision about {namespace}/{name}")
            await self.jobs.hold(state, None)
        else:
            await self._carry_out(state, admission, obj, is_new=decided)

    async def _carry_out(
        self, state: WorkloadState, admission: Admission, obj: Body, *, is_new: bool
    ) -> None:
        await self.decisions.check(admission, state)
        if admission.state == "waiting" and holds_quota(obj):
            await self.jobs.check_counts(admission, state)
            await self.jobs.restore(state, obj)
        obj = await self._write_decision(obj, state, admission)
        if admission.state != "admitted":
            obj = await self.jobs.remove_placeholders(state, obj)
        match admission.state:
            case "admitted":
                # A workload that a spoke won runs there, and nowhere else. One that runs unplanned was
                # admitted by nobody: quota counts it and is about to stop it.
                if state.on_hold is None and admission.spoke is None and not admission.unplanned:
                    await self.jobs.release(state, admission, obj, is_new=is_new)
            case "evicted":
                await self.jobs.stop(state, admission, obj)
            case _:
                await self.jobs.hold(state, admission)

    async def _carry_out_foreign(self, state: WorkloadState, admission: Admission) -> None:
        """Write priority and decision only: the controller of a foreign Workload starts and stops its job."""
        await self.decisions.check(admission, state)
        obj = self.cache.object(WORKLOAD, state.namespace, state.name)
        if obj is None and admission.state == "waiting":
            self.reasons.enqueue(state.ref, foreign=True)
            return
        if obj is None or not manifest.belongs_to(obj, state):
            obj = await self.writer.get(WORKLOAD, state.namespace, state.name)
        if obj is None or not manifest.belongs_to(obj, state):
            return
        try:
            obj = await self._update_priority(obj, state)
            obj = await self._write_decision(obj, state, admission)
        except NotFoundError:
            return  # Deleted; the state will say so.
        if admission.state == "evicted":
            # Its controller gives the reservation back. That counts from this resource version on.
            await self.jobs.outcomes.report(state, admission, "applied", "suspend", after=obj)

    # --- the Workload object -----------------------------------------------------------------------

    async def _report_refused(
        self, state: WorkloadState | None, admission: Admission | None, error: RefusedError
    ) -> None:
        """Give the quota back: the workload waits again, with the API server's answer as reason.

        One that was to stop may still run, one that runs unplanned was never released, and one of a kind
        that cannot be suspended runs on: they keep their quota, with the same reason.
        """
        if state is not None and admission is not None and admission.state in HOLDING:
            runs_on = not state.held and state.on_eviction != "suspend"
            keeps = admission.state == "evicted" or admission.unplanned or runs_on
            action = "hold" if keeps else "release"
            if not keeps and state.held and state.owner is not None:
                job, integration = await self.jobs.find(state)
                if job is not None:
                    await self.jobs.forbid(admission, integration, job)
            await self.jobs.outcomes.report(state, admission, "refused", action, message=str(error))

    async def _workload_object(
        self, state: WorkloadState, admission: Admission | None
    ) -> Body | None:
        """The Workload object of a job, created or updated; None if there can be none."""
        obj = self.cache.object(WORKLOAD, state.namespace, state.name)
        if obj is not None and not manifest.belongs_to(obj, state):
            await self._remove_foreign_workload(obj, state, admission)
        if obj is not None:
            obj = await self.creation.adopt(obj, state)
        is_deleted = obj is not None and "deletionTimestamp" in obj["metadata"]
        if obj is not None and holds_quota(obj) and not is_deleted:
            return await self._update_priority(obj, state)
        job, integration = await self.jobs.find(state)
        if job is None:
            return obj
        job_is_deleted = "deletionTimestamp" in job["metadata"]
        if obj is not None and is_deleted:
            is_evicted = admission is not None and admission.state == "evicted"
            if not job_is_deleted and (is_evicted or not integration.held(job)):
                return obj  # Its job is stopped first.
            still_there = await self._release_deleted(obj, state)
            if still_there is None:
                return None
            job, obj = still_there, None
        if obj is None and job_is_deleted:
            return None
        if state.members is not None and not state.members.complete:
            return obj  # Without quota it follows its group again once that is complete.
        try:
            if obj is None:
                return await self.creation.create(state, job, integration)
            return await self._update_spec(obj, state, job, integration)
        except (ValueError, RefusedError) as error:
            if isinstance(error, RefusedError) and is_transient_refusal(error):
                raise
            if obj is not None and await self.writer.has_changed(WORKLOAD, obj):
                # Another replica gave it quota: its spec is fixed, and nothing is wrong with the job.
                raise LaterError(
                    f"Workload {state.namespace}/{state.name} was not observed as it is now",
                    delay_seconds=self.not_seen_seconds,
                ) from error
            # The job's own annotations are invalid. Quota keeps it waiting for that reason.
            log.info("the cluster refuses the Workload of a job", job=state.name, error=str(error))
            self.events.record(
                integration.kind, job, "ErrWorkloadCompose", str(error), type_="Warning"
            )
            if isinstance(error, RefusedError):
                await self._report_refused(state, admission, error)
            return None

    async def _update_spec(
        self, obj: Body, state: WorkloadState, job: Body, integration: Integration
    ) -> Body:
        """Let a Workload without quota ask for what its job asks. Raises `ValueError`, `RefusedError`."""
        patch = manifest.spec_patch(obj, state, job, integration)
        if patch is None:
            return obj
        after = await self.writer.patch(WORKLOAD, obj, lambda _: patch)
        text = f"Updated not matching Workload for suspended job: {state.namespace}/{state.name}"
        self.events.record(integration.kind, job, "UpdatedWorkload", text)
        return after

    async def _remove_foreign_workload(
        self, obj: Body, state: WorkloadState, admission: Admission | None
    ) -> NoReturn:
        """Make room for the job's own Workload. Raises `LaterError`.

        What is there may be of an earlier job, or the job's user wrote another controller into it. A name
        that is made of the job's uid can be nobody else's. The job is stopped in any case: that must not
        wait for an object that its user can write.
        """
        assert state.owner is not None
        probes.EARLIER_WORKLOAD.fired += 1
        if admission is not None and admission.state == "evicted" and not state.held:
            await self.jobs.stop(state, admission, obj)
        # Without our finalizer the garbage collector removes it, if its job is gone.
        await self.writer.patch(WORKLOAD, obj, manifest.without_our_finalizer)
        is_deleted = "deletionTimestamp" in obj["metadata"]
        if not is_deleted and manifest.has_name_of_job(state):
            text = f"Deleted Workload {state.name}: another object controls it"
            await self.writer.delete(WORKLOAD, obj)
            self.events.record(
                *manifest.job_reference(state, state.owner),
                "DeletedWorkload",
                text,
                type_="Warning",
            )
        raise LaterError(
            "the Workload of an earlier job is there",
            delay_seconds=HELD_WORKLOAD_SECONDS if is_deleted else EARLIER_WORKLOAD_SECONDS,
        )

    async def _release_deleted(self, obj: Body, state: WorkloadState) -> Body | None:
        """Let a Workload that is being deleted go, so that its job gets a new one.

        Returns the job; None if it was deleted, and its Workload with it.
        """
        if holds_quota(obj):
            await self.jobs.restore(state, obj)
        await self._remove_finalizer(obj)
        self.cache.remove(WORKLOAD, state.namespace, state.name)
        restored, _ = await self.jobs.find(state, fresh=True)
        return restored

    async def _update_priority(self, obj: Body, state: WorkloadState) -> Body:
        """Write the new priority of its class: the only part of the spec that may change with quota."""
        after = await self.writer.patch(
            WORKLOAD, obj, lambda current: manifest.priority_patch(current, state)
        )
        if after is not obj and state.owner is not None:
            text = f"Updated workload priority class: {state.namespace}/{state.name}"
            self.events.record(*manifest.job_reference(state, state.owner), "UpdatedWorkload", text)
        return after

    async def _write_decision(self, obj: Body, state: WorkloadState, admission: Admission) -> Body:
        """Write the decision into the status; a mere waiting reason is enqueued instead.

        An eviction whose status the API server refuses is carried out nevertheless.
        """
        if admission.state == "waiting" and not holds_quota(obj):
            self.reasons.enqueue(state.ref, foreign=state.owner is None)
            return obj
        self.reasons.discard(state.ref)
        try:
            return await self._write_status(obj, state, admission)
        except RefusedError as error:
            if is_transient_refusal(error) or admission.state != "evicted":
                raise
            log.warning("an eviction cannot be written", workload=state.name, error=str(error))
            return obj

    async def _write_status(
        self, obj: Body, state: WorkloadState, admission: Admission, *, is_decision: bool = True
    ) -> Body:
        """Write the status once for each decision; not at all if the object has it already."""
        if takes_back(obj, admission):
            # Another replica may have written a newer decision: objects may be read before decisions.
            await self.jobs.check_is_last(admission)
        checks = await self.checks.latest(admission)
        foreign = self.cache.foreign_checks(admission.checks)
        preemptor = self.cache.preemptor_of(admission)
        before = obj

        def patch(current: Body) -> Patch | None:
            nonlocal before
            before = current
            may_be_outdated = not is_decision or admission.state == "waiting"
            if may_be_outdated and self._is_superseded(admission):
                # It was admitted meanwhile: an older reason must not take that back. The handler of
                # the newer decision writes it.
                probes.REASON_SUPERSEDED.fired += 1
                return None
            status = status_for(current, admission, state, checks, foreign, preemptor)
            return status_patch(current, status)

        after: Body = await self.writer.patch(
            WORKLOAD,
            obj,
            patch,
            subresource="status",
            on_conflict=partial(self.jobs.check_counts, admission, state),
        )
        if after is not before and (state.owner is not None or self.foreign_events):
            for event in events_of_change(before, after, admission, preemptor):
                about = after if event.about is None else event.about
                self.events.record(WORKLOAD, about, event.reason, event.message, type_=event.type_)
        if after is not before:
            self.owner_notices.notify(state, admission)
        if is_being_deactivated(after):
            # The condition is set before `spec.active` and removed after it, so that a crash in
            # between neither loses the deactivation nor repeats it.
            after = await self.writer.patch(WORKLOAD, after, manifest.inactive_patch)
            after = await self.writer.patch(WORKLOAD, after, patch, subresource="status")
        return after

    def _is_superseded(self, admission: Admission) -> bool:
        latest = self.cache.admission(admission.namespace, admission.name)
        return latest is not None and (latest.term, latest.number) > (
            admission.term,
            admission.number,
        )

    async def _finish(self, state: WorkloadState, finish: Finish) -> None:
        """Write the end, remove our finalizer, and forget the workload."""
        self.decisions.forget(state)
        self.reasons.discard(state.ref)
        self.owner_notices.forget(state)
        if state.owner is not None:
            obj = self.cache.object(WORKLOAD, state.namespace, state.name)
            if obj is None:
                obj = await self.writer.get(WORKLOAD, state.namespace, state.name)
            if obj is not None and manifest.belongs_to(obj, state):
                await self._write_end(obj, state, state.owner, finish)
        self.cache.forget(state.namespace, state.name)

    async def _write_end(
        self, obj: Body, state: WorkloadState, owner: JobRef, finish: Finish
    ) -> None:
        def patch(current: Body) -> Patch | None:
            return status_patch(current, finished_status(current, finish, at=self.now()))

        with suppress(NotFoundError):  # It was deleted, and its job with it.
            after = await self.writer.patch(WORKLOAD, obj, patch, subresource="status")
            if after is not obj:
                text = f"Workload '{state.namespace}/{state.name}' is declared finished"
                self.events.record(*manifest.job_reference(state, owner), "FinishedWorkload", text)
            await self.jobs.clean_up(owner, after)
            await self.writer.patch(WORKLOAD, after, manifest.without_our_finalizer)

    async def _remove_workload(self, state: WorkloadState) -> None:
        """The job was deleted: let the garbage collector delete the Workload too, and forget it.

        The collector does not where a user let the job's dependants outlive it (`--cascade=orphan`).
        """
        self.owner_notices.forget(state)
        self.decisions.forget(state)
        # Of a workload whose messages nobody could read only the name is known: it may be a job's.
        of_a_job = state.owner is not None or not state.uid
        obj = self.cache.object(WORKLOAD, state.namespace, state.name)
        if obj is None and of_a_job and state.finish is None:
            # Another replica may have created it a moment ago.
            obj = await self.writer.get(WORKLOAD, state.namespace, state.name)
        self.reasons.discard(state.ref)
        after = None
        if obj is not None and of_a_job:
            after = await self._remove_finalizer(obj)
            if after is None:
                # Another replica may have created it again for the job that it still saw.
                obj = await self.writer.get(WORKLOAD, state.namespace, state.name)
                if obj is not None and manifest.belongs_to(obj, state):
                    after = await self._remove_finalizer(obj)
        if after is not None and after is not obj and not after["metadata"].get("ownerReferences"):
            await self.writer.delete(WORKLOAD, after)
        elif (
            after is not None
            and (manifest.belongs_to(after, state) or manifest.has_name_of_job(state))
            and is_kept(after, obj, state.uid)
        ):
            # Its user keeps it with a finalizer or another owner: what was given back must not be on record,
            # or the next job that claims the Workload would have it.
            with suppress(NotFoundError):
                await self.writer.patch(WORKLOAD, after, self._orphaned_patch, subresource="status")
        self.cache.forget(state.namespace, state.name)

    def _orphaned_patch(self, workload: Body) -> Patch | None:
        return status_patch(workload, orphaned_status(workload, at=self.now()))

    async def _remove_finalizer(self, obj: Body) -> Body | None:
        """Return the object as written, `obj` if it had no finalizer of ours, None if it is gone."""
        try:
            after: Body = await self.writer.patch(WORKLOAD, obj, manifest.without_our_finalizer)
        except NotFoundError:  # The garbage collector deleted it.
            return None
        return after

    def _not_seen(self, what: str) -> LaterError:
        probes.NOT_YET_SEEN.fired += 1
        return LaterError(f"{what} was not observed yet", delay_seconds=self.not_seen_seconds)
