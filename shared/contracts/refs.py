"""References to objects: which cluster, which namespace, which name.

They are named tuples, so they compare and hash like the bare tuples that they replace.
"""

from typing import NamedTuple


class NamespacedName(NamedTuple):
    """What a user calls a namespaced object, where the cluster is not said."""

    namespace: str
    name: str

    @property
    def path(self) -> str:
        """``<namespace>/<name>``, as `kubectl` and log lines show it."""
        return f"{self.namespace}/{self.name}"


class WorkloadRef(NamedTuple):
    """A Workload object of one cluster."""

    cluster: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """``<namespace>/<name>``, as `kubectl` and log lines show it."""
        return f"{self.namespace}/{self.name}"

    def on(self, cluster: str) -> "WorkloadRef":
        """The Workload of the same namespace and name in another cluster, as a copy has them."""
        return WorkloadRef(cluster, self.namespace, self.name)


class ObjectRef(NamedTuple):
    """A Kubernetes object of one cluster."""

    cluster: str
    kind: str
    """`kind` of its manifest, for instance ``PipelineRun``."""

    namespace: str | None
    """None for cluster-scoped kinds."""

    name: str


class QueueRef(NamedTuple):
    """A ClusterQueue or a LocalQueue of one cluster."""

    cluster: str
    namespace: str
    """Empty for a ClusterQueue."""

    name: str
