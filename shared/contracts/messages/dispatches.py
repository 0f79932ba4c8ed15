"""Orders of the dispatcher to spokes."""

from datetime import datetime
from typing import Any, ClassVar, Literal

from shared.contracts import subjects
from shared.contracts.kube.kinds import WORKLOAD_PRIORITY_CLASS
from shared.contracts.kube.moments import Moment
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL
from shared.contracts.messages.base import Message
from shared.contracts.messages.workloads import JobRef
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import Stream


class Dispatch(Message):
    """An order to one spoke about one workload of the hub."""

    stream: ClassVar[Stream] = Stream.DISPATCHES
    type: ClassVar[str] = "dev.sluicegate.dispatch.v1"

    spoke: str
    cluster: str
    """The hub cluster that the workload came from."""

    namespace: str
    name: str
    uid: str
    state: Literal["offered", "chosen", "withdrawn"]
    """`offered`: make the copy and let it compete. `chosen`: keep it. `withdrawn`: delete it."""

    job: dict[str, Any] | None = None
    """`offered`: the object to create on the spoke, with labels. `chosen`: None, since it exists.
    `withdrawn`: only what names it (apiVersion, kind, name, namespace, labels)."""

    workload: dict[str, Any] | None = None
    """`offered` to a cluster with a Kueue of its own: the Workload that queues there. The job is
    created once the spoke is chosen; `job` contains it in both states."""

    target: JobRef | None = None
    """The job at the hub: the copy has its kind, namespace and name."""

    number: int = 0
    """Number of this order. A later one to the same spoke for the same workload is greater. Withdrawing
    does not change it."""

    attempt: int = 0
    """`Admission.number` of the reservation behind it."""

    started: bool = False
    """True once it was chosen: unless the spoke says otherwise, the copy may run."""

    spec: dict[str, Any] | None = None
    """`chosen`: the spec with which the copy was created."""

    wish: dict[str, Any] | None = None
    """`chosen`: fields of the spec that the job's user has changed since, to stop or cancel it."""

    priority_class: str | None = None
    """The WorkloadPriorityClass in the label of the copy; None if the hub knows none."""

    reranked: bool = False
    """The copy may have been created with another class, or `workload` with another value of it."""

    at: Moment

    @property
    def ref(self) -> WorkloadRef:
        """The workload that it is about."""
        return WorkloadRef(self.cluster, self.namespace, self.name)

    @property
    def subject(self) -> str:
        """``sluice.dispatch.<spoke>.<namespace>.<name>``."""
        return subjects.join("dispatch", self.spoke, self.namespace, self.name)

    def chosen(self, *, requested_spec_change: dict[str, Any] | None, at: datetime) -> "Dispatch":
        """The order that starts the copy, because the spoke won.

        Only now a Kueue of its own gets the job.
        """
        spec = self.spec if self.job is None else self.job.get("spec")
        job = self.job if self.workload is not None else None
        changes = {
            "state": "chosen",
            "job": job,
            "spec": spec,
            "wish": requested_spec_change,
            "at": at,
        }
        return self.model_copy(update=changes)

    def withdrawn(self, *, job: dict[str, Any] | None, at: datetime) -> "Dispatch":
        """The order that deletes the copy; `job` names it."""
        changes = {
            "state": "withdrawn",
            "started": self.state == "chosen",
            "job": job,
            "workload": None,
            "spec": None,
            "wish": None,
            "priority_class": None,
            "reranked": False,
            "at": at,
        }
        return self.model_copy(update=changes)

    def with_priority(
        self, priority_class: str, value: int, *, reranked: bool = True
    ) -> "Dispatch":
        """The same order with another priority. `reranked`: an existing copy must be changed, too."""
        changes: dict[str, Any] = {"priority_class": priority_class, "reranked": reranked}
        if self.job is not None:
            metadata = self.job["metadata"]
            labels = {**(metadata.get("labels") or {}), PRIORITY_CLASS_LABEL: priority_class}
            changes["job"] = {**self.job, "metadata": {**metadata, "labels": labels}}
        if self.workload is not None:
            kind = WORKLOAD_PRIORITY_CLASS
            reference = {"group": kind.group, "kind": kind.kind, "name": priority_class}
            fields = {"priority": value, "priorityClassRef": reference}
            changes["workload"] = {**self.workload, "spec": {**self.workload["spec"], **fields}}
        return self.model_copy(update=changes)
