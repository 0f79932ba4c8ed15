"""ResourceFlavor, Topology and WorkloadPriorityClass; both versions are the same."""

from typing import Annotated, Final

from pydantic import Field, StringConstraints

from shared.contracts.kueue.fields import DnsName, Int32, LabelKey, Metadata, Taint, Tolerations
from shared.contracts.kueue.schema import ApiModel, Extra, listed, rules

_HOSTNAME: Final = "'kubernetes.io/hostname'"

NodeTaints = Annotated[
    list[Taint],
    Field(max_length=8),
    listed("atomic"),
    rules(
        (
            "self.all(t, t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
            "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
        )
    ),
]


class ResourceFlavorSpec(ApiModel):
    """What the nodes have in common."""

    node_labels: (
        Annotated[dict[str, str], Field(max_length=8), Extra({"x-kubernetes-map-type": "atomic"})]
        | None
    ) = None
    """Labels of the nodes. Admitted pods get them as node selectors."""

    node_taints: NodeTaints | None = None
    """Taints of the nodes. Only workloads that tolerate them get this flavor."""

    tolerations: Tolerations | None = None
    """Tolerations that admitted pods get."""

    topology_name: DnsName | None = None
    """The Topology by which pods are placed close together; cannot be changed once set."""


class ResourceFlavor(ApiModel):
    """A kind of machine, or any other sort of resource that is counted apart from others."""

    metadata: Metadata
    spec: (
        Annotated[
            ResourceFlavorSpec,
            rules(
                (
                    (
                        "!has(self.topologyName) || "
                        "(has(self.nodeLabels) && size(self.nodeLabels) >= 1)"
                    ),
                    "at least one nodeLabel is required when topology is set",
                ),
                (
                    (
                        "!has(oldSelf.topologyName) || "
                        "(has(self.topologyName) && self.topologyName == oldSelf.topologyName)"
                    ),
                    "topologyName is immutable when topologyName is set",
                ),
            ),
        ]
        | None
    ) = None
    """What the nodes have in common; absent where a flavor is only a name."""


class TopologyLevel(ApiModel):
    """One level of how machines are grouped."""

    node_label: LabelKey
    """The label whose value names a node's group on this level."""


def _lowest(of: str) -> str:
    return f"{of}[size({of}) - 1].nodeLabel == {_HOSTNAME}"


class TopologySpec(ApiModel):
    """How machines are grouped, from the largest group to the smallest."""

    levels: Annotated[
        list[TopologyLevel],
        Field(min_length=1, max_length=16),
        listed("atomic"),
        rules(
            (
                f"self == oldSelf || ({_lowest('self')} && {_lowest('oldSelf')})",
                (
                    "levels are mutable only when kubernetes.io/hostname is the lowest level both "
                    "before and after the change"
                ),
            ),
            ("self.all(a, self.exists_one(b, b == a))", "must be unique"),
            (
                f"self.all(l, l.nodeLabel != {_HOSTNAME}) || {_lowest('self')}",
                "the kubernetes.io/hostname label can only be used at the lowest level of topology",
            ),
        ),
    ]
    """The levels, for instance block, rack, hostname."""


class Topology(ApiModel):
    """How the machines of a data centre are near to one another."""

    metadata: Metadata
    spec: TopologySpec | None = None
    """The levels."""


class WorkloadPriorityClass(ApiModel):
    """A priority in queues and preemptions that says nothing about pods."""

    metadata: Metadata
    value: Int32
    """The higher, the earlier."""

    description: Annotated[str, StringConstraints(max_length=2048)] | None = None
    """For whom it is meant."""
