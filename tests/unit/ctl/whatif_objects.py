"""Queues and jobs for the tests of `sluice simulate` and `sluice plan`."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

NOW = datetime(2026, 1, 5, tzinfo=UTC)
Sluice = Callable[..., tuple[int, str, str]]

GUESSED = "No workload has ended that is known"
"""Begins the warning of a command that does not know how long work takes."""


def cluster_queue(cpu: int, **spec: Any) -> dict[str, Any]:
    resources = [{"name": "cpu", "nominalQuota": cpu}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec},
    }


def job(name: str, cpu: int, priority: str = "") -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    if priority:
        labels["kueue.x-k8s.io/priority-class"] = priority
    container = {"name": "a", "image": "x", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


CONFIGURATION_KINDS = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "f"},
    },
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "q", "namespace": "team"},
        "spec": {"clusterQueue": "cq"},
    },
]
