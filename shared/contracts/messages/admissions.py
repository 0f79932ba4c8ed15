"""Decisions of quota about workloads. One fenced writer at a time."""

from datetime import datetime
from typing import ClassVar, Literal, get_args

from shared.contracts import subjects
from shared.contracts.kube.conditions import PREEMPTED
from shared.contracts.kube.moments import Moment
from shared.contracts.messages.base import Message, Part, WorkloadMessage
from shared.contracts.reasons import (
    DEACTIVATED,
    DEACTIVATED_DUE_TO,
    PODS_READY_TIMEOUT,
    STATUS_BY_DECISION,
)
from shared.contracts.subjects import Stream

AdmissionState = Literal["waiting", "reserved", "admitted", "evicted", "released"]

Readiness = Literal["", "WaitForStart", "Started", "WaitForRecovery", "Recovered"]
"""Reasons of the condition `PodsReady`; empty: nobody waits for pods here."""

HOLDING: frozenset[AdmissionState] = frozenset(
    state for state in get_args(AdmissionState) if state in STATUS_BY_DECISION
)
"""In these states quota is in use: `evicted` holds until its pods are gone."""

GRANTED: frozenset[AdmissionState] = frozenset({"reserved", "admitted"})
"""In these states quota is in use, and nobody has asked for it back."""

READY: frozenset[Readiness] = frozenset({"Started", "Recovered"})
"""In these states all pods are ready."""


class PodSetAssignment(Part):
    """What one pod set was assigned."""

    name: str
    count: int
    flavors: dict[str, str]
    """Resource to ResourceFlavor."""

    usage: dict[str, str]
    """Resource to canonical quantity, for the whole pod set."""


class Admission(WorkloadMessage):
    """Quota's decision about one workload."""

    stream: ClassVar[Stream] = Stream.ADMISSIONS
    type: ClassVar[str] = "dev.sluicegate.admission.v1"

    uid: str
    """Uid of the workload. A later workload of the same name is another one."""

    state: AdmissionState
    """`waiting` (with a reason) → `reserved` (checks pending) → `admitted`. `evicted` until the pods
    are gone. `released`: holds no quota any more (finished, deleted, refused)."""

    term: int
    """Term of the leader that decided. It grows with each leader of the quota service."""

    number: int
    """Counts the decisions of that term, from 1. (epoch, term, number) orders all decisions."""

    epoch: int = 0
    """Of the log that the leader writes: milliseconds since 1970 when it was made, or 0 for a log of a
    release that gave none."""

    decided_at: Moment
    waiting_since: Moment | None = None
    """Of a `waiting` decision that follows others of other reasons: when the first was made."""

    queue: str = ""
    cluster_queue: str = ""
    priority: int = 0
    pod_sets: list[PodSetAssignment] = []
    checks: list[str] = []
    """AdmissionChecks that must be Ready before `reserved` becomes `admitted`."""

    spoke: str | None = None
    """The spoke that runs it. Its job in this cluster is not released."""

    reason: str = ""
    """A token of Kueue: why it waits, was evicted, or was released."""

    message: str = ""
    requeue_at: Moment | None = None
    """End of the back-off."""

    requeue_count: int = 0
    """How often it was evicted because its pods were not ready in time (`requeueState.count`)."""

    queued_at: Moment | None = None
    """The time that orders it in the queue, if an eviction replaced its creation time."""

    admitted_at: Moment | None = None
    """Start of the admission. Time limits count from here, also under a later leader."""

    executed_seconds: int = 0
    """How long earlier admissions lasted together."""

    pods_ready: Readiness = ""
    pods_ready_at: Moment | None = None
    """Start of the present state."""

    deactivate: bool = False
    """True while `spec.active` must still become False, after quota deactivated the workload."""

    preempted_by: str | None = None
    """`<namespace>/<name>` of the workload for which this one was evicted."""

    unplanned: bool = False
    """It runs although nobody admitted it. It holds quota even above the nominal one."""

    generation: int = 0
    """The `WorkloadState.generation` that was decided about."""

    inputs: dict[str, int] = {}
    """Log to the last sequence that the leader had read when it decided."""

    @property
    def subject(self) -> str:
        """``sluice.admission.<cluster>.<namespace>.<name>``."""
        return subjects.join("admission", self.cluster, self.namespace, self.name)

    @property
    def ruling(self) -> tuple[int, int]:
        """(epoch, term) of the leader that decided this."""
        return (self.epoch, self.term)

    @property
    def order(self) -> tuple[int, int, int]:
        """(epoch, term, number): a later decision about a workload has more (ADR 5)."""
        return (self.epoch, self.term, self.number)

    @property
    def eviction_cause(self) -> tuple[str, str]:
        """Kueue's reason and underlying cause of the eviction that this is."""
        if self.preempted_by is not None:
            return PREEMPTED, ""
        if self.reason.startswith(DEACTIVATED_DUE_TO):
            return DEACTIVATED, self.reason.removeprefix(DEACTIVATED_DUE_TO)
        if self.reason == PODS_READY_TIMEOUT:
            is_recovering = self.pods_ready == "WaitForRecovery"
            return self.reason, "WaitForRecovery" if is_recovering else "WaitForStart"
        return self.reason, ""

    def numbered(
        self, *, term: int, number: int, inputs: dict[str, int], epoch: int = 0
    ) -> "Admission":
        """The decision as it is published: its leader and `number` order it, `inputs` explain it."""
        changes = {"epoch": epoch, "term": term, "number": number, "inputs": inputs}
        return self.model_copy(update=changes)

    @property
    def message_id(self) -> str | None:
        """A retry of the same decision is the same message."""
        return f"admission:{self.term}:{self.number}"

    def is_outrun(self, admitted_at: datetime | None, *, held: bool) -> bool:
        """Whether the workload waits by this decision, but its job runs, admitted later: at `admitted_at`.

        So the log says less than the cluster: it came from a backup. Nobody admits what waits without a later
        decision, and an eviction ends with one, later than the admission, once the job is held.
        """
        if self.state != "waiting" or held or admitted_at is None:
            return False
        return admitted_at > (self.waiting_since or self.decided_at)


class Term(Message):
    """The start of a leader of the quota service. Its place in the log fences the leader before."""

    stream: ClassVar[Stream] = Stream.ADMISSIONS
    type: ClassVar[str] = "dev.sluicegate.term.v1"

    term: int
    epoch: int = 0
    """Of the log that it leads: see `Admission.epoch`. (epoch, term) orders all leaders."""

    holder: str
    """Instance name of the leader."""

    began_at: Moment

    @property
    def subject(self) -> str:
        """``sluice.term.quota``."""
        return subjects.TERM_SUBJECT
