"""Joins jobs with their Workload objects, and yields the workloads that changed. Pure."""

from collections import deque
from collections.abc import Iterator

import structlog

from services.classifier.projection.cluster_objects import ClusterObjects
from services.classifier.projection.differences import (
    Change,
    edited_while_waiting,
    is_same,
    only_records_decision,
    requested,
)
from services.classifier.projection.growth import pods_of
from services.classifier.projection.machine_slots import MachineSlots
from services.classifier.projection.nesting import UNCOUNTABLE, Amounts, Nesting, amounts_of
from services.classifier.projection.owners.groups import GroupedJobs, by_detail
from services.classifier.projection.owners.membership import Membership
from services.classifier.projection.owners.naming import Naming
from services.classifier.projection.owners.origins import Origins
from services.classifier.projection.owners.ownership import (
    is_of_a_job,
    left_behind,
    was_external,
    was_of_a_job,
)
from services.classifier.projection.owners.prebuilt import WaitingJobs
from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.classifier.projection.project import pod_sets_of, project_external, project_job
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.conditions import EVICTED, is_true
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.hosts import HostState, PlatformOffer
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import PodSet, WorkloadState
from shared.contracts.refs import ObjectRef, WorkloadRef
from shared.integrations import INTEGRATIONS, Integration, Integrations, controller_uid, queue_of
from shared.telemetry import probes

log = structlog.get_logger(__name__)


class Projector:
    """The workloads of one cluster: `observe` applies observations, `changes` yields the result."""

    def __init__(self, cluster: str, policy: Policy = DEFAULT_POLICY, *, hub: str = "") -> None:
        """`hub`: the cluster whose documents are evaluated here; empty: `cluster`."""
        self._cluster = cluster
        self._hub = hub or cluster
        self._policy = policy
        self._cluster_objects = ClusterObjects()
        self._machines = MachineSlots()
        self._integrations = Integrations()
        self._jobs: dict[WorkloadRef, tuple[Integration, Body]] = {}
        self._workload_of: dict[ObjectRef, WorkloadRef] = {}
        """Job to its workload. `kind` is the kind with its group, for instance `jobs_batch`."""

        self._by_uid: dict[str, WorkloadRef] = {}
        """Uid of each job in `_jobs` to its workload."""

        self._nesting = Nesting(self._integrations)
        self._waiting_jobs = WaitingJobs()
        self._unmanaged: dict[ObjectRef, tuple[Integration, Observed]] = {}
        """Jobs in namespaces that are not managed. A change of a namespace's labels can manage them."""

        self._workloads: dict[WorkloadRef, Body] = {}
        self._outlived: dict[WorkloadRef, str] = {}
        """Uid of each Workload object that was there when its job ended: it belongs to no job."""

        self._published: dict[WorkloadRef, WorkloadState] = {}
        self._naming = Naming(
            cluster=cluster,
            jobs=self._jobs,
            workloads=self._workloads,
            published=self._published,
            without_queue=policy.manage_without_queue,
        )
        self._origins = Origins()
        self._membership = Membership(
            policy=policy,
            cluster_objects=self._cluster_objects,
            integrations=self._integrations,
            naming=self._naming,
            nesting=self._nesting,
            origins=self._origins,
            jobs=self._jobs,
            by_uid=self._by_uid,
            workloads=self._workloads,
            published=self._published,
            pod_sets=self._pod_sets,
        )
        self._groups = GroupedJobs(cluster, self._published, self._integrations)
        self._to_read: deque[tuple[Observed, Integration]] = deque()
        """Jobs to read again, because their controller changed."""

        self._dirty: dict[WorkloadRef, None] = {}
        """Workloads to project again, in the order of the observations."""

        self._to_repeat: set[WorkloadRef] = set()
        """Workloads whose last message on the stream nobody can read: the next state is a change."""

    @staticmethod
    def watched() -> tuple[Kind, ...]:
        """The kinds to observe in any case."""
        return (
            *ClusterObjects.watched(),
            kinds.WORKLOAD,
            kinds.INTEGRATION,
            kinds.DEPARTURE,
            *(integration.kind for integration in INTEGRATIONS),
        )

    def integration_kinds(self) -> tuple[Kind, ...]:
        """The kinds to observe because Integration objects name them."""
        return self._integrations.added_kinds()

    def restore(self, state: WorkloadState, *, repeat: bool = False) -> None:
        """Store a state that is on the stream already. Only a difference from it is a change.

        `repeat`: a message that nobody can read came after it, so that it is to be said again.
        """
        if repeat:
            self._to_repeat.add(state.ref)
            # Of a tombstone, too, something has to be said, and that is only said of what exists.
            state = state.requeued() if state.phase == "gone" else state
        if state.phase != "gone":
            self._published[state.ref] = state

    def observe(self, observed: Observed) -> None:
        """Apply one observation. A repeated one changes nothing."""
        self._observe(observed)
        self._read_again()

    def _read_again(self) -> None:
        while self._to_read:
            self._on_job(*self._to_read.popleft())

    def _observe(self, observed: Observed) -> None:
        resource = (observed.group, observed.plural)
        if self._cluster_objects.covers(observed):
            if self._cluster_objects.observe(observed):
                self._on_cluster_object(observed)
        elif resource == (kinds.WORKLOAD.group, kinds.WORKLOAD.plural):
            self._on_workload(observed)
        elif resource == (kinds.INTEGRATION.group, kinds.INTEGRATION.plural):
            self._on_integration(observed)
        elif resource == (kinds.DEPARTURE.group, kinds.DEPARTURE.plural):
            self._on_departure(observed)
        elif integration := self._integrations.find(group=observed.group, plural=observed.plural):
            for seen, reader in self._groups.read(observed, integration):
                self._on_job(seen, reader)

    def observe_machines(self, message: HostState | PlatformOffer) -> None:
        """Apply a message of the provisioner. A repeated one changes nothing."""
        if isinstance(message, PlatformOffer):
            if self._machines.observe_offer(message):
                self._mark_dirty(None)
        elif (ref := self._machines.observe_host(message)) is not None:
            self._dirty[ref] = None

    def on_synced(self) -> None:
        """Project all published workloads again: those that no list contained are gone."""
        for ref, state in self._published.items():
            if state.phase != "gone":
                probes.GONE_AT_SYNC.fired += ref not in self._jobs and ref not in self._workloads
                self._dirty[ref] = None

    @property
    def has_changes(self) -> bool:
        """Whether `changes` may yield something."""
        return bool(self._dirty)

    def changes(self, most: int | None = None) -> Iterator[Change]:
        """Yield each workload whose state differs from the one last yielded or restored.

        At most so many are projected; the rest is left for the next call.
        """
        projected = 0
        while self._dirty and projected != most:
            projected += 1
            ref = next(iter(self._dirty))
            del self._dirty[ref]
            last = self._published.get(ref)
            state = self._project(ref, last)
            if state is not None:
                self._on_given(state, last)
                deferrable = last is not None and only_records_decision(last, state)
                yield Change(state, deferrable)

    def _on_integration(self, observed: Observed) -> None:
        """An Integration object may change how jobs of its kind are read: project them again."""
        before = dict(by_detail(self._integrations))
        if observed.cluster == self._hub:
            self._integrations.observe(observed)
        else:
            self._integrations.observe_choice(observed)
        now = dict(by_detail(self._integrations))
        for job_ref, ref in list(self._workload_of.items()):
            integration = now.get(job_ref.kind)
            if integration is None:
                self._drop(job_ref, ref)
            elif integration is not before.get(job_ref.kind):
                self._jobs[ref] = (integration, self._jobs[ref][1])
                self._dirty[ref] = None

    def _on_workload(self, observed: Observed) -> None:
        assert observed.namespace is not None
        ref = WorkloadRef(self._cluster, observed.namespace, observed.name)
        body = observed.body
        if observed.deleted or body is None:
            self._workloads.pop(ref, None)
            self._outlived.pop(ref, None)
        else:
            self._workloads[ref] = body
        self._dirty[ref] = None
        if ref not in self._jobs or ref not in self._workloads:
            self._to_read.extend(self._waiting_jobs.of(ref))
        if ref in self._jobs:
            integration, job = self._jobs[ref]
            self._on_owner(job["metadata"]["uid"])
            if ref in self._workloads and not self._naming.may_keep(ref, job, integration):
                self._give_up_name(ref, integration, job)

    def _give_up_name(self, ref: WorkloadRef, integration: Integration, job: Body) -> None:
        """Rename the workload of a job whose name somebody else's Workload has.

        The new name is told first: what runs is counted under it before the old one gives its quota back.
        """
        renamed = self._naming.own_ref(job, integration)
        if renamed == ref:
            return
        # A job that departs is not known by its name.
        job_ref = next(known for known, its in self._workload_of.items() if its == ref)
        self._drop(job_ref, ref)
        self._have(job_ref, renamed, integration, job)
        self._dirty.pop(ref, None)
        self._dirty |= {renamed: None, ref: None}

    def _on_job(self, observed: Observed, integration: Integration) -> None:
        job_ref = ObjectRef(self._cluster, integration.detail, observed.namespace, observed.name)
        self._unmanaged.pop(job_ref, None)
        self._waiting_jobs.forget(job_ref)
        if gone := self._origins.forget_ended(job_ref, observed):
            self._on_children(self._nesting.forget_leaver(gone))
        if observed.deleted or observed.body is None:
            self._on_removed_job(job_ref, observed, integration)
        else:
            self._on_present_job(job_ref, observed, observed.body, integration)

    def _on_removed_job(
        self, job_ref: ObjectRef, observed: Observed, integration: Integration
    ) -> None:
        controller = self._nesting.controller_of(job_ref)
        self._nesting.forget(job_ref, observed)
        self._on_children(controller)
        ref = self._workload_of.get(job_ref)
        if ref is None:
            if integration.makes_jobs:
                self._on_owner(observed.uid)
            return
        known = self._jobs[ref][1]["metadata"]
        if observed.ends(known["uid"], str(known.get("resourceVersion", ""))):
            probes.LATER_TOMBSTONE.fired += observed.uid != known["uid"]
            self._drop(job_ref, ref)
        else:
            probes.OLD_TOMBSTONE.fired += 1

    def _on_present_job(
        self, job_ref: ObjectRef, observed: Observed, job: Body, integration: Integration
    ) -> None:
        assert observed.namespace is not None
        before = self._workload_of.get(job_ref)
        self._record_controller(job_ref, observed, job, integration)
        left = self._on_leaver(job, integration)
        ref = self._naming.ref_of(job, integration, before, by_itself=bool(left))
        if (named := self._naming.named_ref(job)) not in {None, ref}:
            self._waiting_jobs.add(job_ref, named, observed, integration)
        self._nesting.read(observed.uid)
        amounts = {} if left else self._running_amounts(job, integration, ref)
        did_fit = self._membership.fits(controller_uid(job))
        has_grown = self._nesting.use(job_ref, amounts)
        is_ours = self._membership.is_ours(job, integration, ref)
        if before is not None and (before != ref or not is_ours):
            self._drop(job_ref, before)
        if is_ours:
            self._nesting.use(job_ref, {})  # It has quota of its own, or waits for it.
            self._nesting.ask_no_more(job_ref)
            self._on_children(controller_uid(job))
            self._have(job_ref, ref, integration, job)
            self._dirty[ref] = None
            self._on_owner(job["metadata"]["uid"])
            return
        self._on_child(job_ref, job, integration)
        if integration.makes_jobs:
            self._on_owner(job["metadata"]["uid"])
        if not self._membership.manages(observed.namespace):
            self._unmanaged[job_ref] = (integration, observed)
        if has_grown and did_fit and not self._membership.fits(controller_uid(job)):
            self._to_read.extend(self._nesting.leaving(controller_uid(job)))

    def _record_controller(
        self, job_ref: ObjectRef, observed: Observed, job: Body, integration: Integration
    ) -> None:
        """Record below which controller a job is, and look again at one that it has left."""
        controller = self._nesting.controller_of(job_ref)
        may_leave = self._membership.waits_by_itself(job, integration)
        child = (job_ref, controller_uid(job), observed, integration)
        self._nesting.observe(*child, may_leave=may_leave)
        if controller != controller_uid(job):
            self._on_children(controller)
        if self._integrations.has_waiting_controller(job, integration.kind):
            self._origins.observe(job_ref, job)

    def _have(
        self, job_ref: ObjectRef, ref: WorkloadRef, integration: Integration, job: Body
    ) -> None:
        """Record a managed job and its workload."""
        self._workload_of[job_ref] = ref
        self._jobs[ref] = (integration, job)
        self._by_uid[job["metadata"]["uid"]] = ref
        if integration.makes_jobs:
            self._origins.manage(job["metadata"]["uid"], queue_of(job))

    def _on_leaver(self, job: Body, integration: Integration) -> str:
        """Return the uid of the controller that a job was let out of, which has its quota until it stops."""
        left, uid = self._origins.left(job), job["metadata"]["uid"]
        if not left:
            self._on_children(self._nesting.forget_leaver(uid))
            return ""
        may_run = integration.active(job) or not integration.held(job)
        runs = may_run and integration.finish(job) is None
        runs = self._origins.uses_what_it_left(uid, runs=runs)
        if self._nesting.leave(left, uid, runs=runs):
            self._on_children(left)
        return left

    def _on_child(self, job_ref: ObjectRef, job: Body, integration: Integration) -> None:
        """Record what a child that names no queue asks for: its owner is stopped in its place."""
        if self._integrations.has_waiting_controller(job, integration.kind):
            asked = {} if integration.finish(job) else self._amounts(job, integration)
            pods = pods_of(job, integration, self._pod_sets(job, integration))
            self._nesting.ask(job_ref, job["metadata"]["uid"], asked, pods)
            self._on_children(controller_uid(job))

    def _on_children(self, controller: str) -> None:
        """Project an owner again if what it controls asks for more than it does, or runs, or no more."""
        owner = self._by_uid.get(controller)
        if owner is None:
            self._on_middle(controller)
            return
        state = self._published.get(owner)
        if state is None or state.uid != controller:
            return  # Looked at when the owner is projected.
        if self._nesting.has_changed(state):
            self._dirty[owner] = None

    def _on_middle(self, uid: str) -> None:
        """Read a job again that is between a controller and others, if what is below it has changed."""
        middle = self._nesting.middle(uid)
        if middle is not None and self._nesting.is_news(uid):
            self._to_read.append((middle.observed, middle.integration))

    def _on_owner(self, uid: str) -> None:
        """Read the jobs that name this controller again, if it came, went, won or lost its quota."""
        for observed, integration in self._nesting.changed_owner(
            uid, covers=self._membership.covers(uid)
        ):
            self._to_read.append((observed, integration))

    def _on_given(self, owner: WorkloadState, last: WorkloadState | None) -> None:
        """Read the jobs below an owner again if they ask for more than it has now, and did not before."""
        if owner.phase == "finished":
            self._on_owner(owner.uid)
        did_fit = last is None or last.uid != owner.uid or self._nesting.fits_in(last)
        if did_fit and not self._nesting.fits_in(owner):
            self._to_read.extend(self._nesting.leaving(owner.uid))
            self._read_again()

    def _running_amounts(self, job: Body, integration: Integration, ref: WorkloadRef) -> Amounts:
        """What a job asks for while it runs on its controller's quota, or something below it does."""
        uid = job["metadata"]["uid"]
        if not controller_uid(job) or self._naming.is_published(ref, uid):
            return {}
        runs = integration.active(job) or not integration.held(job)
        if not (runs and integration.finish(job) is None) and not self._nesting.has_running(uid):
            return {}
        return self._amounts(job, integration)

    def _amounts(self, job: Body, integration: Integration) -> Amounts:
        pod_sets = self._pod_sets(job, integration)
        return UNCOUNTABLE if pod_sets is None else amounts_of(pod_sets)

    def _pod_sets(self, job: Body, integration: Integration) -> list[PodSet] | None:
        now = pod_sets_of(job, integration, self._cluster_objects, self._policy)
        return None if now is None else self._nesting.most_of(job, integration, now)

    def _drop(self, job_ref: ObjectRef, ref: WorkloadRef) -> None:
        del self._workload_of[job_ref]
        _, job = self._jobs.pop(ref)
        self._dirty[ref] = None
        self._to_read.extend(self._waiting_jobs.of(ref))
        uid = job["metadata"]["uid"]
        if self._by_uid.get(uid) == ref:
            del self._by_uid[uid]
            self._origins.end(uid)
            self._on_owner(uid)

    def _on_departure(self, observed: Observed) -> None:
        """Read a job that is gone, and of which pods still end, beside the next one of its name."""
        job = observed.departed()
        if job is None or job.body is None:
            return
        integration = self._integrations.find(group=job.group, plural=job.plural)
        if integration is None:
            return
        if not job.deleted:
            name = job.body["metadata"]["name"]
            apart = ObjectRef(self._cluster, integration.detail, job.namespace, job.name)
            before = ObjectRef(self._cluster, integration.detail, job.namespace, name)
            self._nesting.forget(before, job)
            self._origins.move(before, apart, job.uid)
            ref = self._by_uid.get(job.uid)
            if ref is not None and self._workload_of.get(before) == ref:
                self._workload_of[apart] = self._workload_of.pop(before)
        self._on_job(job, integration)

    def _on_cluster_object(self, observed: Observed) -> None:
        """Project again what the object may concern. A namespace may become managed by its labels."""
        if observed.plural != kinds.NAMESPACE.plural:
            self._mark_dirty(observed.namespace)
            return
        for job_ref, (integration, job) in list(self._unmanaged.items()):
            if job_ref.namespace == observed.name:
                del self._unmanaged[job_ref]
                self._on_job(job, integration)

    def _mark_dirty(self, namespace: str | None) -> None:
        """Project all workloads of a namespace again; of every namespace for None."""
        for ref in (*self._jobs, *self._workloads):
            if namespace is None or ref.namespace == namespace:
                self._dirty[ref] = None

    def _project(self, ref: WorkloadRef, last: WorkloadState | None) -> WorkloadState | None:
        """Return the new state of a workload; None if it is the same as the last one."""
        try:
            state = self._current_state(ref, last)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # One malformed object must not stop the projection of the others.
            log.exception("an object cannot be read", namespace=ref.namespace, workload=ref.name)
            state = last and last.with_inadmissible(f"cannot be read: {error!r}")
        evicted = is_true(self._workloads.get(ref), EVICTED)
        known = None if ref in self._to_repeat else last
        if state is None or (known is not None and is_same(known, state, evicted=evicted)):
            return None
        self._to_repeat.discard(ref)
        if last is not None and last.uid == state.uid:
            is_new = requested(last) != requested(state) or edited_while_waiting(last, state)
            state = state.with_generation(last.generation + is_new)
        if state.phase == "gone":
            self._published.pop(ref, None)
            workload = self._workloads.get(ref)
            if workload is not None and was_of_a_job(last, workload):
                self._outlived[ref] = workload["metadata"]["uid"]
        else:
            self._published[ref] = state
        return state

    def _current_state(self, ref: WorkloadRef, last: WorkloadState | None) -> WorkloadState | None:
        workload = self._workloads.get(ref)
        if ref in self._jobs:
            integration, job = self._jobs[ref]
            state = project_job(
                job, integration=integration, cluster=self._cluster, name=ref.name, last=last,
                workload=self._membership.own_workload(ref, job["metadata"]["uid"]),
                cluster_objects=self._cluster_objects, machines=self._machines,
                policy=self._policy, queue_left=self._origins.queue_left(job),
                without_workload=self._naming.why_without(
                    job, integration, by_itself=bool(self._origins.left(job))
                ),
            )  # fmt: skip
            return self._nesting.with_children(state, last)
        self._machines.forget(ref)
        if workload is not None and (
            was_external(last, workload)
            or not (
                self._outlived.get(ref) == workload["metadata"]["uid"]
                or is_of_a_job(last, workload, self._integrations)
            )
        ):
            return project_external(
                workload, cluster=self._cluster, cluster_objects=self._cluster_objects,
                policy=self._policy, last=last,
            )  # fmt: skip
        if last is None or last.phase == "gone":
            return None if workload is None else left_behind(ref, workload, self._integrations)
        return last.gone()
