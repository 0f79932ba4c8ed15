"""Jobs of the hub, found by the name of their Workload, and the spokes that others nominated for them."""

from dataclasses import dataclass
from typing import Any

from shared.contracts.kube.bodies import Body, labels_of, status_of
from shared.contracts.kube.kinds import WORKLOAD
from shared.contracts.kube.names import workload_name
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import JobRef
from shared.contracts.refs import ObjectRef, WorkloadRef
from shared.integrations import Integration, Integrations, queue_of


@dataclass(frozen=True, slots=True, kw_only=True)
class HubJob:
    """A job of the hub that waits for admission, or whose copy runs on a spoke."""

    integration: Integration
    obj: Body

    @property
    def is_managed_elsewhere(self) -> bool:
        """Whether the job's own controller leaves the job and its status alone."""
        return self.integration.runs_elsewhere(self.obj)

    @property
    def reference(self) -> JobRef:
        """The owner reference that a Workload of this job has."""
        kind, metadata = self.integration.kind, self.obj["metadata"]
        return JobRef(
            api_version=kind.api_version,
            kind=kind.kind,
            plural=kind.plural,
            name=metadata["name"],
            uid=metadata["uid"],
        )


class HubJobs:
    """All jobs of the hub that have a queue and have not finished."""

    def __init__(self, *, cluster: str, nominations: bool, integrations: Integrations) -> None:
        """`nominations`: whether to read `status.nominatedClusterNames` of the hub's Workloads."""
        self._cluster = cluster
        self._integrations = integrations
        self._nominations = nominations
        self._jobs: dict[WorkloadRef, HubJob] = {}
        self._workloads: dict[ObjectRef, WorkloadRef] = {}
        """Job to its Workload. `ObjectRef.kind` is plural and group: two groups may share a plural."""

        self.nominated: dict[WorkloadRef, tuple[str, ...]] = {}
        """`status.nominatedClusterNames` of a Workload, if another program writes it."""

    def observe(self, observed: Observed) -> WorkloadRef | None:
        """Record a job or a Workload of the hub; return the workload that may need a new plan."""
        if observed.namespace is None or observed.cluster != self._cluster:
            return None
        if observed.plural == WORKLOAD.plural and observed.group == WORKLOAD.group:
            workload = WorkloadRef(self._cluster, observed.namespace, observed.name)
            return self._observe_workload(workload, observed)
        integration = self._integrations.find(group=observed.group, plural=observed.plural)
        if integration is None or integration.gate is not None:
            return None  # Pods run on no other cluster.
        job = ObjectRef(self._cluster, integration.kind.detail, observed.namespace, observed.name)
        before = self._workloads.get(job)
        known = None if before is None else self._jobs[before].obj["metadata"]
        if before is not None and known is not None and known["uid"] != observed.uid:
            if not observed.deleted:
                del self._jobs[before], self._workloads[job]
            elif not observed.ends(known["uid"], str(known.get("resourceVersion", ""))):
                return None  # The tombstone of an earlier job of that name.
        obj = observed.body
        finished = observed.deleted or obj is None or integration.finish(obj) is not None
        if finished or obj is None or not queue_of(obj):
            workload_before = self._workloads.pop(job, None)
            if workload_before is not None:
                self._jobs.pop(workload_before, None)
            return workload_before
        workload = self._workloads.get(job) or self._workload_of(integration, observed)
        self._workloads[job] = workload
        self._jobs[workload] = HubJob(integration=integration, obj=obj)
        return workload

    def _workload_of(self, integration: Integration, observed: Observed) -> WorkloadRef:
        kind = integration.kind
        name = workload_name(kind=kind.kind, group=kind.group, name=observed.name, uid=observed.uid)
        return WorkloadRef(self._cluster, observed.namespace or "", name)

    def _observe_workload(self, workload: WorkloadRef, observed: Observed) -> WorkloadRef | None:
        if not self._nominations:
            return None
        nominated = status_of(observed.body).get("nominatedClusterNames") or ()
        names = tuple(str(spoke) for spoke in nominated)
        if observed.deleted or not names:
            return workload if self.nominated.pop(workload, None) is not None else None
        changed = self.nominated.get(workload) != names
        self.nominated[workload] = names
        return workload if changed else None

    def job(self, workload: WorkloadRef, uid: str) -> HubJob | None:
        """The job behind a workload; None if no job with this uid is observed, or if it has finished."""
        found = self._jobs.get(workload)
        return found if found is not None and found.obj["metadata"]["uid"] == uid else None

    def label(self, workload: WorkloadRef, label: str) -> str | None:
        """The value of a label of the job; None if it has no such label."""
        found = self._jobs.get(workload)
        return None if found is None else labels_of(found.obj).get(label) or None

    def requested_spec_change(
        self, workload: WorkloadRef, copied_spec: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        """Fields of the spec that the user changed since the copy was made; None if there are none."""
        found = self._jobs.get(workload)
        if found is None or copied_spec is None:
            return None
        spec = found.integration.carry(found.obj)
        changed = {name: value for name, value in spec.items() if value != copied_spec.get(name)}
        return changed or None
