"""Which flavors a workload would get by present usage.

Pod sets, resource groups and flavors are tried in their order. Everything that does not depend on
usage (matching flavors, order of resources) is a plan, computed once per shape and queue.
Source: kubernetes-sigs/kueue pkg/scheduler/flavorassigner/flavorassigner.go.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from services.quota.engine.facts import AssignedPodSet, Fungibility
from services.quota.engine.model.amounts import show
from services.quota.engine.model.shapes import FlavorResource, FlavorScan, Grant, IndexedUsage
from services.quota.engine.model.state import ClusterQueue, Node
from services.quota.engine.model.tree import available, lowest_height_that_fits
from services.quota.engine.reasons import EXCEEDS_MAX_QUOTA, NO_MATCHING_FLAVOR
from services.quota.engine.scheduling.plans import GroupPlan, Plan

NO_FIT: Final = 0
PREEMPT: Final = 1
DEFERRED: Final = 2
FIT: Final = 3

# Modes in which one flavor offers one resource, from worst to best. Between the second and the last: 2, by
# preemption; 3, by taking back what the cohort lent.
_NO_FIT: Final = 0
_NO_CANDIDATES: Final = 1
_FIT: Final = 4
_MODE: Final = (NO_FIT, PREEMPT, PREEMPT, PREEMPT, FIT)
_WORST: Final = (_NO_FIT, 1 << 60)

Oracle: TypeAlias = Callable[[int, int], tuple[int, int]]
"""(index of flavor and resource, amount) to (mode 1 to 3, borrowing height after preemption)."""

Pinned: TypeAlias = list[dict[str, str]]
"""Per pod set, resource to the only flavor to consider."""

Refusal: TypeAlias = tuple[object, ...]
"""Why a flavor is not assigned: the kind of the refusal, then the parts of its message."""


class Chosen:
    """The flavor that one resource of one pod set gets."""

    __slots__ = ("borrowing_height", "flavor", "index", "mode", "tried")

    def __init__(self, flavor: str, index: int, mode: int, borrow: int) -> None:
        self.flavor = flavor
        self.index = index
        self.mode = mode
        self.borrowing_height = borrow
        self.tried = -1


class Assignment:
    """What a workload would get, and what stands in the way."""

    __slots__ = (
        "_grant",
        "borrowing_height",
        "chosen",
        "flavor_resources",
        "mode",
        "plan",
        "refusals",
        "tried",
        "usage",
    )

    def __init__(self, plan: Plan, frs: Sequence[FlavorResource]) -> None:
        self.plan = plan
        self.flavor_resources = frs
        self.mode = NO_FIT
        self.borrowing_height = 0
        """How high in the tree it borrows; 0: not at all."""
        self.chosen: list[dict[str, Chosen]] = []
        self.usage: dict[int, int] = {}
        self.refusals: list[tuple[str, list[Refusal]]] = []
        """(pod set, refusals) for each pod set with refusals."""
        self.tried: list[dict[str, int]] = []
        self._grant: Grant | None = None

    @property
    def indexed_usage(self) -> IndexedUsage:
        """Usage by the tree's numbers."""
        return tuple(self.usage.items())

    def grant(self) -> Grant:
        """What the workload gets if it is admitted with this assignment."""
        if self._grant is not None:
            return self._grant
        key = tuple(c.flavor for chosen in self.chosen for c in chosen.values())
        known = self.plan.grants.get(key)
        if known is None:
            assigned = tuple(
                AssignedPodSet(
                    name=pod_set.name,
                    count=pod_set.count,
                    flavors={resource: c.flavor for resource, c in chosen.items()},
                    usage={resource: pod_set.amounts[resource] for resource in chosen},
                )
                for pod_set, chosen in zip(self.plan.pod_sets, self.chosen, strict=True)
            )
            usage = {self.flavor_resources[i]: amount for i, amount in self.usage.items()}
            known = self.plan.grants[key] = Grant(assigned, usage, self.indexed_usage)
        self._grant = known
        return known

    def contested(self) -> tuple[int, ...]:
        """Indices of flavors and resources that need preemption."""
        return tuple(
            dict.fromkeys(
                c.index for chosen in self.chosen for c in chosen.values() if c.mode == PREEMPT
            )
        )

    def message(self) -> str:
        """What stands in the way, in Kueue's words."""
        return _assignment_message(self)

    def pinned(self) -> Pinned:
        """The flavors of this assignment, to keep them when it is computed again."""
        return [{r: c.flavor for r, c in chosen.items()} for chosen in self.chosen]


# Assigning ------------------------------------------------------------------------------------


def assign_flavors(
    cq: ClusterQueue,
    plan: Plan,
    *,
    scan: FlavorScan | None,
    oracle: Oracle,
    may_preempt_borrowing: bool,
    pinned: Pinned | None = None,
) -> Assignment:
    """Find flavors for all pod sets; each one sees the usage of those before it."""
    result = Assignment(plan, cq.node.tree.flavor_resources)
    usage = result.usage
    mode = FIT
    for n, pod_set in enumerate(plan.pod_sets):
        chosen: dict[str, Chosen] = {}
        why: list[Refusal] = []
        failed = False
        for group in pod_set.groups:
            start = 0
            if scan is not None and n < len(scan.tried):
                start = scan.tried[n].get(group.resource, -1) + 1
            mine: list[Refusal] = []
            found = _find_flavor(
                cq,
                group,
                start,
                usage,
                mine,
                oracle=oracle,
                may_preempt_borrowing=may_preempt_borrowing,
                pinned=None if pinned is None else pinned[n].get(group.resource, ""),
            )
            if found is None:
                failed = True
                why = mine
                break
            why += mine
            chosen |= found
        if not failed and pod_set.missing is not None:
            failed = True
            why = [("missing", pod_set.missing)]
        if failed:
            result.refusals.append((pod_set.name, why))
            result.mode = NO_FIT
            result.chosen.append({})
            result.tried.append({})
            return result
        for resource, c in chosen.items():
            usage[c.index] = usage.get(c.index, 0) + pod_set.amounts[resource]
            result.borrowing_height = max(result.borrowing_height, c.borrowing_height)
            mode = min(mode, c.mode)
        if why:
            result.refusals.append((pod_set.name, why))
        result.chosen.append(chosen)
        result.tried.append({resource: c.tried for resource, c in chosen.items()})
    result.mode = mode if plan.pod_sets else NO_FIT
    return result


def first_flavor_if_it_fits(cq: ClusterQueue, plan: Plan) -> Assignment | None:
    """The assignment of the common case: one resource group whose first flavor fits; None otherwise.

    Returns the same object each time. An assignment that fits is never changed.
    """
    if len(plan.pod_sets) != 1:
        return None
    (pod_set,) = plan.pod_sets
    if len(pod_set.groups) != 1 or pod_set.missing is not None:
        return None
    flavor = pod_set.groups[0].flavors[0]
    if flavor.mismatch is not None:
        return None
    node = cq.node
    for _, index, amount in flavor.requests:
        if node.usage[index] + amount > node.nominal[index] or amount > available(node, index):
            return None
    ready = plan.first_flavor_fits
    if not ready:
        tried = -1 if len(pod_set.groups[0].flavors) == 1 else 0
        result = Assignment(plan, node.tree.flavor_resources)
        result.mode = FIT
        chosen = {}
        for resource, index, amount in flavor.requests:
            chosen[resource] = Chosen(flavor.name, index, FIT, 0)
            chosen[resource].tried = tried
            result.usage[index] = amount
        result.chosen.append(chosen)
        result.tried.append(dict.fromkeys(chosen, tried))
        ready.append(result)
    found = ready[0]
    assert isinstance(found, Assignment)
    return found


def _find_flavor(
    cq: ClusterQueue,
    group: GroupPlan,
    start: int,
    usage: dict[int, int],
    why: list[Refusal],
    *,
    oracle: Oracle,
    may_preempt_borrowing: bool,
    pinned: str | None,
) -> dict[str, Chosen] | None:
    """The first flavor good enough to stop at, else the best; adds to `why` unless it just fits."""
    node = cq.node
    fungibility = cq.fact.fungibility
    best: list[tuple[str, Chosen]] | None = None
    best_mode = _WORST
    attempted = -1
    refusals: list[Refusal] = []
    for at in range(start, len(group.flavors)):
        flavor = group.flavors[at]
        attempted = at
        if pinned is not None and flavor.name != pinned:
            continue
        if flavor.mismatch is not None:
            refusals.append(("mismatch", flavor.name, flavor.mismatch))
            continue
        mode = (_FIT, 0)
        picks: list[tuple[str, Chosen]] = []
        for resource, index, amount in flavor.requests:
            kind, borrow = _fits(
                node,
                index,
                usage.get(index, 0),
                amount,
                oracle=oracle,
                may_preempt_borrowing=may_preempt_borrowing,
                refusals=refusals,
            )
            this = (kind, borrow)
            if _preferred(mode, this, fungibility):
                mode = this
            if mode[0] == _NO_FIT:
                break
            picks.append((resource, Chosen(flavor.name, index, _MODE[kind], borrow)))
        if not _try_next(mode, fungibility):
            best, best_mode = picks, mode
            break
        if _preferred(mode, best_mode, fungibility):
            best, best_mode = picks, mode
    if best_mode[0] != _FIT:
        why.extend(refusals)
    if best is None:
        return None
    tried = -1 if attempted == len(group.flavors) - 1 else attempted
    for _, chosen in best:
        chosen.tried = tried
    return dict(best)


def _fits(
    node: Node,
    index: int,
    assumed: int,
    amount: int,
    *,
    oracle: Oracle,
    may_preempt_borrowing: bool,
    refusals: list[Refusal],
) -> tuple[int, int]:
    """(mode, borrowing height) in which one flavor offers one resource."""
    value = assumed + amount
    if value > node.potential_available[index]:
        refusals.append(("exceeds", index, assumed, amount, node.potential_available[index]))
        return _NO_FIT, 0
    borrow, may_reclaim = lowest_height_that_fits(node, index, value)
    free = max(0, available(node, index))
    if value <= free:
        return _FIT, borrow
    if node.nominal[index] >= value or may_reclaim or may_preempt_borrowing:
        refusals.append(("unused", index, value - free, True, value))
        return oracle(index, value)
    refusals.append(("unused", index, value - free, False, value))
    return _NO_FIT, borrow


def _preferred(a: tuple[int, int], b: tuple[int, int], fungibility: Fungibility) -> bool:
    """Whether `a` is strictly better than `b`."""
    if a[0] == _NO_FIT:
        return False
    if b[0] == _NO_FIT:
        return True
    if (a[0] == _NO_CANDIDATES) != (b[0] == _NO_CANDIDATES):
        return b[0] == _NO_CANDIDATES
    if fungibility.preference == "PreemptionOverBorrowing":
        return a[1] < b[1] if a[1] != b[1] else a[0] > b[0]
    return a[0] > b[0] if a[0] != b[0] else a[1] < b[1]


def _try_next(mode: tuple[int, int], fungibility: Fungibility) -> bool:
    kind, borrow = mode
    if kind <= _NO_CANDIDATES:
        return True
    if kind < _FIT and fungibility.when_can_preempt == "TryNextFlavor":
        return True
    return borrow > 0 and fungibility.when_can_borrow == "TryNextFlavor"


# Messages ------------------------------------------------------------------------------------


def _assignment_message(assignment: Assignment) -> str:
    """What stands in the way, in Kueue's words."""
    parts = []
    for pod_set, refusals in assignment.refusals:
        reasons = ", ".join(sorted(_say(r, assignment.flavor_resources) for r in refusals))
        parts.append(f"couldn't assign flavors to pod set {pod_set}: {reasons}")
    return "; ".join(parts)


def _say(refusal: Refusal, frs: Sequence[FlavorResource]) -> str:
    match refusal:
        case ("missing", resource):
            return f"resource {resource} unavailable in ClusterQueue"
        case ("mismatch", _, str(text)):
            return text
        case ("exceeds", int(index), int(assumed), int(amount), int(most)):
            flavor, resource = frs[index]
            return (
                f"insufficient quota for {resource} in flavor {flavor}, previously considered"
                f" podsets requests ({show(resource, assumed)}) + current podset request"
                f" ({show(resource, amount)}) > maximum capacity ({show(resource, most)})"
            )
        case ("unused", int(index), int(more), *_):
            flavor, resource = frs[index]
            return (
                f"insufficient unused quota for {resource} in flavor {flavor},"
                f" {show(resource, more)} more needed"
            )
        case _:
            raise AssertionError(refusal)


_SEVERITY: Final = {"WaitingForQuota": 2, EXCEEDS_MAX_QUOTA: 3, NO_MATCHING_FLAVOR: 4}


def no_fit_reason(assignment: Assignment, cq: ClusterQueue) -> str:
    """The reason token: least severe of a group's flavors, most severe of groups and pod sets."""
    worst = ""
    for _, refusals in assignment.refusals:
        groups: dict[int, str] = {}
        flavors: dict[str, str] = {}
        if any(r[0] == "missing" for r in refusals):
            return NO_MATCHING_FLAVOR
        for refusal in refusals:
            token, flavor = _token(refusal, cq.node)
            if token and _SEVERITY[token] > _SEVERITY.get(flavors.get(flavor, ""), 0):
                flavors[flavor] = token
        for flavor, token in flavors.items():
            for number, group in enumerate(cq.fact.groups):
                if any(f.name == flavor for f in group.flavors) and _SEVERITY[
                    token
                ] < _SEVERITY.get(groups.get(number, ""), 9):
                    groups[number] = token
        for token in groups.values():
            if _SEVERITY[token] > _SEVERITY.get(worst, 0):
                worst = token
    return worst or "WaitingForQuota"


def _token(refusal: Refusal, node: Node) -> tuple[str, str]:
    match refusal:
        case ("mismatch", str(flavor), _):
            return NO_MATCHING_FLAVOR, flavor
        case ("exceeds", int(index), *_):
            return EXCEEDS_MAX_QUOTA, node.tree.flavor_resources[index][0]
        case ("unused", int(index), _, preemptable, _):
            return ("" if preemptable else "WaitingForQuota"), node.tree.flavor_resources[index][0]
        case _:
            raise AssertionError(refusal)
