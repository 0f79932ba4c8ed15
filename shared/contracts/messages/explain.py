"""Requests to the deciding quota service, and its answers.

No stream keeps them. An answer names workloads only of the namespace that was asked about; of other
namespaces it gives numbers.
"""

import sys
from datetime import datetime
from typing import ClassVar, Final

from pydantic import Field

from shared.contracts import rpc
from shared.contracts.kube.moments import Moment
from shared.contracts.messages.base import Part


class Holder(Part):
    """A workload that holds what another one needs."""

    name: str
    """Workload, in the namespace that was asked about unless `namespace` names another."""

    amount: str
    namespace: str = ""
    """Empty: the one that was asked about."""

    cluster_queue: str = ""
    """Whose quota or whose loan it uses, if that is not the ClusterQueue that was asked about."""


class Shortage(Part):
    """One resource in one flavor of which there is not enough. Amounts are canonical quantities."""

    flavor: str
    resource: str
    asked: str
    free: str
    """What the ClusterQueue could take now, borrowing included."""

    borrowable: str
    """The part of `free` that would be borrowed."""

    most: str
    """The most it could ever have if nobody else used anything; `unlimited` without a limit."""

    limit: str = ""
    """The limit that `asked` meets first, and its value: ``borrowingLimit 2 of ClusterQueue a``."""

    holders: list[Holder] = []
    """The largest ones first, only a few."""

    holders_elsewhere: int = 0
    """In other namespaces."""

    held_elsewhere: str = "0"
    """The amount that they hold together."""


class Explanation(Part):
    """Why one workload waits, or that it does not wait."""

    cluster: str
    namespace: str
    name: str
    """Of the workload."""

    job: str = ""
    """``<kind> <name>`` of the job behind it."""

    reason: str
    """A token of Kueue's `QuotaReserved=False`; else `Reserved`, `Admitted` or `Finished`."""

    message: str
    queue: str = ""
    cluster_queue: str = ""
    priority: int = 0
    created_at: Moment
    position: int | None = None
    """Position in its ClusterQueue, from 1. None: it does not wait in one."""

    position_in_local_queue: int | None = None
    ahead: list[str] = []
    """Workloads of the same namespace before it, the first few."""

    ahead_here: int = 0
    """The number of all of those."""

    ahead_elsewhere: int = 0
    """The number of workloads of other namespaces before it."""

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
    """Messages of the checks' owners."""

    remedy: str = ""
    """What would let it be admitted."""

    requeue_at: Moment | None = None
    """It is not admitted before this time."""

    expected_start: Moment | None = None
    expected_earliest: Moment | None = None
    """With `expected_latest` the ends of the interval into which it falls with 80 % confidence. Without
    `expected_start`: it hardly starts before."""

    expected_latest: Moment | None = None
    """None if the latest start cannot be predicted."""

    expected_from_runs: int | None = None
    """Number of past runs of its kind that the forecast is based on."""

    expected_start_rough: str = ""
    """Why the forecast is less sure than usual; empty if it is not."""

    expected_start_unknown_because: str = ""

    def with_expected_start(
        self, at: datetime, *, earliest: datetime, latest: datetime | None, runs: int, rough: str
    ) -> "Explanation":
        """The same with a forecast: expected start, 80 % interval, number of runs behind it, doubts."""
        return self.model_copy(
            update={
                "expected_start": at,
                "expected_earliest": earliest,
                "expected_latest": latest,
                "expected_from_runs": runs,
                "expected_start_rough": rough,
                "expected_start_unknown_because": "",
            }
        )

    def without_expected_start(
        self, because: str, *, earliest: datetime | None = None
    ) -> "Explanation":
        """The same with the reason why there is no forecast, and the time before which it hardly starts."""
        return self.model_copy(
            update={"expected_start_unknown_because": because, "expected_earliest": earliest}
        )


class ExplainRequest(Part):
    """Asks why a workload waits."""

    subject: ClassVar[str] = rpc.EXPLAIN

    cluster: str | None = None
    """None: in each cluster that has one of this name."""

    namespace: str
    name: str
    """Of the workload or of the job behind it."""

    all_namespaces: bool = False
    """Name holders of other namespaces, too, for somebody who may see them."""


class ExplainAnswer(Part):
    """One explanation for each cluster that knows such a workload."""

    items: list[Explanation] = []
    problem: str = ""
    """Why there are no explanations."""


class Position(Part):
    """One waiting workload, as in the visibility API of Kueue."""

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
    """Asks which workloads wait, in which order. Each given field narrows the answer."""

    subject: ClassVar[str] = rpc.POSITIONS

    cluster: str | None = None
    cluster_queue: str | None = None
    namespace: str | None = None
    queue: str | None = None
    """LocalQueue; only together with `namespace`."""

    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=1000, ge=1, le=rpc.POSITIONS_MAX)

    def unlimited(self) -> "PositionsRequest":
        """The same for a caller in this process, which needs no limit for the size of a message."""
        return self.model_copy(update={"limit": sys.maxsize})


IGNORED_MAX: Final = 20
"""An operator mends some and asks again."""


class PositionsAnswer(Part):
    """Ordered by cluster, ClusterQueue and position."""

    items: list[Position] = []
    stopped: str = ""
    """Why nobody is admitted at present; empty: admission goes on."""

    ignored: list[str] = []
    """Object, field and value of what quota ignores in its present form, the first `IGNORED_MAX`. Only for
    those who ask about all namespaces."""

    problem: str = ""
