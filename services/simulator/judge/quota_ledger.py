"""Quota of queues as the streams record it, for judges. Shares no code with the quota engine.

The arithmetic is Kueue's (kubernetes-sigs/kueue pkg/cache/scheduler/resource_node.go): a node keeps
the quota that it does not lend, and borrows more from its cohort up to its borrowing limit.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.contracts.kube import kinds
from shared.contracts.kube.quantities import parse_quantity
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState

Cell = tuple[str, str]
"""Flavor and resource."""

PODS = "pods"


@dataclass(slots=True, kw_only=True)
class _Node:
    """A ClusterQueue or a Cohort."""

    name: str
    parent: str = ""
    nominal: dict[Cell, int] = field(default_factory=dict)
    lending: dict[Cell, int] = field(default_factory=dict)
    borrowing: dict[Cell, int] = field(default_factory=dict)
    groups: list[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    """Resources and flavors of each resource group."""

    usage: dict[Cell, int] = field(default_factory=dict)
    """Usage of a queue; a cohort's is the sum over its children."""

    open: bool = True
    """True if the queue is not stopped and open to all namespaces."""


class QuotaLedger:
    """The queues of one cluster and the quota that workloads hold in them."""

    def __init__(self) -> None:
        self._queues: dict[str, _Node] = {}
        self._cohorts: dict[str, _Node] = {}
        self._local: dict[tuple[str, str], str] = {}
        self._plain: set[str] = set()
        """Flavors without labels and taints: every pod fits."""

        self.held: dict[str, Admission] = {}
        """uid to the admission by which a workload holds quota."""

        self._done: dict[str, dict[str, int]] = {}
        """uid to the number of finished pods of each pod set."""

        self._back: dict[str, dict[str, dict[str, str]]] = {}
        """uid to the quota that each pod set released before its pods finished."""

    # What is observed

    def observe(self, observed: Observed) -> None:
        """Ingest the state of a queue, a cohort or a flavor; ignore other kinds."""
        spec = (observed.object or {}).get("spec") or {}
        detail = f"{observed.plural}_{observed.group.replace('.', '_')}"
        if detail == kinds.LOCAL_QUEUE.detail:
            key = (observed.namespace or "", observed.name)
            self._local.pop(key, None)
            if not observed.deleted and spec.get("stopPolicy", "None") == "None":
                self._local[key] = str(spec.get("clusterQueue", ""))
        elif detail == kinds.CLUSTER_QUEUE.detail:
            self._keep(self._queues, observed, spec)
        elif detail == kinds.COHORT.detail:
            self._keep(self._cohorts, observed, spec)
        elif detail == kinds.RESOURCE_FLAVOR.detail:
            self._plain.discard(observed.name)
            if not observed.deleted and not spec.get("nodeLabels") and not spec.get("nodeTaints"):
                self._plain.add(observed.name)

    def _keep(self, nodes: dict[str, _Node], observed: Observed, spec: dict[str, Any]) -> None:
        before = nodes.pop(observed.name, None)
        usage = before.usage if before is not None else {}
        if not observed.deleted:
            nodes[observed.name] = _node(observed.name, spec, usage)

    # Who holds what

    def reclaim(self, state: WorkloadState) -> None:
        """Release the quota of finished pods and of machines that are gone."""
        done = {one.name: one.reclaimable for one in state.pod_sets if one.reclaimable}
        back = {one.name: one.returned for one in state.pod_sets if one.returned}
        if (done, back) == (self._done.get(state.uid, {}), self._back.get(state.uid, {})):
            return
        holder = self.held.get(state.uid)
        if holder is not None:
            self._add(holder, -1)
        self._done[state.uid], self._back[state.uid] = done, back
        if holder is not None:
            self._add(holder, 1)

    def usage(self, admission: Admission) -> dict[Cell, int]:
        """Return the amount held of each flavor and resource, in billionths."""
        done, back = self._done.get(admission.uid, {}), self._back.get(admission.uid, {})
        usage: dict[Cell, int] = {}
        for pod_set in admission.pod_sets:
            left = max(0, pod_set.count - done.get(pod_set.name, 0))
            returned = back.get(pod_set.name, {})
            for resource, quantity in pod_set.usage.items():
                cell = (pod_set.flavors.get(resource, ""), resource)
                share = parse_quantity(quantity) * left // max(1, pod_set.count)
                share = max(0, share - parse_quantity(returned.get(resource, "0")))
                usage[cell] = usage.get(cell, 0) + share
        return usage

    def record(self, admission: Admission) -> None:
        """Ingest one decision."""
        before = self.held.pop(admission.uid, None)
        if before is not None:
            self._add(before, -1)
        if admission.state in HOLDING:
            self.held[admission.uid] = admission
            self._add(admission, 1)

    def increase(self, admission: Admission) -> dict[Cell, int]:
        """Return what `admission` holds in addition to what its workload already holds."""
        now = self.usage(admission) if admission.state in HOLDING else {}
        before = self.held.get(admission.uid)
        if before is not None and before.cluster_queue == admission.cluster_queue:
            for cell, amount in self.usage(before).items():
                now[cell] = now.get(cell, 0) - amount
        return {cell: amount for cell, amount in now.items() if amount > 0}

    def _add(self, admission: Admission, sign: int) -> None:
        queue = self._queues.setdefault(
            admission.cluster_queue, _Node(name=admission.cluster_queue)
        )
        for cell, amount in self.usage(admission).items():
            queue.usage[cell] = queue.usage.get(cell, 0) + sign * amount

    # What is free

    def queue_of(self, namespace: str, local_queue: str) -> str | None:
        """Return the ClusterQueue of a LocalQueue; None if there is none or it is stopped."""
        name = self._local.get((namespace, local_queue))
        queue = self._queues.get(name) if name is not None else None
        return name if queue is not None and queue.open else None

    def available(self, queue: str, cell: Cell) -> int:
        """Return what `queue` can still use of a flavor's resource, borrowing included."""
        node = self._queues.get(queue)
        return 0 if node is None else self._available(node, cell, frozenset())

    def fits(self, state: WorkloadState) -> bool:
        """True if `state` certainly fits into the free quota; False in doubt."""
        queue = self.queue_of(state.namespace, state.queue)
        if queue is None or any(one.node_selector or one.node_affinity for one in state.pod_sets):
            return False
        wanted: dict[str, int] = {PODS: 0}
        for pod_set in state.pod_sets:
            wanted[PODS] += pod_set.count * parse_quantity("1")
            for resource, quantity in pod_set.requests.items():
                amount = pod_set.count * parse_quantity(quantity)
                wanted[resource] = wanted.get(resource, 0) + amount
        covered = {
            resource for resources, _ in self._queues[queue].groups for resource in resources
        }
        if any(amount and resource not in covered | {PODS} for resource, amount in wanted.items()):
            return False
        return all(
            any(self._group_fits(queue, flavor, resources, wanted) for flavor in flavors)
            for resources, flavors in self._queues[queue].groups
        )

    def _group_fits(
        self, queue: str, flavor: str, resources: tuple[str, ...], wanted: Mapping[str, int]
    ) -> bool:
        return flavor in self._plain and all(
            wanted.get(resource, 0) <= self.available(queue, (flavor, resource))
            for resource in resources
            if wanted.get(resource, 0)
        )

    def _available(self, node: _Node, cell: Cell, seen: frozenset[str]) -> int:
        parent = self._parent(node, seen)
        usage, subtree = self._usage(node, cell), self._subtree(node, cell)
        if parent is None:
            return subtree - usage
        own = self._own(node, cell)
        above = self._available(parent, cell, seen | {parent.name})
        if cell in node.borrowing:
            above = min(above, subtree - own + node.borrowing[cell] - max(0, usage - own))
        return max(0, own - usage) + above

    def _parent(self, node: _Node, seen: frozenset[str]) -> _Node | None:
        if not node.parent or node.parent in seen:
            return None
        # A cohort exists as soon as a queue names it.
        return self._cohorts.setdefault(node.parent, _Node(name=node.parent))

    def _children(self, cohort: _Node) -> Iterator[_Node]:
        for nodes in (self._queues, self._cohorts):
            yield from (node for node in nodes.values() if node.parent == cohort.name)

    def _is_cohort(self, node: _Node) -> bool:
        return self._cohorts.get(node.name) is node

    def _subtree(self, node: _Node, cell: Cell) -> int:
        total = node.nominal.get(cell, 0)
        if self._is_cohort(node):
            total += sum(
                self._subtree(child, cell) - self._own(child, cell)
                for child in self._children(node)
            )
        return total

    def _own(self, node: _Node, cell: Cell) -> int:
        """Return the quota that `node` never lends."""
        lending = node.lending.get(cell)
        return 0 if lending is None else max(0, self._subtree(node, cell) - lending)

    def _usage(self, node: _Node, cell: Cell) -> int:
        if not self._is_cohort(node):
            return node.usage.get(cell, 0)
        return sum(
            max(0, self._usage(child, cell) - self._own(child, cell))
            for child in self._children(node)
        )


def _node(name: str, spec: dict[str, Any], usage: dict[Cell, int]) -> _Node:
    node = _Node(
        name=name,
        parent=str(spec.get("cohortName") or spec.get("cohort") or spec.get("parentName") or ""),
        usage=usage,
        open=spec.get("stopPolicy", "None") == "None" and spec.get("namespaceSelector") == {},
    )
    for group in spec.get("resourceGroups") or []:
        flavors: list[dict[str, Any]] = group.get("flavors") or []
        node.groups.append(
            (tuple(group.get("coveredResources") or ()), tuple(one["name"] for one in flavors))
        )
        for flavor in flavors:
            for resource in flavor.get("resources") or []:
                cell = (flavor["name"], resource["name"])
                node.nominal[cell] = parse_quantity(str(resource.get("nominalQuota", "0")))
                if resource.get("lendingLimit") is not None:
                    node.lending[cell] = parse_quantity(str(resource["lendingLimit"]))
                if resource.get("borrowingLimit") is not None:
                    node.borrowing[cell] = parse_quantity(str(resource["borrowingLimit"]))
    return node
