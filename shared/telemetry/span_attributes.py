"""Names of span attributes that several services set: dashboards and searches for traces go by them."""

from typing import Final

CLUSTER: Final = "k8s.cluster.name"
NAMESPACE: Final = "k8s.namespace.name"
"""OpenTelemetry's names."""

WORKLOAD: Final = "sluicegate.workload"
TERM: Final = "sluicegate.term"
"""The term of the leader whose decision it was."""
