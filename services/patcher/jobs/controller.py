"""Releases, stops, restores and suspends the job behind a workload. Every step can be repeated."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

import structlog

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.errors import is_transient_refusal
from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.writer import Writer
from services.patcher.coscheduling.plan import has_placeholders
from services.patcher.coscheduling.reconciler import CoschedulingReconciler
from services.patcher.jobs.groups import GroupController
from services.patcher.jobs.outcomes import Outcomes
from services.patcher.jobs.pod_set_infos import pod_set_infos
from services.patcher.jobs.recreation import Recreation
from services.patcher.jobs.refused_releases import forbid_release
from services.patcher.jobs.repeated_changes import RepeatedChanges
from services.patcher.jobs.stop_marks import (
    Check,
    Order,
    check_not_stopped,
    is_stopped_later,
    mark_tests,
    order_in,
)
from services.patcher.jobs.stops import StopController
from shared.bus.follow import read
from shared.bus.port import Bus, BusError, LaterError
from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, annotations_of, spec_of
from shared.contracts.kube.conditions import ADMITTED, find_condition, is_true, transition_time
from shared.contracts.kube.kinds import RESOURCE_FLAVOR, WORKLOAD
from shared.contracts.kube.numbers import is_at_least
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import JobRef, WorkloadState
from shared.contracts.reasons import RELEASE_REFUSED
from shared.integrations import Integration, ObjectError
from shared.integrations.groups import group_in
from shared.integrations.pointers import found
from shared.kube.port import NotFoundError, Patch, RefusedError
from shared.telemetry import probes, span_attributes
from shared.telemetry.tracing import Tracing

log = structlog.get_logger(__name__)

FRESH_SECONDS: Final = 2.0
"""Age of a decision up to which a release does not ask whether there is a newer one: a lease lasts longer,
and so does the way of an eviction."""

UNKNOWN_KIND_SECONDS: Final = 5.0
"""Delay before a job of a kind without an Integration is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobController:
    """Changes the jobs of one cluster."""

    bus: Bus
    cache: ObjectCache
    writer: Writer
    events: EventRecorder
    outcomes: Outcomes
    coscheduling: CoschedulingReconciler
    groups: GroupController
    recreation: Recreation
    stops: StopController
    releases: RepeatedChanges
    holds: RepeatedChanges
    """Of what runs without admission, too."""

    now: Callable[[], datetime]
    tracing: Tracing
    not_seen_seconds: float
    may_start: Callable[[Body], Awaitable[bool]]
    """Whether a copy of a hub's job may start here; true for all other jobs."""

    async def find(
        self, state: WorkloadState, *, fresh: bool = False
    ) -> tuple[Body | None, Integration]:
        """The job of a workload, None if it is gone, and the Integration of its kind.

        With `fresh`, as the API server has it now. Raises `LaterError` while the Integration is unknown.
        """
        assert state.owner is not None
        integration = self._integration(state.owner)
        if state.owner.is_group:
            return self.groups.find(state, integration)
        job = self.cache.object(integration.kind, state.namespace, state.owner.name)
        if fresh or job is None or job["metadata"]["uid"] != state.owner.uid:
            job = await self.writer.get(integration.kind, state.namespace, state.owner.name)
        if job is not None and job["metadata"]["uid"] != state.owner.uid:
            job = None  # Another job of that name, with a workload of its own.
        return job, integration

    def _integration(self, owner: JobRef) -> Integration:
        integration = self.cache.integrations.find(group=owner.group, plural=owner.plural)
        if integration is None:
            text = f"no Integration for {owner.plural}.{owner.group} was observed yet"
            raise LaterError(text, delay_seconds=UNKNOWN_KIND_SECONDS)
        return integration

    async def release(
        self, state: WorkloadState, admission: Admission, workload: Body, *, is_new: bool = False
    ) -> None:
        """Start the job on the nodes of its flavors. A refusal for good is reported to quota.

        `is_new`: the decision itself was delivered, not a later state of the workload.
        """
        job, integration = await self.find(state)
        if job is not None and integration.is_group:
            await self._release_group(state, admission, workload, job, integration)
            return
        # A state comes at its own time: the decision that is known may be one of before it.
        may_be_outdated = not is_new
        if job is not None and not integration.held(job) and (is_new or _is_behind(job, state)):
            # Another replica may have stopped it since, and nobody else gets this message.
            probes.RELEASE_READ_AFRESH.fired += 1
            job, integration = await self.find(state, fresh=True)
            may_be_outdated = True
        if job is None or not await self._may_release(job, integration):
            return
        decision = f"{admission.term}.{admission.number}"
        self.releases.check(state, decision)
        try:
            after = await self._start(
                job, integration, admission, workload, may_be_outdated=may_be_outdated
            )
        except (RefusedError, ObjectError) as error:
            if isinstance(error, RefusedError) and is_transient_refusal(error):
                raise
            await self._report_refused(state, admission, integration, job, workload, error)
            return
        except NotFoundError:
            return
        if after is not job and not integration.held(after):
            self.releases.record(state, decision)
            await self._report_released(state, admission, integration, after)

    async def _may_release(self, job: Body, integration: Integration) -> bool:
        """Whether the job is held, and nothing but its admission kept it from starting."""
        return (
            integration.held(job)
            and await self.may_start(job)
            and await self.recreation.may_start(job, integration)
        )

    async def _start(
        self,
        job: Body,
        integration: Integration,
        admission: Admission,
        workload: Body,
        *,
        may_be_outdated: bool,
    ) -> Body:
        """Let the job go on the nodes of its flavors. Returns it as written, or `job` if it was not held."""
        infos = pod_set_infos(admission, workload, self._flavors_of(admission))

        def patch(current: Body) -> Patch | None:
            if not integration.held(current):
                return None
            check_not_stopped(current, admission, known=job)
            return [*mark_tests(current), *integration.release(current, infos)]

        selector = {key: value for info in infos for key, value in info.node_selector.items()}
        await self.coscheduling.prepare(job, workload, admission, selector)
        if may_be_outdated or self._is_late(admission) or is_stopped_later(job, admission):
            await self.check_is_last(admission)
        check = partial(self.check_is_last, admission)
        return await self.writer.patch(integration.kind, job, patch, on_conflict=check)

    async def _report_released(
        self, state: WorkloadState, admission: Admission, integration: Integration, after: Body
    ) -> None:
        text = f"Admitted by clusterQueue {admission.cluster_queue}"
        self.events.record(integration.kind, after, "Started", text)
        await self.outcomes.report(state, admission, "applied", "release", after=after)
        self.tracing.span(
            "release",
            parent=state.traceparent,
            start=admission.decided_at,
            end=self.now(),
            attributes={span_attributes.WORKLOAD: state.name, span_attributes.TERM: admission.term},
        )

    async def _report_refused(
        self,
        state: WorkloadState,
        admission: Admission,
        integration: Integration,
        job: Body,
        workload: Body,
        error: RefusedError | ObjectError,
        *,
        action: str = "release",
    ) -> None:
        log.warning("the cluster refuses a release", workload=state.name, error=str(error))
        if action == "release":
            await self.forbid(admission, integration, job)
        for kind, obj in ((integration.kind, job), (WORKLOAD, workload)):
            self.events.record(kind, obj, RELEASE_REFUSED, str(error), type_="Warning")
        await self.outcomes.report(state, admission, "refused", action, message=str(error))

    async def forbid(self, admission: Admission, integration: Integration, job: Body) -> None:
        """Forbid every replica to release a job by this decision, see `refused_releases`."""
        check = partial(self.check_is_last, admission)
        await forbid_release(
            job, admission, integration, writer=self.writer, groups=self.groups, check=check
        )

    async def _release_group(
        self,
        state: WorkloadState,
        admission: Admission,
        workload: Body,
        job: Body,
        integration: Integration,
    ) -> None:
        """Let go the objects of a group that wait. Of those that come later a new state tells.

        An object that came behind a stop has no mark of it: only the last decision tells of the stop.
        """
        group = group_in(job)
        check = partial(self.check_is_last, admission)
        try:
            infos = pod_set_infos(admission, workload, self._flavors_of(admission))
            released = await self.groups.release(group, infos, workload, admission, check=check)
            version, refused = released.version, released.refused
        except ObjectError as error:
            version, refused = 0, error
        if refused is not None:
            # What runs keeps the quota of all.
            action = "hold" if version or group.runs else "release"
            await self._report_refused(
                state, admission, integration, job, workload, refused, action=action
            )
        elif version:
            await self.outcomes.report(state, admission, "applied", "release", version=str(version))

    def _is_late(self, admission: Admission) -> bool:
        return not 0 <= (self.now() - admission.decided_at).total_seconds() < FRESH_SECONDS

    async def check_is_last(self, admission: Admission) -> None:
        """Raise `LaterError` if there is a newer decision about the workload than this one.

        1. This process stops for a while, with a decision in its hands. Its cache learns nothing.
        2. Other replicas carry out that decision and newer ones. Quota gives away what it frees.
        3. This process goes on: the decision that it has would start the job again.
        Whoever finds that an object was changed meanwhile, or has had a decision for long, therefore asks: a
        server that knows the answer, not one that was cut off from the others as this process was. So does
        who is about to take back what an object says: another replica may have carried out an admission that
        this one has not read yet.
        """
        last = await self.last_order(admission)
        if last is not None and last > admission.order:
            probes.DECISION_OUTDATED.fired += 1
            raise LaterError(
                f"decision {admission.number} of term {admission.term} is not the last one",
                delay_seconds=self.not_seen_seconds,
            )

    async def check_counts(self, admission: Admission, state: WorkloadState) -> None:
        """Raise `LaterError` if a decision is not the last one, or its job runs by an admission of later.

        The latter is so if NATS came back with a log from a backup: the Workload is all that still says that
        the job was admitted, and quota decides by it anew (ADR 142).
        """
        await self.check_is_last(admission)
        workload = self.cache.object(WORKLOAD, state.namespace, state.name)
        if state.owner is None or workload is None or not is_true(workload, ADMITTED):
            return
        admitted_at = transition_time(find_condition(workload, ADMITTED))
        if not admission.is_outrun(admitted_at, held=False):
            return
        job, integration = await self.find(state, fresh=True)
        if job is not None and not integration.held(job):
            probes.DECISION_OUTDATED.fired += 1
            raise LaterError(
                f"{state.ref.path} runs, admitted after the decision by which it waits",
                delay_seconds=self.not_seen_seconds,
            )

    async def is_over(self, admission: Admission) -> bool:
        """Whether a decision about an unknown workload is obsolete.

        A killed server brings back decisions about work that has ended (ADR 139). The log has a later one,
        which comes by itself if the work goes on.
        """
        if admission.state == "released" or not self._is_late(admission):
            return admission.state == "released"
        last = await self.last_order(admission)
        return last is not None and last > admission.order

    async def last_order(self, admission: Admission) -> Order | None:
        """Which decision about the same workload is the last. Raises `LaterError` while no server knows it.

        Also where a newer release has decided last: whatever it says, it is not the decision that we have.
        Nor is one that cannot be read at all: its headers say which one it is.
        """
        try:
            entry = await self.bus.latest(Admission.stream, admission.subject, current=True)
        except BusError as error:
            raise LaterError(f"cannot ask for the last decision: {error}") from error
        if entry is not None and Admission.is_of_newer_schema(entry.headers):
            probes.DECISION_OUTDATED.fired += 1
            raise LaterError("a newer release has decided last")
        if entry is None:
            return None
        last = read(entry, Admission)
        return order_in(entry.headers) if last is None else last.order

    async def remove_placeholders(self, state: WorkloadState, workload: Body) -> Body:
        """Remove the placeholders of a run that lost its quota before it started.

        Returns the Workload as it is then. Raises `LaterError` while placeholders end.
        """
        if not has_placeholders(workload):
            return workload
        job, _ = await self.find(state)
        return workload if job is None else await self.coscheduling.withdraw(job, workload)

    async def clean_up(self, owner: JobRef, workload: Body) -> None:
        """Remove what was created for a job that has ended. Raises `LaterError` until that is done."""
        await self.coscheduling.clean_up(owner.name, owner.uid, workload)

    async def stop(self, state: WorkloadState, admission: Admission, workload: Body | None) -> None:
        """Stop the job. Its quota is free once its pods are gone. `workload`: None if there is none."""
        if state.owner is not None and state.owner.is_group:
            check = partial(self.check_is_last, admission)
            members = self._integration(state.owner)
            version = await self.groups.stop(state, admission, workload, members, check)
            await self.outcomes.report(state, admission, "applied", "suspend", version=version)
            return
        job, integration = await self.find(state)
        if job is not None and integration.held(job):
            # Another replica may have released it since: an outcome must not tell of a job of before.
            job, integration = await self.find(state, fresh=True)
        if job is None:
            return
        check = partial(self.check_is_last, admission)
        await self._check_before_stop(job, admission, integration)
        await self.stops.stop(state, admission, job, integration, workload, check)

    async def _check_before_stop(
        self, job: Body, admission: Admission, integration: Integration
    ) -> None:
        """Raise `LaterError` if a later decision may have let go what runs, and there is one.

        Others may have carried out this decision long ago. Quota has given away what that freed, and has
        admitted the job again.
        """
        if not integration.held(job) or is_stopped_later(job, admission):
            await self.check_is_last(admission)

    async def restore(self, state: WorkloadState, workload: Body) -> None:
        """Give a stopped job back what its flavors and a partial admission had changed.

        The original is in the pod sets of the Workload, which nobody changes while it holds quota.
        It must be restored before QuotaReserved=False, because the Workload follows the job from
        then on.
        """
        job, integration = await self.find(state)
        if job is None:
            return
        original = spec_of(workload).get("podSets") or []

        def patch(current: Body) -> Patch | None:
            return integration.restore(current, original) if integration.held(current) else None

        if patch(job) is None:
            return
        if found(job, ("status", "startTime")):
            # The API server allows a change of the template only in a job without a start time.
            uid = job["metadata"]["uid"]
            reset: dict[str, Any] = {"metadata": {"uid": uid}, "status": {"startTime": None}}
            await self._try_patch(state, integration, job, lambda _job: reset, subresource="status")
            job, _ = await self.find(state)
        if job is not None:
            await self._try_patch(state, integration, job, patch)

    async def hold(self, state: WorkloadState, admission: Admission | None) -> None:
        """Suspend a job that the webhook did not see and that has not started yet."""
        if state.held or state.pods_active:
            return
        if admission is not None and admission.state == "released":
            return
        job, integration = await self.find(state)
        if job is not None and integration.held(job):
            # The state is newer than what the cache has of it: the job was started meanwhile.
            job, integration = await self.find(state, fresh=True)
        if job is None or integration.gate is not None:  # A gate is put on at creation only.
            return
        check = None if admission is None else partial(self.check_is_last, admission)
        if not integration.held(job):
            self.holds.check(state)
            if check is not None:
                await check()

        def patch(current: Body) -> Patch | None:
            if (
                integration.held(current)
                or integration.active(current)
                or integration.finish(current) is not None
            ):
                return None
            return [*mark_tests(current), *_hold_patch(current, integration)]

        after = await self._try_patch(state, integration, job, patch, on_conflict=check)
        if after is not None and after is not job:
            self.holds.record(state)
            log.warning("held a job back that the webhook had not seen", workload=state.name)
            text = "Kept suspended until its workload is admitted"
            self.events.record(integration.kind, after, "Suspended", text)

    async def _try_patch(
        self,
        state: WorkloadState,
        integration: Integration,
        job: Body,
        patch: Callable[[Body], Patch | None],
        *,
        subresource: str | None = None,
        on_conflict: Check | None = None,
    ) -> Body | None:
        """Patch the job; None if it is gone or the API server refuses, which must not block the rest."""
        try:
            return await self.writer.patch(
                integration.kind, job, patch, subresource=subresource, on_conflict=on_conflict
            )
        except (NotFoundError, RefusedError) as error:
            log.info("the cluster does not take a change", job=state.name, error=str(error))
            return None

    def _flavors_of(self, admission: Admission) -> dict[str, Body]:
        """The ResourceFlavors of an admission. Raises `LaterError` if one was not observed yet."""
        flavors = {}
        for name in {flavor for each in admission.pod_sets for flavor in each.flavors.values()}:
            flavor = self.cache.object(RESOURCE_FLAVOR, None, name)
            if flavor is None:
                text = f"ResourceFlavor {name} was not observed yet"
                raise LaterError(text, delay_seconds=self.not_seen_seconds)
            flavors[name] = flavor
        return flavors


def _is_behind(job: Body, state: WorkloadState) -> bool:
    """Whether a job that is cached as released is older than the state, in which it is held."""
    version = str(job["metadata"].get("resourceVersion", ""))
    return state.held and not is_at_least(version, state.version)


def _hold_patch(job: Body, integration: Integration) -> Patch:
    """A patch that suspends `job`, under our mark: whose own pause is over asks to queue."""
    operations: list[dict[str, Any]] = integration.hold(job)
    if not integration.remember_pause:
        return operations
    annotations = {**annotations_of(job), names.USER_PENDING: "false"}
    return [*operations, {"op": "add", "path": "/metadata/annotations", "value": annotations}]
