"""What waits, what it asks, and how it stands."""

from datetime import datetime
from typing import Any, ClassVar, Literal

from pydantic import Field

from shared.contracts import subjects
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.base import Part, WorkloadMessage

Phase = Literal["waiting", "running", "finished", "gone"]


class JobRef(Part):
    """The job behind a workload."""

    api_version: str
    kind: str
    plural: str
    name: str
    uid: str

    @property
    def group(self) -> str:
        """API group of the job; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def as_kind(self) -> Kind:
        """Return the kind of the job."""
        group, _, version = self.api_version.rpartition("/")
        return Kind(group=group, version=version, plural=self.plural, kind=self.kind)


class PodSet(Part):
    """Pods that are alike. Requests are per pod and final: adjusted, defaulted, transformed."""

    name: str
    count: int
    min_count: int | None = None
    """Partial admission may go down to this many; None: all or nothing."""

    requests: dict[str, str] = {}
    """Resource name to canonical Kubernetes quantity, for ONE pod; `pods` is not among them."""

    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []
    """As in a pod spec."""

    node_affinity: dict[str, Any] | None = None
    """`requiredDuringSchedulingIgnoredDuringExecution` of the pod spec's node affinity."""

    reclaimable: int = 0
    """Pods of this set that finished and need their quota no more. Grows only."""

    returned: dict[str, str] = {}
    """Resource to the quantity, of all pods together, that was given back before they finished: slots
    of machines that are gone. Grows only."""

    def with_reclaimable(self, pods: int) -> "PodSet":
        """Return a copy of which so many pods finished."""
        return self.model_copy(update={"reclaimable": pods})

    def with_returned(self, returned: dict[str, str]) -> "PodSet":
        """Return a copy of which so much was given back."""
        return self.model_copy(update={"returned": returned})


class Finish(Part):
    """How it ended."""

    success: bool
    message: str = ""
    at: datetime | None = None


class WorkloadState(WorkloadMessage):
    """One workload, joined from its job and its Workload object."""

    stream: ClassVar[str] = "WORKLOADS"
    type: ClassVar[str] = "dev.sluicegate.workload.v1"

    uid: str
    """The job's uid, or the Workload object's where no job of ours owns it. It names the life."""

    generation: int = 0
    """Grows with each change of what is asked; a decision names the one that it answers."""

    owner: JobRef | None = None
    """None: somebody else's Workload, admitted and finished by its conditions alone."""

    version: str = ""
    """`resourceVersion` of the job (or of somebody else's Workload) that this was read from."""

    spec_generation: int = 0
    """`metadata.generation` of the job. While it waits only its users change that."""

    phase: Phase
    """`waiting`: held, nothing runs. `running`: released, or started by hand. `gone`: tombstone."""

    active: bool = True
    """`spec.active` of the Workload; False evicts and keeps out."""

    queue: str = ""
    """LocalQueue in the same namespace."""

    priority: int = 0
    priority_class: str | None = None
    """WorkloadPriorityClass or PriorityClass that `priority` came from."""

    priority_class_source: str = ""
    """`kueue.x-k8s.io/workloadpriorityclass`, `scheduling.k8s.io/priorityclass`, or empty."""

    created_at: datetime
    pod_sets: list[PodSet] = []
    inadmissible: str | None = None
    """Why it can never be admitted as it stands (annotation, LimitRange, missing class)."""

    unresolved: str | None = None
    """What it names and is not there, in words (a priority class): nobody knows its place in a queue."""

    outgrown: dict[str, int] | None = None
    """Pods by pod set, where more are asked for while it runs than its Workload says were admitted."""

    enlarged: bool = False
    """A pod asks for more, while it runs, than its Workload says that one asked for when it was admitted."""

    on_eviction: Literal["suspend", "recreate", "run-on"] = "suspend"
    """What its eviction means once it runs. `recreate`: it is ended, and a copy waits in its place.
    `run-on`: nothing, so it is not preempted, and an eviction is over when it ends by itself."""

    held: bool = True
    """It was told to wait (Pending, suspended). False before it started: nobody holds it back."""

    was_held: bool = False
    """Our hold was on it at some time: what runs later without admission, somebody let go by hand. False:
    it began while the webhook was away, or only its user's own pause was on it."""

    on_hold: str | None = None
    """Why it is not to be started though it may be admitted, in words: its user paused it."""

    pods_active: bool = False
    """Some pod runs or terminates, or a started run is not done: its quota is in use."""

    pods_ready: bool | None = None
    """None where the kind cannot tell."""

    finish: Finish | None = None
    evicted_at: datetime | None = None
    """Since when the Workload object says Evicted=True."""

    evicted_reason: str = ""
    """What it says then; empty: it does not say so."""

    requeue_at: datetime | None = None
    """Not before this instant, as the Workload object records it. The log knows better."""

    requeue_count: int = 0
    admitted_at: datetime | None = None
    executed_seconds: int = 0
    pods_ready_reason: str = ""
    pods_ready_at: datetime | None = None
    """Likewise: what the Workload object records, adopted if the log is lost."""

    deactivating: bool = False
    """The Workload object has DeactivationTarget=True: `spec.active` is about to become False."""

    admission: dict[str, Any] | None = None
    """`status.admission` of the Workload object while it has quota: adopted if the log is lost."""

    deleting: str = ""
    """Uid of the job's Workload object while somebody deletes that: the job is to wait anew."""

    evicted: bool = False
    """The Workload object has Evicted=True and still holds quota."""

    max_execution_seconds: int | None = None
    coschedule: str | None = None
    """The coscheduling mode that a run asks for: another one is another question to the cluster."""

    run_of: str | None = None
    """Name of what it is a run of (a Pipeline), where its kind says it; shown to people."""

    trace_parent: str | None = None
    """Span of whoever created the job, 16 hexadecimal digits, where it was part of a trace already."""

    labels: dict[str, str] = Field(default={})
    """Of the job; shown to people, not weighed."""

    @property
    def subject(self) -> str:
        """``sluice.workload.<cluster>.<namespace>.<name>``."""
        return subjects.join("workload", self.cluster, self.namespace, self.name)

    def gone(self) -> "WorkloadState":
        """Return the tombstone of this workload."""
        changes = {"phase": "gone", "pods_active": False, "held": True, "admission": None}
        return self.model_copy(update=changes)

    def requeued(self) -> "WorkloadState":
        """The same workload, waiting without an admission and without pods."""
        changes = {"admission": None, "phase": "waiting", "pods_active": False}
        return self.model_copy(update=changes)

    def with_generation(self, generation: int) -> "WorkloadState":
        """Return the same state with another generation."""
        return self.model_copy(update={"generation": generation})

    def with_inadmissible(self, reason: str) -> "WorkloadState":
        """Return the same state, kept from admission for this reason."""
        return self.model_copy(update={"inadmissible": reason})
