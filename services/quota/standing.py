"""How the queues stand, as their status tells it: the engine's views in the words of the wire."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, Literal

from services.quota.engine import QuotaEngine
from services.quota.engine.tree import FlavorResource
from services.quota.engine.views import QueueView, Used
from services.quota.messages import instant
from shared.contracts.quantities import format_amount
from shared.contracts.queues import FlavorUsage, QueueStatus, ResourceUsage

__all__ = ["standing"]

MILLION: Final = 1_000_000

READY = {
    "ClusterQueue": "Can admit new workloads",
    "LocalQueue": "Can submit new workloads to localQueue",
}


def standing(engine: QuotaEngine, cluster: str, now: datetime) -> Iterator[QueueStatus]:
    """The status of every queue of one cluster. Costs grow with queues and holders, not with waiters."""
    cluster_queues, local_queues = engine.snapshot(cluster)
    for view in cluster_queues:
        yield _status(view, "ClusterQueue", cluster, now, namespace=None, name=view.name)
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
        consumed_at=instant(view.sampled_at),
    )


def _consumed(thousandths: Mapping[str, int]) -> dict[str, str]:
    """Quantities; of what is counted by the thousand, nobody needs the fractions."""
    return {
        resource: f"{amount}m" if amount % 1000 and amount < MILLION else str(amount // 1000)
        for resource, amount in thousandths.items()
    }


def _flavors(used: Mapping[FlavorResource, Used]) -> list[FlavorUsage]:
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
