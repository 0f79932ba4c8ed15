"""Flavor plans: everything about a workload's flavors that does not depend on usage.

A plan says which flavors of which groups a pod set may use, in which order, and how much it requests
of each. It is computed once for each shape in each queue.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.quota.engine.facts import FlavorChanged, PodSet
from services.quota.engine.model.amounts import resource_order
from services.quota.engine.model.matching import flavor_mismatch
from services.quota.engine.model.shapes import PODS, Grant, Shape
from services.quota.engine.model.state import ClusterQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorPlan:
    """One flavor for one pod set."""

    name: str
    mismatch: str | None
    """Why the pod set can never use it; None: it can."""

    requests: tuple[tuple[str, int, int], ...]
    """(resource, index, amount)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """One resource group for one pod set."""

    resource: str
    """The resource that led to the group; flavor scans are recorded under each of them."""

    flavors: tuple[FlavorPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetPlan:
    """One pod set."""

    name: str
    count: int
    groups: tuple[GroupPlan, ...]
    missing: str | None
    """A resource that the queue does not offer; later groups are not tried."""

    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One shape in one queue, with full or reduced counts."""

    pod_sets: tuple[PodSetPlan, ...]
    grants: dict[tuple[str, ...], Grant] = field(default_factory=dict)
    """Grants by the flavors chosen."""

    first_flavor_fits: list[object] = field(default_factory=list)
    """The assignment for the case that the first flavor fits; at most one."""


def plan_for(
    cq: ClusterQueue,
    shape: Shape,
    flavors: Mapping[str, FlavorChanged],
    counts: tuple[int, ...] | None = None,
    *,
    ignore_undeclared: bool = False,
) -> Plan:
    """The plan of `shape` in `cq`; `counts` reduces the pod sets (partial admission).

    With `ignore_undeclared`, which is the same for a whole engine, resources that `cq` has no quota for
    are not counted.
    """
    key = (shape.number, counts)
    known = cq.plans.get(key)
    if known is None:
        known = _plan(cq, shape, flavors, counts, ignore_undeclared=ignore_undeclared)
        cq.plans[key] = known
    assert isinstance(known, Plan)
    return known


def _plan(
    cq: ClusterQueue,
    shape: Shape,
    flavors: Mapping[str, FlavorChanged],
    counts: tuple[int, ...] | None,
    *,
    ignore_undeclared: bool,
) -> Plan:
    plans = []
    for n, (ps, (count, per_pod)) in enumerate(zip(shape.pod_sets, shape.totals, strict=True)):
        scaled = counts[n] if counts is not None and count else count
        amounts = {
            resource: each * scaled
            for resource, each in per_pod
            if not ignore_undeclared or resource in cq.group_of
        }
        if PODS in cq.group_of:
            amounts[PODS] = scaled
            amounts = dict(sorted(amounts.items(), key=lambda item: resource_order(item[0])))
        plans.append(_plan_pod_set(cq, ps, scaled, amounts, flavors))
    return Plan(pod_sets=tuple(plans))


def _plan_pod_set(
    cq: ClusterQueue,
    ps: PodSet,
    count: int,
    amounts: dict[str, int],
    flavors: Mapping[str, FlavorChanged],
) -> PodSetPlan:
    groups: dict[int, GroupPlan] = {}
    missing = None
    for resource, amount in amounts.items():
        number = cq.group_of.get(resource)
        if number is None:
            if amount == 0:
                continue
            missing = resource
            break
        if number in groups:
            continue
        group = cq.fact.groups[number]
        covered = [(r, a) for r, a in amounts.items() if cq.group_of.get(r) == number]
        index = cq.node.tree.index
        groups[number] = GroupPlan(
            resource=resource,
            flavors=tuple(
                FlavorPlan(
                    name=flavor.name,
                    mismatch=flavor_mismatch(ps, flavor.name, flavors),
                    requests=tuple((r, index[flavor.name, r], a) for r, a in covered),
                )
                for flavor in group.flavors
            ),
        )
    return PodSetPlan(
        name=ps.name,
        count=count,
        groups=tuple(groups.values()),
        missing=missing,
        amounts=amounts,
    )
