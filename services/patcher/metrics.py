"""What the patcher measures, under the names that dashboards made for Kueue ask for."""

from datetime import datetime
from typing import Final

from prometheus_client import Histogram

from shared.contracts.kube.kinds import Object

__all__ = ["CREATION", "told_creation"]

CREATION: Final = Histogram(
    "kueue_workload_creation_latency_seconds",
    "From the creation of a job to that of its Workload.",
    ["job_kind", "replica_role"],
    buckets=[0.01 * 2**n for n in range(11)],
)
_LEADER: Final = "leader"
_FIRST: Final = 1


def told_creation(kind: str, job: Object, now: datetime) -> None:
    """Measure the Workload that was made just now. A job that was changed since says nothing of it."""
    metadata = job["metadata"]
    created = metadata.get("creationTimestamp")
    if created and metadata.get("generation", _FIRST) == _FIRST:
        # The API server's clock, in whole seconds, against ours.
        waited = (now - datetime.fromisoformat(created)).total_seconds()
        CREATION.labels(kind, _LEADER).observe(max(0.0, waited))
