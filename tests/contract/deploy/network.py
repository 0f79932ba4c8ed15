"""What network policies allow, worked out as the API's documentation says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, Final

from tests.contract.deploy.rendering import Json, Pod

__all__ = ["NAMESPACES", "Outside", "allows", "matches"]

NAME: Final = "kubernetes.io/metadata.name"
NAMESPACES: Final[dict[str, Json]] = {
    name: {NAME: name, **labels}
    for name, labels in {
        "sluicegate": {},
        "kube-system": {},
        "monitoring": {"metrics": "enabled"},
        "observability": {},
        "team-a": {},
    }.items()
}


@dataclass(frozen=True, slots=True)
class Outside:
    """An address that is no pod's: of a node, or beyond the cluster."""

    name: str
    ports: Mapping[str, int] = field(default_factory=dict)
    address: str = ""


def allows(
    policies: Iterable[Json], source: Pod | Outside, target: Pod | Outside, port: int, protocol: str
) -> bool:
    """Whether a connection may be made: the source's pod may let it out, and the target's lets it in."""
    all_of_them = list(policies)
    return _permits(all_of_them, "Egress", source, target, target, port, protocol) and _permits(
        all_of_them, "Ingress", target, source, target, port, protocol
    )


def _permits(
    policies: list[Json],
    direction: str,
    pod: Pod | Outside,
    peer: Pod | Outside,
    target: Pod | Outside,
    port: int,
    protocol: str,
) -> bool:
    if isinstance(pod, Outside):
        return True
    mine = [
        policy["spec"]
        for policy in policies
        if policy["metadata"]["namespace"] == pod.namespace
        and direction in policy["spec"]["policyTypes"]
        and matches(policy["spec"]["podSelector"], pod.labels)
    ]
    side = "to" if direction == "Egress" else "from"
    rules = [rule for spec in mine for rule in spec.get(direction.lower()) or ()]
    return not mine or any(
        _is_peer(rule.get(side), peer, pod.namespace)
        and _is_port(rule.get("ports"), target, port, protocol)
        for rule in rules
    )


def _is_peer(selectors: list[Json] | None, peer: Pod | Outside, namespace: str) -> bool:
    if not selectors:
        return True
    if isinstance(peer, Outside):
        blocks = [ip_network(one["ipBlock"]["cidr"]) for one in selectors if "ipBlock" in one]
        return bool(peer.address) and any(ip_address(peer.address) in each for each in blocks)
    return any(
        "ipBlock" not in one
        and matches(one.get("podSelector", {}), peer.labels)
        and (
            matches(one["namespaceSelector"], NAMESPACES[peer.namespace])
            if "namespaceSelector" in one
            else peer.namespace == namespace
        )
        for one in selectors
    )


def _is_port(ports: list[Json] | None, target: Pod | Outside, port: int, protocol: str) -> bool:
    return not ports or any(
        one.get("protocol", "TCP") == protocol
        and (target.ports.get(one["port"]) if isinstance(one["port"], str) else one["port"]) == port
        for one in ports
    )


def matches(selector: Json, labels: Mapping[str, Any]) -> bool:
    """Whether a label selector takes what has these labels."""
    said: dict[str, Any] = {
        "In": lambda key, values: labels.get(key) in values,
        "NotIn": lambda key, values: labels.get(key) not in values,
        "Exists": lambda key, _values: key in labels,
        "DoesNotExist": lambda key, _values: key not in labels,
    }
    return all(
        labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()
    ) and all(
        said[one["operator"]](one["key"], one.get("values"))
        for one in selector.get("matchExpressions", ())
    )
