"""Messages between hub and spokes, apart from orders, and what users are told about spokes.

Heartbeats of spokes, the state of copies, and what is written back at the hub; the state of spokes, and
of the checks that lead to them.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Self

from shared.contracts import subjects
from shared.contracts.kube.bodies import annotations_of, labels_of
from shared.contracts.kube.conditions import are_conditions
from shared.contracts.kube.moments import Moment
from shared.contracts.kube.names import PREBUILT_WORKLOAD
from shared.contracts.messages.base import Message, Part, UndecodableError, WorkloadMessage
from shared.contracts.messages.workloads import JobRef
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import Stream

SCHEMA: Final = 1
"""Version of the protocol between hub and spoke. It changes only if an older side would misunderstand."""

LABEL_VALUE_MAX: Final = 63
"""Longest value of a label, in characters. Names have up to 253."""

ORDER: Final = "sluicegate.dev/order"
"""Annotation of a copy, ``<hub>/<number>``: the one order that it was created for."""

LEASE: Final = "sluicegate.dev/lease-seconds"
"""Annotation of a copy: how long its spoke may be without the hub's bus until the copy is stopped."""

COPY_FINALIZER: Final = "sluicegate.dev/copy"
"""Finalizer of a copy, whoever deletes it, until the hub withdraws it. Its result is at the hub by
then."""


def prebuilt_workload_of(obj: Mapping[str, Any]) -> str | None:
    """The Workload that a job names; None for none. The annotation counts before the label.

    Source: kubernetes-sigs/kueue@ff69552 pkg/controller/jobframework/utils.go (`PrebuiltWorkloadNameFor`).
    """
    return annotations_of(obj).get(PREBUILT_WORKLOAD) or labels_of(obj).get(PREBUILT_WORKLOAD)


def name_workload(name: str, *, labels: dict[str, str], annotations: dict[str, str]) -> None:
    """Name the Workload of a copy: in the label, which every Kueue reads, unless it is too long for one."""
    marks, others = (labels, annotations)
    if len(name) > LABEL_VALUE_MAX:
        marks, others = others, marks
    marks[PREBUILT_WORKLOAD] = name
    others.pop(PREBUILT_WORKLOAD, None)


def lease_seconds_of(copy: Mapping[str, Any]) -> float | None:
    """Seconds of the lease of a copy. None without a lease, or if the text is no length of time.

    Whoever may write the object can write this annotation.
    """
    text = annotations_of(copy).get(LEASE)
    try:
        seconds = float(text) if isinstance(text, str) else math.nan
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


class Heartbeat(Message):
    """Heartbeat of a spoke's patcher, which reaches the bus."""

    stream: ClassVar[Stream] = Stream.SPOKES
    type: ClassVar[str] = "dev.sluicegate.beat.v1"

    spoke: str
    instance: str
    number: int
    """Counts the heartbeats of one process of that instance."""

    form: int = SCHEMA
    """The `SCHEMA` that this spoke understands."""

    quota: Literal["hub", "kueue"] = "hub"
    """Who admits in that cluster: this hub's quota service, or a Kueue of its own."""

    api: bool = True
    """Whether the patcher reaches its API server."""

    identity: str | None = None
    """The uid of its namespace `kube-system`: two names with the same one are the same cluster."""

    at: Moment
    """By the spoke's clock. It is never compared with another clock."""

    @property
    def subject(self) -> str:
        """``sluice.beat.<spoke>._._``."""
        return subjects.join("beat", self.spoke, None, None)


class CopyState(Message):
    """What a spoke's patcher reports about its order, when the copy itself cannot tell."""

    stream: ClassVar[Stream] = Stream.DISPATCHES
    type: ClassVar[str] = "dev.sluicegate.copy.v1"

    spoke: str
    cluster: str
    """The hub."""

    namespace: str
    name: str
    """Of the hub's Workload."""

    uid: str
    number: int
    """Of the order."""

    state: Literal["gone", "taken", "refused"]
    """`gone`: nothing of this order or of an earlier one exists, its pods neither, and none will.
    `taken`: the name belongs to another object. `refused`: the cluster does not accept the copy."""

    ended: dict[str, Any] | None = None
    """`gone`: the status of the copy, if it had succeeded before it was removed."""

    message: str = ""
    at: Moment

    @classmethod
    def decode(cls, data: bytes, headers: Mapping[str, str] | None = None) -> Self:
        """Read a body. The hub's job gets the status: what no API server has is refused here."""
        message = super().decode(data, headers)
        if message.ended is not None and not are_conditions(message.ended.get("conditions")):
            raise UndecodableError(cls.type, "ended.conditions: each must be an object of strings")
        return message

    def without_status(self) -> "CopyState":
        """The same report, without the status of the copy."""
        return self.model_copy(update={"ended": None})

    @property
    def ref(self) -> WorkloadRef:
        """The workload that it is about."""
        return WorkloadRef(self.cluster, self.namespace, self.name)

    @property
    def subject(self) -> str:
        """``sluice.copy.<spoke>.<namespace>.<name>``."""
        return subjects.join("copy", self.spoke, self.namespace, self.name)


class HubStatus(WorkloadMessage):
    """What the hub's patcher writes about a workload that runs on a spoke."""

    stream: ClassVar[Stream] = Stream.DISPATCHES
    type: ClassVar[str] = "dev.sluicegate.home.v1"

    uid: str
    target: JobRef
    """The job of the hub."""

    nominated: list[str] | None = None
    """`status.nominatedClusterNames` of the Workload. None: another controller writes it."""

    spoke: str | None = None
    """`status.clusterName` of the Workload."""

    status: dict[str, Any] | None = None
    """The whole status of the copy, for the job. Empty: it never ran. None: leave it unchanged."""

    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.home.<cluster>.<namespace>.<name>``."""
        return subjects.join("home", self.cluster, self.namespace, self.name)


class SpokeCounts(Part):
    """Workloads of the hub on one spoke."""

    offered: int = 0
    chosen: int = 0
    withdrawing: int = 0
    """Withdrawn, but not yet confirmed to be gone."""


class SpokeState(Message):
    """The state of one spoke as the hub knows it: `MultiKueueCluster.status`, and more."""

    stream: ClassVar[Stream] = Stream.SPOKES
    type: ClassVar[str] = "dev.sluicegate.spoke.v1"

    cluster: str
    """The hub."""

    spoke: str
    active: bool
    reason: str
    """Of the condition `Active`."""

    message: str
    counts: SpokeCounts = SpokeCounts()
    latency_seconds: float | None = None
    """Recent time from an offer to the observed copy."""

    failures: int = 0
    """Recent offers that failed there."""

    identity: str | None = None
    """The uid of its namespace `kube-system`, by which the hub knows it. None: it never told it, or
    another name showed it first."""

    free: dict[str, str] = {}
    """Resource to the free quota of all queues."""

    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.spoke.<cluster>._.<spoke>``."""
        return subjects.join("spoke", self.cluster, None, self.spoke)


class CheckCondition(Message):
    """Whether an AdmissionCheck of the hub can be used: the condition `Active` of its status."""

    stream: ClassVar[Stream] = Stream.SPOKES
    type: ClassVar[str] = "dev.sluicegate.standing.v1"

    cluster: str
    """The hub."""

    check: str
    active: bool
    reason: str
    message: str
    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.standing.<cluster>._.<check>``."""
        return subjects.join("standing", self.cluster, None, self.check)


class PairState(Message):
    """Why the hub cannot run watcher and patcher of a spoke whose kubeconfig it has."""

    stream: ClassVar[Stream] = Stream.SPOKES
    type: ClassVar[str] = "dev.sluicegate.pair.v1"

    cluster: str
    """The hub."""

    spoke: str
    problem: str = ""
    """Empty: they run, or the hub is not to run them."""

    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.pair.<cluster>._.<spoke>``."""
        return subjects.join("pair", self.cluster, None, self.spoke)
