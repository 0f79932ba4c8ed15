"""Compares flavors and quotas with nodes: labels that match no node, quota above the nodes' capacity."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from services.ctl.doctor.findings import Finding
from services.ctl.get.snapshot import Json, ObjectKey, Snapshot
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import labels_of, spec_of
from shared.contracts.kube.quantities import QuantityError, amount, format_amount
from shared.contracts.kube.queue_specs import quotas_of

ON_NODES: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
"""Resources that every node reports. Others, such as slots and licences, may be counted by quota alone."""


def nodes(snapshot: Snapshot) -> Iterator[Finding]:
    """Findings for each cluster whose nodes are watched."""
    for cluster in sorted({ident.cluster for ident in snapshot.of(kinds.NODE)}):
        yield from _flavors_without_nodes(snapshot, cluster)
        yield from _quota_above_nodes(snapshot, cluster)


def _nodes_of(snapshot: Snapshot, cluster: str, flavor: str) -> list[Json]:
    """The nodes on which a workload of that flavor may run."""
    spec = spec_of(snapshot.of(kinds.RESOURCE_FLAVOR).get(ObjectKey(cluster, "", flavor)))
    wanted = (spec.get("nodeLabels") or {}).items()
    return [
        node
        for ident, node in snapshot.of(kinds.NODE).items()
        if ident.cluster == cluster and wanted <= labels_of(node).items()
    ]


def _flavors_without_nodes(snapshot: Snapshot, cluster: str) -> Iterator[Finding]:
    for ident, obj in sorted(snapshot.of(kinds.RESOURCE_FLAVOR).items()):
        labels = spec_of(obj).get("nodeLabels") or {}
        if ident.cluster != cluster or not labels or _nodes_of(snapshot, cluster, ident.name):
            continue
        text = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        yield Finding(
            where=f"ResourceFlavor {ident.name}",
            problem=f"matches no node of {cluster}: none has {text}",
            advice="label nodes so, or correct nodeLabels; what is admitted on it stays unscheduled",
            # An autoscaler may add such nodes on demand.
            wrong=False,
        )


def _quota_above_nodes(snapshot: Snapshot, cluster: str) -> Iterator[Finding]:
    promised: Counter[tuple[str, str]] = Counter()
    for kind in (kinds.CLUSTER_QUEUE, kinds.COHORT):
        for ident, obj in snapshot.of(kind).items():
            if ident.cluster == cluster:
                promised.update(_nominal(obj))
    for (flavor, resource), nominal in sorted(promised.items()):
        if resource not in ON_NODES:
            continue
        there = sum(_allocatable(node, resource) for node in _nodes_of(snapshot, cluster, flavor))
        if nominal > there:
            wanted, found = format_amount(resource, nominal), format_amount(resource, there)
            yield Finding(
                where=f"ResourceFlavor {flavor}",
                problem=f"queues have {wanted} {resource} in all, its nodes in {cluster} {found}",
                advice="lower nominalQuota, or add nodes; what is admitted above stays unscheduled",
                wrong=False,
            )


def _nominal(obj: Json) -> dict[tuple[str, str], int]:
    return {
        place: _amount(place[1], quota.get("nominalQuota"))
        for place, quota in quotas_of(spec_of(obj))
    }


def _allocatable(node: Json, resource: str) -> int:
    return _amount(resource, ((node.get("status") or {}).get("allocatable") or {}).get(resource))


def _amount(resource: str, text: object) -> int:
    """The amount; 0 for a missing or malformed one."""
    try:
        return amount(resource, str(text)) if text is not None else 0
    except QuantityError:
        return 0
