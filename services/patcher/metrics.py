"""Metrics of the patcher, under the names that dashboards for Kueue use."""

from datetime import datetime
from typing import Final

from prometheus_client import Counter, Histogram

from shared.contracts.kube.bodies import Body
from shared.telemetry.metrics import LEADER, ROLE

CREATION: Final = Histogram(
    "kueue_workload_creation_latency_seconds",
    "From the creation of a job to that of its Workload.",
    ["job_kind", ROLE],
    buckets=[0.01 * 2**n for n in range(11)],
)
PROVISIONING_REQUESTS: Final = Counter(
    "sluicegate_provisioning_requests",
    "Requests to the cluster autoscaler that were created, or that the API server refused.",
    ["result"],
)
UNDONE: Final = Counter(
    "sluicegate_undone_changes",
    "Times that a job was released or held again because somebody had undone it, beyond the first few.",
    ["done"],
)
_FIRST_GENERATION: Final = 1


def observe_creation_latency(kind: str, job: Body, now: datetime) -> None:
    """Observe the latency of a Workload created just now.

    A job that was changed since its creation is left out: its Workload may be a later one.
    """
    metadata = job["metadata"]
    created = metadata.get("creationTimestamp")
    if created and metadata.get("generation", _FIRST_GENERATION) == _FIRST_GENERATION:
        # The API server's clock in whole seconds against ours: may be below 0.
        seconds = (now - datetime.fromisoformat(created)).total_seconds()
        CREATION.labels(kind, LEADER).observe(max(0.0, seconds))
