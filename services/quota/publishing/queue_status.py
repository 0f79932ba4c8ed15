"""Publishes the status of queues and cohorts: the engine's views, and only those that changed."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from services.quota.engine import QuotaEngine
from services.quota.engine.model.shapes import FlavorResource
from services.quota.engine.views.queues import QueueView, ResourceUse
from services.quota.wire.outbound import to_datetime
from shared.contracts.kube.quantities import amount_max, format_amount
from shared.contracts.messages.queues import (
    CohortShare,
    FlavorUsage,
    QueueStatus,
    ResourceUsage,
)

MILLION: Final = 1_000_000

UNITS_MAX: Final = amount_max("memory")
"""A sum of many Workloads may be larger than the largest quantity that the API server takes."""

STATUS_SECONDS: Final = 1.0
"""Shortest interval between two publications."""

STATUS_SECONDS_MAX: Final = 5.0
STATUSES_PER_SECOND: Final = 20
"""Where more queues change than this, the interval grows up to the maximum: the patcher writes no faster."""

Status: TypeAlias = QueueStatus | CohortShare

READY = {
    "ClusterQueue": "Can admit new workloads",
    "LocalQueue": "Can submit new workloads to localQueue",
}


class QueueStatusPublisher:
    """Decides when statuses are published, and of which queues."""

    def __init__(self) -> None:
        self._due_at: datetime | None = None
        """When statuses are due; None: nothing has happened since the last publication."""

        self._interval = timedelta(seconds=STATUS_SECONDS)
        self._published: dict[str, Status] = {}
        """Subject to the status that was published last, of the queues and cohorts that exist."""

    def next_at(self, now: datetime) -> datetime | None:
        """When `changed_statuses` may yield; None: nothing has happened since the last publication.

        At once, where the clock was set back.
        """
        if self._due_at is None:
            return None
        return self._due_at if self._due_at <= now + self._interval else now

    def schedule(self, now: datetime) -> None:
        """Something has happened: publish after the interval."""
        if self._due_at is None:
            self._due_at = now + self._interval

    def changed_statuses(
        self, engine: QuotaEngine, clusters: Iterable[str], now: datetime
    ) -> Iterator[Status]:
        """Yield each status that differs from the published one; nothing before it is due."""
        due_at = self.next_at(now)
        if due_at is None or now < due_at:
            return
        self._due_at = None
        count, before, self._published = 0, self._published, {}
        for cluster in clusters:
            for status in _statuses(engine, cluster, now):
                last = before.get(status.subject)
                if last is not None and _is_same(status, last):
                    self._published[status.subject] = last
                    continue
                self._published[status.subject] = status
                count += 1
                yield status
        seconds = min(max(count / STATUSES_PER_SECOND, STATUS_SECONDS), STATUS_SECONDS_MAX)
        self._interval = timedelta(seconds=seconds)


def _statuses(engine: QuotaEngine, cluster: str, now: datetime) -> Iterator[Status]:
    yield from queue_statuses(engine, cluster, now)
    yield from cohort_shares(engine, cluster, now)


def _is_same(status: Status, last: Status) -> bool:
    if isinstance(status, QueueStatus):
        return isinstance(last, QueueStatus) and status.same_except(last, "at")
    return isinstance(last, CohortShare) and status.same_except(last, "at")


def cohort_shares(engine: QuotaEngine, cluster: str, now: datetime) -> Iterator[CohortShare]:
    """The share of every Cohort of one cluster."""
    for view in engine.cohorts(cluster):
        yield CohortShare(
            cluster=cluster,
            name=view.name,
            uid=view.uid,
            weighted_share=view.share if engine.policy.fair_sharing else None,
            at=now,
        )


def queue_statuses(engine: QuotaEngine, cluster: str, now: datetime) -> Iterator[QueueStatus]:
    """The status of every queue of one cluster.

    The cost grows with queues and with workloads that hold quota, not with waiting ones.
    """
    cluster_queues, local_queues = engine.snapshot(cluster)
    for view in cluster_queues:
        status = _status(view, "ClusterQueue", cluster, now, namespace=None, name=view.name)
        share = view.share if engine.policy.fair_sharing else None
        yield status if share is None else status.replace(weighted_share=share)
    for view in local_queues:
        namespace, _, name = view.name.partition("/")
        yield _status(view, "LocalQueue", cluster, now, namespace=namespace, name=name)


def _status(
    view: QueueView,
    kind: Literal["ClusterQueue", "LocalQueue"],
    cluster: str,
    now: datetime,
    *,
    namespace: str | None,
    name: str,
) -> QueueStatus:
    reason, message = view.inactive or ("Ready", READY[kind])
    return QueueStatus(
        cluster=cluster,
        kind=kind,
        namespace=namespace,
        name=name,
        uid=view.uid,
        pending=view.pending,
        reserving=view.reserving,
        admitted=view.admitted,
        reservation=_flavors(view.reservation),
        usage=_flavors(view.usage),
        active=view.inactive is None,
        reason=reason,
        message=message,
        at=now,
        consumed=None if view.consumed is None else _consumed(view.consumed),
        consumed_at=to_datetime(view.sampled_at),
    )


def _consumed(thousandths: Mapping[str, int]) -> dict[str, str]:
    """Quantities from thousandths; fractions are dropped from a thousand units on."""
    return {
        resource: f"{amount}m"
        if amount % 1000 and amount < MILLION
        else str(min(amount // 1000, UNITS_MAX))
        for resource, amount in thousandths.items()
    }


def _flavors(used: Mapping[FlavorResource, ResourceUse]) -> list[FlavorUsage]:
    flavors: dict[str, list[ResourceUsage]] = {}
    for (flavor, resource), use in used.items():
        flavors.setdefault(flavor, []).append(
            ResourceUsage(
                name=resource,
                total=format_amount(resource, use.total),
                borrowed=format_amount(resource, use.borrowed),
            )
        )
    return [FlavorUsage(name=name, resources=rows) for name, rows in flavors.items()]
