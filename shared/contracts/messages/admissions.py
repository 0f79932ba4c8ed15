"""What quota decided about a workload. One writer at a time, fenced."""

from datetime import datetime
from typing import ClassVar, Literal

from shared.contracts import subjects
from shared.contracts.messages.base import Message, Part, WorkloadMessage

AdmissionState = Literal["waiting", "reserved", "admitted", "evicted", "released"]

Readiness = Literal["", "WaitForStart", "Started", "WaitForRecovery", "Recovered"]
"""Reasons of the condition `PodsReady`; empty: nobody waits for pods here."""

HOLDING: frozenset[AdmissionState] = frozenset({"reserved", "admitted", "evicted"})
"""In these states quota is in use: `evicted` holds until its pods are gone."""


class PodSetAssignment(Part):
    """What one pod set was given."""

    name: str
    count: int
    flavors: dict[str, str]
    """Resource to ResourceFlavor."""

    usage: dict[str, str]
    """Resource to canonical quantity, for the whole pod set."""


class Admission(WorkloadMessage):
    """The state of one workload in the eyes of quota."""

    stream: ClassVar[str] = "ADMISSIONS"
    type: ClassVar[str] = "dev.sluicegate.admission.v1"

    uid: str
    """Of the workload that was decided about: a later one of the same name is not meant."""

    state: AdmissionState
    """`waiting` (with a reason) → `reserved` (checks pending) → `admitted`; `evicted` until its
    pods are gone; `released`: it holds no quota any more (finished, gone, refused)."""

    term: int
    """Whose decision: grows with each leader of the quota service."""

    number: int
    """Counts the decisions of that term, from 1. (epoch, term, number) orders all decisions."""

    epoch: int = 0
    """Of the log that the leader writes: milliseconds since 1970 when it was made, or 0 for a log of a
    release that gave none."""

    decided_at: datetime
    queue: str = ""
    cluster_queue: str = ""
    priority: int = 0
    pod_sets: list[PodSetAssignment] = []
    checks: list[str] = []
    """AdmissionChecks that must be Ready before `reserved` becomes `admitted`."""

    spoke: str | None = None
    """Where it runs instead of here: its job in this cluster is not released."""

    reason: str = ""
    """A Kueue token: why it waits, was evicted, or released."""

    message: str = ""
    requeue_at: datetime | None = None
    """It backs off: not before this instant."""

    requeue_count: int = 0
    """How often it was evicted because its pods were not ready in time (`requeueState.count`)."""

    queued_at: datetime | None = None
    """Its place in the queue, where an eviction cost it the one of its creation."""

    admitted_at: datetime | None = None
    """Since when it may run. Time limits count from here, whoever decides meanwhile."""

    executed_seconds: int = 0
    """How long it was admitted before that, in earlier admissions together."""

    pods_ready: Readiness = ""
    pods_ready_at: datetime | None = None
    """Since when that is so."""

    deactivate: bool = False
    """`spec.active` has still to become False: it was quota that put it out."""

    preempted_by: str | None = None
    """`<namespace>/<name>` of the workload for which this one was evicted."""

    unplanned: bool = False
    """It runs though nobody admitted it; it holds quota even above nominal."""

    generation: int = 0
    """`WorkloadState.generation` that this answers."""

    inputs: dict[str, int] = {}
    """Log to the last sequence of it that had been taken in: with these facts this was decided."""

    @property
    def subject(self) -> str:
        """``sluice.admission.<cluster>.<namespace>.<name>``."""
        return subjects.join("admission", self.cluster, self.namespace, self.name)

    @property
    def ruling(self) -> tuple[int, int]:
        """(epoch, term) of the leader that decided this."""
        return (self.epoch, self.term)

    def numbered(
        self, *, term: int, number: int, inputs: dict[str, int], epoch: int = 0
    ) -> "Admission":
        """The decision as it goes on the log: its leader and `number` order it, `inputs` explain it."""
        changes = {"epoch": epoch, "term": term, "number": number, "inputs": inputs}
        return self.model_copy(update=changes)

    @property
    def message_id(self) -> str | None:
        """A retry of the same decision is the same message."""
        return f"admission:{self.term}:{self.number}"


class Term(Message):
    """A leader of the quota service began. Its place in the log fences the one before."""

    stream: ClassVar[str] = "ADMISSIONS"
    type: ClassVar[str] = "dev.sluicegate.term.v1"

    term: int
    epoch: int = 0
    """Of the log that it leads: see `Admission.epoch`. (epoch, term) orders all leaders."""

    holder: str
    """Instance name of the leader."""

    began_at: datetime

    @property
    def subject(self) -> str:
        """``sluice.term.quota``."""
        return subjects.join("term", "quota")
