"""Questions that the deciding quota service answers, and its answers.

They are asked and forgotten: no stream keeps them. Names of workloads are told only to those who ask
about the same namespace; of others an answer tells how many there are.
"""

import sys
from datetime import datetime
from typing import ClassVar

from pydantic import Field

from shared.contracts import rpc
from shared.contracts.messages.base import Part


class Holder(Part):
    """Somebody who holds what another needs."""

    name: str
    """Workload, in the namespace that was asked about."""

    amount: str


class Shortage(Part):
    """One resource in one flavor of which there is not enough. Amounts are canonical quantities."""

    flavor: str
    resource: str
    asked: str
    free: str
    """What the ClusterQueue could take now, borrowing included."""

    borrowable: str
    """How much of `free` is not its own."""

    most: str
    """What it could ever have, if nobody else used anything; `unlimited` where there is no end."""

    limit: str = ""
    """Whose limit `asked` meets first, and how high it is: ``borrowingLimit 2 of ClusterQueue a``."""

    holders: list[Holder] = []
    """Largest first, a few."""

    holders_elsewhere: int = 0
    """In other namespaces."""

    held_elsewhere: str = "0"
    """By those, together."""


class Explanation(Part):
    """Why one workload waits, or that it does not."""

    cluster: str
    namespace: str
    name: str
    """Of the workload."""

    job: str = ""
    """``<kind> <name>`` of the job behind it."""

    reason: str
    """A token of Kueue's `QuotaReserved=False`; `Reserved`, `Admitted` or `Finished` otherwise."""

    message: str
    queue: str = ""
    cluster_queue: str = ""
    priority: int = 0
    created_at: datetime
    position: int | None = None
    """In its ClusterQueue, from 1; None: it does not wait in one."""

    position_in_local_queue: int | None = None
    ahead: list[str] = []
    """Workloads of the same namespace before it, the first few."""

    ahead_here: int = 0
    """How many there are of those in all."""

    ahead_elsewhere: int = 0
    """How many before it are of other namespaces."""

    shortages: list[Shortage] = []
    victims: list[str] = []
    """Workloads of the same namespace that were preempted for it and must end first."""

    victims_elsewhere: int = 0
    unready: list[str] = []
    """Workloads of the same namespace whose pods must be ready before it is admitted."""

    unready_elsewhere: int = 0
    fair_shares: dict[str, str] = {}
    """Under fair sharing: the share that its ClusterQueue would have with it, and those of the queues
    whose workloads it may not displace, because its own would be as high."""

    checks: dict[str, str] = {}
    """Admission check to its state, while quota is reserved or it backs off because of one."""

    check_messages: dict[str, str] = {}
    """What the checks' owners say beside."""

    remedy: str = ""
    """What would let it in."""

    requeue_at: datetime | None = None
    """Not before."""

    expected_start: datetime | None = None
    expected_earliest: datetime | None = None
    """With `expected_latest` the ends of the interval into which it falls with 80 % confidence."""

    expected_latest: datetime | None = None
    """None: there is no telling how late."""

    expected_from_runs: int | None = None
    """How many past runs of its kind that comes from."""

    expected_start_unknown_because: str = ""

    def with_expected_start(
        self, at: datetime, *, earliest: datetime, latest: datetime | None, runs: int
    ) -> "Explanation":
        """The same with a forecast: a point, the 80 % interval, and from how many runs it comes."""
        return self.model_copy(
            update={
                "expected_start": at,
                "expected_earliest": earliest,
                "expected_latest": latest,
                "expected_from_runs": runs,
                "expected_start_unknown_because": "",
            }
        )

    def without_expected_start(self, because: str) -> "Explanation":
        """The same, with the reason why there is no forecast."""
        return self.model_copy(update={"expected_start_unknown_because": because})


class ExplainRequest(Part):
    """Asks why something waits."""

    subject: ClassVar[str] = rpc.EXPLAIN

    cluster: str | None = None
    """None: wherever there is one of this name."""

    namespace: str
    name: str
    """Of the workload or of the job behind it."""


class ExplainAnswer(Part):
    """One explanation for each cluster that knows such a workload."""

    items: list[Explanation] = []
    problem: str = ""
    """Why there are none."""


class Position(Part):
    """One who waits, as in the visibility API of Kueue."""

    cluster: str
    namespace: str
    name: str
    queue: str
    cluster_queue: str
    priority: int
    position: int
    """In the ClusterQueue, from 1."""

    position_in_local_queue: int


class PositionsRequest(Part):
    """Asks who waits, in which order. Each field that is given narrows the answer."""

    subject: ClassVar[str] = rpc.POSITIONS

    cluster: str | None = None
    cluster_queue: str | None = None
    namespace: str | None = None
    queue: str | None = None
    """LocalQueue; only together with `namespace`."""

    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=1000, ge=1, le=rpc.POSITIONS_MAX)

    def unlimited(self) -> "PositionsRequest":
        """The same for a caller in this process, for which the size of a message is no limit."""
        return self.model_copy(update={"limit": sys.maxsize})


class PositionsAnswer(Part):
    """Ordered by cluster, ClusterQueue and position."""

    items: list[Position] = []
    problem: str = ""
