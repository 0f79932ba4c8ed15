"""The status of queues: what `kubectl get clusterqueues` shows. And where the history of workloads begins."""

from typing import ClassVar, Final, Literal

from shared.contracts import subjects
from shared.contracts.kube.moments import Moment
from shared.contracts.messages.base import Message, Part
from shared.contracts.subjects import Stream

SHORTENED_MAX: Final = 200
"""Subjects that one `HistoryStart` names: some 20 KiB."""


class ResourceUsage(Part):
    """The use of one resource."""

    name: str
    total: str
    borrowed: str = "0"
    """Above the queue's own nominal quota; LocalQueues have none of their own."""


class FlavorUsage(Part):
    """The use of one flavor."""

    name: str
    resources: list[ResourceUsage]


class QueueStatus(Message):
    """Counts and use of one ClusterQueue or LocalQueue. Published at most once a second for each."""

    stream: ClassVar[Stream] = Stream.QUEUES
    type: ClassVar[str] = "dev.sluicegate.queue.v1"

    cluster: str
    kind: Literal["ClusterQueue", "LocalQueue"]
    namespace: str | None = None
    """None for a ClusterQueue."""

    name: str
    uid: str = ""
    """Of the queue object: the status is of no other one of that name. Empty: any."""

    pending: int
    reserving: int
    """Workloads that hold quota, admitted or not."""

    admitted: int
    reservation: list[FlavorUsage] = []
    usage: list[FlavorUsage] = []
    """Of those that are admitted."""

    consumed: dict[str, str] | None = None
    """Past use of a LocalQueue, older use counting less, if its queue orders by that."""

    consumed_at: Moment | None = None
    """The time up to which it is counted."""

    weighted_share: int | None = None
    """`weightedShare` of a ClusterQueue under fair sharing; None: there is none."""

    active: bool
    reason: str
    """Of the condition `Active`."""

    message: str
    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.queue.<cluster>.<namespace>.<name>``."""
        return subjects.join("queue", self.cluster, self.namespace, self.name)


class CohortShare(Message):
    """Where one Cohort stands beside its siblings. Published at most once a second for each."""

    stream: ClassVar[Stream] = Stream.QUEUES
    type: ClassVar[str] = "dev.sluicegate.cohort.v1"

    cluster: str
    name: str
    uid: str = ""
    """Of the Cohort object: the share is of no other one of that name. Empty: any."""

    weighted_share: int | None = None
    """`weightedShare` under fair sharing; None: there is none."""

    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.cohort.<cluster>._.<name>``."""
        return subjects.join("cohort", self.cluster, None, self.name)


class HistoryStart(Message):
    """Where the history of ended workloads begins in one log, and which others begin in the middle.

    Earlier messages were deleted to make room.
    """

    stream: ClassVar[Stream] = Stream.QUEUES
    type: ClassVar[str] = "dev.sluicegate.history.v1"

    log: str
    sequence: int
    began_at: Moment
    """When the log stored the last message that was deleted, or examined and kept. `EARLIEST`: no history of
    ended workloads was deleted."""

    shortened: list[str] = []
    """Subjects of the log that lost their oldest messages to make room, whether they live or not. The last
    `SHORTENED_MAX` of them."""

    others_until: Moment | None = None
    """When the last subject left `shortened` for a newer one. What the log has had for longer may have lost
    its oldest messages, too. None: `shortened` has all."""

    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.history.<log>``."""
        return subjects.join("history", self.log)
