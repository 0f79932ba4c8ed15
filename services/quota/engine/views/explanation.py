"""Why a workload waits, computed from the present state for each query.

Nothing is stored, so that nothing can be stale: flavors are assigned anew as the next scheduling
cycle would assign them, and the trial is undone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from math import inf
from typing import Final

from services.quota.engine.facts import Key
from services.quota.engine.model.amounts import UNLIMITED, show
from services.quota.engine.model.queues import namespace_matches
from services.quota.engine.model.shapes import WaitReason
from services.quota.engine.model.shares import Share, share_of
from services.quota.engine.model.state import ClusterQueue, Node, Phase, Shard, Workload
from services.quota.engine.model.tree import add_usage, available, remove_usage
from services.quota.engine.policy import Policy
from services.quota.engine.reasons import (
    MISCONFIGURED,
    NO_MATCHING_FLAVOR,
    PENDING_EVALUATION,
    RESERVED,
    SUSPENDED,
)
from services.quota.engine.scheduling.assignment_search import AssignmentSearch
from services.quota.engine.scheduling.flavors import FIT, NO_FIT, PREEMPT, Assignment, no_fit_reason
from services.quota.engine.scheduling.messages import NOT_YET_EVALUATED, PODS_NOT_READY
from services.quota.engine.views.remedies import (
    CORRECT_WHAT_IT_NAMES,
    REJECTION_REMEDIES,
    remedy_of_inactive,
)

NAMES_MAX: Final = 10
"""Workloads that one list of an explanation names, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """One resource in one flavor of which there is too little. Amounts as in facts."""

    flavor: str
    resource: str
    asked: int
    free: int
    """What the queue could still use now, borrowing included."""

    borrowable: int
    """The part of `free` that it would borrow."""

    maximum: int
    """What it could use in an empty tree."""

    limit: str = ""
    """The limit that is reached, and its owner."""

    holders: tuple[Key, ...] = ()
    """The largest holders in the tree, largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a workload waits, or that it has quota."""

    key: Key
    reason: str
    """A token of Kueue's `QuotaReserved=False`; `Reserved` or `Admitted` when it has quota."""

    message: str
    cluster_queue: str = ""
    shortfalls: tuple[Shortfall, ...] = ()
    position: int | None = None
    """In its ClusterQueue, from 1."""

    position_in_local_queue: int | None = None
    ahead: tuple[Key, ...] = ()
    """The first workloads before it."""

    victims: tuple[Key, ...] = ()
    """Its victims that are still draining."""

    unready: tuple[Key, ...] = ()
    """Workloads whose pods must become ready before any other admission."""

    shares: Mapping[str, str] = field(default_factory=dict)
    """Under fair sharing: its share with this workload, and shares that it may not preempt."""

    remedy: str = ""
    """What would let it be admitted."""

    requeue_at: int | None = None


@dataclass(frozen=True, slots=True)
class _WaitingState:
    """What the next cycle would find."""

    reason: str
    message: str
    remedy: str
    shortfalls: tuple[Shortfall, ...] = ()
    shares: Mapping[str, str] = field(default_factory=dict)


def explain(shard: Shard, policy: Policy, w: Workload, now: int) -> Explanation:
    """Explain one workload as the next cycle would find it."""
    cq = w.queue
    if w.phase is Phase.HOLDING:
        return _holding(w)
    if cq is None:
        wait_reason = w.wait_reason or WaitReason(PENDING_EVALUATION, "nothing is known of it yet")
        return Explanation(
            key=w.key,
            reason=wait_reason.reason,
            message=wait_reason.full_message(),
            remedy=REJECTION_REMEDIES.get(wait_reason.reason, CORRECT_WHAT_IT_NAMES),
        )
    state = _why_it_waits(shard, policy, cq, w, now)
    ranks = {v.key: _rank(cq, v) for v in cq.waiting.values()}
    mine = ranks[w.key]
    before = [key for key, rank in ranks.items() if rank < mine]
    same = sum(cq.waiting[key].local_queue == w.local_queue for key in before)
    return Explanation(
        key=w.key,
        reason=state.reason,
        message=state.message,
        cluster_queue=cq.name,
        shortfalls=state.shortfalls,
        position=len(before) + 1,
        position_in_local_queue=same + 1,
        ahead=tuple(nsmallest(NAMES_MAX, before, key=lambda key: ranks[key])),
        victims=tuple(sorted(w.claim.victims)) if w.claim is not None else (),
        unready=tuple(sorted(shard.unready_holders))
        if state.reason == "WaitingForPodsReady"
        else (),
        shares=state.shares,
        remedy=state.remedy,
        requeue_at=w.requeue_at if w.requeue_at is not None and w.requeue_at > now else None,
    )


def _holding(w: Workload) -> Explanation:
    if w.evicted:
        message = f"evicted ({w.eviction_reason}), holds quota until its pods are gone"
        return Explanation(
            key=w.key, reason=w.eviction_reason, message=message, cluster_queue=w.holding_queue
        )
    reason = "Admitted" if w.admitted else RESERVED
    message = "The workload is admitted" if w.admitted else "Waits for its admission checks"
    if w.unplanned:
        message = "It runs though nobody admitted it; its quota is counted all the same"
    remedy = "" if w.admitted else "the owners of its checks must say that they are ready"
    return Explanation(
        key=w.key, reason=reason, message=message, cluster_queue=w.holding_queue, remedy=remedy
    )


def _rank(cq: ClusterQueue, w: Workload) -> tuple[object, ...]:
    return (w is not cq.sticky_workload, -w.priority, w.queued_at, w.uid)


NEVER_RECLAIMED: Final = (
    "spec.preemption.reclaimWithinCohort is Never, as where it is not set "
    "(Any or LowerPriority preempts them)"
)
"""Why lent quota does not come back, and what brings it back."""

_WHY_LENT: Final = {
    "Never": NEVER_RECLAIMED,
    "LowerPriority": "spec.preemption.reclaimWithinCohort is LowerPriority, which preempts lower "
    "priorities only (Any preempts them)",
}


def _why_it_waits(
    shard: Shard, policy: Policy, cq: ClusterQueue, w: Workload, now: int
) -> _WaitingState:
    assert w.fact is not None, w.key
    if cq.inactive is not None:
        return _not_admitting(shard, cq, *cq.inactive)
    if w.claim is not None:
        text = f"Pending the preemption of {len(w.claim.victims)} workload(s)"
        return _WaitingState("WaitingForPreemptedWorkloads", text, "their pods must end")
    if w.requeue_at is not None and w.requeue_at > now:
        text = "Backs off before it is evaluated again"
        return _WaitingState(PENDING_EVALUATION, text, "its back-off must end")
    if not namespace_matches(shard, cq, w.namespace):
        text = "workload namespace doesn't match ClusterQueue selector"
        return _WaitingState(MISCONFIGURED, text, "change the namespace's labels or the selector")
    if w.fact.inadmissible is not None:
        return _WaitingState(MISCONFIGURED, w.fact.inadmissible, CORRECT_WHAT_IT_NAMES)
    weigher = AssignmentSearch(shard=shard, tree=cq.node.tree, policy=policy)
    assignment, targets = weigher.find(cq, w, None, None)
    if assignment.mode == NO_FIT or (assignment.mode == PREEMPT and not targets):
        return _short_of_quota(policy, cq, assignment)
    return _waiting_its_turn(shard, policy, cq, w, now, assignment)


def _not_admitting(shard: Shard, cq: ClusterQueue, reason: str, why: str) -> _WaitingState:
    """Its queue is inactive: the reason, and the messages of inactive checks."""
    checks = (shard.checks.get(rule.name) for rule in cq.fact.checks)
    messages = [
        f"{check.name}: {check.inactive_message}"
        for check in checks
        if check is not None and check.inactive_message
    ]
    text = " ".join((f"ClusterQueue {cq.name} is inactive: {why}", "; ".join(messages))).rstrip()
    return _WaitingState(SUSPENDED, text, remedy_of_inactive(reason))


def _short_of_quota(policy: Policy, cq: ClusterQueue, assignment: Assignment) -> _WaitingState:
    """There is too little quota, and no workload may be preempted for it."""
    no_fit = assignment.mode == NO_FIT
    reason = no_fit_reason(assignment, cq) if no_fit else "WaitingForQuota"
    return _WaitingState(
        reason,
        assignment.message(),
        _remedy(reason, cq, assignment),
        _shortfalls(cq, assignment),
        _shares(cq, assignment) if policy.fair_sharing and not no_fit else {},
    )


def _waiting_its_turn(
    shard: Shard, policy: Policy, cq: ClusterQueue, w: Workload, now: int, assignment: Assignment
) -> _WaitingState:
    """It fits or could preempt, but other workloads come first."""
    if assignment.mode == FIT and shard.unready_holders:
        remedy = "their pods must become ready, or their time for that must be over"
        return _WaitingState("WaitingForPodsReady", PODS_NOT_READY, remedy)
    first = min(cq.waiting.values(), key=lambda v: _rank(cq, v))
    if cq.strict and first is not w:
        text = f"ClusterQueue {cq.name} is StrictFIFO: nobody goes before its head"
        remedy = _why_it_waits(shard, policy, cq, first, now).remedy
        return _WaitingState(PENDING_EVALUATION, text, f"the head must go first: {remedy}")
    shortfalls = _shortfalls(cq, assignment)
    last = w.wait_reason
    if last is not None and last.message and last.reason == "WaitingForQuota":
        # It lost to other entries of its cycle, or would repeat a preemption.
        remedy = "what the message names must change"
        return _WaitingState(last.reason, last.full_message(), remedy, shortfalls)
    what = "fits" if assignment.mode == FIT else "can preempt"
    return _WaitingState(
        PENDING_EVALUATION, NOT_YET_EVALUATED, f"it {what} as soon as it is its turn", shortfalls
    )


def _remedy(reason: str, cq: ClusterQueue, assignment: Assignment) -> str:
    if reason == NO_MATCHING_FLAVOR:
        return "offer the resource in a flavor that its node selector and tolerations allow"
    parts = []
    for shortfall in _shortfalls(cq, assignment):
        more = shortfall.asked - shortfall.free
        what = f"{shortfall.resource} in flavor {shortfall.flavor}"
        if shortfall.asked > shortfall.maximum:
            most = show(shortfall.resource, shortfall.maximum)
            parts.append(f"raise the quota of {what} above {most}, or ask for less")
        else:
            parts.append(f"{show(shortfall.resource, more)} more {what} must become free")
    lent = _lent(cq, assignment)
    return "; or ".join(parts) + (f". {lent}" if lent else "")


def _lent(cq: ClusterQueue, assignment: Assignment) -> str:
    """Says that its own quota is in use by others and why it is not taken back; empty if it is not."""
    node = cq.node
    why = _WHY_LENT.get(cq.fact.preemption.reclaim)
    if not node.ancestors or why is None:
        return ""
    for shortfall in _shortfalls(cq, assignment):
        index = node.tree.flavor_resources.index((shortfall.flavor, shortfall.resource))
        own = node.nominal[index] - node.usage[index]
        if shortfall.free < shortfall.asked <= own:
            return (
                f"ClusterQueue {cq.name} has lent {shortfall.resource} in flavor {shortfall.flavor} "
                f"to its cohort, and waits until those who borrow it end: {why}"
            )
    return ""


def _shortfalls(cq: ClusterQueue, assignment: Assignment) -> tuple[Shortfall, ...]:
    """The shortfalls, one for each flavor and resource."""
    asked: dict[int, int] = {}
    for _, refusals in assignment.refusals:
        for refusal in refusals:
            match refusal:
                case ("exceeds", int(index), int(assumed), int(amount), _):
                    asked[index] = assumed + amount
                case ("unused", int(index), _, _, int(value)):
                    asked[index] = value
                case _:
                    pass
    node = cq.node
    result = []
    for index, value in asked.items():
        flavor, resource = node.tree.flavor_resources[index]
        free = max(0, available(node, index))
        own = max(0, node.nominal[index] - node.usage[index])
        result.append(
            Shortfall(
                flavor=flavor,
                resource=resource,
                asked=value,
                free=free,
                borrowable=max(0, free - own),
                maximum=node.potential_available[index],
                limit=_limit(node, index, value),
                holders=_holders(cq, index),
            )
        )
    return tuple(result)


def _holders(cq: ClusterQueue, index: int) -> tuple[Key, ...]:
    held = (
        (-amount, w.key)
        for node in cq.node.tree.queues
        if node.queue is not None
        for w in node.queue.holders.values()
        for i, amount in w.indexed_usage
        if i == index and amount
    )
    return tuple(key for _, key in nsmallest(NAMES_MAX, held))


def _limit(node: Node, index: int, asked: int) -> str:
    """The limit that `asked` reaches first: by present usage, or in an empty tree if that is too small."""
    ever = asked > node.potential_available[index]
    resource = node.tree.flavor_resources[index][1]

    def used(at: Node) -> int:
        return 0 if ever else at.usage[index]

    kept, least, at = 0, UNLIMITED << 2, node
    narrowest: Node | None = None
    while (parent := at.parent) is not None:
        kept += max(0, at.local_quota[index] - used(at))
        cap = at.borrow_cap[index]
        if (
            cap is not None
            and (room := kept + cap - max(0, used(at) - at.local_quota[index])) < least
        ):
            least, narrowest = room, at
        at = parent
    if narrowest is not None and least < kept + at.subtree_quota[index] - used(at):
        amount = show(resource, narrowest.borrowing_limit[index] or 0)
        return f"borrowingLimit {amount} of {_display_name(narrowest)}"
    amount = show(resource, at.subtree_quota[index])
    what = "nominalQuota" if at is node else "quota"
    return "; ".join((f"{what} {amount} of {_display_name(at)}", *_kept_back(node, index)))


def _kept_back(node: Node, index: int) -> list[str]:
    """Unused quota that lending limits keep from the queue."""
    mine = {node, *node.ancestors}
    resource = node.tree.flavor_resources[index][1]
    return [
        f"lendingLimit of {_display_name(other)} keeps {show(resource, kept)}"
        for other in node.tree.nodes
        if other not in mine and (kept := other.local_quota[index] - other.usage[index]) > 0
    ][:NAMES_MAX]


def _display_name(node: Node) -> str:
    return f"{'Cohort' if node.queue is None else 'ClusterQueue'} {node.name}"


def _shares(cq: ClusterQueue, assignment: Assignment) -> dict[str, str]:
    """The compared shares: its own with this workload, and those of queues that borrow what it needs."""
    node = cq.node
    found: dict[str, str] = {}
    add_usage(node, assignment.indexed_usage)
    for index in assignment.contested():
        for other in node.tree.borrowers[index]:
            if other is not node:
                lca = next(above for above in other.ancestors if above in node.ancestors)
                for one in (node, other):
                    side = next(n for n in (one, *one.ancestors) if n.parent is lca)
                    found[_display_name(side)] = _share_text(share_of(side))
    remove_usage(node, assignment.indexed_usage)
    return found


def _share_text(share: Share) -> str:
    return "unlimited" if share.weighted == inf else f"{share.weighted:.0f}"
