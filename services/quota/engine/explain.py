"""Why a workload waits, computed from the present state when somebody asks.

Nothing here is remembered, so nothing can be stale: the flavors are weighed anew, as the next round
would weigh them, and the trial leaves no trace.
"""

from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

from services.quota.engine import flavors as fl
from services.quota.engine.amounts import show
from services.quota.engine.entry import Policy
from services.quota.engine.facts import Key
from services.quota.engine.flavors import FIT, NO_FIT, PREEMPT, Assignment
from services.quota.engine.queues import namespace_matches
from services.quota.engine.state import ClusterQueue, Place, Shard, Verdict, Workload
from services.quota.engine.tree import available
from services.quota.engine.weighing import Weigher

__all__ = ["Binding", "Explanation", "explain"]

NAMES_MAX: Final = 10
"""How many workloads are named who are ahead, or who hold what is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """One resource in one flavor of which there is not enough. Amounts as in facts."""

    flavor: str
    resource: str
    asked: int
    free: int
    """What the queue could take now, borrowing included."""

    borrowable: int
    """How much of `free` is not its own."""

    most: int
    """What it could ever have, if nobody else used anything."""

    holders: tuple[Key, ...] = ()
    """Who holds most of it in the tree, largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a workload waits, or that it does not."""

    key: Key
    reason: str
    """A token of Kueue's `QuotaReserved=False`; `Reserved` or `Admitted` when it has quota."""

    message: str
    cluster_queue: str = ""
    bindings: tuple[Binding, ...] = ()
    position: int | None = None
    """In its ClusterQueue, from 1."""

    position_in_local_queue: int | None = None
    ahead: tuple[Key, ...] = ()
    """The first of those before it."""

    victims: tuple[Key, ...] = ()
    """Whom it preempted and now waits for."""

    remedy: str = ""
    """What would let it in."""

    requeue_at: int | None = None


def explain(shard: Shard, policy: Policy, w: Workload, now: int) -> Explanation:
    """Look at one workload as the next round would."""
    cq = w.queue
    if w.place is Place.HOLDING:
        return _holding(w)
    if cq is None:
        verdict = w.verdict or Verdict("PendingEvaluation", "nothing is known of it yet")
        return Explanation(
            key=w.key, reason=verdict.reason, message=verdict.text(), remedy=_OUT[verdict.reason]
        )
    verdict, assignment, remedy = _judge(shard, policy, cq, w, now)
    ranks = {v.key: _rank(cq, v) for v in cq.waiting.values()}
    mine = ranks[w.key]
    before = [key for key, rank in ranks.items() if rank < mine]
    same = sum(cq.waiting[key].lq == w.lq for key in before)
    return Explanation(
        key=w.key,
        reason=verdict.reason,
        message=verdict.text(),
        cluster_queue=cq.name,
        bindings=() if assignment is None else _bindings(cq, assignment),
        position=len(before) + 1,
        position_in_local_queue=same + 1,
        ahead=tuple(nsmallest(NAMES_MAX, before, key=lambda key: ranks[key])),
        victims=tuple(sorted(w.claim.victims)) if w.claim is not None else (),
        remedy=remedy,
        requeue_at=w.requeue_at if w.requeue_at is not None and w.requeue_at > now else None,
    )


_OUT: Final = {
    "Deactivated": "set spec.active to true",
    "OnHold": "take the job off hold",
    "AdmissionGated": "let the gates' owners remove them",
    "Misconfigured": "correct what the message names",
    "Suspended": "resume the LocalQueue",
    "PendingEvaluation": "",
}


def _holding(w: Workload) -> Explanation:
    if w.evicted:
        message = f"evicted ({w.evict_reason}), holds quota until its pods are gone"
        return Explanation(
            key=w.key, reason=w.evict_reason, message=message, cluster_queue=w.held_by
        )
    reason = "Admitted" if w.admitted else "Reserved"
    message = "The workload is admitted" if w.admitted else "Waits for its admission checks"
    if w.unplanned:
        message = "It runs though nobody admitted it; its quota is counted all the same"
    return Explanation(key=w.key, reason=reason, message=message, cluster_queue=w.held_by)


def _rank(cq: ClusterQueue, w: Workload) -> tuple[object, ...]:
    return (w is not cq.sticky, -w.priority, w.queued_at, w.uid)


def _judge(
    shard: Shard, policy: Policy, cq: ClusterQueue, w: Workload, now: int
) -> tuple[Verdict, Assignment | None, str]:
    """(verdict, what was weighed, what would help)."""
    assert w.fact is not None, w.key
    if cq.inactive is not None:
        text = f"ClusterQueue {cq.name} is inactive"
        return Verdict("Suspended", text), None, f"make the ClusterQueue active: {cq.inactive[1]}"
    if w.claim is not None:
        count = len(w.claim.victims)
        text = f"Pending the preemption of {count} workload(s)"
        return Verdict("WaitingForPreemptedWorkloads", text), None, "their pods must end"
    if w.requeue_at is not None and w.requeue_at > now:
        text = "Backs off before it is evaluated again"
        return Verdict("PendingEvaluation", text), None, "its back-off must end"
    if not namespace_matches(shard, cq, w.namespace):
        text = "workload namespace doesn't match ClusterQueue selector"
        return Verdict("Misconfigured", text), None, "change the namespace's labels or the selector"
    if w.fact.inadmissible is not None:
        return Verdict("Misconfigured", w.fact.inadmissible), None, "correct what the message names"
    tree = cq.node.tree
    weigher = Weigher(shard=shard, tree=tree, policy=policy)
    assignment, targets = weigher.assign(cq, w, None, None)
    return _weighed(cq, w, assignment, bool(targets))


def _weighed(
    cq: ClusterQueue, w: Workload, assignment: Assignment, victims: bool
) -> tuple[Verdict, Assignment, str]:
    text = assignment.message()
    if assignment.mode == NO_FIT:
        reason = fl.no_fit_reason(assignment, cq)
        return Verdict(reason, text), assignment, _remedy(reason, cq, assignment)
    if assignment.mode == PREEMPT and not victims:
        reason = "WaitingForQuota"
        return Verdict(reason, text), assignment, _remedy(reason, cq, assignment)
    last = w.verdict
    if last is not None and last.message and last.reason == "WaitingForQuota":
        # It could go, but lost to others of its round, or would go round in a circle.
        return last, assignment, "what the message names must change"
    text = "Workload is pending evaluation in the scheduling queue"
    what = "fits" if assignment.mode == FIT else "can preempt"
    return Verdict("PendingEvaluation", text), assignment, f"it {what} as soon as it is its turn"


def _remedy(reason: str, cq: ClusterQueue, assignment: Assignment) -> str:
    if reason == "NoMatchingFlavor":
        return "offer the resource in a flavor that its node selector and tolerations allow"
    parts = []
    for binding in _bindings(cq, assignment):
        more = binding.asked - binding.free
        what = f"{binding.resource} in flavor {binding.flavor}"
        if binding.asked > binding.most:
            most = show(binding.resource, binding.most)
            parts.append(f"raise the quota of {what} above {most}, or ask for less")
        else:
            parts.append(f"{show(binding.resource, more)} more {what} must become free")
    return "; or ".join(parts)


def _bindings(cq: ClusterQueue, assignment: Assignment) -> tuple[Binding, ...]:
    """Where there is not enough, once for each flavor and resource."""
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
        flavor, resource = node.tree.frs[index]
        free = max(0, available(node, index))
        own = max(0, node.nominal[index] - node.usage[index])
        result.append(
            Binding(
                flavor=flavor,
                resource=resource,
                asked=value,
                free=free,
                borrowable=max(0, free - own),
                most=node.potential[index],
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
        for i, amount in w.pairs
        if i == index and amount
    )
    return tuple(key for _, key in nsmallest(NAMES_MAX, held))
