"""What equal workloads share: what they ask, what they get, and why they wait."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from services.quota.engine.facts import AssignedPodSet, PodSet, WorkloadChanged
from services.quota.engine.model.amounts import resource_order
from services.quota.engine.reasons import DEACTIVATED, MISCONFIGURED, ON_HOLD, SUSPENDED

PODS: Final = "pods"
"""The resource that counts pods. Workloads do not request it; queues that cover it count by themselves."""

FlavorResource: TypeAlias = tuple[str, str]
"""(flavor, resource)."""

IndexedUsage: TypeAlias = tuple[tuple[int, int], ...]
"""(index of the flavor and resource in the tree, amount)."""


BLOCKED: Final = frozenset({"AdmissionGated", DEACTIVATED, MISCONFIGURED, ON_HOLD, SUSPENDED})
"""Reasons of workloads that may not be evaluated. They are void as soon as the workload is queued."""


class Describes(Protocol):
    """Something that can say what stands in the way, as a flavor assignment does."""

    def message(self) -> str:
        """What stands in the way, in Kueue's words."""


@dataclass(slots=True, eq=False)
class WaitReason:
    """Why a workload was not admitted. Its text is composed only when it is published."""

    reason: str
    """Token of the condition `QuotaReserved=False`."""

    message: str
    """Empty: `assignment` composes the message."""

    assignment: Describes | None = None

    @property
    def publication_key(self) -> str:
        """Equal keys are published once: a change of numbers alone is not worth a message."""
        return self.reason if self.assignment is not None else f"{self.reason}: {self.message}"

    def full_message(self) -> str:
        """The complete text."""
        if self.assignment is None:
            return self.message
        return self.message or self.assignment.message()


@dataclass(slots=True, eq=False)
class Shape:
    """What equal workloads have in common: the same requests under the same constraints."""

    number: int
    """Unique in its cluster."""

    fact: WorkloadChanged
    """The first workload of this shape."""

    priority: int = field(init=False)
    pod_sets: tuple[PodSet, ...] = field(init=False)
    partial: bool = field(init=False)
    """Some pod set accepts fewer pods (partial admission)."""

    totals: tuple[tuple[int, tuple[tuple[str, int], ...]], ...] = field(init=False)
    """Per pod set: pods that still need quota, and the requests of one of them in scan order."""

    def __post_init__(self) -> None:
        """Derive everything from the workload."""
        self.priority = self.fact.priority
        self.pod_sets = self.fact.pod_sets
        self.partial = any(
            ps.min_count is not None and ps.min_count < ps.count for ps in self.pod_sets
        )
        self.totals = tuple(
            (
                max(0, ps.count - max(0, ps.reclaimable)),
                tuple((r, max(0, ps.requests[r])) for r in sorted(ps.requests, key=resource_order)),
            )
            for ps in self.pod_sets
        )


def identity_of(fact: WorkloadChanged) -> Hashable:
    """Equal for workloads that every queue treats alike.

    Inadmissible workloads get an identity of their own, so that they learn their own reason.
    """
    pod_sets = tuple(_pod_set_identity(ps) for ps in fact.pod_sets)
    return (fact.priority, fact.inadmissible is not None, pod_sets)


def _pod_set_identity(ps: PodSet) -> Hashable:
    return (
        ps.name,
        ps.count,
        ps.min_count,
        ps.reclaimable,
        tuple(sorted(ps.requests.items()) if len(ps.requests) > 1 else ps.requests.items()),
        tuple(sorted(ps.node_selector.items())) if ps.node_selector else (),
        ps.affinity,
        ps.tolerations,
        ps.template,
    )


@dataclass(slots=True, eq=False)
class Grant:
    """What a workload gets, in every form in which it is needed.

    Equal workloads share one grant: never change it.
    """

    assigned: tuple[AssignedPodSet, ...]
    usage: dict[FlavorResource, int]
    indexed_usage: IndexedUsage


@dataclass(slots=True, eq=False)
class FlavorScan:
    """How far the flavors were tried, per pod set and resource; the next search goes on from there.

    Source: `LastAssignment` in kubernetes-sigs/kueue pkg/workload/workload.go (AssignmentClusterQueueState).
    """

    tried: list[dict[str, int]]
    """Per pod set, resource to the index of the flavor tried last; -1: all were tried."""

    generation: int
    """`ClusterQueue.generation` when the scan was made."""

    cycle_number: int
    shape: Shape

    @property
    def has_untried_flavors(self) -> bool:
        """Whether flavors are left to try."""
        return any(i != -1 for resources in self.tried for i in resources.values())
