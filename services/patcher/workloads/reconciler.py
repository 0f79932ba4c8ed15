"""Brings one workload in line with what was decided about it. Every step may be repeated.

The order of writes matters: the Workload object's status is durable before its job is released, so
that whoever finds a running job also finds the admission that let it run.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from services.patcher.cluster import status_events
from services.patcher.cluster.cache import Mirror
from services.patcher.cluster.events import Events
from services.patcher.cluster.writer import Writer, may_pass, status_patch
from services.patcher.jobs.controller import Jobs
from services.patcher.jobs.owner_notices import Onlookers
from services.patcher.metrics import told_creation
from services.patcher.workloads import manifest, status
from services.patcher.workloads.check_states import Checks
from services.patcher.workloads.reasons import Reasons
from shared.bus.port import LaterError, NeverError
from shared.contracts.kube.conditions import FINISHED
from shared.contracts.kube.kinds import WORKLOAD, Kind, Object
from shared.contracts.kube.names import may_be_of
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.workloads import OwnerReference, WorkloadState
from shared.integrations import Integration
from shared.kube.port import (
    ConflictError,
    NotFoundError,
    Patch,
    RefusedError,
    ThrottledError,
    UnavailableError,
)

__all__ = ["Reconciler"]

log = structlog.get_logger(__name__)

_OVER: Final = frozenset({FINISHED, "Gone"})
"""Reasons of a release after which nothing is to be done for the workload."""

EARLIER_SECONDS: Final = 0.5
"""What the garbage collector is given to take the Workload of an earlier job, before the next look."""


class Reconciler:
    """One cluster's workloads: reads the mirror, writes the cluster, reports outcomes."""

    def __init__(
        self,
        *,
        mirror: Mirror,
        writer: Writer,
        jobs: Jobs,
        events: Events,
        reasons: Reasons,
        checks: Checks,
        onlookers: Onlookers,
        now: Callable[[], datetime],
        foreign_events: bool,
        not_seen_seconds: float,
    ) -> None:
        self._mirror = mirror
        self._writer = writer
        self._jobs = jobs
        self._events = events
        self._reasons = reasons
        self._checks = checks
        self._onlookers = onlookers
        self._now = now
        self._foreign_events = foreign_events
        self._not_seen_seconds = not_seen_seconds

    async def reconcile(self, namespace: str, name: str) -> None:
        """Do what is left to do for one workload. Raises `LaterError` where the cluster says not now."""
        try:
            await self._reconcile(namespace, name)
        except ThrottledError as error:
            raise LaterError(str(error), delay_seconds=error.retry_after_seconds) from error
        except (ConflictError, NotFoundError, UnavailableError) as error:
            raise LaterError(str(error)) from error
        except RefusedError as error:
            if may_pass(error):
                raise LaterError(str(error)) from error
            await self._give_back(*self._about(namespace, name), error)
            raise NeverError(str(error)) from error

    async def give_reason(self, namespace: str, name: str) -> None:
        """Write why a workload waits, if it still does. Raises what the cluster answers."""
        state, admission = self._about(namespace, name)
        obj = self._mirror.object(WORKLOAD, namespace, name)
        if state is None or admission is None or obj is None or state.finish is not None:
            return
        if admission.state == "waiting" and _lives(obj, state):
            try:
                await self._write_status(obj, state, admission)
            except NotFoundError:
                return  # It was deleted meanwhile.

    async def give_checks(self, namespace: str, name: str) -> bool:
        """Write what its checks say now. False: its reservation is not written yet, so ask again."""
        if self._mirror.not_synced() is not None:
            return False
        state, admission = self._about(namespace, name)
        if state is None or admission is None or state.finish is not None:
            return True
        if admission.state not in {"reserved", "admitted"}:
            return True  # What was said comes with the next decision, or nobody wants it any more.
        obj = self._mirror.object(WORKLOAD, namespace, name)
        if obj is None or not _lives(obj, state) or not status.reserves(obj):
            return False
        try:
            await self._write_status(obj, state, admission, mere_news=True)
        except NotFoundError:
            log.debug("gone already", workload=name)
        return True

    def _about(self, namespace: str, name: str) -> tuple[WorkloadState | None, Admission | None]:
        state = self._mirror.workload(namespace, name)
        admission = self._mirror.admission(namespace, name)
        if state is not None and admission is not None and admission.uid != state.uid:
            admission = None  # It is about an earlier life of that name.
        return state, admission

    async def _reconcile(self, namespace: str, name: str) -> None:
        # Asked before anything is looked up: while this waits for the cluster, more is read.
        unread = self._mirror.not_synced()
        state, admission = self._about(namespace, name)
        if state is None:
            if unread is not None:
                raise self._not_seen(f"workload {namespace}/{name}")
            # A decision was read before the workload that it is about: that is on its way to
            # `on_workload`, which then finds the decision.
            if admission is not None and admission.state == "released":
                self._mirror.forget(namespace, name)
            return
        if state.phase == "gone":
            self._onlookers.forget(state)
            await self._gone(state)
            return
        if state.finish is not None:
            await self._finish(state)
            return
        if admission is not None and admission.state == "released" and admission.reason in _OVER:
            return  # Its end is told when its state says it.
        if state.owner is None:
            if admission is not None:
                await self._carry_out_foreign(state, admission)
            return
        obj = await self._workload_object(state, admission)
        if obj is None:
            return
        if admission is None:
            if unread is not None:
                # Admitted long ago, perhaps: what runs by that must not be held back.
                raise self._not_seen(f"a decision about {namespace}/{name}")
            await self._jobs.hold(state, None)
        else:
            await self._carry_out(state, admission, obj)

    async def _carry_out(self, state: WorkloadState, admission: Admission, obj: Object) -> None:
        if admission.state == "waiting" and status.reserves(obj):
            await self._jobs.restore(state, obj)
        obj = await self._decided(obj, state, admission)
        if admission.state != "admitted":
            obj = await self._jobs.withdraw(state, obj)
        match admission.state:
            case "admitted":
                # What won a place on a spoke runs there, and nowhere else.
                if state.on_hold is None and admission.spoke is None:
                    await self._jobs.release(state, admission, obj)
            case "evicted":
                await self._jobs.stop(state, admission, obj)
            case _:
                await self._jobs.hold(state, admission)

    async def _carry_out_foreign(self, state: WorkloadState, admission: Admission) -> None:
        """Say it, no more: its own controller starts and stops what belongs to it."""
        obj = self._mirror.object(WORKLOAD, state.namespace, state.name)
        if obj is None and admission.state == "waiting":
            self._reasons.put(state.namespace, state.name, foreign=True)
            return
        if obj is None or not _lives(obj, state):
            obj = await self._writer.get(WORKLOAD, state.namespace, state.name)
        if obj is None or not _lives(obj, state):
            return
        try:
            obj = await self._decided(obj, state, admission)
        except NotFoundError:
            return  # Its end is on its way to us.
        if admission.state == "evicted":
            # Its own controller gives the reservation back; from this version on that counts.
            await self._jobs.report(state, admission, "applied", "suspend", after=obj)

    # --- the Workload object -----------------------------------------------------------------------

    async def _give_back(
        self, state: WorkloadState | None, admission: Admission | None, error: RefusedError
    ) -> None:
        """What can never be carried out gives its quota back, and waits with what the cluster said."""
        if state is not None and admission is not None and admission.state in HOLDING - {"evicted"}:
            await self._jobs.report(state, admission, "refused", "release", message=str(error))

    async def _workload_object(
        self, state: WorkloadState, admission: Admission | None
    ) -> Object | None:
        """The Workload object of a job, created or brought up to date; None where there can be none."""
        obj = self._mirror.object(WORKLOAD, state.namespace, state.name)
        if obj is not None and not _lives(obj, state):
            # Without our finalizer the garbage collector takes it, as its job is gone.
            await self._writer.patch(WORKLOAD, obj, manifest.finalizer_patch)
            raise LaterError(
                "the Workload of an earlier job is there", delay_seconds=EARLIER_SECONDS
            )
        is_deleted = obj is not None and "deletionTimestamp" in obj["metadata"]
        if obj is not None and status.reserves(obj) and not is_deleted:
            return await self._follow_priority(obj, state)
        job, integration = await self._jobs.find(state)
        if job is None:
            return obj
        goes = "deletionTimestamp" in job["metadata"]
        if obj is not None and is_deleted:
            is_evicted = admission is not None and admission.state == "evicted"
            if not goes and (is_evicted or not integration.held(job)):
                return obj  # It is being stopped.
            job = await self._let_go(obj, state, job)
            obj = None
        if obj is None and goes:
            return None
        try:
            if obj is None:
                return await self._create(state, job, integration)
            patch = manifest.spec_patch(obj, state, job, integration)
        except (ValueError, RefusedError) as error:
            if isinstance(error, RefusedError) and may_pass(error):
                raise
            # Its own annotations make no sense: quota keeps it waiting with that reason.
            log.info("no Workload for a job", job=state.name, error=str(error))
            self._events.say(
                integration.kind, job, "ErrWorkloadCompose", str(error), type_="Warning"
            )
            if isinstance(error, RefusedError):
                await self._give_back(state, admission, error)
            return None
        if patch is None:
            return obj
        after = await self._writer.patch(WORKLOAD, obj, lambda _obj: patch)
        text = f"Updated not matching Workload for suspended job: {state.namespace}/{state.name}"
        self._events.say(integration.kind, job, "UpdatedWorkload", text)
        return after

    async def _let_go(self, obj: Object, state: WorkloadState, job: Object) -> Object:
        """Let a Workload object that somebody deletes vanish: its job gets another one. That job."""
        if status.reserves(obj):
            await self._jobs.restore(state, obj)
        try:
            await self._writer.patch(WORKLOAD, obj, manifest.finalizer_patch)
        except NotFoundError:
            log.debug("gone already", workload=state.name)
        self._mirror.vanished(WORKLOAD, state.namespace, state.name)
        restored, _ = await self._jobs.find(state)
        return job if restored is None else restored

    async def _follow_priority(self, obj: Object, state: WorkloadState) -> Object:
        """Let a Workload that has quota say its job's new class; else its spec stays as it was then."""
        assert state.owner is not None
        if manifest.priority_patch(obj, state) is None:
            return obj
        after = await self._writer.patch(
            WORKLOAD, obj, lambda now: manifest.priority_patch(now, state)
        )
        text = f"Updated workload priority class: {state.namespace}/{state.name}"
        self._events.say(*_job_reference(state, state.owner), "UpdatedWorkload", text)
        return after

    async def _create(self, state: WorkloadState, job: Object, integration: Integration) -> Object:
        wanted = manifest.workload_object(state, job, integration)
        try:
            created, new = await self._writer.create(WORKLOAD, wanted)
        except NotFoundError as error:
            raise LaterError(f"namespace {state.namespace} is gone: {error}") from error
        if new:
            told_creation(integration.kind.kind, job, self._now())
            text = f"Created Workload: {state.namespace}/{state.name}"
            self._events.say(integration.kind, job, "CreatedWorkload", text)
        return created

    async def _decided(self, obj: Object, state: WorkloadState, admission: Admission) -> Object:
        """Say the decision. A stop that cannot be said is carried out nevertheless."""
        try:
            return await self._say(obj, state, admission)
        except RefusedError as error:
            if may_pass(error):
                raise
            if admission.state == "evicted":
                log.warning("an eviction cannot be told", workload=state.name, error=str(error))
                return obj
            raise

    async def _say(self, obj: Object, state: WorkloadState, admission: Admission) -> Object:
        """Write the decision, or leave a mere reason for when there is time."""
        if admission.state == "waiting" and not status.reserves(obj):
            foreign = state.owner is None
            self._reasons.put(state.namespace, state.name, foreign=foreign)
            return obj
        self._reasons.discard(state.namespace, state.name)
        return await self._write_status(obj, state, admission)

    async def _write_status(
        self, obj: Object, state: WorkloadState, admission: Admission, *, mere_news: bool = False
    ) -> Object:
        """One write for one decision; none if the object says it already."""
        said = await self._checks.said(admission)
        before = obj

        def patch(current: Object) -> Patch | None:
            nonlocal before
            before = current
            if (mere_news or admission.state == "waiting") and self._overtaken(admission):
                # The object changed because it was admitted meanwhile: a reason that was on its
                # way must not take that back. What overtook it is written by its own handler.
                return None
            return status_patch(current, status.status_for(current, admission, state, said))

        after = await self._writer.patch(WORKLOAD, obj, patch, subresource="status")
        if after is not before and (state.owner is not None or self._foreign_events):
            for one in status_events.of_status(before, after, admission):
                self._events.say(WORKLOAD, after, one.reason, one.message, type_=one.type_)
        if after is not before:
            self._onlookers.hear(state, admission)
        if status.is_being_put_out(after):
            # The mark comes before and goes after, so that this is done once, whoever dies between.
            after = await self._writer.patch(WORKLOAD, after, manifest.inactive_patch)
            after = await self._writer.patch(WORKLOAD, after, patch, subresource="status")
        return after

    def _overtaken(self, admission: Admission) -> bool:
        latest = self._mirror.admission(admission.namespace, admission.name)
        return latest is not None and (latest.term, latest.number) > (
            admission.term,
            admission.number,
        )

    async def _finish(self, state: WorkloadState) -> None:
        """Write the end, let the object go, and remember nothing of that workload."""
        finish = state.finish
        assert finish is not None
        self._reasons.discard(state.namespace, state.name)
        self._onlookers.forget(state)
        if state.owner is not None:
            obj = self._mirror.object(WORKLOAD, state.namespace, state.name)
            if obj is None:
                obj = await self._writer.get(WORKLOAD, state.namespace, state.name)
            if obj is not None and _lives(obj, state):
                await self._write_end(obj, state, state.owner)
        self._mirror.forget(state.namespace, state.name)

    async def _write_end(self, obj: Object, state: WorkloadState, owner: OwnerReference) -> None:
        finish = state.finish
        assert finish is not None

        def patch(current: Object) -> Patch | None:
            return status_patch(current, status.finished_status(current, finish, at=self._now()))

        try:
            after = await self._writer.patch(WORKLOAD, obj, patch, subresource="status")
            if after is not obj:
                text = f"Workload '{state.namespace}/{state.name}' is declared finished"
                self._events.say(*_job_reference(state, owner), "FinishedWorkload", text)
            await self._jobs.clean_up(owner, after)
            await self._writer.patch(WORKLOAD, after, manifest.finalizer_patch)
        except NotFoundError:
            return  # Deleted, and the job's end with it.

    async def _gone(self, state: WorkloadState) -> None:
        """Its job was deleted: let the garbage collector have the Workload object."""
        obj = self._mirror.object(WORKLOAD, state.namespace, state.name)
        self._reasons.discard(state.namespace, state.name)
        if obj is not None and state.owner is not None:
            try:
                await self._writer.patch(WORKLOAD, obj, manifest.finalizer_patch)
            except NotFoundError:
                log.debug("gone already", workload=state.name)
        self._mirror.forget(state.namespace, state.name)

    def _not_seen(self, what: str) -> LaterError:
        return LaterError(f"{what} was not observed yet", delay_seconds=self._not_seen_seconds)


def _lives(obj: Object, state: WorkloadState) -> bool:
    """The object is of the life that the state is about.

    A job's Workload has a uid of its own, and is of the job that controls it.
    """
    if state.owner is None:
        return bool(obj["metadata"]["uid"] == state.uid)
    return may_be_of(obj, state.uid)


def _job_reference(state: WorkloadState, owner: OwnerReference) -> tuple[Kind, Object]:
    group, _, version = owner.api_version.rpartition("/")
    kind = Kind(group=group, version=version, plural=owner.plural, kind=owner.kind)
    return kind, {"metadata": {"namespace": state.namespace, "name": owner.name, "uid": owner.uid}}
