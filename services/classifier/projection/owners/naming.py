"""Which Workload a job has: one of its own name, the one that its hub has, or the one that its user names."""

from typing import NamedTuple

from services.classifier.projection.owners.groups import is_of_group
from services.classifier.projection.owners.ownership import may_claim
from services.classifier.projection.owners.prebuilt import named_workload, why_not
from services.classifier.projection.workload_status import has_quota
from shared.contracts.kube.bodies import Body, labels_of
from shared.contracts.kube.names import ORIGIN, PREBUILT_WORKLOAD, may_be_of, workload_name
from shared.contracts.messages.spokes import prebuilt_workload_of
from shared.contracts.messages.workloads import ENDED_PHASES, WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.integrations import Integration, queue_of

Jobs = dict[WorkloadRef, tuple[Integration, Body]]


class Naming(NamedTuple):
    """Reads what the projector knows, and changes none of it."""

    cluster: str
    jobs: Jobs
    workloads: dict[WorkloadRef, Body]
    published: dict[WorkloadRef, WorkloadState]
    without_queue: bool
    """Jobs without a queue are managed too."""

    def is_published(self, ref: WorkloadRef, uid: str) -> bool:
        """Return whether the stream has a state of that life of the workload."""
        last = self.published.get(ref)
        return last is not None and last.uid == uid and last.phase != "gone"

    def own_ref(self, job: Body, integration: Integration) -> WorkloadRef:
        """Return the workload that a job has unless another name is given: its uid is in the name."""
        kind, metadata = integration.kind, job["metadata"]
        shared = WorkloadRef(self.cluster, metadata["namespace"], metadata["name"])
        if integration.is_group and self._is_free(shared, metadata["uid"]):
            return shared
        name = workload_name(
            kind=kind.kind, group=kind.group, name=metadata["name"], uid=metadata["uid"]
        )
        return WorkloadRef(self.cluster, metadata["namespace"], name)

    def _is_free(self, ref: WorkloadRef, uid: str) -> bool:
        """Return whether a group may have the Workload of its own name: no other job has it, nor its user."""
        holder, workload = self.jobs.get(ref), self.workloads.get(ref)
        if holder is not None and holder[1]["metadata"]["uid"] != uid:
            return False
        is_groups = workload is not None and (
            is_of_group(workload) or (has_quota(workload) and self.is_published(ref, uid))
        )
        return workload is None or (is_groups and may_be_of(workload, uid))

    def ref_of(
        self,
        job: Body,
        integration: Integration,
        before: WorkloadRef | None,
        *,
        by_itself: bool = False,
    ) -> WorkloadRef:
        """Return the job's workload, for life: labels that name another one later are its user's.

        `before`: the one that it has now. A job whose user names a Workload has its own name until it can
        have that one. `by_itself`: it was let out of its controller, and takes no Workload of another name.
        """
        uid, own = job["metadata"]["uid"], self.own_ref(job, integration)
        if by_itself:
            is_its = before is not None and self.jobs[before][1]["metadata"]["uid"] == uid
            return before if before is not None and is_its else own
        has_own = has_quota(self.workloads.get(own)) or (before == own and integration.active(job))
        if (named := self.named_ref(job)) and not has_own:
            return named if self._takes(named, job, integration) else own
        if before is not None and self.jobs[before][1]["metadata"]["uid"] == uid:
            return before
        is_known = self.is_published(own, uid)
        prebuilt = None if is_known else self._name_of_copy(job, before, integration)
        return WorkloadRef(self.cluster, own.namespace, prebuilt) if prebuilt else own

    def named_ref(self, job: Body) -> WorkloadRef | None:
        """Return the Workload that the job's user names; None for none."""
        name = named_workload(job)
        return (name and WorkloadRef(self.cluster, job["metadata"]["namespace"], name)) or None

    def _takes(self, named: WorkloadRef, job: Body, integration: Integration) -> bool:
        uid, workload = job["metadata"]["uid"], self.workloads.get(named)
        holder = self.jobs.get(named)
        if holder is not None:
            return holder[1]["metadata"]["uid"] == uid
        if self.is_published(named, uid):
            return workload is None or may_be_of(workload, uid)
        is_managed = self.without_queue or bool(queue_of(job))
        return is_managed and why_not(job, integration, workload, named.name) is None

    def why_without(
        self, job: Body, integration: Integration, *, by_itself: bool = False
    ) -> str | None:
        """Return why the job has not the Workload that its user names; None if it has, or names none.

        A group has none before it is complete. `by_itself`: it was let out of its controller.
        """
        if integration.is_group:
            own, name = self.own_ref(job, integration), job["metadata"]["name"]
            taken = (
                f"Workload {name}, whose name the group has, is not a group's: rename one of them"
            )
            return integration.why_incomplete(job) or (None if own.name == name else taken)
        named = self.named_ref(job)
        if named is None:
            return None
        if by_itself:
            return (
                f"the job was let out of its controller, and cannot have Workload {named.name}: "
                f"remove the label {PREBUILT_WORKLOAD}"
            )
        holder = self.jobs.get(named)
        if holder is not None and holder[1]["metadata"]["uid"] != job["metadata"]["uid"]:
            other = holder[1]["metadata"]["name"]
            return f"Workload {named.name}, which the job names, is that of {other}"
        return why_not(job, integration, self.workloads.get(named), named.name)

    def may_keep(self, ref: WorkloadRef, job: Body, integration: Integration) -> bool:
        """Return whether the Workload object of that name can still be the job's."""
        workload = self.workloads[ref]
        if integration.is_group:
            return self.own_ref(job, integration) == ref
        if self.named_ref(job) == ref:
            return may_be_of(workload, job["metadata"]["uid"])
        return may_claim(job, workload, kind=integration.kind.kind)

    def _name_of_copy(
        self, job: Body, before: WorkloadRef | None, integration: Integration
    ) -> str | None:
        """Return the Workload's name for a copy of another cluster's job: the name that it has there.

        None if somebody else has that name: a tenant writes these labels, too.
        """
        labels = labels_of(job)
        name = prebuilt_workload_of(job)
        if ORIGIN not in labels or not name:
            return None
        metadata = job["metadata"]
        ref = WorkloadRef(self.cluster, metadata["namespace"], name)
        if ref in self.jobs and before != ref:
            return None
        workload = self.workloads.get(ref)
        if workload is not None:
            return name if may_claim(job, workload, kind=integration.kind.kind) else None
        last = self.published.get(ref)
        if last is None or last.phase in ENDED_PHASES or last.uid == metadata["uid"]:
            return name
        if not last.uid:  # Nobody can read whose it was: as if nothing had been said of it.
            return name
        # Its Workload is not observed yet.
        if last.owner is None:
            return name if last.labels.get(ORIGIN) == labels[ORIGIN] else None
        named = (integration.kind.kind, metadata["name"])
        return name if (last.owner.kind, last.owner.name) == named else None
