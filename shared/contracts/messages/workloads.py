"""Workloads: what they request, and their state."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from shared.contracts import subjects
from shared.contracts.controllers import CheckStatus
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.moments import Moment
from shared.contracts.messages.base import Part, WorkloadMessage
from shared.contracts.subjects import Stream

Phase = Literal["waiting", "running", "finished", "gone"]

ENDED_PHASES: frozenset[Phase] = frozenset({"finished", "gone"})
"""In these phases the job needs no quota any more: it ran to its end, or was deleted."""


class JobRef(Part):
    """The job behind a workload."""

    api_version: str
    kind: str
    plural: str
    name: str
    uid: str
    is_group: bool = False
    """True: `name` is that of a group of objects of this kind, and `uid` that of its first one."""

    @property
    def group(self) -> str:
        """API group of the job; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def as_kind(self) -> Kind:
        """Return the kind of the job."""
        group, _, version = self.api_version.rpartition("/")
        return Kind(group=group, version=version, plural=self.plural, kind=self.kind)


class PodSet(Part):
    """Pods with equal requests. Requests are for one pod and final: adjusted, defaulted, transformed."""

    name: str
    count: int
    min_count: int | None = None
    """Minimum pods for partial admission. None: all or nothing."""

    requests: dict[str, str] = {}
    """Resource name to canonical Kubernetes quantity, for ONE pod; `pods` is not among them."""

    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []
    """As in a pod spec."""

    node_affinity: dict[str, Any] | None = None
    """`requiredDuringSchedulingIgnoredDuringExecution` of the pod spec's node affinity."""

    reclaimable: int = 0
    """Number of pods of this set that finished and need no quota any more. It only grows."""

    returned: dict[str, str] = {}
    """Resource to the quantity, for all pods together, that was returned before they finished: slots of
    deleted machines. It only grows."""

    def with_reclaimable(self, pods: int) -> "PodSet":
        """Return a copy with this number of finished pods."""
        return self.model_copy(update={"reclaimable": pods})

    def with_count(self, pods: int) -> "PodSet":
        """Return a copy with so many pods."""
        return self.model_copy(update={"count": pods})

    def with_requests(self, requests: dict[str, str]) -> "PodSet":
        """Return a copy with these requests."""
        return self.model_copy(update={"requests": requests})

    def without_placement(self) -> "PodSet":
        """Return a copy that says nothing of nodes."""
        nowhere: dict[str, Any] = {"node_selector": {}, "tolerations": [], "node_affinity": None}
        return self.model_copy(update=nowhere)

    def with_returned(self, returned: dict[str, str]) -> "PodSet":
        """Return a copy with these returned quantities."""
        return self.model_copy(update={"returned": returned})


class Members(Part):
    """How many objects of a group there are."""

    total: int
    present: int
    """Those that run, can run, or have succeeded."""

    complete: bool
    """False: there is no reason to admit it, nor to make a Workload."""

    latest: str = ""
    """`<name>/<uid>` of the last one that came and waits. A new one is started if its group is admitted."""


class Finish(Part):
    """The result of a finished workload."""

    success: bool
    message: str = ""
    at: Moment | None = None


class RecordedCheck(Part):
    """What the controller of an admission check wrote into the Workload object."""

    check: str
    state: CheckStatus
    message: str = ""
    requeue_after_seconds: int | None = None
    at: Moment
    """`lastTransitionTime`."""


class WorkloadState(WorkloadMessage):
    """One workload, joined from its job and its Workload object."""

    stream: ClassVar[Stream] = Stream.WORKLOADS
    type: ClassVar[str] = "dev.sluicegate.workload.v1"

    uid: str
    """The job's uid, or that of the Workload object if no job of ours owns it. It identifies one life
    of the name. Empty in the tombstone of one whose earlier messages nobody can read."""

    generation: int = 0
    """Grows with each change of the requests. A decision names the generation that it answers."""

    owner: JobRef | None = None
    """None: a Workload of another controller, admitted and finished by its conditions alone."""

    prebuilt: bool = False
    """The job's user names the Workload object, which exists before the job: none is made for it."""

    adopts: str = ""
    """Uid of its Workload object while that has quota and no job controls it: what it holds is the job's."""

    version: str = ""
    """`resourceVersion` of the job (or of the foreign Workload) from which this was read."""

    spec_generation: int = 0
    """`metadata.generation` of the job. While the job waits, only its users change it."""

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

    created_at: Moment
    pod_sets: list[PodSet] = []
    inadmissible: str | None = None
    """Why it can never be admitted as it is (annotation, LimitRange, pods of its group)."""

    unresolved: str | None = None
    """What it lacks to have a place in a queue, in words: an object that it names (a priority class), or what
    makes it a workload (pods of its group, a field that can be read). `inadmissible` has the latter, too."""

    outgrown: dict[str, int] | None = None
    """Pods by pod set, if it asks for more while it runs than its Workload says were admitted, or for such as
    had ended before."""

    running_pods: dict[str, int] | None = None
    """Pods by pod set that run, those that were told to end included, of pod sets of which more run than have
    quota. All of them hold quota until they are gone."""

    enlarged: bool = False
    """True if a pod asks for more while it runs than its Workload says was admitted."""

    on_eviction: Literal["suspend", "recreate", "run-on"] = "suspend"
    """What an eviction means while it runs. `recreate`: it is ended, and a copy waits in its place.
    `run-on`: nothing. It is then not preempted, and an eviction ends when it ends by itself."""

    held: bool = True
    """True if it was told to wait (Pending, suspended). False before its start: nothing holds it."""

    was_held: bool = False
    """True if we held it at some time. If it runs later without admission, somebody released it by
    hand. False: it began while the webhook was away, or only its user paused it."""

    on_hold: str | None = None
    """Why it must not start although it may be admitted, in words: its user paused it."""

    gated: str | None = None
    """Names of admission gates that are still closed. None: it may enter a queue, or it did."""

    pods_active: bool = False
    """A pod runs or terminates, or a started run has not ended: its quota is in use."""

    pods_ready: bool | None = None
    """None if the kind cannot tell."""

    finish: Finish | None = None
    evicted_at: Moment | None = None
    """Transition time of Evicted=True of the Workload object."""

    evicted_reason: str = ""
    """Reason of that condition; empty without it."""

    requeue_at: Moment | None = None
    """End of the back-off in the Workload object. The log is more exact."""

    requeue_count: int = 0
    admitted_at: Moment | None = None
    executed_seconds: int = 0
    pods_ready_reason: str = ""
    pods_ready_at: Moment | None = None
    """As the Workload object records it; used if the log is lost."""

    deactivating: bool = False
    """The Workload object has DeactivationTarget=True: `spec.active` is about to become False."""

    admission: dict[str, Any] | None = None
    """`status.admission` of the Workload object while it has quota; used if the log is lost."""

    deleting: str = ""
    """Uid of the job's Workload object while somebody deletes that object: the job must wait again."""

    evicted: bool = False
    """The Workload object has Evicted=True and still holds quota."""

    requeue_awaited: bool = False
    """`evicted`, and whoever stopped the job says so by Requeued=False: the back-off may end before the
    quota is back."""

    checks: list[RecordedCheck] = []
    """States of the admission checks of other controllers, while the Workload object has quota."""

    max_execution_seconds: int | None = None
    coschedule: str | None = None
    """The coscheduling mode of a run. Another mode is another request to the cluster."""

    run_of: str | None = None
    """Name of the run's definition (a Pipeline), if its kind has one. For people."""

    trace_parent: str | None = None
    """Span of the job's creator, 16 hexadecimal digits, if the job was part of a trace before."""

    members: Members | None = None
    """Of a group of objects that are one workload."""

    labels: dict[str, str] = Field(default={})
    """Labels of the job, as far as they fit into a few kilobytes, when this was written: a change of labels
    alone writes no state. For people; no decision depends on them. The mark of a copy is always right."""

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

    def with_active_children(self) -> "WorkloadState":
        """Return a copy that runs, because jobs that it controls do."""
        return self.model_copy(update={"phase": "running", "pods_active": True, "finish": None})

    def with_larger_children(self, pods: int) -> "WorkloadState":
        """Return the same state of a job whose children, which name no queue, ask for `pods` more than it.

        While it runs, it has outgrown its admission. While it is held, it cannot be admitted as it is.
        """
        if not self.held and self.pod_sets:
            first = self.pod_sets[0]
            return self.model_copy(update={"outgrown": {first.name: first.count + pods}})
        text = (
            f"jobs below it ask for more than it does, by {pods} pods or by larger ones: "
            f"delete those that were changed or added; its controller makes its own anew"
        )
        return self.with_inadmissible("; ".join(filter(None, (self.inadmissible, text))))

    def with_running_pods(self, pods: Mapping[str, int]) -> "WorkloadState":
        """Return the same state, of which at least these pods run."""
        known = self.running_pods or {}
        more = {name: count for name, count in pods.items() if count > known.get(name, 0)}
        return self.model_copy(update={"running_pods": {**known, **more}}) if more else self

    def with_inadmissible(self, reason: str) -> "WorkloadState":
        """Return the same state, kept from admission for this reason."""
        return self.model_copy(update={"inadmissible": reason})
