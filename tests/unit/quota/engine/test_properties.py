"""The engine against a model, with random facts: invariants, repetition, restart."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from services.quota.engine import Policy, QuotaEngine
from services.quota.engine.facts import (
    AdmissionCheckChanged,
    CheckRule,
    CheckStateChanged,
    ClusterQueueChanged,
    Decision,
    Evict,
    Fact,
    FlavorChanged,
    Fungibility,
    NamespaceChanged,
    PodSet,
    Preempt,
    Preemption,
    Release,
    Reserve,
    WorkloadChanged,
    WorkloadFinished,
    WorkloadGone,
    WorkloadRunning,
)
from services.quota.engine.invariants import check
from services.quota.engine.model.state import Phase, Shard
from services.quota.engine.model.tree import available
from services.quota.engine.preemption.candidates import exclude_workload, include_workload
from tests.unit.quota.builders import (
    CLUSTER,
    SECOND,
    cohort,
    drained,
    group,
    local,
    queue,
    quota,
)
from tests.unit.quota.engine.engine_state import holdings, rebuilt, state_of

NAMES = [f"w{n}" for n in range(14)]


QUEUES = ["a", "b", "c", "d"]


RULES = st.builds(
    Preemption,
    within=st.sampled_from(
        ["LowerPriority", "LowerPriority", "Never", "LowerOrNewerEqualPriority"]
    ),
    reclaim=st.sampled_from(["Any", "LowerPriority", "Never"]),
    borrow=st.sampled_from(["Never", "LowerPriority"]),
    borrow_threshold=st.sampled_from([None, 1]),
)


SEARCH = st.sampled_from(["MayStopSearch", "TryNextFlavor"])


FUNGIBILITY = st.builds(Fungibility, when_can_borrow=SEARCH, when_can_preempt=SEARCH)


LIMIT = st.sampled_from([None, 0, 2, 5])


@st.composite
def queues(
    draw: st.DrawFn, name: str, *, checks: tuple[CheckRule, ...] = ()
) -> ClusterQueueChanged:
    return queue(
        name,
        group(
            ("default", {"slot": quota(draw(st.integers(0, 6)), draw(LIMIT), draw(LIMIT))}),
            ("spare", {"slot": quota(draw(st.integers(0, 3)), draw(LIMIT), draw(LIMIT))}),
        ),
        cohort=draw(st.sampled_from(["left", "left", "right", None])),
        strategy=draw(st.sampled_from(["BestEffortFIFO", "StrictFIFO"])),
        preemption=draw(RULES),
        fungibility=draw(FUNGIBILITY),
        stop=draw(st.sampled_from(["None"] * 12 + ["Hold", "HoldAndDrain"])),
        weight=draw(st.sampled_from([10**9, 2 * 10**9, 0])),
        checks=checks if draw(st.integers(0, 3)) == 0 else (),
    )


class QuotaLedger(RuleBasedStateMachine):
    """Facts at random; decisions are carried out late and in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000 * SECOND
        self.told: list[Fact] = []
        self.lives = 0
        self.generation = 0
        self.draining: dict[str, None] = {}
        self.known: dict[str, WorkloadChanged] = {}
        self.disturbed = False

    def take(self, *facts: Fact) -> None:
        for fact in facts:
            self.engine.apply(fact)
            self.told.append(fact)

    def begin(self, *, fair_sharing: bool) -> None:
        """Two cohorts below one that lends, two flavors, and a check."""
        self.policy = Policy(fair_sharing=fair_sharing)
        self.engine = QuotaEngine(self.policy)
        self.take(
            NamespaceChanged(cluster=CLUSTER, name="ns"),
            FlavorChanged(cluster=CLUSTER, name="default"),
            FlavorChanged(cluster=CLUSTER, name="spare"),
            AdmissionCheckChanged(cluster=CLUSTER, name="check"),
            cohort("root", None, group(("default", {"slot": quota(2)}))),
            cohort("left", "root"),
            cohort("right", "root"),
        )

    @initialize(fair=st.booleans(), data=st.data())
    def set_up(self, fair: bool, data: st.DataObject) -> None:
        self.begin(fair_sharing=fair)
        for name in QUEUES:
            self.take(data.draw(queues(name)), local(name))

    @rule(
        batch=st.lists(
            st.tuples(
                st.sampled_from(NAMES),
                st.sampled_from(QUEUES),
                st.integers(0, 3),
                st.integers(1, 3),
                st.integers(1, 2),
                st.sampled_from([None, None, 1]),
            ),
            min_size=1,
            max_size=6,
        ),
        and_decide=st.booleans(),
    )
    def submit(
        self, batch: list[tuple[str, str, int, int, int, int | None]], and_decide: bool
    ) -> None:
        for name, to, priority, asks, count, least in batch:
            if name in self.known:
                continue
            self.lives += 1
            self._tell(name, f"uid-{self.lives}", to, priority, asks, count, least)
        if and_decide:
            self.decide()

    @rule(
        name=st.sampled_from(NAMES),
        to=st.sampled_from(QUEUES),
        priority=st.integers(0, 3),
        asks=st.integers(0, 4),
    )
    def change(self, name: str, to: str, priority: int, asks: int) -> None:
        if (known := self.known.get(name)) is not None:
            self.disturbed = True
            self._tell(name, known.uid, to, priority, asks, 2, None)

    def _tell(
        self, name: str, uid: str, to: str, priority: int, asks: int, count: int, least: int | None
    ) -> None:
        self.generation += 1
        known = self.known.get(name)
        fact = WorkloadChanged(
            cluster=CLUSTER,
            namespace="ns",
            name=name,
            uid=uid,
            generation=self.generation,
            queue=to,
            priority=priority,
            created_at=known.created_at if known else self.now + self.lives,
            pod_sets=(PodSet(name="main", count=count, requests={"slot": asks}, min_count=least),),
        )
        self.known[name] = fact
        self.take(fact)

    @rule(name=st.sampled_from(NAMES), gone=st.booleans())
    def end(self, name: str, gone: bool) -> None:
        if (fact := self.known.pop(name, None)) is not None:
            self.draining.pop(name, None)
            kind = WorkloadGone if gone else WorkloadFinished
            self.take(kind(cluster=CLUSTER, namespace="ns", name=name, uid=fact.uid))

    @rule(data=st.data())
    def drain_one(self, data: st.DataObject) -> None:
        if self.draining:
            name = data.draw(st.sampled_from(sorted(self.draining)))
            del self.draining[name]
            self.take(drained(name))

    @rule(name=st.sampled_from(NAMES))
    def pods_finish(self, name: str) -> None:
        fact = self.known.get(name)
        w = self.shard.workloads.get(f"ns/{name}")
        if fact is None or w is None or w.phase is not Phase.HOLDING:
            return
        self.generation += 1
        (ps,) = fact.pod_sets
        less = PodSet(
            name="main", count=ps.count, requests=ps.requests, min_count=ps.min_count, reclaimable=1
        )
        self.known[name] = changed = WorkloadChanged(
            cluster=CLUSTER, namespace="ns", name=name, uid=fact.uid, generation=self.generation,
            queue=fact.queue, priority=fact.priority, created_at=fact.created_at, pod_sets=(less,),
        )  # fmt: skip
        self.take(changed)

    @rule(data=st.data(), name=st.sampled_from(QUEUES))
    def reconfigure(self, data: st.DataObject, name: str) -> None:
        self.disturbed = True
        self.take(data.draw(queues(name, checks=(CheckRule(name="check"),))))

    @rule(
        name=st.sampled_from(NAMES), state=st.sampled_from(["Ready", "Ready", "Retry", "Rejected"])
    )
    def check_says(self, name: str, state: str) -> None:
        if (fact := self.known.get(name)) is not None:
            self.take(
                CheckStateChanged(
                    cluster=CLUSTER, namespace="ns", name=name, uid=fact.uid, check="check",
                    state=state, at=self.now,  # type: ignore[arg-type]
                )
            )  # fmt: skip

    @rule(name=st.sampled_from(NAMES))
    def started_by_hand(self, name: str) -> None:
        if (fact := self.known.get(name)) is not None and name not in self.draining:
            self.disturbed = True
            self.take(
                WorkloadRunning(
                    cluster=CLUSTER, namespace="ns", name=name, uid=fact.uid, at=self.now
                )
            )

    @rule()
    def repeat(self) -> None:
        """Whatever was told last is told again; it changes nothing."""
        before = state_of(self.engine)
        for name in sorted(self.known):
            self.engine.apply(self.known[name])
        assert state_of(self.engine) == before

    @rule()
    def decide(self) -> None:
        self.now += SECOND
        before = {k for k, w in self.shard.claims.items() if w.claim and w.claim.victims}
        decisions = self.engine.decide(self.now)
        for decision in decisions:
            name = decision.key.removeprefix("ns/")
            if isinstance(decision, Preempt):
                assert decision.preemptor not in before, "no further victims while the first drain"
            if isinstance(decision, Preempt | Evict):
                self.draining[name] = None
            elif isinstance(decision, Reserve | Release):
                self.draining.pop(name, None)
        self._claims_are_kept(decisions)
        assert not self.engine.decide(self.now), "nothing is left to decide"

    def _claims_are_kept(self, decisions: list[Decision]) -> None:
        """When all victims are gone, the preemptors fit, whatever of no higher rank came in."""
        if self.disturbed:
            self.disturbed = False
            self.upset = {w.key for w in self.shard.claims.values()}
            return
        highest = max(
            (
                self.shard.workloads[d.key].priority
                for d in decisions
                if isinstance(d, Reserve) and d.key in self.shard.workloads
            ),
            default=-1,
        )
        claims = sorted(self.shard.claims.values(), key=lambda w: (-w.priority, w.queued_at))
        if any(w.key in self.upset or w.priority < highest for w in claims):
            self.upset |= {w.key for w in claims}
            return
        if len(claims) != 1:
            return
        (w,) = claims
        assert w.claim is not None
        assert w.queue is not None
        for victim in w.claim.victims.values():
            exclude_workload(victim)
        ok = all(v <= max(0, available(w.queue.node, i)) for i, v in w.claim.grant.indexed_usage)
        for victim in w.claim.victims.values():
            include_workload(victim)
        assert ok, f"{w.key} lost what it claims"

    upset: set[str] = set()

    @rule()
    def start_again(self) -> None:
        """What is on record and what is known make the same state."""
        self.engine.decide(self.now)
        check(self.engine)
        again = QuotaEngine(self.policy)
        for fact in rebuilt(self.told, self.shard):
            again.apply(fact)
        again.cluster_queue(CLUSTER, "a")
        check(again)
        assert holdings(again) == holdings(self.engine)

    @rule(name=st.sampled_from(NAMES))
    def ask_why(self, name: str) -> None:
        """A question leaves no trace, and has an answer."""
        self.engine.cluster_queue(CLUSTER, "a")
        before = state_of(self.engine)
        answer = self.engine.explain(CLUSTER, f"ns/{name}")
        assert state_of(self.engine) == before
        assert (answer is None) == (name not in self.known)
        if answer is not None:
            assert answer.reason
            assert answer.message

    @property
    def shard(self) -> Shard:
        (shard,) = self.engine.shards()
        return shard

    @invariant()
    def invariants_hold(self) -> None:
        if self.told:
            check(self.engine)


TestQuotaLedger = QuotaLedger.TestCase
TestQuotaLedger.settings = settings(
    max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
