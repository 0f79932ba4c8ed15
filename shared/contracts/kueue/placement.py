"""Where the pods of a Workload may go, and where they went."""

from typing import Annotated, Final

from pydantic import Field, StringConstraints

from shared.contracts.kueue.fields import Count, Positive
from shared.contracts.kueue.schema import ApiModel, listed, rules

Level = Annotated[str, StringConstraints(max_length=63)]
LevelLabel = Annotated[str, StringConstraints(max_length=317)]

DOMAINS_MAX: Final = 100_000
"""Domains of one slice of an assignment."""


class TopologyConstraint(ApiModel):
    """Pods of one slice that must be near to one another."""

    topology: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    """The level on which they share a domain."""

    size: Positive
    """How many pods."""


class TopologyRequestBase(ApiModel):
    """How near to one another the pods of a pod set must be."""

    required: Level | None = None
    """The level on which all must share a domain."""

    preferred: Level | None = None
    """The level on which they should, if that is possible."""

    unconstrained: bool | None = None
    """Anywhere, as long as there is room."""

    pod_index_label: LevelLabel | None = None
    """The pods' label with their index."""

    sub_group_index_label: LevelLabel | None = None
    """The pods' label with the index of their group."""

    sub_group_count: Count | None = None
    """How many groups there are."""

    pod_set_group_name: Annotated[str, StringConstraints(max_length=256)] | None = None
    """Pod sets of one name are placed together, on one flavor."""

    pod_set_slice_required_topology: Level | None = None
    """The level on which the pods of a slice must share a domain."""

    pod_set_slice_size: Positive | None = None
    """How many pods make a slice."""


class TopologyRequest(TopologyRequestBase):
    """How near to one another the pods of a pod set must be."""

    podset_slice_required_topology_constraints: (
        Annotated[list[TopologyConstraint], Field(max_length=3), listed("atomic")] | None
    ) = None
    """Slices within slices, the largest first."""


class PodCounts(ApiModel):
    """How many pods each domain gets."""

    universal: Positive | None = None
    """The same number each."""

    individual: (
        Annotated[
            list[Positive],
            Field(min_length=1, max_length=DOMAINS_MAX),
            listed("atomic"),
        ]
        | None
    ) = None
    """One number per domain."""


class LevelNames(ApiModel):
    """Values of one level, one per domain, without what all have in common."""

    prefix: Level | None = None
    """What all begin with."""

    suffix: Level | None = None
    """What all end with."""

    roots: Annotated[list[Level], Field(min_length=1, max_length=DOMAINS_MAX), listed("atomic")]
    """What is between."""


class LevelValues(ApiModel):
    """Values of one level."""

    universal: Level | None = None
    """The same value in all domains."""

    individual: LevelNames | None = None
    """One value per domain."""


class TopologySlice(ApiModel):
    """Some of the domains."""

    domain_count: Positive
    """How many."""

    pod_counts: Annotated[
        PodCounts,
        rules(
            (
                "has(self.universal) != has(self.individual)",
                "exactly one of the fields in [universal individual] must be set",
            )
        ),
    ]
    """Pods by domain."""

    values_per_level: Annotated[
        list[
            Annotated[
                LevelValues,
                rules(
                    (
                        "has(self.universal) != has(self.individual)",
                        "exactly one of the fields in [universal individual] must be set",
                    )
                ),
            ]
        ],
        Field(min_length=1, max_length=16),
        listed("atomic"),
    ]
    """Where the domains are, level by level."""


Levels = Annotated[list[LevelLabel], Field(min_length=1, max_length=16), listed("atomic")]


class _TopologyAssignment(ApiModel):
    """Which pods go where."""

    levels: Levels
    """The labels of the levels, from the largest to the smallest."""

    slices: Annotated[
        list[
            Annotated[
                TopologySlice,
                rules(
                    (
                        (
                            "!has(self.podCounts.individual) || "
                            "size(self.podCounts.individual) == self.domainCount"
                        ),
                        "podCounts.individual must have length equal to domainCount",
                    ),
                    (
                        (
                            "self.valuesPerLevel.all(v, !has(v.individual) || "
                            "size(v.individual.roots) == self.domainCount)"
                        ),
                        (
                            "valuesPerLevel.individual, if set, must have roots of length equal to "
                            "domainCount of this TopologyAssignmentSlice"
                        ),
                    ),
                ),
            ]
        ],
        Field(max_length=1000),
        listed("atomic"),
    ]
    """The domains, in a form that is small for many nodes with similar names."""


TopologyAssignment = Annotated[
    _TopologyAssignment,
    rules(
        (
            "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
            (
                "valuesPerLevel must have the same length as the number of levels in this "
                "TopologyAssignment"
            ),
        )
    ),
]
