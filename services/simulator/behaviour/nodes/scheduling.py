"""The nodes on which a pod may run: selectors, taints, affinity between pods, volumes.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
Resources are not counted: that is the queue's task.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.selectors import label_object_selector
from shared.contracts.kube.names import (
    HOSTNAME,
    PREFERRED_WHILE_SCHEDULING,
    REQUIRED_WHILE_SCHEDULING,
)

__all__ = [
    "ENDED",
    "HOSTNAME",
    "claims_of",
    "feasible",
    "has_anti_affinity",
    "preferred",
    "unschedulable_message",
]

ENDED: Final = ("Succeeded", "Failed")

NodeOfClaim = Callable[[str, str], str | None]
"""Namespace and name of a claim to the only node with its volume; None: any node."""


def claims_of(pod: Obj) -> list[str]:
    """Return the names of the claims that a pod mounts."""
    volumes = pod["spec"].get("volumes") or ()
    found = (volume.get("persistentVolumeClaim") or {} for volume in volumes)
    return [str(claim["claimName"]) for claim in found if claim.get("claimName")]


def has_anti_affinity(pod: Obj) -> bool:
    """True if the pod has required anti-affinity."""
    return bool(_terms(pod, "podAntiAffinity"))


def feasible(
    pod: Obj, nodes: Sequence[Obj], placed: Sequence[Obj], node_of_claim: NodeOfClaim
) -> list[Obj]:
    """Return the nodes on which the pod may run. `placed` are running pods, which have a node."""
    by_name = {node["metadata"]["name"]: node for node in nodes}
    around = [(other, by_name[other["spec"]["nodeName"]]) for other in placed
              if other["spec"].get("nodeName") in by_name]  # fmt: skip
    namespace = pod["metadata"].get("namespace", "")
    bound = {node_of_claim(namespace, claim) for claim in claims_of(pod)} - {None}
    return [
        node
        for node in nodes
        if _admits(node, pod["spec"])
        and bound <= {node["metadata"]["name"]}
        and _satisfies_affinity(pod, node, around)
        and _satisfies_anti_affinity(pod, node, around)
    ]


def preferred(pod: Obj, nodes: Sequence[Obj], placed: Sequence[Obj]) -> list[Obj]:
    """Return the nodes that match the pod's preferences best, in the same order."""
    affinity = pod["spec"].get("affinity") or {}
    preferences = (affinity.get("podAntiAffinity") or {}).get(PREFERRED_WHILE_SCHEDULING) or ()
    if not preferences:
        return list(nodes)
    by_name = {node["metadata"]["name"]: node for node in nodes}
    around = [(other, by_name[other["spec"]["nodeName"]]) for other in placed
              if other["spec"].get("nodeName") in by_name]  # fmt: skip
    costs = {
        name: sum(
            int(preference.get("weight", 1))
            for preference in preferences
            if any(_in_same_domain(preference["podAffinityTerm"], pod, other, node, where)
                   for other, where in around)
        )
        for name, node in by_name.items()
    }  # fmt: skip
    least = min(costs.values(), default=0)
    return [node for node in nodes if costs[node["metadata"]["name"]] == least]


def unschedulable_message(nodes: int) -> str:
    """Return the scheduler's message for a pod that fits on no node."""
    return (
        f"0/{nodes} nodes are available: none matches the pod's node selector, tolerations, "
        "affinity and volumes."
    )


# --- the node by itself ------------------------------------------------------------------------


def _admits(node: Obj, pod_spec: Obj) -> bool:
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return False
    labels = node["metadata"].get("labels") or {}
    wanted = pod_spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    if not _node_affinity(node, pod_spec):
        return False
    tolerations = pod_spec.get("tolerations") or []
    taints = [t for t in spec.get("taints") or () if t.get("effect") != "PreferNoSchedule"]
    return all(_tolerated(taint, tolerations) for taint in taints)


def _node_affinity(node: Obj, pod_spec: Obj) -> bool:
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(REQUIRED_WHILE_SCHEDULING) or {}).get("nodeSelectorTerms")
    if not terms:
        return True
    return any(
        label_object_selector({"matchExpressions": term.get("matchExpressions") or ()})(node)
        for term in terms
    )


def _tolerated(taint: Obj, tolerations: Iterable[Obj]) -> bool:
    for toleration in tolerations:
        if toleration.get("effect") not in {None, "", taint.get("effect")}:
            continue
        if toleration.get("operator") == "Exists":
            if toleration.get("key") in {None, "", taint["key"]}:
                return True
        elif toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get(
            "value", ""
        ):
            return True
    return False


# --- pods among each other ---------------------------------------------------------------------

_Placed = Sequence[tuple[Obj, Obj]]
"""Pods, each with its node."""


def _terms(pod: Obj, which: str) -> list[Any]:
    affinity = (pod["spec"].get("affinity") or {}).get(which) or {}
    return list(affinity.get(REQUIRED_WHILE_SCHEDULING) or ())


def _satisfies_affinity(pod: Obj, node: Obj, around: _Placed) -> bool:
    for term in _terms(pod, "podAffinity"):
        if any(_in_same_domain(term, pod, other, node, where) for other, where in around):
            continue
        # The first pod of a group with affinity to itself may run anywhere.
        nobody = not any(_term_selects(term, pod, other) for other, _ in around)
        if not (nobody and _term_selects(term, pod, pod)):
            return False
    return True


def _satisfies_anti_affinity(pod: Obj, node: Obj, around: _Placed) -> bool:
    """Check the anti-affinity of this pod and that of the others: it works in both directions."""
    mine = _terms(pod, "podAntiAffinity")
    if any(
        _in_same_domain(term, pod, other, node, where) for term in mine for other, where in around
    ):
        return False
    return not any(
        _in_same_domain(term, other, pod, where, node)
        for other, where in around
        for term in _terms(other, "podAntiAffinity")
    )


def _in_same_domain(term: Obj, owner: Obj, other: Obj, node: Obj, where: Obj) -> bool:
    """True if `owner`'s term selects `other` and both nodes are in one topology domain."""
    if not _term_selects(term, owner, other):
        return False
    key = str(term.get("topologyKey", HOSTNAME))
    left, right = (_label(one, key) for one in (node, where))
    return left is not None and left == right


def _label(node: Obj, key: str) -> str | None:
    label: str | None = (node["metadata"].get("labels") or {}).get(key)
    return label


def _term_selects(term: Obj, owner: Obj, other: Obj) -> bool:
    namespace = other["metadata"].get("namespace", "")
    if {namespace, "*"}.isdisjoint(_namespaces(term, owner)):
        return False
    selector = term.get("labelSelector")
    # Unlike other selectors, a term without a selector selects no pod.
    return selector is not None and label_object_selector(selector)(other)


def _namespaces(term: Obj, owner: Obj) -> Iterator[str]:
    """The namespaces of a term: by default its owner's; ``*`` means all."""
    yield from term.get("namespaces") or ()
    selector = term.get("namespaceSelector")
    if selector is None:
        if not term.get("namespaces"):
            yield owner["metadata"].get("namespace", "")
    elif not selector:
        yield "*"
