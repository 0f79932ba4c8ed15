"""The ledger of quota for judges: it also knows which waiting workload would certainly fit."""

from collections.abc import Mapping
from typing import Final

from services.quota.audit.ledger import QuotaLedger
from shared.contracts.kube import kinds
from shared.contracts.kube.quantities import amount
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState

PODS: Final = "pods"


class JudgedQueues(QuotaLedger):
    """The queues of one cluster, with their LocalQueues and flavors."""

    def __init__(self) -> None:
        super().__init__()
        self._local: dict[tuple[str, str], str] = {}
        self._plain: set[str] = set()
        """Flavors without labels and taints: every pod fits."""

    def observe(self, observed: Observed) -> bool:
        """Ingest the state of a queue, a cohort or a flavor; ignore other kinds."""
        spec = (observed.object or {}).get("spec") or {}
        kind = (observed.group, observed.plural)
        if kind == (kinds.LOCAL_QUEUE.group, kinds.LOCAL_QUEUE.plural):
            key = (observed.namespace or "", observed.name)
            self._local.pop(key, None)
            if not observed.deleted and spec.get("stopPolicy", "None") == "None":
                self._local[key] = str(spec.get("clusterQueue", ""))
        elif kind == (kinds.RESOURCE_FLAVOR.group, kinds.RESOURCE_FLAVOR.plural):
            self._plain.discard(observed.name)
            if not observed.deleted and not spec.get("nodeLabels") and not spec.get("nodeTaints"):
                self._plain.add(observed.name)
        return super().observe(observed)

    def queue_of(self, namespace: str, local_queue: str) -> str | None:
        """Return the ClusterQueue of a LocalQueue; None if there is none or it is stopped."""
        name = self._local.get((namespace, local_queue))
        queue = self.queues.get(name) if name is not None else None
        return name if queue is not None and queue.is_open else None

    def fits(self, state: WorkloadState) -> bool:
        """True if `state` certainly fits into the free quota; False in doubt."""
        queue = self.queue_of(state.namespace, state.queue)
        if queue is None or any(one.node_selector or one.node_affinity for one in state.pod_sets):
            return False
        wanted: dict[str, int] = {PODS: 0}
        for pod_set in state.pod_sets:
            wanted[PODS] += pod_set.count
            for resource, quantity in pod_set.requests.items():
                asked = pod_set.count * amount(resource, quantity)
                wanted[resource] = wanted.get(resource, 0) + asked
        groups = self.queues[queue].groups
        covered = {resource for resources, _ in groups for resource in resources}
        if any(asked and resource not in covered | {PODS} for resource, asked in wanted.items()):
            return False
        return all(
            any(self._group_fits(queue, flavor, resources, wanted) for flavor in flavors)
            for resources, flavors in groups
        )

    def _group_fits(
        self, queue: str, flavor: str, resources: tuple[str, ...], wanted: Mapping[str, int]
    ) -> bool:
        return flavor in self._plain and all(
            wanted.get(resource, 0) <= self.available(queue, (flavor, resource))
            for resource in resources
            if wanted.get(resource, 0)
        )
