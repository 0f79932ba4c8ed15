"""One round of admission in one tree (`kueue.md` 2.1).

Every ClusterQueue gives its head; all heads are weighed against the same usage; then they are
taken in order, and each one sees what those before it took. What an entry takes for this round
only (a preemptor's place, a reservation) is taken back at the end.
"""

from dataclasses import dataclass, field
from typing import Final

from services.quota.engine.facts import Assigned, Decision, Key, Preempt, Reserve
from services.quota.engine.model.queues import (
    enqueue,
    head,
    leave,
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
from services.quota.engine.preemption.candidates import give_back, take_away
from services.quota.engine.scheduling import flavors as fl
from services.quota.engine.scheduling.assignment_search import Weigher, shape_of
from services.quota.engine.scheduling.entry import Back, Entry, classical_order, outranks
from services.quota.engine.scheduling.fair_sharing import tournament
from services.quota.engine.scheduling.flavors import DEFERRED, FIT, NO_FIT, PREEMPT, Assignment
from services.quota.engine.scheduling.messages import (
    CIRCLE,
    OVERLAP,
    OVERTAKEN,
    OWNERS_FIRST,
    UNREADY,
    preempted,
)

__all__ = ["Entry", "Policy", "Round"]

SECOND: Final = 1_000_000_000
VAIN_MAX: Final = 3
"""So often a workload may preempt the same victim without getting in (ADR 10)."""


@dataclass(slots=True, kw_only=True)
class Round:
    """One round in one tree; `run` says whether anything changed."""

    shard: Shard
    tree: Tree
    policy: Policy
    now: int
    decisions: list[Decision]
    weigher: Weigher
    as_reference: bool = False
    """Admit also to what victims still hold (ADR 10)."""

    entries: list[Entry] = field(default_factory=list)
    """The heads of this round."""

    scans: tuple[object, ...] | None = None
    """What `_scans` found; computed once, for a round may preempt for each of many heads."""

    taken: list[tuple[Node, IndexedUsage]] = field(default_factory=list)
    """Usage that is to be given back at the end of the round."""

    victims: dict[Key, Workload] = field(default_factory=dict)
    """Whoever is on the way out for somebody else of this round, or by an older claim."""

    overtaken: list[Workload] = field(default_factory=list)
    """Claimers whose victims are gone and who do not fit all the same."""

    lent_least: int | None = None
    """How far the admitted and the preemptors of this round borrow, the least of them; None: nobody yet."""

    changed: bool = False
    retry: bool = False
    """Somebody has flavors left to try, so the next round may differ though nothing changed."""

    def run(self) -> None:
        """Take one head of every queue, and decide about each."""
        self.tree.cycle_number += 1
        entries = self.entries = self._nominate()
        claims = sorted(self._claimers(), key=lambda w: (-w.priority, w.queued_at, w.uid))
        if self.policy.fair_sharing and self.tree.root.queue is None:
            left = {e.node: e for e in entries}
            while left:
                entry = tournament(self.tree.root, left)
                del left[entry.node]
                self._claims_before(claims, entry)
                self._process(entry)
        else:
            entries.sort(key=classical_order)
            for entry in entries:
                self._claims_before(claims, entry)
                self._process(entry)
        self._claims_before(claims, None)
        for w in self.overtaken:
            # Somebody of higher rank took its place, or the set-up changed: it is weighed anew.
            cq = w.queue
            assert cq is not None, w.key
            del self.shard.claims[w.key]
            w.claim = None
            enqueue(cq, w)
            self.changed = True
        for node, pairs in self.taken:
            remove_usage(node, pairs)
        self.taken.clear()
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

    def _claims_before(self, claims: list[Workload], entry: Entry | None) -> None:
        """Let the claims that `entry` does not outrank take their place before it.

        It outranks a claim of lower priority, unless it would have to borrow more: then what is
        freed is rather the claimer's own.
        """
        due = [w for w in claims if entry is None or not outranks(entry, w)]
        for w in due:
            claims.remove(w)
            self._fulfil_or_keep(w)

    def _fulfil_or_keep(self, w: Workload) -> None:
        """Its workload fits, because its victims or others went: in it goes. Else its place is kept."""
        claim, cq = w.claim, w.queue
        assert claim is not None, w.key
        assert cq is not None, w.key
        usable = cq.inactive is None and not claim.outdated
        if usable and not self.shard.unready_holders and _fits(cq.node, claim.grant.indexed_usage):
            self._reserve(w, cq, claim.grant)
        elif not claim.victims:
            self.overtaken.append(w)
        else:
            add_usage(cq.node, claim.grant.indexed_usage)
            self.taken.append((cq.node, claim.grant.indexed_usage))
            self.victims |= claim.victims

    # Nomination ------------------------------------------------------------------------------

    def _nominate(self) -> list[Entry]:
        entries = []
        for node in self.tree.queues:
            cq = node.queue
            assert cq is not None, node.name
            if cq.inactive is not None or not cq.waiting:
                continue
            w = head(cq, self.weigher.fair_usage)
            if w is None or not self._admissible(cq, w):
                continue
            entries.append(self._entry(cq, w))
        return entries

    def _admissible(self, cq: ClusterQueue, w: Workload) -> bool:
        assert w.fact is not None, w.key
        if not namespace_matches(self.shard, cq, w.namespace):
            text = "workload namespace doesn't match ClusterQueue selector"
            self._set_aside(cq, w, WaitReason("Misconfigured", text), always=True)
            return False
        if w.fact.inadmissible is not None:
            self._set_aside(cq, w, WaitReason("Misconfigured", w.fact.inadmissible), always=False)
            return False
        return True

    def _set_aside(
        self, cq: ClusterQueue, w: Workload, verdict: WaitReason, *, always: bool
    ) -> None:
        """Out of the way until something wakes it; a strict queue keeps it as its head."""
        self._say(w, verdict)
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
        assignment, targets = self.weigher.assign(cq, w, scan, None)
        w.scan = self._scan(assignment, cq, w)
        return Entry(
            workload=w,
            cq=cq,
            node=cq.node,
            assignment=assignment,
            targets=targets,
            pairs=assignment.pairs,
            resumed=scan is not None and scan.has_untried_flavors,
        )

    def _scan(self, assignment: Assignment, cq: ClusterQueue, w: Workload) -> FlavorScan | None:
        """Where the next search goes on; None: at the first flavor."""
        for tried in assignment.tried:
            for at in tried.values():
                if at != -1:
                    return FlavorScan(
                        assignment.tried, cq.generation, self.tree.cycle_number, shape_of(w)
                    )
        return None

    # Processing ------------------------------------------------------------------------------

    def _process(self, e: Entry) -> None:
        fits = self._refresh(e) if e.targets or e.assignment.mode == FIT else False
        mode = e.assignment.mode
        if mode == NO_FIT:
            e.back = Back.NO_FIT
            e.reason = fl.no_fit_reason(e.assignment, e.cq)
        elif mode == PREEMPT and not e.targets:
            e.back = Back.NO_CANDIDATES
            e.reason = "WaitingForQuota"
            if e.cq.fact.preemption.reclaim != "Any":
                self._take(e, e.to_reserve())
        elif mode == DEFERRED:
            e.back = Back.PENDING
            e.reason = "WaitingForPreemptedWorkloads"
            e.message = f"{OVERLAP}, but will fit after these preemptions complete"
            e.workload.scan = None
            self._take(e, e.pairs)
        elif any(w.key in self.victims for w, _ in e.targets):
            e.back = Back.RETRY
            e.reason, e.message = "WaitingForQuota", OVERLAP
        elif not fits or (mode == FIT and not self._fits_now(e)):
            e.back = Back.RETRY
            e.reason, e.message = "WaitingForQuota", OVERTAKEN
        elif self._owners_go_first(e):
            e.back = Back.RETRY
            e.reason, e.message = "WaitingForQuota", OWNERS_FIRST
        elif mode == PREEMPT and self._goes_round(e):
            e.back = Back.CIRCLE
            e.reason, e.message = "WaitingForQuota", CIRCLE
        elif mode == PREEMPT:
            self._moves(e)
            self._preempt(e)
        elif self.shard.unready_holders:
            e.back = Back.BLOCKED
            e.reason, e.message = "WaitingForPodsReady", UNREADY
        else:
            e.admitted = True
            self._moves(e)
            self._reserve(e.workload, e.cq, e.assignment.grant())

    def _moves(self, e: Entry) -> None:
        borrowing = e.assignment.borrowing
        self.lent_least = borrowing if self.lent_least is None else min(self.lent_least, borrowing)

    def _owners_go_first(self, e: Entry) -> bool:
        """Whether it borrows, and others go on with what they need not borrow: it is weighed again.

        Each queue gives one head a round. What its next head may take of its own is not lent in between,
        to be reclaimed in the next round from somebody who has just begun (ADR 10).
        """
        own = self.lent_least
        return not self.as_reference and own is not None and e.assignment.borrowing > own

    def _refresh(self, e: Entry) -> bool:
        """Whether it fits beside those before it; looks anew if they chose the same victims."""
        if not self.victims or not any(w.key in self.victims for w, _ in e.targets):
            return self._fits_without_victims(e)
        others = list(self.victims.values())
        for w in others:
            take_away(w)
            _queue_of(w).holders.pop(w.key)
        e.workload.scan = None
        e.assignment, e.targets = self.weigher.assign(e.cq, e.workload, None, e.assignment.pinned())
        for w in others:
            give_back(w)
            _queue_of(w).holders[w.key] = w
        e.pairs = e.assignment.pairs
        e.workload.scan = self._scan(e.assignment, e.cq, e.workload)
        if e.assignment.mode == FIT:
            e.assignment.mode = DEFERRED
        return self._fits_without_victims(e)

    def _fits_without_victims(self, e: Entry) -> bool:
        if not self.victims and not e.targets:
            return _fits(e.node, e.pairs)
        gone = dict(self.victims)
        gone.update((w.key, w) for w, _ in e.targets)
        for w in gone.values():
            take_away(w)
        result = _fits(e.node, e.pairs)
        for w in gone.values():
            give_back(w)
        return result

    def _fits_now(self, e: Entry) -> bool:
        """Whether it fits while victims still run: they may leave more than their preemptors take.

        The reference gives that rest away at once, and has more running than there is quota for.
        """
        if self.as_reference or not self.victims:
            return True
        for node, pairs in self.taken:
            remove_usage(node, pairs)
        result = _fits(e.node, e.pairs)
        for node, pairs in self.taken:
            add_usage(node, pairs)
        return result

    def _goes_round(self, e: Entry) -> bool:
        """Whether this preemption was tried before and led back to where it began (ADR 10)."""
        w = e.workload
        victims = tuple(sorted(v.key for v, _ in e.targets))
        this = (w.key, victims, self.tree.holdings_hash, self._scans())
        if this in self.tree.tried_preemptions:
            return True
        if any(w.fruitless_preemptions.get(v.key, 0) >= VAIN_MAX for v, _ in e.targets):
            return True
        self.tree.tried_preemptions.add(this)
        return False

    def _scans(self) -> tuple[object, ...]:
        """How far each head has looked through its flavors; that belongs to the state, too."""
        if self.scans is None:
            self.scans = tuple(
                (e.workload.key, tuple(tuple(tried.items()) for tried in e.assignment.tried))
                for e in self.entries
            )
        return self.scans

    def _take(self, e: Entry, pairs: IndexedUsage) -> None:
        add_usage(e.node, pairs)
        self.taken.append((e.node, pairs))

    def _preempt(self, e: Entry) -> None:
        w = e.workload
        e.back = Back.PENDING
        e.reason = "WaitingForPreemptedWorkloads"
        e.message = (
            f"{fl.message(e.assignment)}. Pending the preemption of {len(e.targets)} workload(s)"
        )
        self.victims |= {victim.key: victim for victim, _ in e.targets}
        self._take(e, e.pairs)
        w.scan = None
        w.claim = Claim(
            grant=e.assignment.grant(),
            borrowing_height=e.assignment.borrowing,
            victims={victim.key: victim for victim, _ in e.targets},
        )
        self.changed = True
        for victim, _ in e.targets:
            w.fruitless_preemptions[victim.key] = w.fruitless_preemptions.get(victim.key, 0) + 1
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
                    preemptor_uid=w.uid,
                    message=preempted(w, e.node, reason, victim.holding_node),
                )
            )

    def _reserve(self, w: Workload, cq: ClusterQueue, grant: Grant) -> None:
        """Give it the quota."""
        assert w.fact is not None, w.key
        leave(w)
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
        # The condition that records it has seconds only; later ones are preempted first.
        w.reserved_at = self.now - self.now % SECOND
        w.scan = None
        w.wait_reason = None
        w.published_reason = ""
        # What an eviction cost it counts until it is admitted again.
        w.queued_at = w.fact.created_at
        if w.checks:
            w.checks.clear()
        cq.holders[w.key] = w
        if w.fact.unready:
            self.shard.unready_holders[w.key] = None
        # Recorded as a replacement of what was assumed, which counts as something let go.
        cq.generation += 1
        add_usage(cq.node, w.indexed_usage)
        checks = required_checks(cq, grant.assigned)
        w.admitted = not checks
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
        self._say(w, WaitReason(e.reason, e.message, e.assignment))
        if w.claim is not None:
            if not cq.strict:
                cq.sticky_workload = w
            set_claiming(cq, w)
            self.shard.claims[w.key] = w
            return
        if e.back is Back.PENDING and not cq.strict:
            cq.sticky_workload = w
        pending = w.scan is not None and w.scan.has_untried_flavors
        if e.back in {Back.RETRY, Back.PENDING, Back.BLOCKED} or pending or cq.strict:
            # It stays; the next round tries other flavors, if it has any.
            self.retry = self.retry or pending or e.resumed
            return
        self.changed = True
        if e.back in {Back.NO_FIT, Back.NO_CANDIDATES}:
            waiting_class.wait_reason = w.wait_reason
            park_class(waiting_class)
        else:
            park(cq, w)

    def _say(self, w: Workload, verdict: WaitReason) -> None:
        w.wait_reason = verdict
        if w.published_reason != verdict.publication_key:
            self.shard.changed_reasons[w.key] = w


def required_checks(cq: ClusterQueue, assigned: tuple[Assigned, ...]) -> tuple[str, ...]:
    """The checks that apply to a workload with these flavors."""
    if not cq.fact.checks:
        return ()
    used = {flavor for a in assigned for flavor in a.flavors.values()}
    return tuple(
        rule.name for rule in cq.fact.checks if not rule.on_flavors or rule.on_flavors & used
    )


def _queue_of(w: Workload) -> ClusterQueue:
    """The queue whose quota it holds."""
    assert w.holding_node is not None, w.key
    assert w.holding_node.queue is not None, w.key
    return w.holding_node.queue


def _fits(node: Node, pairs: IndexedUsage) -> bool:
    for i, amount in pairs:  # noqa: SIM110 - the hottest test of all; a generator costs twice as much
        if amount > 0 and amount > available(node, i):
            return False
    return True
