"""Keeps the events of each workload until the workload has ended and its trace is delivered.

The five logs are read side by side, so a decision may be read before the state of its workload.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from services.tracer.events import (
    LOGS,
    DecisionEvent,
    PhaseEvent,
    TraceEvent,
    phase_event,
    read_event,
)
from shared.bus.follow import read
from shared.bus.port import Entry
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import Stream
from shared.telemetry.spans import Context
from shared.telemetry.traceparent import is_sampled, parse_traceparent

EVENTS_MAX: Final = 2_000
"""Events of one workload. Beyond it, further waiting reasons are left out."""

EARLY_MAX: Final = 20_000
"""Events whose workload was not read yet."""

EARLY_AGE_MAX: Final = timedelta(minutes=10)
"""An event without a workload for so long is about a workload that has ended before."""


@dataclass(slots=True, kw_only=True)
class WorkloadTrace:
    """One workload (one uid), from its first state on."""

    workload: WorkloadRef
    uid: str
    context: Context | None
    """Its own span; None if it is not sampled: then no events are kept."""

    parent: int | None
    """Span id of the creator of the job, if that was traced."""

    is_copy: bool
    """It is the copy, on a spoke, of a hub's workload with this context."""

    kind: str
    job: str
    run_of: str | None
    queue: str
    priority: int
    created_at: datetime
    events: list[TraceEvent] = field(default_factory=list)
    first: dict[str, int] = field(default_factory=dict)
    """Log to the sequence of the first event in it."""

    end: datetime | None = None
    ended_by: int = 0
    """Sequence in `WORKLOADS` of the state that ended it."""

    success: bool | None = None
    """None: it was deleted before it finished."""

    message: str = ""

    def add(self, event: TraceEvent) -> None:
        """Add an event, unless it repeats the last one of its type."""
        if self.context is None:
            return
        self.first.setdefault(event.log, event.sequence)
        last = next((one for one in reversed(self.events) if type(one) is type(event)), None)
        if last is not None and _shown(last) == _shown(event):
            return
        waits = isinstance(event, DecisionEvent) and event.state == "waiting"
        if len(self.events) < EVENTS_MAX or not waits:
            self.events.append(event)


def _shown(event: TraceEvent) -> object:
    """The part of an event that a trace shows."""
    match event:
        case PhaseEvent():
            return (event.phase, event.pods_ready)
        case DecisionEvent():
            return (event.state, event.reason, event.spoke, event.checks)
        case _:
            return event.sequence


class OpenTraces:
    """All workloads that have not ended, or whose trace is not delivered yet."""

    def __init__(self, *, delivered: int) -> None:
        """`delivered`: the collector has the traces of all workloads that ended up to this sequence."""
        self._delivered = delivered
        self._open: dict[WorkloadRef, WorkloadTrace] = {}
        self._ended: dict[tuple[WorkloadRef, str], WorkloadTrace] = {}
        """By workload and uid: traces to deliver. Late events are still added to them."""

        self._finished: dict[WorkloadRef, str] = {}
        """Workloads that have finished and still exist, to the uid: their late events are dropped."""

        self._early: dict[WorkloadRef, list[TraceEvent]] = {}
        self._early_count = 0
        self._read: dict[str, int] = dict.fromkeys(LOGS, 0)
        """Log to the last sequence that was read."""

    @property
    def open(self) -> int:
        """How many workloads have not ended."""
        return len(self._open)

    def observe(self, log: str, entry: Entry) -> tuple[DecisionEvent | None, list[WorkloadTrace]]:
        """Record an entry; return its decision, if it is one, and the traces of workloads that it ends."""
        self._read[log] = max(self._read[log], entry.sequence)
        if log == Stream.WORKLOADS:
            state = read(entry, WorkloadState)
            return None, [] if state is None else self._observe_state(state, entry)
        found = read_event(log, entry)
        if found is None:
            return None, []
        workload, event = found
        self._observe_event(workload, event)
        return (event if isinstance(event, DecisionEvent) else None), []

    def mark_delivered(self, trace: WorkloadTrace) -> None:
        """Forget a trace that the collector has, or that was given up."""
        self._ended.pop((trace.workload, trace.uid), None)

    def delivered(self) -> int:
        """The last sequence in `WORKLOADS` up to which all traces are delivered."""
        pending = [trace.ended_by - 1 for trace in self._ended.values()]
        return min([self._read[Stream.WORKLOADS], *pending])

    def since(self) -> dict[str, int]:
        """Log to the first sequence that an open trace, or one to deliver, still needs."""
        needed = {log: last + 1 for log, last in self._read.items()}
        for trace in (*self._open.values(), *self._ended.values()):
            for log, sequence in trace.first.items():
                needed[log] = min(needed[log], sequence)
        for events in self._early.values():
            for event in events:
                needed[event.log] = min(needed[event.log], event.sequence)
        return needed

    def _observe_event(self, workload: WorkloadRef, event: TraceEvent) -> None:
        trace = self._open.get(workload)
        uid = event.uid or (trace.uid if trace is not None else self._ended_uid(workload, event))
        if trace is None or trace.uid != uid:
            trace = self._ended.get((workload, uid))
        if trace is not None:
            trace.add(event)
        elif not uid or self._finished.get(workload) != uid:
            self._early.setdefault(workload, []).append(event)
            self._early_count += 1
            if self._early_count > EARLY_MAX:
                self._drop_early(event.stored)

    def _ended_uid(self, workload: WorkloadRef, event: TraceEvent) -> str:
        """The uid of a copy that has ended, for an order that is read only now; empty if there is none.

        Of copies that are deleted already, the one with a later event is the copy of the order.
        """
        if workload in self._finished:
            return self._finished[workload]
        for (other, uid), trace in self._ended.items():
            if other == workload and any(event.stored <= one.stored for one in trace.events):
                return uid
        return ""

    def _drop_early(self, now: datetime) -> None:
        """Drop old early events; all of them, if more than half of the limit would remain."""
        kept = {
            workload: recent
            for workload, events in self._early.items()
            if (recent := [event for event in events if now - event.stored < EARLY_AGE_MAX])
        }
        count = sum(map(len, kept.values()))
        fits = count <= EARLY_MAX // 2
        self._early = kept if fits else {}
        self._early_count = count if fits else 0

    def _observe_state(self, state: WorkloadState, entry: Entry) -> list[WorkloadTrace]:
        workload = state.ref
        trace = self._open.get(workload)
        ended = []
        if trace is not None and (trace.uid != state.uid or state.phase == "gone"):
            ended += self._end(trace, entry.time, entry.sequence)
            trace = None
        if state.phase == "gone":
            self._finished.pop(workload, None)
        elif self._finished.get(workload) != state.uid:
            ended += self._update(trace or self._start(workload, state), state, entry)
        return ended

    def _update(
        self, trace: WorkloadTrace, state: WorkloadState, entry: Entry
    ) -> list[WorkloadTrace]:
        trace.add(phase_event(state, entry))
        trace.queue, trace.priority = state.queue, state.priority
        trace.run_of = state.run_of or trace.run_of
        if state.finish is None:
            return []
        self._finished[trace.workload] = state.uid
        trace.success, trace.message = state.finish.success, state.finish.message
        return self._end(trace, state.finish.at or entry.time, entry.sequence)

    def _start(self, workload: WorkloadRef, state: WorkloadState) -> WorkloadTrace:
        ids = parse_traceparent(state.traceparent) if is_sampled(state.traceparent) else None
        trace = WorkloadTrace(
            workload=workload,
            uid=state.uid,
            context=None if ids is None else Context(trace_id=ids[0], span_id=ids[1]),
            parent=int(state.trace_parent, 16) if state.trace_parent else None,
            is_copy=ORIGIN in state.labels,
            kind="Workload" if state.owner is None else state.owner.kind,
            job=state.name if state.owner is None else state.owner.name,
            run_of=state.run_of,
            queue=state.queue,
            priority=state.priority,
            created_at=state.created_at,
        )
        self._open[workload] = trace
        self._finished.pop(workload, None)
        events = self._early.pop(workload, [])
        self._early_count -= len(events)
        for event in events:
            if event.uid in {state.uid, ""}:
                trace.add(event)
        return trace

    def _end(self, trace: WorkloadTrace, at: datetime, sequence: int) -> list[WorkloadTrace]:
        """End a trace; return it if it is sampled and not delivered yet."""
        del self._open[trace.workload]
        trace.end, trace.ended_by = max(at, trace.created_at), sequence
        if trace.context is None or sequence <= self._delivered:
            return []
        self._ended[trace.workload, trace.uid] = trace
        return [trace]
