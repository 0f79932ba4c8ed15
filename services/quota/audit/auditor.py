"""Judges each decision by books that are kept from the messages alone, and compares the engine with them.

It works behind the decisions: a term notes each message, and has the notes examined once the decisions are
on their way. What it costs follows from what changed; nothing is scanned at intervals.
"""

from collections.abc import Collection, Iterator

from services.quota.audit.contradictions import Contradiction, Key, OpenContradictions, Source
from services.quota.audit.ledger import COHORTS, QUEUES, QuotaLedger, amount_text
from services.quota.engine import QuotaEngine
from services.quota.engine.model.state import Phase, Shard
from services.quota.wire.inbound import TranslateError, observed_facts
from shared.bus.follow import CONTENT_ERRORS
from shared.contracts.kube.quantities import QuantityError, amount
from shared.contracts.messages.admissions import HOLDING, Admission, Term
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.workloads import ENDED_PHASES, WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.telemetry import probes


class Auditor:
    """The books of one term."""

    def __init__(self, open_contradictions: OpenContradictions) -> None:
        self._open = open_contradictions
        self._ledgers: dict[str, QuotaLedger] = {}
        self._notes: list[Message] = []
        self._stored: list[tuple[int, Term | Admission]] = []
        """What the log had when the term began, with sequences, until their order is checked."""

        self._recorded: dict[WorkloadRef, str] = {}
        """Workload to the ClusterQueue by which its own status says that it holds quota. The cluster is
        the truth about what exists: to decide so again takes nothing from anybody."""

        self._touched_queues: dict[tuple[str, str], None] = {}
        self._touched_holders: dict[tuple[WorkloadRef, str], None] = {}
        """Workload and uid."""

        self._changed_clusters: set[str] = set()
        """Those of which a quota changed, or that were listed to the end: all of each is compared."""

        self._new: list[Contradiction] = []

    # --- what a term reads and sends ----------------------------------------------------------------

    def note(self, message: Message) -> None:
        """Queue a message that was read, or a decision that was sent, for the next examination."""
        if isinstance(message, Observed):
            if (message.group, message.plural) not in {QUEUES, COHORTS}:
                return
        elif not isinstance(message, WorkloadState | Admission | Synced):
            return
        self._notes.append(message)

    def restore(self, message: Term | Admission, sequence: int) -> None:
        """Ingest a message that was on the log before this term.

        Its quota is counted. Of the rules only the order of terms is checked, by `check_order`.
        """
        self._stored.append((sequence, message))
        if isinstance(message, Admission):
            self._ledger(message.cluster).record(message)
            self._touch(message)

    def check_order(self) -> None:
        """Check that no decision that was restored was stored behind a message of a later leader."""
        latest = (0, 0)
        for sequence, message in sorted(self._stored, key=lambda one: one[0]):
            ruling = (message.epoch or latest[0], message.term)  # A release without epochs wrote 0.
            if ruling < latest and isinstance(message, Admission):
                text = (
                    f"{message.cluster}: the decision about {message.ref.path} at {sequence} is of term "
                    f"{message.term}, behind messages of term {latest[1]}"
                )
                self._found(("order", *message.ref), "log", text)
            latest = max(latest, ruling)
        self._stored.clear()

    def on_stored(self, admission: Admission, sequence: int, expected: int) -> None:
        """Check that a decision was stored at the sequence that its leader predicted."""
        if sequence != expected:
            text = (
                f"{admission.cluster}: the decision about {admission.ref.path} is stored at {sequence}, "
                f"not at {expected}: another leader writes, too"
            )
            self._found(("writer", str(sequence)), "engine", text)

    # --- examination --------------------------------------------------------------------------------

    def examine(self, engine: QuotaEngine, synced: Collection[str]) -> list[Contradiction] | None:
        """Examine what was noted since the last time, and what stands. Returns new contradictions.

        Call it when the engine has decided and every decision is noted. None: nothing was noted.
        """
        if not (self._notes or self._touched_queues or self._touched_holders or self._new):
            return None
        for message in self._notes:
            self._ingest(message)
        self._notes.clear()
        self._touch_changed_clusters()
        self._compare(engine, synced)
        self._open.review(lambda key: self._stands(key, engine))
        new, self._new = self._new, []
        probes.CONTRADICTED.fired += len(new)
        return new

    def problem(self) -> str:
        """What contradicts what, in words; empty: nothing does, so that admission may go on."""
        return self._open.text()

    def _found(self, key: Key, source: Source, text: str) -> None:
        one = Contradiction(source=source, text=text)
        if self._open.add(key, one):
            self._new.append(one)

    def _stands(self, key: Key, engine: QuotaEngine) -> bool:
        """Whether a contradiction is still there."""
        match key:
            case ("quota", cluster, queue, flavor, resource):
                return self._ledger(cluster).available(queue, (flavor, resource)) < 0
            case ("usage", cluster, queue, *_):
                shard = _shard(engine, cluster)
                return shard is None or any(key == k for k, _ in self._differences(shard, queue))
            case ("holder", cluster, namespace, name, uid):
                shard = _shard(engine, cluster)
                ref = WorkloadRef(cluster, namespace, name)
                return shard is None or self._holder_difference(shard, ref, uid) is not None
            case _:
                return True

    # --- messages -----------------------------------------------------------------------------------

    def _ledger(self, cluster: str) -> QuotaLedger:
        ledger = self._ledgers.get(cluster)
        if ledger is None:
            ledger = self._ledgers[cluster] = QuotaLedger()
        return ledger

    def _ingest(self, message: Message) -> None:
        match message:
            case Observed():
                self._observe(message)
            case WorkloadState():
                self._on_workload(message)
            case Admission():
                self._judge(message)
            case Synced():  # It was listed to the end.
                self._changed_clusters.add(message.cluster)
            case _:
                raise AssertionError(f"{message.type} says nothing about quota")

    def _observe(self, observed: Observed) -> None:
        try:
            observed_facts(observed)  # What quota cannot use leaves the last form in force.
            changed = self._ledger(observed.cluster).observe(observed)
        except (TranslateError, QuantityError, *CONTENT_ERRORS):
            return  # The decider, which reads it too, has counted and logged it.
        if changed:
            self._changed_clusters.add(observed.cluster)

    def _on_workload(self, state: WorkloadState) -> None:
        queue = str((state.admission or {}).get("clusterQueue") or "")
        if queue:
            self._recorded[state.ref] = queue
        else:
            self._recorded.pop(state.ref, None)
        if state.phase in ENDED_PHASES:
            self._resolve(state.ref)
        ledger = self._ledger(state.cluster)
        ledger.reclaim(state)
        if (holder := ledger.holder(state)) is not None:
            self._touch(holder)

    def _judge(self, admission: Admission) -> None:
        """Judge a decision by the books before it, then enter it."""
        self._resolve(admission.ref)
        self._check_amounts(admission)
        ledger = self._ledger(admission.cluster)
        before = ledger.holder(admission)
        if before is not None:
            self._touched_queues[admission.cluster, before.cluster_queue] = None
        holds_already = self._recorded.get(admission.ref) == admission.cluster_queue
        judged = {} if admission.unplanned or holds_already else ledger.increase(admission)
        for cell, more in judged.items():
            free = ledger.available(admission.cluster_queue, cell)
            if more > free:
                text = (
                    f"{admission.cluster}: {admission.ref.path} was given {amount_text(cell, more)} of "
                    f"ClusterQueue {admission.cluster_queue}, of which {amount_text(cell, free)} was free"
                )
                self._found(
                    ("quota", admission.cluster, admission.cluster_queue, *cell), "log", text
                )
        ledger.record(admission)
        self._touch(admission)

    def _resolve(self, ref: WorkloadRef) -> None:
        """A new decision takes the place of one that could not be, and so does an end."""
        self._open.resolve("order", *ref)
        self._open.resolve("amount", *ref)

    def _check_amounts(self, admission: Admission) -> None:
        """Check that the next leader can read what this one writes."""
        for pod_set in admission.pod_sets if admission.state in HOLDING else ():
            for resource, text in pod_set.usage.items():
                try:
                    amount(resource, text)
                except QuantityError as error:
                    problem = (
                        f"{admission.cluster}: the decision about {admission.ref.path}: {error}"
                    )
                    self._found(("amount", *admission.ref), "log", problem)

    def _touch(self, admission: Admission) -> None:
        self._touched_holders[admission.ref, admission.uid] = None
        self._touched_queues[admission.cluster, admission.cluster_queue] = None

    def _touch_changed_clusters(self) -> None:
        """Touch every queue and holder of them: once, however many quotas changed."""
        for cluster in self._changed_clusters:
            ledger = self._ledger(cluster)
            self._touched_queues.update(dict.fromkeys((cluster, name) for name in ledger.queues))
            holders = ((held.ref, held.uid) for held in ledger.holders())
            self._touched_holders.update(dict.fromkeys(holders))
        self._changed_clusters.clear()

    # --- the engine ---------------------------------------------------------------------------------

    def _compare(self, engine: QuotaEngine, synced: Collection[str]) -> None:
        """Compare the engine with the books where a message changed anything.

        What cannot be compared yet, because its cluster is not listed to the end, stays touched.
        """
        shards = {s.name: s for s in engine.shards() if s.name in synced and not s.stale}
        for ref, uid in [one for one in self._touched_holders if one[0].cluster in shards]:
            del self._touched_holders[ref, uid]
            text = self._holder_difference(shards[ref.cluster], ref, uid)
            if text is not None:
                self._found(("holder", *ref, uid), "engine", text)
        for cluster, queue in [one for one in self._touched_queues if one[0] in shards]:
            del self._touched_queues[cluster, queue]
            for key, text in self._differences(shards[cluster], queue):
                self._found(key, "engine", text)

    def _holder_difference(self, shard: Shard, ref: WorkloadRef, uid: str) -> str | None:
        """A sentence if a workload holds quota of another queue by the engine than by the log."""
        w = shard.workloads.get(f"{ref.namespace}/{ref.name}")
        holds = w is not None and w.uid == uid and w.phase is Phase.HOLDING
        known = w.holding_queue if w is not None and holds else None
        logged = self._ledger(ref.cluster).queue_held(ref.namespace, ref.name, uid)
        if known == logged or (known == "" and logged is not None):
            return None  # A job that runs without a queue holds what its last decision named.
        return (
            f"{shard.name}: {ref.path} holds {_quota_of(logged)} by the log, {_quota_of(known)} by the "
            "engine"
        )

    def _differences(self, shard: Shard, name: str) -> Iterator[tuple[Key, str]]:
        """Each amount that the engine counts otherwise than the books, with a sentence."""
        queue, node = shard.queues.get(name), self._ledger(shard.name).queues.get(name)
        if queue is None or shard.stale:
            return
        counted = dict(zip(queue.node.tree.flavor_resources, queue.node.usage, strict=True))
        logged = {} if node is None else node.usage
        where = f"{shard.name}: ClusterQueue {name}"
        for cell in counted.keys() | logged.keys():
            engine_sum, log_sum = counted.get(cell, 0), logged.get(cell, 0)
            if engine_sum != log_sum:
                text = (
                    f"{where} uses {amount_text(cell, log_sum)} by the log, "
                    f"{amount_text(cell, engine_sum)} by the engine"
                )
                yield ("usage", shard.name, name, *cell), text
        holders = 0 if node is None else node.holders
        known = len(queue.holders) + self._without_queue(shard, name)
        if holders != known:
            text = f"{where} has {holders} holders by the log, {known} by the engine"
            yield ("usage", shard.name, name, "holders"), text

    def _without_queue(self, shard: Shard, name: str) -> int:
        """How many jobs that run without a queue have a last decision that names this one."""
        ledger = self._ledger(shard.name)
        count = 0
        for w in shard.orphaned_holders.get("", {}).values():
            namespace, _, job = w.key.partition("/")
            count += ledger.queue_held(namespace, job, w.uid) == name
        return count


def _shard(engine: QuotaEngine, cluster: str) -> Shard | None:
    return next((one for one in engine.shards() if one.name == cluster), None)


def _quota_of(queue: str | None) -> str:
    return "no quota" if queue is None else f"quota of {queue}"
