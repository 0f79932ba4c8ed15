"""One scheduling cycle in one tree.

1. Every ClusterQueue nominates its head; all heads get an assignment by the same usage.
2. The entries are processed in order; each one sees the usage of those before it.
3. Usage that an entry takes for this cycle only (a preemptor's, a reservation) is removed again.
4. Entries that were not admitted are requeued or parked.

Source: kubernetes-sigs/kueue pkg/scheduler/scheduler.go. ADR 10 describes the differences.
"""

from dataclasses import dataclass, field
from typing import Final

from services.quota.engine.facts import Decision, Key, Preempt, Reserve
from services.quota.engine.model.queues import (
    dequeue,
    enqueue,
    head,
    namespace_matches,
    park,
    park_class,
    set_claiming,
)
from services.quota.engine.model.shapes import FlavorScan, Grant, IndexedUsage, WaitReason
from services.quota.engine.model.state import (
    Claim,
    ClusterQueue,
    Node,
    Phase,
    Shard,
    Tree,
    Workload,
)
from services.quota.engine.model.tree import add_usage, available, remove_usage
from services.quota.engine.policy import Policy
from services.quota.engine.preemption.candidates import exclude_workload, include_workload
from services.quota.engine.reasons import MISCONFIGURED
from services.quota.engine.reservations import count_reservation
from services.quota.engine.scheduling.assignment_search import AssignmentSearch, shape_of
from services.quota.engine.scheduling.entry import Entry, RequeueReason, classical_order, outranks
from services.quota.engine.scheduling.fair_sharing import tournament
from services.quota.engine.scheduling.flavors import (
    DEFERRED,
    FIT,
    NO_FIT,
    PREEMPT,
    Assignment,
    no_fit_reason,
)
from services.quota.engine.scheduling.messages import (
    LESS_BORROWING_FIRST,
    NO_LONGER_FITS,
    OVERLAPPING_TARGETS,
    PODS_NOT_READY,
    PREEMPTION_LOOP,
    preempted,
)

__all__ = ["Entry", "Policy", "SchedulingCycle"]

SECOND: Final = 1_000_000_000


@dataclass(slots=True, kw_only=True)
class SchedulingCycle:
    """One cycle in one tree. Call `run` once."""

    shard: Shard
    tree: Tree
    policy: Policy
    now: int
    decisions: list[Decision]
    search: AssignmentSearch
    like_kueue: bool = False
    """As Kueue, admit workloads into quota that victims still hold (ADR 10)."""

    entries: list[Entry] = field(default_factory=list)
    """The heads of this cycle."""

    _scan_positions: tuple[object, ...] | None = None
    """What `_scans` found; computed once, for a round may preempt for each of many heads."""

    temporary_usage: list[tuple[Node, IndexedUsage]] = field(default_factory=list)
    """Usage that is removed at the end of the cycle."""

    victims: dict[Key, Workload] = field(default_factory=dict)
    """Victims of this cycle and of claims from earlier cycles."""

    unfulfilled: list[Workload] = field(default_factory=list)
    """Claimers that do not fit although their victims are gone."""

    lowest_borrowing: int | None = None
    """Lowest borrowing height of the admitted and preempting entries so far; None: there are none."""

    changed: bool = False
    claims_kept: int = 0
    has_untried_flavors: bool = False
    """Some head has flavors left to try: the next cycle may differ although nothing changed."""

    def run(self) -> None:
        """Decide about one head of every queue."""
        self.tree.cycle_number += 1
        entries = self.entries = self._nominate()
        claims = sorted(self._claimers(), key=lambda w: (-w.priority, w.queued_at, w.uid))
        if self.policy.fair_sharing and self.tree.root.queue is None:
            left = {e.node: e for e in entries}
            while left:
                entry = tournament(self.tree.root, left)
                del left[entry.node]
                self._process_claims_before(claims, entry)
                self._process(entry)
        else:
            entries.sort(key=classical_order)
            for entry in entries:
                self._process_claims_before(claims, entry)
                self._process(entry)
        self._process_claims_before(claims, None)
        for w in self.unfulfilled:
            # A workload of higher rank took the quota, or queues changed: evaluate it anew.
            cq = w.queue
            assert cq is not None, w.key
            del self.shard.claims[w.key]
            w.claim = None
            enqueue(cq, w)
            self.changed = True
        for node, pairs in self.temporary_usage:
            remove_usage(node, pairs)
        self.temporary_usage.clear()
        for entry in entries:
            if not entry.admitted:
                self._requeue(entry)

    # Claims ----------------------------------------------------------------------------------

    def _claimers(self) -> list[Workload]:
        return [
            w
            for w in self.shard.claims.values()
            if w.queue is not None and w.queue.node.tree is self.tree
        ]

    def _process_claims_before(self, claims: list[Workload], entry: Entry | None) -> None:
        """Process the claims that `entry` does not outrank before the entry itself.

        An entry outranks a claim of lower priority, unless it would borrow more than the claimer:
        then the freed quota is rather the claimer's own.
        """
        due = [w for w in claims if entry is None or not outranks(entry, w)]
        for w in due:
            claims.remove(w)
            self._process_claim(w)

    def _process_claim(self, w: Workload) -> None:
        """Admit a claimer that fits by now; otherwise keep its quota reserved in this cycle."""
        claim, cq = w.claim, w.queue
        assert claim is not None, w.key
        assert cq is not None, w.key
        usable = cq.inactive is None and not claim.outdated
        if usable and not self.shard.unready_holders and _fits(cq.node, claim.grant.indexed_usage):
            self._reserve(w, cq, claim.grant)
        elif not claim.victims:
            self.unfulfilled.append(w)
        else:
            self.claims_kept += 1
            add_usage(cq.node, claim.grant.indexed_usage)
            self.temporary_usage.append((cq.node, claim.grant.indexed_usage))
            self.victims |= claim.victims

    # Nomination ------------------------------------------------------------------------------

    def _nominate(self) -> list[Entry]:
        entries = []
        for node in self.tree.queues:
            cq = node.queue
            assert cq is not None, node.name
            if cq.inactive is not None or not cq.waiting:
                continue
            w = head(cq, self.search.fair_usage)
            if w is None or not self._is_admissible(cq, w):
                continue
            entries.append(self._entry(cq, w))
        return entries

    def _is_admissible(self, cq: ClusterQueue, w: Workload) -> bool:
        assert w.fact is not None, w.key
        if not namespace_matches(self.shard, cq, w.namespace):
            text = "workload namespace doesn't match ClusterQueue selector"
            self._park(cq, w, WaitReason(MISCONFIGURED, text), always=True)
            return False
        if w.fact.inadmissible is not None:
            self._park(cq, w, WaitReason(MISCONFIGURED, w.fact.inadmissible), always=False)
            return False
        return True

    def _park(
        self, cq: ClusterQueue, w: Workload, wait_reason: WaitReason, *, always: bool
    ) -> None:
        """Park it until something wakes it; a strict queue keeps it as its head unless `always`."""
        self._set_wait_reason(w, wait_reason)
        if always or not cq.strict:
            park(cq, w)
            self.changed = True

    def _entry(self, cq: ClusterQueue, w: Workload) -> Entry:
        scan = w.scan
        if scan is not None and (
            scan.shape is not w.shape
            or (self.tree.cycle_number - scan.cycle_number > 1 and cq.generation > scan.generation)
        ):
            scan = w.scan = None
        assignment, targets = self.search.find(cq, w, scan, None)
        w.scan = self._next_scan(assignment, cq, w)
        return Entry(
            workload=w,
            cq=cq,
            node=cq.node,
            assignment=assignment,
            targets=targets,
            indexed_usage=assignment.indexed_usage,
            resumed_scan=scan is not None and scan.has_untried_flavors,
        )

    def _next_scan(
        self, assignment: Assignment, cq: ClusterQueue, w: Workload
    ) -> FlavorScan | None:
        """Where the next flavor search goes on; None: at the first flavor."""
        for tried in assignment.tried:
            for at in tried.values():
                if at != -1:
                    return FlavorScan(
                        assignment.tried, cq.generation, self.tree.cycle_number, shape_of(w)
                    )
        return None

    # Processing ------------------------------------------------------------------------------

    def _process(self, e: Entry) -> None:
        fits = self._reassign_and_fit(e) if e.targets or e.assignment.mode == FIT else False
        mode = e.assignment.mode
        if mode == NO_FIT:
            e.requeue_reason = RequeueReason.NO_FIT
            e.reason = no_fit_reason(e.assignment, e.cq)
        elif mode == PREEMPT and not e.targets:
            e.requeue_reason = RequeueReason.NO_CANDIDATES
            e.reason = "WaitingForQuota"
            if e.cq.fact.preemption.reclaim != "Any":
                self._use_temporarily(e, e.usage_to_reserve())
        elif mode == DEFERRED:
            e.requeue_reason = RequeueReason.PENDING_PREEMPTION
            e.reason = "WaitingForPreemptedWorkloads"
            e.message = f"{OVERLAPPING_TARGETS}, but will fit after these preemptions complete"
            e.workload.scan = None
            self._use_temporarily(e, e.indexed_usage)
        elif any(w.key in self.victims for w, _ in e.targets):
            e.requeue_reason = RequeueReason.RETRY
            e.reason, e.message = "WaitingForQuota", OVERLAPPING_TARGETS
        elif not fits or (mode == FIT and not self._fits_beside_victims(e)):
            e.requeue_reason = RequeueReason.RETRY
            e.reason, e.message = "WaitingForQuota", NO_LONGER_FITS
        elif self._must_yield_to_lower_borrowing(e):
            e.requeue_reason = RequeueReason.RETRY
            e.reason, e.message = "WaitingForQuota", LESS_BORROWING_FIRST
        elif mode == PREEMPT and self._repeats_a_preemption(e):
            e.requeue_reason = RequeueReason.PREEMPTION_LOOP
            e.reason, e.message = "WaitingForQuota", PREEMPTION_LOOP
        elif mode == PREEMPT:
            self._note_borrowing(e)
            self._preempt(e)
        elif self.shard.unready_holders:
            e.requeue_reason = RequeueReason.PODS_NOT_READY
            e.reason, e.message = "WaitingForPodsReady", PODS_NOT_READY
        else:
            e.admitted = True
            self._note_borrowing(e)
            self._reserve(e.workload, e.cq, e.assignment.grant())

    def _note_borrowing(self, e: Entry) -> None:
        borrowing = e.assignment.borrowing_height
        self.lowest_borrowing = (
            borrowing if self.lowest_borrowing is None else min(self.lowest_borrowing, borrowing)
        )

    def _must_yield_to_lower_borrowing(self, e: Entry) -> bool:
        """Whether the entry borrows higher than another entry that was admitted in this cycle.

        Each queue nominates one head a cycle. Quota that the next head of a queue may take as its own
        must not be lent in between, only to be reclaimed from a workload that just started (ADR 10).
        """
        own = self.lowest_borrowing
        return not self.like_kueue and own is not None and e.assignment.borrowing_height > own

    def _reassign_and_fit(self, e: Entry) -> bool:
        """Whether the entry fits beside those before it; assigns anew if they chose the same victims."""
        if not self.victims or not any(w.key in self.victims for w, _ in e.targets):
            return self._fits_without_victims(e)
        others = list(self.victims.values())
        for w in others:
            exclude_workload(w)
            _queue_of(w).holders.pop(w.key)
        e.workload.scan = None
        e.assignment, e.targets = self.search.find(e.cq, e.workload, None, e.assignment.pinned())
        for w in others:
            include_workload(w)
            _queue_of(w).holders[w.key] = w
        e.indexed_usage = e.assignment.indexed_usage
        e.workload.scan = self._next_scan(e.assignment, e.cq, e.workload)
        if e.assignment.mode == FIT:
            e.assignment.mode = DEFERRED
        return self._fits_without_victims(e)

    def _fits_without_victims(self, e: Entry) -> bool:
        if not self.victims and not e.targets:
            return _fits(e.node, e.indexed_usage)
        gone = dict(self.victims)
        gone.update((w.key, w) for w, _ in e.targets)
        for w in gone.values():
            exclude_workload(w)
        result = _fits(e.node, e.indexed_usage)
        for w in gone.values():
            include_workload(w)
        return result

    def _fits_beside_victims(self, e: Entry) -> bool:
        """Whether the entry fits while victims still run.

        Victims may free more than their preemptors take. Kueue admits into that rest at once, and then
        more runs than there is quota for.
        """
        if self.like_kueue or not self.victims:
            return True
        for node, pairs in self.temporary_usage:
            remove_usage(node, pairs)
        result = _fits(e.node, e.indexed_usage)
        for node, pairs in self.temporary_usage:
            add_usage(node, pairs)
        return result

    def _repeats_a_preemption(self, e: Entry) -> bool:
        """Whether this preemption was tried in the same state before, so that it leads nowhere (ADR 10)."""
        w = e.workload
        victims = tuple(sorted(v.key for v, _ in e.targets))
        this = (w.key, victims, self.tree.holdings_hash, self._positions_of_scans())
        if this in self.tree.tried_preemptions:
            return True
        if any(self.tree.is_fruitless(w, v) for v, _ in e.targets):
            return True
        self.tree.tried_preemptions.add(this)
        return False

    def _positions_of_scans(self) -> tuple[object, ...]:
        """Positions of the heads' flavor scans, which belong to the compared state; computed once."""
        if self._scan_positions is None:
            self._scan_positions = tuple(
                (e.workload.key, tuple(tuple(tried.items()) for tried in e.assignment.tried))
                for e in self.entries
            )
        return self._scan_positions

    def _use_temporarily(self, e: Entry, pairs: IndexedUsage) -> None:
        add_usage(e.node, pairs)
        self.temporary_usage.append((e.node, pairs))

    def _preempt(self, e: Entry) -> None:
        w = e.workload
        e.requeue_reason = RequeueReason.PENDING_PREEMPTION
        e.reason = "WaitingForPreemptedWorkloads"
        e.message = (
            f"{e.assignment.message()}. Pending the preemption of {len(e.targets)} workload(s)"
        )
        self.victims |= {victim.key: victim for victim, _ in e.targets}
        self._use_temporarily(e, e.indexed_usage)
        w.scan = None
        w.claim = Claim(
            grant=e.assignment.grant(),
            borrowing_height=e.assignment.borrowing_height,
            victims={victim.key: victim for victim, _ in e.targets},
        )
        self.changed = True
        for victim, _ in e.targets:
            self.tree.count_preemption(w, victim)
        for victim, reason in e.targets:
            if victim.evicted:
                continue
            assert victim.holding_node is not None, victim.key
            victim.evicted = True
            victim.eviction_reason = "Preempted"
            victim.preempted_by = w.key
            self.decisions.append(
                Preempt(
                    cluster=self.shard.name,
                    key=victim.key,
                    uid=victim.uid,
                    cluster_queue=victim.holding_queue,
                    reason=reason,
                    preemptor=w.key,
                    message=preempted(w, e.node, reason, victim.holding_node),
                )
            )

    def _reserve(self, w: Workload, cq: ClusterQueue, grant: Grant) -> None:
        """Reserve quota for a workload."""
        assert w.fact is not None, w.key
        dequeue(w)
        if w.claim is not None:
            del self.shard.claims[w.key]
            w.claim = None
        if w.fruitless_preemptions:
            w.fruitless_preemptions.clear()
        w.phase = Phase.HOLDING
        w.holding_node = cq.node
        w.holding_queue = cq.name
        w.assigned = grant.assigned
        w.usage = grant.usage
        w.indexed_usage = grant.indexed_usage
        w.holding_hash = hash((w.key, grant.indexed_usage))
        self.tree.holdings_hash ^= w.holding_hash
        # The condition that records it has whole seconds. Later reservations are preempted first.
        w.reserved_at = self.now - self.now % SECOND
        w.scan = None
        w.wait_reason = None
        w.published_reason = ""
        # A position lost by an eviction counts until this admission.
        w.queued_at = w.fact.created_at
        if w.checks:
            w.checks.clear()
        cq.holders[w.key] = w
        if w.fact.unready:
            self.shard.unready_holders[w.key] = None
        # As in Kueue, recording the admission counts as a release: flavor scans start over.
        cq.generation += 1
        count_reservation(self.shard, cq, w)
        checks = cq.required_checks(grant.assigned)
        w.admitted, w.needed_checks = not checks, checks
        self.changed = True
        self.decisions.append(
            Reserve(
                cluster=self.shard.name,
                key=w.key,
                uid=w.uid,
                cluster_queue=cq.name,
                pod_sets=grant.assigned,
                checks=checks,
                generation=w.fact.generation,
            )
        )

    # Going back ------------------------------------------------------------------------------

    def _requeue(self, e: Entry) -> None:
        w, cq = e.workload, e.cq
        waiting_class = w.waiting_class
        if waiting_class is None:
            return
        self._set_wait_reason(w, WaitReason(e.reason, e.message, e.assignment))
        if w.claim is not None:
            if not cq.strict:
                cq.sticky_workload = w
            set_claiming(cq, w)
            self.shard.claims[w.key] = w
            return
        if e.requeue_reason is RequeueReason.PENDING_PREEMPTION and not cq.strict:
            cq.sticky_workload = w
        pending = w.scan is not None and w.scan.has_untried_flavors
        if (
            e.requeue_reason
            in {RequeueReason.RETRY, RequeueReason.PENDING_PREEMPTION, RequeueReason.PODS_NOT_READY}
            or pending
            or cq.strict
        ):
            # It stays queued; the next cycle tries other flavors, if there are any.
            self.has_untried_flavors = self.has_untried_flavors or pending or e.resumed_scan
            return
        self.changed = True
        if e.requeue_reason in {RequeueReason.NO_FIT, RequeueReason.NO_CANDIDATES}:
            waiting_class.wait_reason = w.wait_reason
            park_class(waiting_class)
        else:
            park(cq, w)

    def _set_wait_reason(self, w: Workload, wait_reason: WaitReason) -> None:
        w.wait_reason = wait_reason
        if w.published_reason != wait_reason.publication_key:
            self.shard.changed_reasons[w.key] = w


def _queue_of(w: Workload) -> ClusterQueue:
    """The queue whose quota the workload holds."""
    assert w.holding_node is not None, w.key
    assert w.holding_node.queue is not None, w.key
    return w.holding_node.queue


def _fits(node: Node, pairs: IndexedUsage) -> bool:
    for i, amount in pairs:  # noqa: SIM110 - the hottest test of all; a generator costs twice as much
        if amount > 0 and amount > available(node, i):
            return False
    return True
