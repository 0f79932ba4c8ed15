"""What hub and spokes tell each other besides orders, and what people are told of it.

Who lives, what became of a copy, what comes home; how spokes stand, and the checks that lead to them.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, Literal

from shared.contracts import subjects
from shared.contracts.kube.bodies import annotations_of, spec_of
from shared.contracts.messages.base import Message, Part, WorkloadMessage
from shared.contracts.messages.workloads import JobRef
from shared.contracts.refs import WorkloadRef

SCHEMA: Final = 1
"""Version of what hub and spoke agree on. Only what would be misunderstood makes a new one."""

PREBUILT_WORKLOAD: Final = "kueue.x-k8s.io/prebuilt-workload-name"
"""Label of a copy: its Workload has the name of the hub's."""

ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
"""Label of a copy: whose it is. Nothing without it is ever touched."""

ORDER: Final = "sluicegate.dev/order"
"""Annotation of a copy, ``<hub>/<number>``: the order that it was made for, and no other."""

LEASE: Final = "sluicegate.dev/lease-seconds"
"""Annotation of a copy: it is stopped where its spoke has not heard the hub's bus for so long."""

MANAGER: Final = "kueue.x-k8s.io/multikueue"
"""`spec.managedBy` of what runs elsewhere: its own controller leaves it alone here."""

COPY_FINALIZER: Final = "sluicegate.dev/copy"
"""Keeps a copy, whoever deletes it, until the hub withdrew it: its end has come home by then."""


def is_managed_elsewhere(job: Mapping[str, Any]) -> bool:
    """True if MultiKueue runs the job on another cluster."""
    return spec_of(job).get("managedBy") == MANAGER


def lease_seconds_of(copy: Mapping[str, Any]) -> float | None:
    """Seconds of the lease of a copy; None if it has none, or one that is no length of time.

    Whoever may write the object writes this annotation.
    """
    text = annotations_of(copy).get(LEASE)
    try:
        seconds = float(text) if isinstance(text, str) else math.nan
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


class Beat(Message):
    """A spoke's patcher lives, and reaches the bus."""

    stream: ClassVar[str] = "SPOKES"
    type: ClassVar[str] = "dev.sluicegate.beat.v1"

    spoke: str
    instance: str
    number: int
    """Counts the beats of one life of that instance."""

    form: int = SCHEMA
    """The `SCHEMA` that this spoke understands."""

    quota: Literal["hub", "kueue"] = "hub"
    """Who admits on that cluster: this hub's quota service, or a Kueue of its own."""

    api: bool = True
    """Whether it reaches its API server."""

    identity: str | None = None
    """The uid of its namespace `kube-system`: two names with the same one are the same cluster."""

    at: datetime
    """By the spoke's clock; nobody compares it with another's."""

    @property
    def subject(self) -> str:
        """``sluice.beat.<spoke>._._``."""
        return subjects.join("beat", self.spoke, None, None)


class CopyState(Message):
    """What a spoke's patcher says about its order, where the copy itself cannot."""

    stream: ClassVar[str] = "DISPATCHES"
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
    """`gone`: nothing of this order or of an earlier one is there, its pods neither, and none will be.
    `taken`: the name belongs to somebody else. `refused`: the cluster does not take the copy."""

    ended: dict[str, Any] | None = None
    """Of `gone`: the status of the copy, where it had ended well before it was removed."""

    message: str = ""
    at: datetime

    @property
    def ref(self) -> WorkloadRef:
        """The workload that it is about."""
        return WorkloadRef(self.cluster, self.namespace, self.name)

    @property
    def subject(self) -> str:
        """``sluice.copy.<spoke>.<namespace>.<name>``."""
        return subjects.join("copy", self.spoke, self.namespace, self.name)


class HubStatus(WorkloadMessage):
    """What the hub's patcher writes about a workload that is sent away."""

    stream: ClassVar[str] = "DISPATCHES"
    type: ClassVar[str] = "dev.sluicegate.home.v1"

    uid: str
    target: JobRef
    """The job of the hub."""

    nominated: list[str] | None = None
    """`status.nominatedClusterNames` of the Workload; None: somebody else writes it."""

    spoke: str | None = None
    """`status.clusterName` of the Workload."""

    status: dict[str, Any] | None = None
    """The whole status of the copy for the job; empty: it never ran; None: leave it as it is."""

    at: datetime

    @property
    def subject(self) -> str:
        """``sluice.home.<cluster>.<namespace>.<name>``."""
        return subjects.join("home", self.cluster, self.namespace, self.name)


class SpokeCounts(Part):
    """Workloads of the hub on one spoke."""

    offered: int = 0
    chosen: int = 0
    withdrawing: int = 0
    """Withdrawn, and not confirmed to be gone."""


class SpokeState(Message):
    """How one spoke stands in the eyes of the hub: `MultiKueueCluster.status`, and more."""

    stream: ClassVar[str] = "SPOKES"
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
    """From an offer to the copy that was seen, lately."""

    failures: int = 0
    """Offers that came to nothing there, lately."""

    free: dict[str, str] = {}
    """Resource to the quota that is free there, over all queues."""

    at: datetime

    @property
    def subject(self) -> str:
        """``sluice.spoke.<cluster>._.<spoke>``."""
        return subjects.join("spoke", self.cluster, None, self.spoke)


class CheckCondition(Message):
    """Whether an AdmissionCheck of the hub leads anywhere: the condition `Active` of its status."""

    stream: ClassVar[str] = "SPOKES"
    type: ClassVar[str] = "dev.sluicegate.standing.v1"

    cluster: str
    """The hub."""

    check: str
    active: bool
    reason: str
    message: str
    at: datetime

    @property
    def subject(self) -> str:
        """``sluice.standing.<cluster>._.<check>``."""
        return subjects.join("standing", self.cluster, None, self.check)


class PairState(Message):
    """What keeps the hub from running watcher and patcher of a spoke whose kubeconfig it was given."""

    stream: ClassVar[str] = "SPOKES"
    type: ClassVar[str] = "dev.sluicegate.pair.v1"

    cluster: str
    """The hub."""

    spoke: str
    problem: str = ""
    """Empty: they run, or they are none of the hub's business."""

    at: datetime

    @property
    def subject(self) -> str:
        """``sluice.pair.<cluster>._.<spoke>``."""
        return subjects.join("pair", self.cluster, None, self.spoke)
