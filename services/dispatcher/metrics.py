"""Prometheus metrics of the dispatcher. The names are Kueue's where Kueue has such a metric."""

from typing import Final

from prometheus_client import Counter, Gauge

from shared.telemetry.metrics import ROLE

_LABELS: Final = ("cluster_queue", "cluster", ROLE)

DISPATCHED = Counter(
    "multikueue_workloads_dispatched", "Copies ordered from a worker cluster.", _LABELS
)
ADMITTED = Counter(
    "multikueue_workloads_admitted", "Workloads that won a place on a worker cluster.", _LABELS
)
CONNECTED = Gauge("multikueue_cluster_connected", "1 while a worker cluster is heard.", ["cluster"])
WORKLOADS = Gauge(
    "multikueue_workloads", "Workloads by worker cluster and order.", ["cluster", "order"]
)
LATENCY = Gauge(
    "multikueue_cluster_latency_seconds", "From an offer to its copy, lately.", ["cluster"]
)
FAILURES = Gauge(
    "multikueue_cluster_failures", "Offers that came to nothing there, lately.", ["cluster"]
)
