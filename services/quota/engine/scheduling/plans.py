"""What can be known of a workload's flavors without looking at usage.

Which flavors of which groups a pod set may use at all, in which order, and how much it asks of each:
computed once for each shape in each queue.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.quota.engine.facts import FlavorChanged, PodSet, Requirement, Taint, Toleration
from services.quota.engine.model.amounts import resource_order
from services.quota.engine.model.state import PODS, ClusterQueue, Grant, Shape

__all__ = [
    "FlavorPlan",
    "GroupPlan",
    "Plan",
    "PodSetPlan",
    "matches",
    "plan_for",
    "requirement_holds",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorPlan:
    """One flavor for one pod set."""

    name: str
    mismatch: str | None
    """Why it can never be used, in words."""

    asks: tuple[tuple[str, int, int], ...]
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
    """A resource that the queue does not offer; groups after it are not looked at."""

    asks: bool
    """It requests something at all."""

    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One shape in one queue, with full or reduced counts."""

    pod_sets: tuple[PodSetPlan, ...]
    grants: dict[tuple[str, ...], Grant] = field(default_factory=dict)
    """What was given out, by the flavors chosen."""

    ready: list[object] = field(default_factory=list)
    """The assignment of the first flavor when it simply fits; at most one."""


def plan_for(
    cq: ClusterQueue,
    shape: Shape,
    flavors: Mapping[str, FlavorChanged],
    counts: tuple[int, ...] | None = None,
) -> Plan:
    """The plan of `shape` in `cq`; `counts` reduces the pod sets (partial admission)."""
    key = (shape.number, counts)
    known = cq.plans.get(key)
    if known is None:
        known = _plan(cq, shape, flavors, counts)
        cq.plans[key] = known
    assert isinstance(known, Plan)
    return known


def _plan(
    cq: ClusterQueue,
    shape: Shape,
    flavors: Mapping[str, FlavorChanged],
    counts: tuple[int, ...] | None,
) -> Plan:
    plans = []
    for n, (ps, (count, per_pod)) in enumerate(zip(shape.pod_sets, shape.totals, strict=True)):
        scaled = counts[n] if counts is not None and count else count
        amounts = {resource: each * scaled for resource, each in per_pod}
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
                    mismatch=matches(ps, flavor.name, flavors),
                    asks=tuple((r, index[flavor.name, r], a) for r, a in covered),
                )
                for flavor in group.flavors
            ),
        )
    return PodSetPlan(
        name=ps.name,
        count=count,
        groups=tuple(groups.values()),
        missing=missing,
        asks=bool(amounts),
        amounts=amounts,
    )


def matches(ps: PodSet, name: str, flavors: Mapping[str, FlavorChanged]) -> str | None:
    """Why pods of this set can never run on that flavor's nodes; None: they can."""
    flavor = flavors.get(name)
    if flavor is None:
        return f"flavor {name} not found"
    for taint in flavor.node_taints:
        if taint.effect in {"NoSchedule", "NoExecute"} and not any(
            _tolerates(t, taint) for t in (*ps.tolerations, *flavor.tolerations)
        ):
            shown = f"{taint.key}={taint.value}" if taint.value else taint.key
            return f"untolerated taint {shown}:{taint.effect} in flavor {name}"
    if not _selected(ps, flavor.node_labels):
        return f"flavor {name} doesn't match node affinity"
    return None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return bool(toleration.key) and toleration.value == taint.value
        case "Lt" | "Gt":
            return bool(toleration.key) and _compare(
                taint.value, toleration.operator, toleration.value
            )
        case _:
            return False


def _compare(label: str, operator: str, value: str) -> bool:
    """Whether `label` is greater (less) than `value`; both must be integers."""
    try:
        left, right = int(label), int(value)
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right


def _selected(ps: PodSet, labels: Mapping[str, str]) -> bool:
    """Node selector and affinity, of which only keys that the flavor has are looked at."""
    if any(labels[k] != v for k, v in ps.node_selector.items() if k in labels):
        return False
    terms = []
    for term in ps.affinity:
        known = [r for r in term if r.key in labels]
        if not known:
            return True
        terms.append(known)
    return not terms or any(all(requirement_holds(r, labels) for r in term) for term in terms)


def requirement_holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """One term of a selector against a set of labels."""
    label = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return label in requirement.values
        case "NotIn":
            return label is None or label not in requirement.values
        case "Exists":
            return label is not None
        case "DoesNotExist":
            return label is None
        case "Gt" | "Lt":
            return (
                label is not None
                and len(requirement.values) == 1
                and _compare(label, requirement.operator, requirement.values[0])
            )
