"""Remembers what was said of each workload until it has ended, and no longer.

The logs are read beside one another, so a decision may be read before the workload that it is about.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from services.tracer.facts import LOGS, Asked, Decided, Fact, Ident, asked, fact_of
from shared.bus.port import Entry
from shared.contracts.messages.spokes import ORIGIN
from shared.contracts.messages.workloads import WorkloadState
from shared.telemetry.spans import Context
from shared.telemetry.tracing import is_sampled, parse_traceparent

__all__ = ["Life", "Lives"]

FACTS_MAX: Final = 2_000
"""Of one workload. Beyond it a wait is not split by reason any more."""

EARLY_MAX: Final = 20_000
EARLY_TIME: Final = timedelta(minutes=10)
"""A fact whose workload has not come by then is of one that has ended."""


@dataclass(slots=True, kw_only=True)
class Life:
    """One workload of ours, from its first state on."""

    ident: Ident
    uid: str
    trace: Context | None
    """The span that is the workload itself; None: nobody wants its trace, so nothing is kept of it."""

    parent: int | None
    """Span of whoever created the job, if that was traced."""

    is_copy: bool
    """It is the copy, on a spoke, of another that has this trace."""

    kind: str
    job: str
    run_of: str | None
    queue: str
    priority: int
    created_at: datetime
    facts: list[Fact] = field(default_factory=list)
    first: dict[str, int] = field(default_factory=dict)
    """Log to the sequence of the first fact of it."""

    end: datetime | None = None
    ended_by: int = 0
    """Sequence of the state in `WORKLOADS` by which it ended."""

    success: bool | None = None
    """None: it went away before it had finished."""

    message: str = ""

    def add(self, fact: Fact) -> None:
        """Take note, unless it says what was said before."""
        if self.trace is None:
            return
        self.first.setdefault(fact.log, fact.sequence)
        last = next((one for one in reversed(self.facts) if type(one) is type(fact)), None)
        if last is not None and _says(last) == _says(fact):
            return
        waits = isinstance(fact, Decided) and fact.state == "waiting"
        if len(self.facts) < FACTS_MAX or not waits:
            self.facts.append(fact)


def _says(fact: Fact) -> object:
    """What of a fact a trace shows."""
    match fact:
        case Asked():
            return (fact.phase, fact.pods_ready)
        case Decided():
            return (fact.state, fact.reason, fact.spoke, fact.checks)
        case _:
            return fact.sequence


class Lives:
    """All workloads whose traces are open."""

    def __init__(self, *, ended: int) -> None:
        """`ended`: up to there, in `WORKLOADS`, a collector has what ended."""
        self._taken = ended
        self._open: dict[Ident, Life] = {}
        self._ended: dict[tuple[Ident, str], Life] = {}
        """Those whose traces were not handed over yet: what else is said of them may be read only now."""

        self._over: dict[Ident, str] = {}
        """Those that have ended and not gone, to the uid: what is said of them still is no news."""

        self._early: dict[Ident, list[Fact]] = {}
        self._early_count = 0
        self.read: dict[str, int] = dict.fromkeys(LOGS, 0)
        """Log to the last sequence that was read."""

    @property
    def open(self) -> int:
        """How many there are."""
        return len(self._open)

    def take(self, log: str, entry: Entry) -> list[Life]:
        """Take in an entry; the lives that it ends. Raises `UndecodableError`."""
        self.read[log] = max(self.read[log], entry.sequence)
        if log == "WORKLOADS":
            return self._take_state(entry.read(WorkloadState), entry)
        found = fact_of(log, entry)
        if found is not None:
            self._take_fact(*found)
        return []

    def let_go(self, life: Life) -> None:
        """Its trace was handed over."""
        self._ended.pop((life.ident, life.uid), None)

    def ended(self) -> int:
        """Up to where in `WORKLOADS` the traces of all that ended were handed over."""
        pending = [life.ended_by - 1 for life in self._ended.values()]
        return min([self.read["WORKLOADS"], *pending])

    def since(self) -> dict[str, int]:
        """Log to the first sequence that is still needed."""
        needed = {log: last + 1 for log, last in self.read.items()}
        for life in (*self._open.values(), *self._ended.values()):
            for log, sequence in life.first.items():
                needed[log] = min(needed[log], sequence)
        for facts in self._early.values():
            for fact in facts:
                needed[fact.log] = min(needed[fact.log], fact.sequence)
        return needed

    def _take_fact(self, ident: Ident, fact: Fact) -> None:
        life = self._open.get(ident)
        uid = fact.uid or (life.uid if life is not None else self._ended_uid(ident, fact))
        if life is None or life.uid != uid:
            life = self._ended.get((ident, uid))
        if life is not None:
            life.add(fact)
        elif not uid or self._over.get(ident) != uid:
            self._early.setdefault(ident, []).append(fact)
            self._early_count += 1
            if self._early_count > EARLY_MAX:
                self._forget_early(fact.stored)

    def _ended_uid(self, ident: Ident, fact: Fact) -> str:
        """Whose an order is that is read when its copy has ended: logs are read beside one another.

        One that has gone, too, and was not handed over yet is told by time.
        """
        if ident in self._over:
            return self._over[ident]
        for (where, uid), life in self._ended.items():
            if where == ident and any(fact.stored <= one.stored for one in life.facts):
                return uid
        return ""

    def _forget_early(self, now: datetime) -> None:
        """Drop what is old; if that is not enough, all of it."""
        kept = {
            ident: recent
            for ident, facts in self._early.items()
            if (recent := [fact for fact in facts if now - fact.stored < EARLY_TIME])
        }
        self._early_count = sum(map(len, kept.values()))
        self._early = kept if self._early_count <= EARLY_MAX // 2 else {}
        self._early_count = self._early_count if self._early else 0

    def _take_state(self, state: WorkloadState, entry: Entry) -> list[Life]:
        ident = (state.cluster, state.namespace, state.name)
        life = self._open.get(ident)
        ended = []
        if life is not None and (life.uid != state.uid or state.phase == "gone"):
            ended += self._end(life, entry.time, entry.sequence)
            life = None
        if state.phase == "gone":
            self._over.pop(ident, None)
        elif self._over.get(ident) != state.uid:
            ended += self._follow(life or self._begin(ident, state), state, entry)
        return ended

    def _follow(self, life: Life, state: WorkloadState, entry: Entry) -> list[Life]:
        life.add(asked(state, entry))
        life.queue, life.priority = state.queue, state.priority
        life.run_of = state.run_of or life.run_of
        if state.finish is None:
            return []
        self._over[life.ident] = state.uid
        life.success, life.message = state.finish.success, state.finish.message
        return self._end(life, state.finish.at or entry.time, entry.sequence)

    def _begin(self, ident: Ident, state: WorkloadState) -> Life:
        ids = parse_traceparent(state.traceparent) if is_sampled(state.traceparent) else None
        life = Life(
            ident=ident,
            uid=state.uid,
            trace=None if ids is None else Context(trace_id=ids[0], span_id=ids[1]),
            parent=int(state.trace_parent, 16) if state.trace_parent else None,
            is_copy=ORIGIN in state.labels,
            kind="Workload" if state.owner is None else state.owner.kind,
            job=state.name if state.owner is None else state.owner.name,
            run_of=state.run_of,
            queue=state.queue,
            priority=state.priority,
            created_at=state.created_at,
        )
        self._open[ident] = life
        self._over.pop(ident, None)
        facts = self._early.pop(ident, [])
        self._early_count -= len(facts)
        for fact in facts:
            if fact.uid in {state.uid, ""}:
                life.add(fact)
        return life

    def _end(self, life: Life, at: datetime, sequence: int) -> list[Life]:
        """It is over; none where nobody traces it, or a collector has its trace already."""
        del self._open[life.ident]
        life.end, life.ended_by = max(at, life.created_at), sequence
        if life.trace is None or sequence <= self._taken:
            return []
        self._ended[life.ident, life.uid] = life
        return [life]
